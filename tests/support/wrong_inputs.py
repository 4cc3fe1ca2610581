"""Wrong inputs of each command, as in the table next to this file: the program ends by itself with the exit code
and the error code of the line, and its answer has the words of the line. Run by wrong_inputs_test.sh.

wrong_inputs.py PROGRAM FOLDER PART: of every PART lines one."""
import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys

PROGRAM, SCRATCH, PART = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
HERE = os.path.dirname(os.path.abspath(__file__))
LEAST = 20  # lines for each command
CONFIG = """run: {dir: r}
train: {steps: 4, seq: 32, global_batch: 4}
model: {preset: tiny, layers: 1, dim: 32, heads: 4}
data: {train: text.txt, tokenizer: bytes, valid: 0}
eval: {every: 0}
"""
ROLLOUTS = """run: {dir: n}
train: {objective: grpo, steps: 2, seq: 32, global_batch: 4}
model: {preset: tiny, layers: 1, dim: 32, heads: 4}
rollout: {prompts: prompts.jsonl, group: 2, max_tokens: 4}
data: {tokenizer: bytes}
"""


def call(arguments, folder):
    p = subprocess.run([PROGRAM] + arguments, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=600)
    return p.returncode, (p.stdout + p.stderr).decode("utf-8", "replace")


def put(folder, name, content):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


def tokenizer():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    rest = [b for b in range(256) if b not in plain]
    vocab = {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}
    return json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None,
                       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                       "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}})


def make_input():
    """A run, a Hugging Face folder and texts that are right, and the same ones half-written, empty or of
    another kind."""
    top = os.path.join(SCRATCH, "input")
    noise = bytes((7 * i * i + i // 3) % 256 for i in range(3000))
    words = "the oar and the ship went out by night and the crew sang of salt and wind\n"
    files = {"c.yaml": CONFIG, "grpo.yaml": ROLLOUTS, "prompts.jsonl": '{"prompt": "1 + 1 =", "answer": "2"}\n',
             "one.yaml": "adapter: {kind: lora}\n", "cut.yaml": "adapter: {kind: lora}\nlayout: {dp: 2}\n", "text.txt": words * 60, "with blank/text.txt": words * 60,
             "tokenizer.json": tokenizer(), "a.json": '{"a":1}\n', "a.pdf": "%PDF-1.7\n", "fake.gz": b"\x1f\x8b\x08abc\n",
             "broken.jsonl": '{"text": "salt and wind"}\n' * 200 + '{"text": 5}\n', "noise": noise,
             "noise.yaml": noise, "empty.yaml": "", "policy.yaml": "licences: [CC0-1.0]\n", "chain.yaml": "stage: {train: {config: c.yaml}}\n",
             "named.yaml": "stage: {a/b: {kind: train, config: c.yaml}}\n", "lost.yaml": "stage: {train: {config: nothing.yaml}}\n", "empty.txt": "", "tabs.yaml": "run:\n\tdir: x\n",
             "list.yaml": "- a\n- b\n", "open.yaml": "train: {steps: 4\n",
             "twice.yaml": "train: {steps: 4, steps: 5}\n", "hfempty/config.json": "{}\n",
             "hfbad/config.json": '{"model_type": "llama",\n',
             "hft5/config.json": '{"model_type":"t5","architectures":["T5ForConditionalGeneration"]}\n'}
    for name, content in files.items():
        put(top, name, content)
    os.makedirs(os.path.join(top, "emptydir"))
    for arguments in (["train", "c.yaml", "--quiet"], ["export", "r", "hf"]):
        code, said = call(arguments, top)
        if code != 0:
            sys.exit(f"the input is not made: {arguments}: {said}")
    step = os.path.join("checkpoints", "step-0000004")
    for name in ("lost", "cut"):
        shutil.copytree(os.path.join(top, "r"), os.path.join(top, name))
        state = os.path.join(top, name, step, "state-00000-of-00001.safetensors")
        if name == "cut":
            os.truncate(state, os.path.getsize(state) // 2)
        else:
            os.remove(state)
    for source, target in (("r/run.json", "half/run.json"), (f"r/{step}/manifest.json", "halfckpt/manifest.json"),
                           ("hf/config.json", "hfnow/config.json")):
        os.makedirs(os.path.dirname(os.path.join(top, target)))
        shutil.copy(os.path.join(top, source), os.path.join(top, target))
    return top


def lines():
    with open(os.path.join(HERE, "wrong_inputs")) as f:
        for text in f:
            if text.strip() and not text.startswith("#"):
                head, arguments, words = text.rstrip("\n").split(" | ")
                yield int(head.split()[0]), head.split()[1], arguments, words


def judge(number, line):
    exit_code, error, arguments, words = line
    folder = os.path.join(SCRATCH, str(number))
    shutil.copytree(os.path.join(SCRATCH, "input"), folder, symlinks=True)
    code, said = call(shlex.split(arguments), folder)
    shutil.rmtree(folder)
    said = said.replace(os.path.realpath(folder) + "/", "")
    wrong = [] if code == exit_code else [f"exit {code}, {exit_code} expected"]
    wrong += [f'"{w}" is not said' for w in (f"error[{error}]", words) if w not in said]
    if any(ord(c) < 32 and c not in "\n\t" for c in said):
        wrong.append("control characters")
    return f"{arguments}: {'; '.join(wrong)}: {said[:400]}" if wrong else None


if __name__ == "__main__":
    os.makedirs(SCRATCH)
    make_input()
    table = list(lines())
    commands = [line.split()[0] for line in call(["--help"], SCRATCH)[1].split("Commands\n")[1].split("\n\n")[0].split("\n")]
    few = [c for c in commands if sum(1 for t in table if t[2].split()[0] == c) < LEAST]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        wrong = [w for w in pool.map(lambda p: judge(*p), [p for p in enumerate(table) if p[0] % PART == 0]) if w]
    wrong += [f"{c}: fewer than {LEAST} wrong inputs in the table" for c in few]
    print(f"{len(table)} wrong inputs, one of {PART} tried, {len(wrong)} answered badly")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)

"""Walks over every key that the commands accept and every flag of every command, and tries one other
value of each.

Each line of a table below names a key, a value that differs from its default, and the keys that both
runs get besides. The command runs with and without the key: the result must differ (`acts`, the default),
or the key must be refused by its name (`refused`), or the command says by its name that it does not
matter (`told`). `either` acts or is refused; `inside` acts on a plan
of which the command prints only sums, so that the command succeeds: the walk of `train` sees it; the effect
of an `unseen` key shows only where something else happens too, and a test of its own looks at it. A key that no line names fails, so a new key needs a line here.

key_walk.py PROGRAM FOLDER PART [WALK...]: of every PART lines one; the walks are those of WALKS, or all."""
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

PROGRAM, SCRATCH, PART = os.path.abspath(sys.argv[1]), sys.argv[2], int(sys.argv[3])
TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "key_tables")


class Line:
    """`key value [acts|refused|either|told|inside|unseen] [: keys and flags of both runs]`"""

    def __init__(self, text):
        head, _, both = text.partition(" : ")
        words = shlex.split(head)
        self.key, self.value = words[0], words[1]
        self.outcome = words[2] if len(words) > 2 else "acts"
        self.both = shlex.split(both)
        if self.outcome not in ("acts", "refused", "either", "told", "inside", "unseen"):
            sys.exit(f"{text}: no such outcome")


def table(name):
    """The lines of a table. `@ KEYS` gives the keys of both runs to the lines after it."""
    lines, both = [], []
    with open(os.path.join(TABLES, name)) as f:
        for text in f:
            text = text.split("#")[0].strip()
            if text.startswith("@"):
                both = shlex.split(text[1:])
            elif text:
                lines.append(Line(text))
                lines[-1].both = both + lines[-1].both
    return lines


def call(arguments, folder):
    p = subprocess.run([PROGRAM] + arguments, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=600)
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


def help_keys(*topics):
    """The keys that `help TOPIC` prints."""
    found = set()
    for topic in topics:
        found |= set(re.findall(r"^  ([a-z][\w.]*)=", call(["help", topic], SCRATCH)[1], re.M))
    return found


def run_keys():
    return set(re.findall(r"^\| `([\w.]+)` \|", call(["config", "reference"], SCRATCH)[1], re.M))


# ---- judging ------------------------------------------------------------------------------------

def is_named(key, said):
    """A message names a key by its whole name, or by the last parts of it."""
    parts = key.split(".")
    names = [key, key.lstrip("-")] + ([".".join(parts[1:])] if len(parts) > 1 else [])
    if parts[-1] == "mode":  # `layout: auto` is layout.mode
        names.append(".".join(parts[:-1]) + " =")
    return any(n in said for n in names)


class Walk:
    """A command with a table. `command(keys, folder)` gives (exit code, result, messages)."""

    def __init__(self, name, known, tables, command):
        self.name, self.known, self.tables, self.command = name, known, tables, command
        self.bases = {}

    def lines(self):
        return [line for name in self.tables for line in table(name)]

    def judge(self, number, line):
        base = self.bases[tuple(line.both)].result()
        folder = os.path.join(SCRATCH, f"{self.name}-{number}")
        word = line.key if line.key.startswith("--") else f"{line.key}={line.value}"
        more = [word] if word != line.key else [word] + ([] if line.value == "-" else [line.value])
        code, result, said = self.command(line.both + more, folder)
        shutil.rmtree(folder, ignore_errors=True)
        what = f"{self.name} {' '.join(more + [':'] + line.both)}"
        if base[0] != 0 and (code != 0 or line.outcome != "acts"):
            return f"{what}: without the key exit {base[0]}: {base[2][:300]}"
        if line.outcome == "refused":
            if code == 0:
                return f"{what}: taken, though the table says it is refused"
            return None if is_named(line.key, said) else f"{what}: refused without its name: {said[:300]}"
        if line.outcome == "unseen" and code in (0, 3):
            return None
        if code != 0:
            if line.outcome == "either" and any(w in said for w in line.key.split(".")[-1].split("_")):
                return None
            return f"{what}: exit {code}: {said[:300]}"
        if line.outcome == "told":
            if is_named(line.key, said) and said != base[2]:
                return None
            return f"{what}: not told that the key does not matter"
        return None if result != base[1] or line.outcome == "inside" else f"{what}: SILENT: the same result"

    def again(self, both):
        """The same keys give the same result, or a change of it means nothing."""
        folder = os.path.join(SCRATCH, f"{self.name}-again-{abs(hash(both))}")
        first, second = self.bases[both].result(), self.command(list(both), folder)
        shutil.rmtree(folder, ignore_errors=True)
        if first[:2] == second[:2]:
            return None
        return f"{self.name} {' '.join(both)}: not the same twice: {first[1]} and {second[1]}"

    def run(self):
        known, wrong = self.known(), []
        lines = self.lines()
        missing = sorted(known - {line.key for line in lines})
        unknown = sorted({line.key for line in lines} - known)
        wrong += [f"{self.name}: no line for {key}: add one to tests/support/key_tables/{self.tables[0]}" for key in missing]
        lines = [line for line in lines if line.key in known]
        lines = [line for i, line in enumerate(lines) if i % PART == 0]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            for i, both in enumerate(dict.fromkeys(tuple(line.both) for line in lines)):
                folder = os.path.join(SCRATCH, f"{self.name}-base-{i}")
                self.bases[both] = pool.submit(self.command, list(both), folder)
            wrong += filter(None, pool.map(lambda p: self.judge(*p), enumerate(lines)))
            if PART == 1:
                wrong += filter(None, pool.map(self.again, self.bases))
        if unknown:
            print(f"{self.name}: lines for keys that the command does not have: {', '.join(unknown)}")
        print(f"{self.name}: {len(lines)} lines, {len(known)} keys, {len(wrong)} wrong")
        for text in wrong:
            print("  " + text)
        return len(wrong)


# ---- commands -----------------------------------------------------------------------------------

def simulate(keys, folder):
    """The last of --cluster, and of operands without '=', counts."""
    cluster, operand, rest = "h100", "llama3.1-8b", []
    for word in keys:
        if word.startswith("on:"):
            cluster = word[3:]
        elif word.startswith("of:"):
            operand = word[3:]
        else:
            rest.append(word)
    train_input(folder)
    return call(["simulate", operand, "--cluster", cluster, "--json"] + rest, folder)


VOLATILE = [(r'"(seconds|tokens_per_s|wall_s)": [\d.e+-]+', "MEASURED"), (r"dir \S+|/\S*/train-[\w-]+", "FOLDER"), (r"/ \S+ \S+ available", "AVAILABLE"),
            (r"(?<![\w.])[\d.]+(ns|us|ms|s|m\d\ds|h\d\dm)\b", "TIME"), (r"[\d.]+ s\b", "TIME"),
            (r"[\d.]+[kMG]? tok/s|tok/s +[\d.]+[kMG]?", "RATE"), (r"mfu [\d.]+%|wait [\d.]+%", "SHARE"),
            (r"comm [\d.]+% \([\d.]+% hidden\)", "SHARE"), (r"[\d.]+ [kMGT]FLOP/s", "PEAK"), (r"  goodput [\d.]+%( \([^)]*\))?", ""), (r"  eta .*", ""), (r"\d\d:\d\d:\d\d\S*", "CLOCK")]
OF_TIME = ("time", "seconds", "tokens_per_s", "mfu", "wait", "peak_flops", "comm", "comm_exposed", "comm_ep", "comm_ep_exposed",
           "goodput", "steps_s", "lost_s")


def steady(text):
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text)
    return text


def records(path):
    """Lines of JSON, without what depends on the machine's speed."""
    with open(path) as f:
        lines = [json.loads(line) for line in f if line.strip()]
    return [{k: v for k, v in line.items() if k not in OF_TIME} for line in lines]


def run_folder_facts(folder):
    """What a run left: names of files, metrics, facts of the plan, hash of the state."""
    facts = {"files": [], "digest": call(["digest", folder], SCRATCH)[1].split()[:1]}
    for path, _, names in sorted(os.walk(folder)):
        facts["files"] += [os.path.relpath(os.path.join(path, n), folder).split("tfevents")[0]
                           for n in sorted(names) if ".tok" not in n and n != "STATUS"]
        for name in sorted(names):
            if name.startswith("metrics") and name.endswith(".jsonl"):
                facts[name] = records(os.path.join(path, name))
    for name in ("run.json", "plan.json"):
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name)) as f:
                facts[name] = {k: v for k, v in json.load(f).items() if k not in OF_TIME}
    return facts


def train_input(folder):
    shutil.copytree(os.path.join(SCRATCH, "input"), folder, symlinks=True)


def train(keys, folder):
    train_input(folder)
    code, out, said = call(["train", "c.yaml"] + keys, folder)
    folders = [n for n in sorted(os.listdir(folder))
               if os.path.exists(os.path.join(folder, n, "checkpoints"))]
    facts = {n: run_folder_facts(os.path.join(folder, n)) for n in folders}
    # A run that its own keys stop has taken them.
    return (0 if folders and code in (75, 6) else code), (code, steady(out), facts), steady(said)


def verify(keys, folder):
    train_input(folder)
    code, out, said = call(["verify", "c.yaml"] + keys, folder)
    return code, re.sub(r"(made|proved) in [\d.]+ ms", "", out), said


def explain(keys, folder):
    train_input(folder)
    code, out, said = call(["explain", "c.yaml", "--svg", "a.svg"] + keys, folder)
    picture = ""
    if os.path.exists(os.path.join(folder, "a.svg")):
        with open(os.path.join(folder, "a.svg")) as f:
            picture = f.read()
    return code, (out, picture), said


# ---- flags --------------------------------------------------------------------------------------

FLAG_INPUT = os.path.join(SCRATCH, "flag-input")


def files_made(folder):
    """What a command wrote beside its input: runs by their facts, other files by their text."""
    made = {}
    for path, names, files in sorted(os.walk(folder)):
        if "checkpoints" in names:
            made[os.path.relpath(path, folder)] = run_folder_facts(path)
            names.clear()
            continue
        for name in sorted(files):
            here = os.path.join(path, name)
            first = os.path.join(FLAG_INPUT, os.path.relpath(here, folder))
            with open(here, "rb") as f:
                content = f.read()
            if os.path.exists(first) and open(first, "rb").read() == content:
                continue
            name = re.sub(r"-[0-9a-f]{32}", "", os.path.relpath(here, folder))
            made[name] = steady(content.decode("utf-8", "replace"))
    return made


def measured(text):
    """The sizes and names that `bench` and `chaos` print, without what they measured."""
    return re.sub(r"(?<![\w.])[\d.]*\.\d+(e[-+]\d+)?|\b\d{3,}\b(?= *(GB|us|ms|tok))", "N", text)


def flagged(words, folder):
    given = "stdin"
    for word in words:
        given = word[3:] if word.startswith("in:") else given
    words = [word for word in words if not word.startswith("in:")]
    shutil.copytree(FLAG_INPUT, folder, symlinks=True)
    with open(os.path.join(folder, given)) as f:
        p = subprocess.run([PROGRAM] + words, cwd=folder, stdin=f, capture_output=True, timeout=300)
    out, said = p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")
    out, said = (steady(text.replace(os.path.realpath(folder), "FOLDER")) for text in (out, said))
    if words[0] in ("bench", "chaos", "doctor"):
        out, said = measured(out), measured(said)
    code = 0 if p.returncode in (8, 75) else p.returncode  # answers, not errors
    return code, (p.returncode, out, said, files_made(folder)), said


class FlagWalk(Walk):
    """The flags of one command: lines of the table whose common words begin with it."""

    def __init__(self, command):
        super().__init__("flags-" + command, lambda: self.flags(), ["flags"], flagged)
        self.of = command

    def again(self, both):
        """What these commands print holds times or names made from them."""
        return None if self.of in ("train", "data", "bench", "chaos", "doctor", "stages") else super().again(both)

    def flags(self):
        if self.of == "check" and not os.path.isdir(GOLDEN):
            return set()
        flags = call(["help", self.of], SCRATCH)[1].partition("\nFlags\n")[2]
        return set(re.findall(r"^  (--[\w-]+)", flags, re.M))

    def lines(self):
        """Without the reference cases the flags of `check` have no line, and none is missed."""
        lines = [line for line in super().lines() if line.both[0] == self.of]
        return lines if self.of != "check" or os.path.isdir(GOLDEN) else []


# Servers and commands that need a recorded run have tests of their own.
UNWALKED = {"serve": "serve_test", "replay": "sound_night"}


def commands():
    listed = call(["--help"], SCRATCH)[1].split("Commands\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listed.split("\n") if line.split()[0] not in UNWALKED]


GOLDEN = os.path.join(os.environ.get("TRIREME_SHARED", "../shared"), "golden", "models", "llama_tied_bf16")


def make_flag_input():
    """Runs, a Hugging Face folder, a corpus and the files that flags name."""
    folder = FLAG_INPUT
    shutil.copytree(os.path.join(SCRATCH, "input"), folder, symlinks=True)
    fast = re.compile(r'("(?:median|min|max)[a-z_]*": )[\d.e-]+')
    words = [json.dumps({"text": f"the oar of ship {i % 90} and the wind"}) for i in range(100)]
    files = {"stdin": "the oar <|im|> and 5\n", "ids": "104 257 105\n", "prompts.txt": "the oar\nby night\n",
             "layouts": "layout.dp=8\n", "faults": "0.05 pause 0\n",
             "claims.yaml": '---\nclaim: "An H100 has 132 units."\ninputs: "h100"\nlet:\n  - n = "h100".units\ncomputed: "{n}"\n'
                            'match: n == 132\n',
             "policy.yaml": "licences: [CC0-1.0]\n", "chain.yaml": "stage: {train: {config: c.yaml}}\n", "words.jsonl": "\n".join(words) + "\n",
             "corpus.yaml": "out: corpus\nsources:\n  words: {paths: words.jsonl, licence: CC0-1.0}\n"}
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(content)
    for arguments in (["train", "c.yaml", "run.dir=run", "--quiet"],
                      ["train", "c.yaml", "run.dir=other", "train.seed=7", "--quiet"],
                      ["data", "pack", "text.txt", "--tokenizer", "bytes", "--out", "packed"],
                      ["data", "build", "corpus.yaml"],
                      ["train", "c.yaml", "run.dir=corpus-run", "data.train=corpus", "--quiet"],
                      ["bench", "gemm", "--n", "8", "--m", "8", "--k", "8", "--json"]):
        code, out, said = call(arguments, folder)
        if code != 0:
            sys.exit(f"the input is not made: {arguments}: {said}")
    shards = os.path.join(folder, "packed")
    shutil.copy(os.path.join(shards, os.listdir(shards)[0]), os.path.join(folder, "packed.tok"))
    with open(os.path.join(folder, "base.json"), "w") as f:
        f.write(fast.sub(r"\g<1>1e-12", out))
    if os.path.isdir(GOLDEN):
        shutil.copytree(GOLDEN, os.path.join(folder, "golden"))
    with open(os.path.join(folder, "tokenizer.json")) as f:
        begins = json.load(f)
    begins["post_processor"] = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<|im|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<|im|>": {"id": "<|im|>", "ids": [257], "tokens": ["<|im|>"]}}}
    with open(os.path.join(folder, "begins.json"), "w") as f:
        json.dump(begins, f)
    begins.update(post_processor=None, truncation={"max_length": 1}, padding={"pad_to_multiple_of": 999, "pad_id": 1})
    with open(os.path.join(folder, "limits.json"), "w") as f:
        json.dump(begins, f)


CONFIG = """run: {dir: r}
train: {steps: 4, seq: 32, global_batch: 4}
model: {preset: tiny, layers: 1, dim: 32, heads: 4}
data: {train: text.txt, tokenizer: bytes, valid: 0}
eval: {every: 0}
"""


def dialogue_files():
    """Conversations, preferences and groups of answers with rewards, for the keys of objectives."""
    says = [[{"role": r, "content": f"{r[0]} {i * k}"} for k, r in enumerate(("user", "assistant") * 2, 3)] for i in range(40)]
    talks = [{"messages": m, "instruction": f"oar {i}", "output": "ship"} for i, m in enumerate(says)]
    pairs = [{"prompt": f"oar {i}", "chosen": f" ship {i * 7}", "rejected": f" no {i}"} for i in range(40)]
    marks = [{"prompt": f"oar {i}", "completion": f" ship {i * 7}", "label": i % 3 > 0} for i in range(40)]
    groups = [{"prompt": f"oar {i}", "completions": [" sea", f" ship {i}"], "rewards": [0.0, 1.0 + i % 2]} for i in range(40)]
    for g in groups:
        g["old"] = [[-5.6 + 0.4 * (k % 3) for k in range(len(c) + 1)] for c in g["completions"]]
        g["reference"] = [[-5.5 for _ in range(len(c) + 1)] for c in g["completions"]]
    rows = {"talks": talks, "pairs": pairs, "marks": marks, "groups": groups}
    files = {f"{name}.jsonl": "".join(json.dumps(row) + "\n" for row in lines) for name, lines in rows.items()}
    files["none.jinja"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return files


def make_input():
    """Texts, a tokenizer, folders of a model and an adapter, a configuration that trains in 0.1 s."""
    folder = os.path.join(SCRATCH, "input")
    os.makedirs(folder, exist_ok=True)
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    rest = [b for b in range(256) if b not in plain]
    vocab = {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}
    tokenizer = {"version": "1.0", "added_tokens": [{"id": 256, "content": "<|endoftext|>", "special": True},
                                                    {"id": 257, "content": "<|im|>", "special": True}],
                 "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                 "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}}
    words = "the oar and the ship went out by night and the crew sang of salt and wind\n"
    files = {"c.yaml": CONFIG, "text.txt": words * 60, "other.txt": words[::-1] * 60,
             "special.txt": "<|im|>user\n" * 300, "tokenizer.json": json.dumps(tokenizer),
             "rows.jsonl": json.dumps({"text": "salt and wind"}) + "\n",
             "passage.jsonl": '{"text": "salt"}\n{"text": "the wind"}\n',
             "task.yaml": "{kind: perplexity, data: passage.jsonl}\n",
             "answers.yaml": "{kind: generation, data: passage.jsonl, context: '{{ text }}', target: x, max_tokens: 8}\n",
             "broken.jsonl": '{"text": "salt and wind"}\n' * 200 + '{"text": 5}\n'}
    files["rows.jsonl"] *= 300
    files.update(dialogue_files())
    for name, content in files.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(content)
    call(["train", "c.yaml", "run.dir=made", "--quiet"], folder)
    call(["export", "made", "hf"], folder)
    call(["train", "c.yaml", "run.dir=adapted", "adapter.kind=lora", "--quiet"], folder)
    call(["export", "adapted", "peft", "--adapter"], folder)
    call(["bench", "comm", "--ranks", "2", "--op", "all_reduce", "--bytes", "4KiB", "--tune", "tuning"], folder)
    for made in ("made", "adapted"):
        shutil.rmtree(os.path.join(folder, made), ignore_errors=True)


WALKS = [
    Walk("predict", run_keys, ["predict"], simulate),
    Walk("verify", run_keys, ["verify"], verify),
    Walk("explain", run_keys, ["explain"], explain),
    Walk("train", run_keys, ["train"], train),
    Walk("cluster", lambda: help_keys("cluster") - {"cluster.devices"}, ["cluster"], simulate),
    Walk("profile", lambda: help_keys("profile") - {"profile"}, ["profile"], simulate),
]

if __name__ == "__main__":
    os.makedirs(SCRATCH, exist_ok=True)
    make_input()
    make_flag_input()
    WALKS += [FlagWalk(command) for command in commands()]
    wanted = [w for w in WALKS if (w.name in sys.argv[4:] or w.name.split("-")[0] in sys.argv[4:]) or len(sys.argv) == 4]
    sys.exit(1 if sum([w.run() for w in wanted]) else 0)

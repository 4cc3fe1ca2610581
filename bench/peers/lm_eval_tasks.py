#!/usr/bin/env python3
"""Compares `trireme eval --task` with lm-evaluation-harness's own program: the same model and the same task files' data.

    pip install torch transformers "lm-eval[hf]"
    bench/peers/lm_eval_tasks.py MODEL DATA [--trireme build/trireme] [--folder DIR] [--sums MODEL] [--items 60]

MODEL is a Hugging Face folder, such as `trireme export` writes; DATA holds hellaswag_val_full.txt.bz2, gsm8k_test.jsonl
and wikitext2_test.txt. Tasks: HellaSwag's endings (acc, acc_norm), answers to GSM8K (exact match, and each text) and
perplexity of documents. --sums adds sums of two numbers for the model of grpo_sums.py, of which it gets some right.
Prints both programs' figures and the largest difference of a log-likelihood; the exit code is 1 if a figure differs or
a log-likelihood by more than 1e-4.
"""
import argparse
import bz2
import json
import os
import pathlib
import random
import subprocess
import sys

LIMIT = 1e-4
OURS = {
    "endings": 'context: "{{ context }}"\n',
    "problems": """kind: generation
context: "Question: {{ question }}\\nAnswer:"
target: "{{ answer }}"
stop: ["Question:"]
max_tokens: 40
extract: "#### (\\\\-?[0-9\\\\.\\\\,]+)"
extract_last: "(-?[$0-9.,]{2,})|(-?[0-9]+)"
ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$"]
ignore_case: true
""",
    "documents": "kind: perplexity\n",
    "sums": 'kind: generation\ncontext: "{{ prompt }}"\ntarget: "{{ answer }}"\nmax_tokens: 6\n',
    "choose": 'context: "{{ context }}"\ndelimiter: ""\n',
}
CHOICE = """output_type: multiple_choice
doc_to_text: "{{ context }}"
doc_to_choice: "{{ choices }}"
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
THEIRS = {
    "endings": CHOICE,
    "choose": CHOICE + 'target_delimiter: ""\n',
    "problems": """output_type: generate_until
doc_to_text: "Question: {{ question }}\\nAnswer:"
doc_to_target: "{{ answer }}"
generation_kwargs: {until: ["Question:"], do_sample: false, temperature: 0.0, max_gen_toks: 40}
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
    ignore_punctuation: false
    regexes_to_ignore: [",", "\\\\$", "(?s).*#### ", "\\\\.$"]
filter_list:
  - name: strict-match
    filter: [{function: regex, regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"}, {function: take_first}]
  - name: flexible-extract
    filter: [{function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"}, {function: take_first}]
""",
    "documents": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{ text }}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "sums": """output_type: generate_until
doc_to_text: "{{ prompt }}"
doc_to_target: "{{ answer }}"
generation_kwargs: {until: [], do_sample: false, temperature: 0.0, max_gen_toks: 6}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}


def rows_of(data, count):
    lines = bz2.open(data / "hellaswag_val_full.txt.bz2", "rt").read().split("\n")
    draws = random.Random(1)
    endings = [{"context": lines[i], "gold": int(lines[i + 1]), "choices": lines[i + 2:i + 6]}
               for i in range(0, 6 * count, 6)]
    problems = [json.loads(line) for line in (data / "gsm8k_test.jsonl").open()][:count // 4]
    text = (data / "wikitext2_test.txt").read_text()[:40000]
    documents = [{"text": part.strip()} for part in text.split("\n = ") if part.strip()]
    sums = [(draws.randrange(10, 100), draws.randrange(10, 100)) for _ in range(count)]
    choose = [{"context": f"{a}+{b}=", "gold": i % 3, "choices": [str(a + b + 10 * (k - i % 3)) for k in range(3)]}
              for i, (a, b) in enumerate(sums)]
    return {"endings": endings, "problems": problems, "documents": documents, "choose": choose,
            "sums": [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in sums]}


def write(folder, names, rows):
    for name in names:
        path = (folder / f"{name}.jsonl").resolve()
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        (folder / f"{name}.yaml").write_text(f"name: {name}\ndata: {path}\n" + OURS[name])
        (folder / "tasks" / f"{name}.yaml").write_text(
            f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {path}}}}}\ntest_split: test\n" + THEIRS[name])


def ours(trireme, model, folder, names):
    items = folder / "items.jsonl"
    told = subprocess.run([trireme, "eval", model, "--task", *[str(folder / f"{n}.yaml") for n in names], "--items", items,
                           "--json", "--threads", "1"], check=True, capture_output=True, text=True).stdout
    results = dict(zip(names, json.loads(told)["tasks"]))
    rows = [json.loads(line) for line in items.open()]
    return results, {n: [r for r in rows if r["task"] == n] for n in names}


def theirs(model, folder, names):
    out = folder / "harness"
    subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--model_args",
                    f"pretrained={model},dtype=float32", "--tasks", ",".join(names), "--include_path", str(folder / "tasks"),
                    "--device", "cpu", "--batch_size", "1", "--log_samples", "--output_path", str(out)],
                   check=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"})
    results = json.loads(max(out.rglob("results_*.json"), key=os.path.getmtime).read_text())["results"]
    samples = {}
    for name in names:
        path = max(out.rglob(f"samples_{name}_*.jsonl"), key=os.path.getmtime)
        samples[name] = [json.loads(line) for line in path.open()]
    return results, samples


def compare(name, our, our_rows, their, their_rows):
    pairs, worst, texts = [], 0.0, None
    if name in ("endings", "choose"):
        pairs = [(key, our[key], their[f"{key},none"]) for key in ("acc", "acc_norm")]
        pairs += [(f"{key} error", our[f"{key}_stderr"], their[f"{key}_stderr,none"]) for key in ("acc", "acc_norm")]
        for row in their_rows:
            mine = our_rows[row["doc_id"]]["loglikelihood"]
            worst = max([worst] + [abs(a - float(b[0][0])) for a, b in zip(mine, row["resps"])])
    elif name == "documents":
        pairs = [(key, our[key], their[f"{key},none"]) for key in ("word_perplexity", "byte_perplexity", "bits_per_byte")]
        whole = sum(float(r["resps"][0][0] if isinstance(r["resps"][0], list) else r["resps"][0])
                    for r in their_rows if r.get("filter", "none") == "none")
        worst = abs(our["loglikelihood"] - whole) / our["tokens"]
    else:
        filters = [("exact_match", "strict-match"), ("exact_match_last", "flexible-extract")] if name == "problems" else [("exact_match", "none")]
        pairs = [(mine, our[mine], their[f"exact_match,{filter}"]) for mine, filter in filters]
        one = [r for r in their_rows if r["filter"] == filters[0][1]]
        texts = sum(our_rows[r["doc_id"]]["answer"] != r["resps"][0][0] for r in one)
    print(f"{name}:", "; ".join(f"{key} {a:.6g} and {b:.6g}" for key, a, b in pairs), end="")
    print(f"; {texts} of {len(our_rows)} texts differ" if texts is not None else f"; log-likelihoods within {worst:.2g}" + (" a token" if name == "documents" else ""))
    near = all(abs(a - b) <= 1e-6 * max(1.0, abs(b)) if name != "documents" else abs(a / b - 1) < 1e-5 for _, a, b in pairs)
    return near and worst <= LIMIT and not texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--trireme", default="build/trireme")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("harness"))
    parser.add_argument("--sums")
    parser.add_argument("--items", type=int, default=60)
    options = parser.parse_args()
    (options.folder / "tasks").mkdir(parents=True, exist_ok=True)
    rows = rows_of(options.data, options.items)
    equal = True
    for model, names in ((options.model, ["endings", "problems", "documents"]), (options.sums, ["sums", "choose"])):
        if model is None:
            continue
        write(options.folder, names, rows)
        our, our_rows = ours(os.path.realpath(options.trireme), model, options.folder, names)
        their, their_rows = theirs(model, options.folder, names)
        for name in names:
            equal &= compare(name, our[name], our_rows[name], their[name], their_rows[name])
    sys.exit(0 if equal else 1)


main()

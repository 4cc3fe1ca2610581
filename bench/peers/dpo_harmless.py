#!/usr/bin/env python3
"""Learns from preferences (DPO) with this build and with TRL: the same small model, data, steps and rates.

    pip install torch transformers trl datasets
    bench/peers/dpo_harmless.py DATA [--trireme build/trireme] [--folder DIR] [--seeds 1,2,3] [--peer-seeds 1]

DATA holds hh_rlhf_harmless_test.jsonl.gz: 2,312 pairs of answers, of which people found one less harmful. A prompt is
the last thing that the human said. Of the pairs 30% are held out. The model is made here: a tokenizer of 2,048 tokens
and fine-tuning on both answers of the training pairs; on the chosen ones alone, the pairs would teach to prefer answers
that were seen. Then each seed learns from the pairs once, in an order of its own. Prints the accuracy of implicit
rewards on held-out pairs, and the seconds of each.
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

from shared import trl_model, trl_rows

MODEL = "model: {layers: 2, dim: 128, heads: 4, vocab: 2048, context: 512}\n"
COMMON = """
eval: {every: 1000000, batches: 24}
checkpoint: {every: 0}
kernels: {threads: 1}
"""
SFT = MODEL + """
run: {dir: sft}
train: {objective: sft, steps: 160, seq: 256, global_batch: 16}
data: {train: [sft.jsonl], valid: [sft_valid.jsonl], tokenizer: tokenizer.json, format: prompt}
optimizer: {lr: 3e-3, clip: 1}
schedule: {name: cosine, warmup: 20}
""" + COMMON
# Three or four pairs share a sequence, and 53 steps are one epoch: in a second one the model knows the pairs by heart.
DPO = """
model: {from: model}
train: {objective: dpo, steps: 53, seq: 512, global_batch: 8}
objective: {beta: 0.1}
data: {train: [pairs.jsonl], valid: [pairs_valid.jsonl], tokenizer: tokenizer.json}
optimizer: {lr: 1e-3, weight_decay: 0, clip: 1}
schedule: {name: linear, warmup: 10}
""" + COMMON


def split(text):
    at, asked = text.rfind("\n\nAssistant:"), text.rfind("\n\nHuman:", 0, text.rfind("\n\nAssistant:"))
    return text[asked + 2:at] + "\n\nAssistant:", text[at + len("\n\nAssistant:"):]


def pairs_of(data):
    pairs = []
    for line in gzip.open(data / "hh_rlhf_harmless_test.jsonl.gz", "rt"):
        item = json.loads(line)
        (prompt, chosen), (other, rejected) = split(item["chosen"]), split(item["rejected"])
        longest = len(prompt) + max(len(chosen), len(rejected))
        if prompt == other and chosen.strip() and rejected.strip() and longest < 700:
            pairs.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    random.Random(1).shuffle(pairs)
    return pairs


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(words, folder):
    code = subprocess.run(words, cwd=folder).returncode
    if code != 0:
        sys.exit(code)


def prepare(data, folder, trireme):
    pairs = pairs_of(data)
    held = len(pairs) * 3 // 10
    write(folder / "pairs_valid.jsonl", pairs[:held])
    write(folder / "pairs.jsonl", pairs[held:])
    for name, rows in (("sft_valid.jsonl", pairs[:held]), ("sft.jsonl", pairs[held:])):
        write(folder / name, [{"prompt": p["prompt"], "completion": p[which]} for p in rows for which in ("chosen", "rejected")])
    (folder / "text.txt").write_text("\n".join(p["prompt"] + p["chosen"] + p["rejected"] for p in pairs[held:]))
    (folder / "sft.yaml").write_text(SFT)
    (folder / "dpo.yaml").write_text(DPO)
    run([trireme, "tokenizer", "train", "-o", "tokenizer.json", "--vocab", "2048", "text.txt"], folder)
    run([trireme, "train", "sft.yaml"], folder)
    run([trireme, "export", "sft", "model", "--force"], folder)
    told = subprocess.run([trireme, "data", "look", "dpo.yaml", "--sequences", "1"], cwd=folder, capture_output=True, text=True)
    (folder / "sequences").write_text(re.search(r"in (\d+) sequences", told.stdout)[1])


def held_out(folder, policy):
    """Accuracy and margin of implicit rewards, each held-out pair once; equal rewards are half right. A validation of
    the run goes over whole batches, and so counts some pairs twice."""
    import torch
    reference, tokenizer = trl_model(folder / "model", folder / "tokenizer.json")
    end = tokenizer.eos_token_id

    def sums(model, texts):
        ids = [(tokenizer(prompt)["input_ids"], tokenizer(answer)["input_ids"] + [end]) for prompt, answer in texts]
        longest = max(len(a) + len(b) for a, b in ids)
        x = torch.full((len(ids), longest), end)
        seen, counted = torch.zeros_like(x), torch.zeros(x.shape)
        for i, (a, b) in enumerate(ids):
            x[i, :len(a) + len(b)] = torch.tensor(a + b)
            seen[i, :len(a) + len(b)] = 1
            counted[i, len(a):len(a) + len(b)] = 1
        logs = model(input_ids=x, attention_mask=seen).logits[:, :-1].log_softmax(-1)
        return (logs.gather(-1, x[:, 1:, None]).squeeze(-1) * counted[:, 1:]).sum(-1)

    gaps = []
    rows = [json.loads(line) for line in (folder / "pairs_valid.jsonl").open()]
    with torch.no_grad():
        for at in range(0, len(rows), 32):
            some = rows[at:at + 32]
            texts = [(r["prompt"], r[which]) for which in ("chosen", "rejected") for r in some]
            rewards = 0.1 * (sums(policy.eval(), texts) - sums(reference.eval(), texts))
            gaps += (rewards[:len(some)] - rewards[len(some):]).tolist()
    return {"accuracy": round(sum(g > 0 or (g == 0) / 2 for g in gaps) / len(gaps), 4),
            "margin": round(sum(gaps) / len(gaps), 4), "pairs": len(gaps)}


def ours(folder, trireme, seed, keys):
    begin = time.monotonic()
    name = f"dpo{seed}"
    run([trireme, "train", "dpo.yaml", f"run.dir={name}", f"train.seed={seed}", "--quiet", "--fresh", *keys], folder)
    seconds = round(time.monotonic() - begin, 1)
    run([trireme, "export", name, f"{name}-model", "--force"], folder)
    policy, _ = trl_model(folder / f"{name}-model", folder / "tokenizer.json")
    return {"seed": seed, **held_out(folder, policy), "seconds": seconds}


def theirs(folder, seed, steps, rate):
    import transformers
    import trl
    transformers.set_seed(seed)
    model, tokenizer = trl_model(folder / "model", folder / "tokenizer.json")
    rows = trl_rows(folder / "pairs.jsonl")
    # A sequence of our run holds as many pairs as fit; a batch here has as many on average.
    batch = max(1, round(rows.num_rows / float((folder / "sequences").read_text()) * 8))
    config = trl.DPOConfig(output_dir=str(folder / "trl"), per_device_train_batch_size=batch, max_steps=steps, beta=0.1,
                           learning_rate=rate, weight_decay=0.0, max_grad_norm=1.0, lr_scheduler_type="linear",
                           warmup_steps=10, adam_beta2=0.95, use_cpu=True, bf16=False,
                           gradient_checkpointing=False, max_length=512, report_to=[], save_strategy="no", seed=seed,
                           disable_tqdm=True, logging_steps=50)
    begin = time.monotonic()
    trainer = trl.DPOTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    seconds = round(time.monotonic() - begin, 1)
    return {"seed": seed, **held_out(folder, trainer.model), "seconds": seconds, "pairs a step": batch}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--trireme", default="build/trireme")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("harmless"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--peer-seeds", default="1")
    parser.add_argument("--steps", type=int, default=53)
    parser.add_argument("--rate", type=float, default=1e-3)
    options = parser.parse_args()
    folder, trireme = options.folder, os.path.realpath(options.trireme)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "sequences").exists():
        prepare(options.data.resolve(), folder, trireme)
    for seed in filter(None, options.seeds.split(",")):
        keys = [f"train.steps={options.steps}", f"optimizer.lr={options.rate}"]
        print("this build", json.dumps(ours(folder, trireme, int(seed), keys)), flush=True)
    for seed in filter(None, options.peer_seeds.split(",")):
        print("TRL", json.dumps(theirs(folder, int(seed), options.steps, options.rate)), flush=True)


main()

#!/usr/bin/env python3
"""Learns from rewards (GRPO) with this build and with TRL: the sums of docs/guide/rewards.md, the same model and prompts.

    pip install torch transformers trl datasets
    bench/peers/grpo_sums.py [--trireme build/trireme] [--folder DIR] [--steps 300] [--peer-steps 10]

Both draw 256 completions of at most 6 tokens a step, 16 of a prompt, with one thread. Prints the reward of the first
step and of the last 20, and completion tokens per second and per second of CPU time, drawing, rewards and training
together; TRL's start and first steps are not counted, ours are.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

from shared import trl_model, trl_rows

SFT = """
run: {dir: sft}
model: {layers: 2, dim: 64, heads: 4, vocab: 258, context: 64}
train: {objective: sft, steps: 1600, seq: 64, global_batch: 32}
data: {train: sft.jsonl, valid: 0, format: prompt}
optimizer: {lr: 5e-3}
schedule: {warmup: 50}
eval: {every: 0}
checkpoint: {every: 0}
kernels: {threads: 1}
"""
GRPO = """
run: {dir: grpo}
model: {from: model}
train: {objective: grpo, steps: 300, seq: 16, global_batch: 256}
rollout: {prompts: sums.jsonl, group: 16, max_tokens: 6}
reward: {kind: regex, pattern: "^<{answer}>$"}
optimizer: {lr: 5e-4}
schedule: {warmup: 20}
checkpoint: {every: 0}
kernels: {threads: 1}
"""


def prepare(folder, trireme):
    draws = random.Random(1)
    sums = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    draws.shuffle(sums)
    with (folder / "sft.jsonl").open("w") as samples, (folder / "sums.jsonl").open("w") as prompts:
        for a, b in sums:
            said = f"<{a + b}>" if draws.random() < 0.15 else str(a + b)
            samples.write(json.dumps({"prompt": f"{a}+{b}=", "completion": said}) + "\n")
            prompts.write(json.dumps({"prompt": f"{a}+{b}=", "answer": a + b}) + "\n")
    (folder / "sft.yaml").write_text(SFT)
    (folder / "grpo.yaml").write_text(GRPO)
    for words in (["train", "sft.yaml", "--quiet"], ["export", "sft", "model", "--force"]):
        if subprocess.run([trireme, *words], cwd=folder).returncode != 0:
            sys.exit(f"{' '.join(words)} failed")


def ours(folder, trireme, steps):
    begin, before = time.monotonic(), os.times()
    subprocess.run([trireme, "train", "grpo.yaml", f"train.steps={steps}", "--quiet"], cwd=folder, check=True)
    seconds, after = time.monotonic() - begin, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    told = [json.loads(line) for line in (folder / "grpo" / "metrics.jsonl").open()]
    told = [r for r in told if "reward" in r]
    tokens = sum(r["answer_tokens"] for r in told) * 256
    return {"steps": steps, "reward_first": told[0]["reward"], "seconds": round(seconds, 1),
            "reward_last": round(statistics.mean(r["reward"] for r in told[-20:]), 3),
            "tokens_per_s": round(tokens / seconds), "tokens_per_cpu_s": round(tokens / cpu_s)}


def theirs(folder, steps):
    import transformers
    import trl
    model, tokenizer = trl_model(folder / "model", folder / "model" / "tokenizer.json")
    rows = trl_rows(folder / "sums.jsonl")
    drawn, rewards, times = [], [], []

    def right(completions, answer, completion_ids, **_):
        drawn.append(sum(len(ids) for ids in completion_ids))
        got = [float(re.fullmatch(f"<{a}>", c) is not None) for c, a in zip(completions, answer)]
        rewards.append(statistics.mean(got))
        return got

    class Timer(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            times.append((time.monotonic(), time.process_time()))

    config = trl.GRPOConfig(output_dir=str(folder / "trl"), per_device_train_batch_size=256, num_generations=16,
                            max_completion_length=6, max_steps=steps, learning_rate=5e-4, warmup_steps=20, beta=0.0,
                            loss_type="grpo", temperature=1.0, top_k=0, use_cpu=True, bf16=False, report_to=[],
                            gradient_checkpointing=False, save_strategy="no", seed=1, disable_tqdm=True,
                            logging_steps=steps)
    trl.GRPOTrainer(model=model, args=config, reward_funcs=right, train_dataset=rows, processing_class=tokenizer,
                    callbacks=[Timer()]).train()
    skipped = min(3, steps - 1)
    seconds, cpu_s = (last - first for last, first in zip(times[-1], times[skipped - 1]))
    return {"steps": steps, "reward_first": rewards[0], "seconds": round(seconds, 1),
            "tokens_per_s": round(sum(drawn[skipped:]) / seconds),
            "tokens_per_cpu_s": round(sum(drawn[skipped:]) / cpu_s)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trireme", default="build/trireme")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("sums"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--peer-steps", type=int, default=10)
    options = parser.parse_args()
    folder, trireme = options.folder, os.path.realpath(options.trireme)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "model").exists():
        prepare(folder, trireme)
    if options.steps > 0:
        print("this build", json.dumps(ours(folder, trireme, options.steps)), flush=True)
    if options.peer_steps > 0:
        print("TRL", json.dumps(theirs(folder, options.peer_steps)), flush=True)


main()

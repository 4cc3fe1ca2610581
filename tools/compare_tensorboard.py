#!/usr/bin/env python3
"""Lets TensorBoard itself read a run's events, and compares them with metrics.jsonl.

    tools/compare_tensorboard.py build/trireme

A small run is killed between two checkpoints and continued, so some steps are done twice; TensorBoard
must show each step once, with the values that lasted. Exit 1 if a value, a step or a tag differs.
Where TensorBoard is not installed, a throw-away environment is made for it with pip.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from throwaway import environment

environment(["tensorboard", "setuptools<81"], modules=["tensorboard"])
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

TAGS = {"train/loss": "loss", "train/grad_norm": "grad_norm", "train/lr": "lr",
        "speed/tokens_per_s": "tokens_per_s", "valid/loss": "val_loss"}
KEYS = ("model.layers=2 model.dim=64 model.heads=2 train.steps=60 train.seq=64 eval.every=20 eval.batches=1 "
        "checkpoint.every=25 log.every=20").split()


def train(trireme, folder, kill_after=None):
    """Trains to the end, or kills the run once metrics.jsonl holds that step."""
    command = [trireme, "train", str(folder / "config.yaml"), *KEYS]
    metrics = folder / "run" / "metrics.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while kill_after and process.poll() is None:
            if metrics.exists() and metrics.read_text().count("\n") >= kill_after:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return
            time.sleep(0.002)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")


def main():
    trireme = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/trireme")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "demo"
        subprocess.run([trireme, "init", str(folder)], check=True, stdout=subprocess.DEVNULL)
        train(trireme, folder, kill_after=33)
        done = (folder / "run" / "metrics.jsonl").read_text().count("\n")
        time.sleep(1.1)  # the names of event files count seconds
        train(trireme, folder)
        records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").open()]
        events = EventAccumulator(str(folder / "run"), size_guidance={"scalars": 0})
        events.Reload()
    wrong = 0
    for tag, key in TAGS.items():
        wanted = [(r["step"], r[key]) for r in records if r.get(key) is not None]
        found = [(e.step, e.value) for e in events.Scalars(tag)]
        steps = [step for step, _ in wanted] == [step for step, _ in found]
        worst = max((abs(a[1] - b[1]) / max(1e-30, abs(a[1])) for a, b in zip(wanted, found)), default=0)
        fine = steps and worst < 1e-5
        wrong += not fine
        print(f"{tag:20} {len(found):4} values, {len(wanted)} in metrics.jsonl  "
              f"worst difference {worst:.1e}  {'same' if fine else 'DIFFERENT'}")
    print(f"killed after step {done}, continued from step {25 * (done // 25)}, {len(records)} steps in all")
    sys.exit(1 if wrong or len(records) != 60 else 0)


main()

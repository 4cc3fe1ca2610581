"""Kills a run with kill -9 at random moments until it completes; then starts another run.

usage: ckpt_kill.py [--kills N] [--seed S]

A third of the kills comes at a random time, a third after a save began (its folder exists, its
manifest does not yet), a third during the start. A kill after the process has completed is no trial.
Every run ends: after at most 25 kills it may complete and must reach the uninterrupted run's digest.
"""
import argparse
import os
import random
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from ckpt_rig import Rig, Wrong, commit, debris, is_alive, wait_for


def pick(dice, span_s):
    """Returns the event that the kill waits for, and the delay after it."""
    kind = dice.choice(["time", "save", "start"])
    delay = {"time": dice.uniform(0, span_s), "save": dice.expovariate(1 / 0.003),
             "start": dice.uniform(0, 0.05)}[kind]
    return kind, delay


def unfinished(run):
    """Names of the folders that a save has begun or that a killed save has left."""
    return set(debris(run)) if os.path.isdir(run / "checkpoints") else set()


def kill_once(rig, run, dice, span_s):
    """Returns (kind, newest step) of a killed process; (None, ..) if it completed before."""
    kind, delay = pick(dice, span_s)
    process = rig.start(run)
    if kind == "save":
        old = unfinished(run)
        wait_for(lambda: unfinished(run) - old, process, "a save")
    time.sleep(delay)
    hit = is_alive(process.pid)
    rig.kill(process)
    if not hit and process.returncode not in (0, -9):
        raise Wrong(f"exit {process.returncode}\n{rig.tail()}")
    newest = rig.check(run, told=rig.told())
    return kind if hit and process.returncode == -9 else None, newest


def loop(rig, kills, seed):
    counts = {"time": 0, "save": 0, "start": 0}
    trial = done = advanced = runs = 0
    begin = time.monotonic()
    rig.straight()
    span_s = time.monotonic() - begin
    run = rig.dir / "run"
    before = 0
    while done < kills:
        trial += 1
        kind, newest = kill_once(rig, run, random.Random(seed * 1000003 + trial), span_s)
        if newest < before:
            raise Wrong(f"trial {trial}: step {before} was the newest, now it is {newest}")
        if kind is not None:
            done += 1
            counts[kind] += 1
            advanced += newest > before
        before = newest
        if newest == rig.steps or trial % 25 == 0:  # this run has seen enough
            rig.finish(run)
            shutil.rmtree(run)
            before = 0
            runs += 1
        if trial > 20 * kills + 100:
            raise Wrong(f"only {done} of {trial} trials hit a living process")
    if os.path.isdir(run):
        rig.finish(run)
        runs += 1
    if advanced * 5 < done:
        raise Wrong(f"only {advanced} of {done} kills came after a new checkpoint: no progress")
    print(f"[       OK ] {done} kills ({counts['start']} in the start, {counts['save']} in a save, "
          f"{counts['time']} at any time), {advanced} of them after a new checkpoint, {runs} runs, "
          f"{len(rig.digests)} digests")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=lambda s: int(s, 0), default=1)
    args = parser.parse_args()
    rig = Rig(steps=300, every=5)
    try:
        loop(rig, args.kills, args.seed)
    except Wrong as wrong:
        print(f"[  FAILED  ] kill -9: {wrong}")
        print(f"replay: {commit()} python3 tests/support/ckpt_kill.py --kills {args.kills} "
              f"--seed {args.seed:#x}")
        sys.exit(1)
    finally:
        rig.close()


main()

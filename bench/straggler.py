#!/usr/bin/env python3
"""What a rank at half speed costs, with and without resilience.straggler=move.

Ranks on few cores take turns, so a rank that computes more slowly leaves its core to the others. This
script makes every rank a device of its own by letting it wait: each is stopped (SIGSTOP) for most of
every period and runs for a fixed part of it, at a time that no other rank of its core has. The slow
rank gets half of that part. So the speed of a rank does not depend on what the others do, as on real
devices.

    bench/straggler.py build/trireme [--ranks 8] [--slow 3] [--steps 24] [--part_ms 20]

It prints the tokens per second of the last third of each run and compares the digests."""
import argparse, json, os, shutil, signal, subprocess, sys, tempfile, time

# On a busy machine a rank may have no core for so long when it may run that the others take it for stopped.
TRIALS = 10


def rank_processes(launcher):
    found = {}
    try:
        children = open(f"/proc/{launcher}/task/{launcher}/children").read().split()
    except OSError:
        return found
    for pid in children:
        try:
            env = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        for e in env:
            if e.startswith(b"TRIREME_LAUNCH=") and e[15:16].isdigit():
                found[int(e[15:].split()[0])] = int(pid)
    return found


def tell(pid, which):
    try:
        os.kill(pid, which)
    except ProcessLookupError:
        pass


def throttle(run, parts, period, cores):
    """Gives each rank its part of every period; parts: seconds."""
    ranks = {}
    while run.poll() is None and len(ranks) < len(parts):
        ranks = rank_processes(run.pid)
        time.sleep(0.05)
    slots = []  # (time in the period, whether the part ends then, rank): on each core one after the other
    for core in range(cores):
        when = 0.0
        for r in range(core, len(parts), cores):
            slots += [(when, 0, r), (when + parts[r], 1, r)]
            when += max(parts)
        assert when <= period
    slots.sort()
    for pid in ranks.values():
        tell(pid, signal.SIGSTOP)
    begin = time.monotonic()
    while run.poll() is None:
        for when, ends, r in slots:
            wait = begin + when - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            tell(ranks[r], signal.SIGSTOP if ends else signal.SIGCONT)
        begin = max(begin + period, time.monotonic() - period)
    for pid in ranks.values():
        tell(pid, signal.SIGCONT)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--slow", type=int, default=3)
    p.add_argument("--steps", type=int, default=24)
    p.add_argument("--part_ms", type=float, default=20)
    a = p.parse_args()
    program = os.path.abspath(a.program)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        subprocess.run([program, "init", "demo"], check=True, stdout=subprocess.DEVNULL)
        keys = [f"train.steps={a.steps}", "determinism.mode=strict", "determinism.shards=64",
                "train.global_batch=64", "train.micro_batch=1", "train.seq=128", "model.layers=2",
                "model.dim=128", "model.heads=4", "eval.every=0", "checkpoint.every=0",
                "kernels.threads=1", f"layout.dp={a.ranks}"]
        part = a.part_ms / 1e3
        period = part * -(-a.ranks // cores)
        results, digests = {}, set()
        for name, slow, policy in (("no slow rank", False, "name"), ("named", True, "name"),
                                   ("moved", True, "move")):
            parts = [part / 2 if slow and r == a.slow else part for r in range(a.ranks)]
            for trial in range(TRIALS):
                shutil.rmtree("run", ignore_errors=True)
                log = open("log", "wb")
                run = subprocess.Popen([program, "train", "demo/config.yaml", "run.dir=run",
                                        f"resilience.straggler={policy}", *keys], stdout=log, stderr=log)
                throttle(run, parts, period, cores)
                if run.wait() == 0:
                    break
                said = open("log").read()
                if "is stopped: it has been silent" not in said or trial == TRIALS - 1:
                    sys.exit(said)
            lines = [json.loads(l) for l in open("run/metrics.jsonl")]
            steps = [l for l in lines if "loss" in l]
            last = steps[2 * len(steps) // 3:]
            rate = len(last) / sum(1.0 / l["tokens_per_s"] for l in last)
            results[name] = rate
            digests.add(subprocess.run([program, "digest", "run"], check=True, capture_output=True,
                                       text=True).stdout.strip())
            found = [l for l in lines if l.get("event") == "straggler"]
            print(f"{name:13s} {rate:9.0f} tokens/s  {rate / results['no slow rank']:.3f}  "
                  + "; ".join(f"step {l['step']} rank {l['rank']} {l['cause']}"
                              + (f" {l['shares']}" if "shares" in l else "") for l in found),
                  flush=True)
        print("one digest" if len(digests) == 1 else f"digests differ: {digests}")
        sys.exit(0 if len(digests) == 1 else 1)


main()

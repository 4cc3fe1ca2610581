"""Makes every system call of a save fail or kill: strace injects a fault at the k-th call.

usage: ckpt_syscalls.py [--all] [--seed S]

A run continues from step 4 to 12, so it saves twice, retries what it must and prunes once. The test
counts only calls on the folder of checkpoints, per thread. EINTR must have no effect. EIO and ENOSPC
cost at most that checkpoint: the run continues and exits with 0, unless the fault hit its main thread
while it read the checkpoint to start from. A killed run leaves what the table of kill points says:
the checkpoint whose manifest was renamed last. Then the same command ends with the right digest and no
debris. Without --all the test runs one case of each call and fault.
"""
import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from ckpt_rig import Rig, Wrong, commit, debris, skip

FIRST, LAST, EVERY = 4, 12, 4
ANY = ("EIO", "ENOSPC", "KILL")
CALLS = {
    "openat": (*ANY, "EINTR"), "write": (*ANY, "EINTR"), "pwrite64": (*ANY, "EINTR"),
    "read": ("EIO", "KILL", "EINTR"), "pread64": ("EIO", "KILL", "EINTR"), "mmap": ("KILL",),
    "fsync": (*ANY, "EINTR", "EROFS"), "fdatasync": (*ANY, "EINTR"), "close": ("EIO", "KILL", "EINTR"),
    "rename": ANY, "mkdir": ANY, "unlink": ANY, "rmdir": ("EIO", "KILL"), "symlink": ANY,
    "ftruncate": (*ANY, "EINTR"), "fadvise64": ("EIO", "KILL"), "getdents64": ("EIO", "KILL"),
    "newfstatat": ("EIO", "KILL"),
}
FILES = ("state-00000-of-00001.safetensors", "config.json", "config.resolved.yaml",
         "manifest.json", "manifest.json.removed")
RENAMED = re.compile(r'rename\w*\(.*"[^"]*/step-0*(\d+)/manifest\.json"[^"]*\) += 0')
BEGAN = re.compile(r'rename\w*\(.*"[^"]*/step-0*(\d+)/manifest\.json"')


class Sweep:
    def __init__(self, rig):
        self.rig = rig
        self.run = rig.dir / "run"
        self.base = rig.dir / "base"
        self.log = rig.dir / "strace"
        folder = self.run / "checkpoints"
        paths = [folder] + [folder / name for name in ("latest", "latest.tmp", "best", "best.tmp")]
        for step in range(FIRST, LAST + 1, EVERY):
            at = folder / f"step-{step:07d}"
            paths += [at] + [at / (name + end) for name in FILES for end in ("", ".tmp")]
        self.paths = [word for path in paths for word in ("-P", str(path))]

    def prepare(self):
        self.rig.straight()
        self.rig.run(self.run, train__steps=FIRST)
        shutil.copytree(self.run, self.base, symlinks=True)

    def go(self, trace, inject=(), fast=("--seccomp-bpf",)):
        """Continues from the base under strace; returns (exit code, lines of the trace)."""
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.base, self.run, symlinks=True)
        before = ["strace", "-f", *fast, "-o", str(self.log), *self.paths, "-e",
                  f"trace={trace}", *inject]
        code = self.rig.wait(self.rig.start(self.run, before=before))
        return code, self.log.read_text(errors="replace").splitlines()

    def counts(self):
        """How often the busiest thread makes each call."""
        code, lines = self.go(",".join(CALLS))
        if code != 0:
            raise Wrong(f"exit {code} under strace\n{self.rig.tail()}")
        seen = collections.Counter()
        for line in lines:
            call = re.match(r"(\d+) +(\w+)\(", line)
            if call:
                seen[call.groups()] += 1
        most = collections.Counter()
        for (_, name), count in seen.items():
            most[name] = max(most[name], count)
        return most

    def judge(self, fault, code, lines):
        rig = self.rig
        hit = [line for line in lines if "INJECTED" in line or "killed by SIGKILL" in line]
        if not hit:
            raise Wrong("nothing was injected: exit %s\n" % code + "\n".join(lines[-8:]))
        renamed = max([FIRST, *(int(m[1]) for m in map(RENAMED.search, lines) if m)])
        began = max([renamed, *(int(m[1]) for m in map(BEGAN.search, lines) if m)])
        newest = rig.check(self.run, told=rig.told(), allowed=range(renamed, began + 1))
        if fault == "KILL":
            if code not in (-9, 137):
                raise Wrong(f"exit {code}, expected to be killed")
        elif fault == "EINTR":
            if code != 0 or newest != LAST or "given up" in rig.out() + rig.err():
                raise Wrong(f"exit {code}, newest {newest}: an interrupted call was not continued")
        elif code != 0 and not (code in (4, 5) and self.own_thread(hit)):
            raise Wrong(f"exit {code}\n{rig.tail()}")
        elif code == 0 and newest != LAST:
            raise Wrong(f"exit 0, but the newest is step {newest}")
        elif any(re.search(r" f(data)?sync\(", line) for line in hit) and not self.own_thread(hit):
            if not re.search("given up|pruning after", rig.out() + rig.err()):
                raise Wrong("a sync failed, and nobody was told")

    def own_thread(self, hit):
        """True if the fault hit the thread that reads at the start, not the one that saves."""
        saver = {line.split()[0] for line in self.log.read_text(errors="replace").splitlines()
                 if f"/step-{FIRST + EVERY:07d}" in line}
        return any(line.split()[0] not in saver for line in hit)

    def trial(self, call, fault, when):
        inject = f"{call}:signal=KILL:when={when}" if fault == "KILL" else f"{call}:error={fault}:when={when}"
        trace = call if call == "rename" else f"{call},rename,mkdir"
        # strace cannot inject a signal where seccomp filters the calls.
        fast = () if fault == "KILL" else ("--seccomp-bpf",)
        code, lines = self.go(trace, ("-e", f"inject={inject}"), fast)
        self.judge(fault, code, lines)
        self.rig.finish(self.run)


def sampled(dice, count, wanted):
    """`wanted` numbers of 1 .. count, one from each of as many equal parts."""
    if wanted >= count:
        return list(range(1, count + 1))
    return [1 + int((i + dice.random()) * count / wanted) for i in range(wanted)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seed", type=lambda s: int(s, 0), default=1)
    parser.add_argument("--only", help="CALL:FAULT:WHEN")
    args = parser.parse_args()
    if not shutil.which("strace"):
        skip("no strace")
    if subprocess.run(["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "inject=sync:error=EIO",
                       "true"], capture_output=True).returncode != 0:
        skip("strace may not trace here, or is too old to inject")
    rig = Rig(steps=LAST, every=EVERY)
    failures = trials = 0
    try:
        sweep = Sweep(rig)
        sweep.prepare()
        counts = sweep.counts()
        dice = random.Random(args.seed)
        for call, faults in CALLS.items():
            for fault in faults if counts[call] else ():
                for when in sampled(dice, counts[call], 10**9 if args.all else 1):
                    if args.only and args.only != f"{call}:{fault}:{when}":
                        continue
                    trials += 1
                    try:
                        sweep.trial(call, fault, when)
                    except Wrong as wrong:
                        failures += 1
                        print(f"[  FAILED  ] {call} {when} {fault}: {wrong}\nreplay: {commit()} python3 "
                              f"tests/support/ckpt_syscalls.py --all --only {call}:{fault}:{when}",
                              flush=True)
        if not failures:
            used = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            print(f"[       OK ] {trials} trials of a system call that fails or kills ({used})")
    except Wrong as wrong:
        failures += 1
        print(f"[  FAILED  ] {wrong}")
    finally:
        rig.close()
    sys.exit(failures > 0)


main()

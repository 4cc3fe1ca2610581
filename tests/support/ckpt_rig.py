"""Shared by the tests of checkpoints and signals: a tiny strict run, the digests that it must have at
every step, and the check of a run's folder after a fault.

An uninterrupted run that keeps every checkpoint gives the digests. A run with a fault passes if every
checkpoint with a manifest has the digest of its step, no reported checkpoint is lost, and the same
command continues to the same last digest. Each trial draws from its own random stream (seed and
number), so `replay:` lines repeat one trial without those before it.
"""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WORDS = "the ship rows on and three banks of oars pull in time while a drum beats".split()
STEP = re.compile(r"step-(\d+)(?:\.(\d+))?$")
CKPT_LINE = re.compile(r"^ckpt +(\d+)/", re.M)
LIMIT_S = float(os.environ.get("LIMIT_S", "600"))  # a process that takes longer counts as hanging


class Wrong(Exception):
    """The program did not do what it promises."""


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def commit():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Rig:
    """A scratch folder, its data, and the program under test."""

    def __init__(self, steps=60, every=5, scratch=None, **keys):
        self.program = os.environ.get("TRIREME", "")
        if not os.access(self.program, os.X_OK):
            skip(f"TRIREME={self.program} is not built")
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ckpt-", dir=scratch))
        self.steps, self.every = steps, every
        self.keys = {
            "model.arch": "llama", "model.layers": 1, "model.dim": 16, "model.heads": 2,
            "model.ffn_dim": 32, "model.context": 32, "data.tokenizer": "bytes",
            "data.train": self.dir / "text.txt", "train.seq": 16, "train.global_batch": 2,
            "train.micro_batch": 2, "train.steps": steps, "determinism": "strict",
            "schedule.name": "constant", "kernels.threads": 1, "eval.every": 4 * every,
            "eval.batches": 2, "checkpoint.every": every, "checkpoint.keep": 2, **keys}
        words = random.Random(1)
        text = " ".join(words.choice(WORDS) for _ in range(4000))
        (self.dir / "text.txt").write_text(text)
        (self.dir / "config.yaml").write_text("{}\n")
        self.digests = {}
        self.processes = []

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                self.kill(process)
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- runs ----

    def command(self, run, **more):
        keys = {**self.keys, "run.dir": run, **more}
        return [self.program, "train", str(self.dir / "config.yaml"),
                *(f"{k.replace('__', '.')}={v}" for k, v in keys.items())]

    def start(self, run, before=(), **more):
        """Starts a process in its own group; its output goes to files next to the run's folder."""
        with open(self.dir / "out", "w") as out, open(self.dir / "err", "w") as err:
            process = subprocess.Popen([*before, *self.command(run, **more)], stdout=out, stderr=err,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        self.processes.append(process)
        return process

    def wait(self, process, expected=None):
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise Wrong(f"hung for {LIMIT_S} s\n{self.tail()}") from None
        if expected is not None and code not in expected:
            raise Wrong(f"exit {code}, expected {expected}\n{self.tail()}")
        return code

    def kill(self, process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def run(self, run, expected=(0,), **more):
        return self.wait(self.start(run, **more), expected)

    def out(self):
        return (self.dir / "out").read_text(errors="replace")

    def err(self):
        return (self.dir / "err").read_text(errors="replace")

    def tail(self):
        lines = (self.out() + self.err()).splitlines()
        return "\n".join("    " + line[:200] for line in lines[-12:])

    def told(self):
        """The newest step that the last run reported as durable; 0: none."""
        return max((int(step) for step in CKPT_LINE.findall(self.out())), default=0)

    # ---- digests ----

    def digest(self, path):
        found = subprocess.run([self.program, "digest", str(path)], capture_output=True, text=True,
                               timeout=LIMIT_S)
        if found.returncode != 0:
            raise Wrong(f"digest {path}: exit {found.returncode}\n    {found.stderr.strip()}")
        return found.stdout.split()[0]

    def straight(self, more_steps=0):
        """The digest of every saved step, from one run that keeps all checkpoints."""
        run = self.dir / "straight"
        self.run(run, train__steps=self.steps + more_steps, checkpoint__keep=100000)
        for path, step, _ in checkpoints(run):
            self.digests[step] = self.digest(path)
        shutil.rmtree(run)

    def straight_step(self, step):
        """The digest of a step without a checkpoint, from a run that ends there."""
        if step not in self.digests:
            run = self.dir / "to-step"
            self.run(run, train__steps=step, checkpoint__every=0, eval__every=10**9)
            self.digests[step] = self.digest(run)
            shutil.rmtree(run)
        return self.digests[step]

    def check(self, run, told=0, allowed=None):
        """Checks that every checkpoint is complete and right; returns the newest step (0: none)."""
        found = checkpoints(run)
        for path, step, _ in found:
            digest, right = self.digest(path), self.straight_step(step)
            if digest != right:
                raise Wrong(f"{path.name}: digest {digest}, the straight run's is {right}")
        newest = found[-1][1] if found else 0
        if newest < told:
            raise Wrong(f"step {told} was durable, the newest found is {newest}")
        if allowed is not None and newest not in allowed:
            raise Wrong(f"the newest is step {newest}, allowed are {sorted(allowed)}")
        return newest

    def finish(self, run, **more):
        """Runs the same command to the end: exit 0, the right digest, and no debris."""
        self.run(run, **more)
        newest = self.check(run, allowed=[self.steps])
        if self.digest(run) != self.digests[newest]:
            raise Wrong("the last digest is not the straight run's")
        left = debris(run)
        if left:
            raise Wrong(f"debris after a whole run: {left}")


def checkpoints(run):
    """(path, step, fork) of all checkpoints with a manifest, oldest first."""
    found = []
    try:
        entries = list(os.scandir(pathlib.Path(run) / "checkpoints"))
    except FileNotFoundError:
        return []
    for entry in entries:
        name = STEP.match(entry.name)
        if name and os.path.exists(os.path.join(entry.path, "manifest.json")):
            found.append((pathlib.Path(entry.path), int(name[1]), int(name[2] or 0)))
    return sorted(found, key=lambda c: (c[2], c[1]))


def debris(run):
    """Names in the checkpoints' folder that must be gone once no process writes there."""
    left = []
    for entry in os.scandir(pathlib.Path(run) / "checkpoints"):
        if STEP.match(entry.name) and not os.path.exists(os.path.join(entry.path, "manifest.json")):
            left.append(entry.name)
        if ".tmp" in entry.name:
            left.append(entry.name)
    return sorted(left)


def wait_for(condition, process, what):
    """Waits for the condition: True. False: the process ended first. There is no time limit."""
    begin = time.monotonic()
    while not condition():
        if not is_alive(process.pid):
            return bool(condition())
        if time.monotonic() - begin > LIMIT_S:
            raise Wrong(f"never came: {what}")
        time.sleep(0.0005)
    return True

"""What the tests of checkpoints and signals share: a tiny strict run, the digests that it must have
at every step, and the look at a run's folder after something was done to it.

A straight run that keeps everything gives the digests. A run that was hurt passes if every checkpoint
with a manifest has the digest of its step, none that was told of is lost, and the same command goes
on to the same last digest. Each trial draws from a random stream of its own (seed and number), so
`replay:` lines repeat one trial without those before it.
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
LIMIT_S = float(os.environ.get("LIMIT_S", "120"))  # a process that takes longer hangs


class Wrong(Exception):
    """What the program did is not what it promises."""


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
        """A process of its own group; its output goes to files beside the run's folder."""
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
        """The newest step that the last run said is durable; 0: none."""
        return max((int(step) for step in CKPT_LINE.findall(self.out())), default=0)

    # ---- digests ----

    def digest(self, path):
        found = subprocess.run([self.program, "digest", str(path)], capture_output=True, text=True,
                               timeout=LIMIT_S)
        if found.returncode != 0:
            raise Wrong(f"digest {path}: exit {found.returncode}\n    {found.stderr.strip()}")
        return found.stdout.split()[0]

    def straight(self, more_steps=0):
        """The digest of every saved step, from one run that keeps all."""
        run = self.dir / "straight"
        self.run(run, train__steps=self.steps + more_steps, checkpoint__keep=100000)
        for path, step, _ in checkpoints(run):
            self.digests[step] = self.digest(path)
        shutil.rmtree(run)

    def straight_step(self, step):
        """Of a step at which no checkpoint was due: from a run that ends there."""
        if step not in self.digests:
            run = self.dir / "to-step"
            self.run(run, train__steps=step, checkpoint__every=0, eval__every=10**9)
            self.digests[step] = self.digest(run)
            shutil.rmtree(run)
        return self.digests[step]

    def check(self, run, told=0, allowed=None):
        """Every checkpoint is whole and right; returns the newest step (0: none)."""
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
        """The same command again, to the end: exit 0, the straight run's digest, nothing left over."""
        self.run(run, **more)
        newest = self.check(run, allowed=[self.steps])
        if self.digest(run) != self.digests[newest]:
            raise Wrong("the last digest is not the straight run's")
        left = debris(run)
        if left:
            raise Wrong(f"debris after a whole run: {left}")


def checkpoints(run):
    """(path, step, fork) of all with a manifest, oldest first."""
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
    """What a folder of checkpoints should not hold once nothing writes in it."""
    left = []
    for entry in os.scandir(pathlib.Path(run) / "checkpoints"):
        if STEP.match(entry.name) and not os.path.exists(os.path.join(entry.path, "manifest.json")):
            left.append(entry.name)
        if ".tmp" in entry.name:
            left.append(entry.name)
    return sorted(left)


def wait_for(condition, process, what):
    """Until the condition holds: True. False: the process ended before. Never a matter of time."""
    begin = time.monotonic()
    while not condition():
        if not is_alive(process.pid):
            return bool(condition())
        if time.monotonic() - begin > LIMIT_S:
            raise Wrong(f"never came: {what}")
        time.sleep(0.0005)
    return True

"""Simulates power cuts on a real file system: shuts down a small ext4 image under a run that saves.

usage: ckpt_power.py [--cuts N] [--seed S]

At the end the test checks itself: it must detect a process whose fsync does nothing.

EXT4_IOC_SHUTDOWN stops the file system like a power cut: unsynced data is lost (or not, depending on
the flag), and nothing more is written. Then the test kills the process and mounts the image again,
which replays its journal. The same command must continue from the newest checkpoint that was reported,
or from a newer complete one, and reach the uninterrupted run's digest. Needs root and loop devices.
"""
import argparse
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from ckpt_rig import Rig, Wrong, commit, skip, wait_for

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
FLUSH_ALL, FLUSH_JOURNAL, FLUSH_NOTHING = 0, 1, 2


class Image:
    """A file system of some MiB in a file, mounted over a loop device."""

    def __init__(self, folder, mib, kind="ext4"):
        self.file, self.at = folder / "image", folder / "mnt"
        self.at.mkdir()
        self.mounted = False
        if os.geteuid() != 0:
            skip("mounting an image needs root")
        if not shutil.which("mkfs.ext4") or not os.path.exists("/dev/loop-control"):
            skip("no mkfs.ext4 or no loop devices")
        with open(self.file, "wb") as f:
            f.truncate(mib << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", "-b", "1024", "-J", "size=1", self.file], check=True)
        if not self.mount(check=False):
            skip("loop mounts are not allowed here")

    def mount(self, check=True, options="loop"):
        done = subprocess.run(["mount", "-o", options, self.file, self.at], capture_output=True,
                              text=True)
        self.mounted = done.returncode == 0
        if check and not self.mounted:
            raise Wrong(f"mount: {done.stderr}")
        return self.mounted

    def unmount(self):
        for _ in range(6000):  # a killed process may not have ended yet
            if not self.mounted:
                return
            done = subprocess.run(["umount", self.at], capture_output=True, text=True)
            self.mounted = done.returncode != 0
            if self.mounted:
                time.sleep(0.01)
        raise Wrong(f"umount: {done.stderr}")

    def cut(self, flag):
        fd = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)


def supported(image):
    try:
        image.cut(FLUSH_NOTHING)
    except OSError as error:
        skip(f"EXT4_IOC_SHUTDOWN: {error.strerror}")
    image.unmount()
    image.mount()


def begun(run):
    folder = run / "checkpoints"
    return set(os.listdir(folder)) if folder.is_dir() else set()


LIE = ("strace", "-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e",
       "inject=fsync,fdatasync:retval=0")


def cut_once(rig, image, run, dice, span_s):
    """Runs, cuts and mounts again; returns the target of the cut and the newest step."""
    flag = dice.choice([FLUSH_NOTHING] * 6 + [FLUSH_JOURNAL] * 2 + [FLUSH_ALL])
    aim = dice.choice(["time", "save"])
    old = begun(run)
    saves = dice.randrange(1, 4)
    process = rig.start(run)
    if aim == "save":
        wait_for(lambda: len(begun(run) - old) >= saves, process, "a save")
        time.sleep(dice.expovariate(1 / 0.003))
    else:
        time.sleep(dice.uniform(0, span_s))
    told = rig.told()  # before the cut: later reports concern a disk that is gone
    image.cut(flag)
    rig.kill(process)
    image.unmount()
    image.mount()
    return aim, rig.check(run, told=told)


def loop(rig, image, cuts, seed):
    supported(image)
    run = image.at / "run"
    begin = time.monotonic()
    rig.straight()
    span_s = time.monotonic() - begin
    counts = {"time": 0, "save": 0}
    advanced = runs = before = 0
    for trial in range(1, cuts + 1):
        aim, newest = cut_once(rig, image, run, random.Random(seed * 1000003 + trial), span_s)
        if newest < before:
            raise Wrong(f"cut {trial}: step {before} was the newest, now it is {newest}")
        counts[aim] += 1
        advanced += newest > before
        before = newest
        if newest == rig.steps or trial % 10 == 0 or trial == cuts:
            rig.finish(run)
            shutil.rmtree(run)
            before = 0
            runs += 1
    if cuts >= 10 and advanced * 4 < cuts:
        raise Wrong(f"only {advanced} of {cuts} cuts came after a new checkpoint: no progress")
    print(f"[       OK ] {cuts} power cuts ({counts['save']} in a save), {advanced} of them after a "
          f"new checkpoint, {runs} runs to the end")


def lie(rig, image):
    """A run without syncs must be caught losing a checkpoint that it reported as durable."""
    if not shutil.which("strace") or subprocess.run([*LIE, "true"], capture_output=True).returncode:
        print("SKIP: no strace to make fsync a lie")
        return
    for trial in range(1, 6):
        run = image.at / f"lie-{trial}"
        process = rig.start(run, before=LIE, train__steps=1000000)
        wait_for(lambda: rig.told() >= 2 * rig.every, process, "two saves")
        told = rig.told()
        image.cut(FLUSH_NOTHING)
        rig.kill(process)
        image.unmount()
        image.mount()
        try:
            rig.check(run, told=told)
        except Wrong:
            print(f"[       OK ] an fsync that does nothing is found out, at cut {trial}")
            return
    raise Wrong("5 cuts of a run that syncs nothing, and all was there")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuts", type=int, default=8)
    parser.add_argument("--seed", type=lambda s: int(s, 0), default=1)
    args = parser.parse_args()
    rig = Rig(steps=60, every=5)
    image = None
    try:
        image = Image(rig.dir, 24)
        loop(rig, image, args.cuts, args.seed)
        lie(rig, image)
    except Wrong as wrong:
        print(f"[  FAILED  ] power cut: {wrong}")
        print(f"replay: {commit()} python3 tests/support/ckpt_power.py --cuts {args.cuts} "
              f"--seed {args.seed:#x}")
        sys.exit(1)
    finally:
        if image is not None:
            image.unmount()
        rig.close()


if __name__ == "__main__":
    main()

"""Tests saves that find no space: a full disk, a disk that turns read-only, a limit on file sizes.

usage: ckpt_full.py

Such a save costs only its own checkpoint. A warning names the step that is safe, training continues,
older checkpoints stay complete, the failed save leaves nothing behind, and the next save succeeds once
there is space again. If it was the last save, the run exits with 4 and the same command completes it.
"""
import os
import re
import resource
import signal
import sys

sys.path.insert(0, os.path.dirname(__file__))
from ckpt_power import Image
from ckpt_rig import Rig, Wrong, debris, wait_for

GIVEN_UP = re.compile(r"checkpoint .*?step (\d+) given up: (.*)")
FOR_EVER = 10000000
SMALL_BYTES = 48 << 10  # less than a checkpoint of this model
failures = 0


def given_up(rig):
    return GIVEN_UP.findall(rig.out() + rig.err())


def fill(folder, leave_bytes):
    """Makes a file that leaves only this much space; a second call takes what has become free."""
    with open(folder / "filler", "ab", buffering=0) as f:
        for piece in (1 << 18, 1 << 14, 1 << 10):
            try:
                while True:
                    info = os.statvfs(folder)
                    if info.f_bavail * info.f_frsize < leave_bytes + piece:
                        break
                    f.write(b"x" * piece)
                os.fsync(f.fileno())
            except OSError:
                pass


def stop(rig, process, run, safe):
    """Sends TERM: exit code 75 and the right last digest. Then runs five steps more."""
    process.send_signal(signal.SIGTERM)
    rig.wait(process, (75,))
    newest = rig.check(run, told=rig.told())
    if newest <= safe:
        raise Wrong(f"stopped with step {newest}, after step {safe} was saved")
    rig.run(run, train__steps=newest + 5)
    rig.check(run, allowed=[newest + 5])
    if debris(run):
        raise Wrong(f"debris: {debris(run)}")


def a_disk_that_fails(rig, run, hurt, heal, words):
    """Saves ten steps, damages the disk under the second process, repairs it."""
    rig.run(run, train__steps=10)
    process = rig.start(run, train__steps=FOR_EVER)
    wait_for(lambda: rig.told() > 10, process, "a first save")

    def two_given_up():
        hurt(process)
        return len(given_up(rig)) >= 2

    if not wait_for(two_given_up, process, "two saves given up"):
        raise Wrong(f"exit {process.wait()} instead of going on\n{rig.tail()}")
    step, reason = given_up(rig)[-1]
    if not re.search(words, reason):
        raise Wrong(f"says \"{reason}\", expected {words}")
    safe = rig.check(run, told=rig.told())
    named = re.search(r"step[- ]0*(\d+) is safe", reason)
    if not named or int(named[1]) != safe:
        raise Wrong(f"\"{reason}\" does not name step {safe} as safe")
    heal(process)
    wait_for(lambda: rig.told() > int(step), process, "a save after there is room again")
    stop(rig, process, run, safe)


def checkpoints_on_a_full_disk(rig, image):
    run = rig.dir / "full"
    run.mkdir()
    os.symlink(image.at, run / "checkpoints")  # only they are on the small disk
    a_disk_that_fails(rig, run, lambda _: fill(image.at, SMALL_BYTES),
                      lambda _: (image.at / "filler").unlink(), "[Nn]o space.*wanted .*free ")


def all_on_a_full_disk(rig, image):
    a_disk_that_fails(rig, image.at / "all", lambda _: fill(image.at, 0),
                      lambda _: (image.at / "filler").unlink(), "[Nn]o space.*wanted .*free ")


def a_disk_that_turns_read_only(rig, image):
    run = rig.dir / "ro"
    run.mkdir()
    os.symlink(image.at, run / "checkpoints")

    def read_only(_):
        if not given_up(rig):  # repeated, because it is refused as busy while a save has a file open
            image.mount(check=False, options="remount,ro")

    a_disk_that_fails(rig, run, read_only, lambda _: image.mount(options="remount,rw"), "[Rr]ead-only")


def a_limit_on_files(rig, _):
    def limit(process, size):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    a_disk_that_fails(rig, rig.dir / "limit", lambda p: limit(p, SMALL_BYTES),
                      lambda p: limit(p, resource.RLIM_INFINITY), "too large")


def the_last_save_fails(rig, image):
    run = rig.dir / "last"
    run.mkdir()
    os.symlink(image.at, run / "checkpoints")
    rig.run(run, train__steps=10)
    fill(image.at, SMALL_BYTES)
    rig.run(run, expected=(4,), train__steps=14)
    if not re.search("[Nn]o space|full", rig.out() + rig.err()):
        raise Wrong(f"does not say why\n{rig.tail()}")
    rig.check(run, allowed=[10])
    if not (run / "STATUS").read_text().startswith("failed 4"):
        raise Wrong(f"STATUS: {(run / 'STATUS').read_text()}")
    (image.at / "filler").unlink()
    rig.run(run, train__steps=14)
    rig.check(run, allowed=[14])
    if debris(run):
        raise Wrong(f"debris: {debris(run)}")


def trial(test, with_image):
    global failures
    name = test.__name__.replace("_", " ")
    rig = Rig(steps=20, every=5)
    image = None
    try:
        if with_image:
            image = Image(rig.dir, 6)
        test(rig, image)
        print(f"[       OK ] {name}")
    except Wrong as wrong:
        failures += 1
        print(f"[  FAILED  ] {name}: {wrong}")
    except SystemExit:
        print(f"SKIP: {name}: see the line before")
    finally:
        if image is not None:
            image.unmount()
        rig.close()


def main():
    trial(a_limit_on_files, False)
    for test in (checkpoints_on_a_full_disk, all_on_a_full_disk, a_disk_that_turns_read_only,
                 the_last_save_fails):
        trial(test, True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()

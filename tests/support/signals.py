"""INT, TERM and USR1 in every phase of a run: exit 75 with a whole checkpoint, from which the same
command goes on to the bits of a run that was never stopped.

usage: signals.py [PHASE ...]

A phase is recognised by what it leaves (a handler that is installed, a file that appears), never by
time; what could be over too soon is made to last: much text, an evaluation of a million batches, one
step of minutes. Nothing here says how long a stop may take, but a hang is found.
With TRIALS_PART, by day, each phase has one of the signals.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from ckpt_rig import Rig, Wrong, WORDS, checkpoints, debris, wait_for

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
FOR_EVER = 10000000
IN_TURN = int(os.environ.get("TRIALS_PART", "1")) > 1
failures = 0


def catches(process, number):
    """Has the process installed its handler?"""
    def look():
        try:
            text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return False
        mask = re.search(r"^SigCgt:\s*(\w+)", text, re.M)
        return mask is not None and int(mask[1], 16) >> (number - 1) & 1 == 1
    return look


def has_taken(run, step):
    def look():
        try:
            return f'"step": {step},' in (run / "metrics.jsonl").read_text()
        except OSError:
            return False
    return look


def stopped(rig, process, run, number):
    """The run was asked to stop: 75, STATUS says so, what it saved is whole. The step it is at."""
    rig.wait(process, (75,))
    name = signal.Signals(number).name
    words = (run / "STATUS").read_text()
    if not re.match(rf"stopped 75 .*\b{name}\b.*\bstep \d+", words):
        raise Wrong(f"STATUS is {words!r}, expected stopped 75, {name} and the step")
    newest = rig.check(run)
    if debris(run):
        raise Wrong(f"debris: {debris(run)}")
    return newest


def goes_on(rig, run, newest, **keys):
    """The same command (but for how far), to three steps more."""
    last = max(rig.steps, newest + 3)
    rig.run(run, train__steps=last, **keys)
    rig.check(run, allowed=[last])


# ---- the phases ---------------------------------------------------------------------------------


def before_the_first_step(rig, number):
    run = rig.dir / "run"
    process = rig.start(run, train__steps=FOR_EVER)
    wait_for(catches(process, number), process, "the handler")
    process.send_signal(number)
    goes_on(rig, run, stopped(rig, process, run, number))


def while_text_becomes_tokens(rig, number):
    run = rig.dir / "run"
    line = " ".join(WORDS) + "\n"
    with open(rig.dir / "large.txt", "w") as text:
        for _ in range(600):
            text.write(line * 1000)
    process = rig.start(run, train__steps=FOR_EVER, data__train=rig.dir / "large.txt")
    cache = run / "cache"
    wait_for(lambda: cache.is_dir() and any(cache.iterdir()), process, "the cache of tokens")
    process.send_signal(number)
    newest = stopped(rig, process, run, number)
    if newest > 2:
        raise Wrong(f"stopped with step {newest}: the data was ready before the signal")
    if rig.wait(rig.start(run, train__steps=3, data__train=rig.dir / "large.txt")) != 0:
        raise Wrong(f"does not go on\n{rig.tail()}")


def while_weights_are_imported(rig, number):
    run = rig.dir / "run"
    rig.run(rig.dir / "first", train__steps=2)
    keys = {"model__from": next((rig.dir / "first" / "checkpoints").glob("step-*"))}
    shape = {key: rig.keys.pop(key) for key in list(rig.keys) if key.startswith("model.")}
    process = rig.start(run, train__steps=FOR_EVER, **keys)
    wait_for(catches(process, number), process, "the handler")
    process.send_signal(number)
    rig.wait(process, (75,))
    last = max((step for _, step, _ in checkpoints(run)), default=0) + 3
    rig.run(rig.dir / "to-end", train__steps=last, **keys)
    rig.run(run, train__steps=last, **keys)
    if rig.digest(run) != rig.digest(rig.dir / "to-end"):
        raise Wrong("another digest than the run that was not stopped")
    rig.keys.update(shape)


def in_a_step(rig, number):
    run = rig.dir / "run"
    process = rig.start(run, train__steps=FOR_EVER, checkpoint__every=0, eval__every=10**9)
    wait_for(has_taken(run, 2), process, "step 2")
    process.send_signal(number)
    newest = stopped(rig, process, run, number)
    if newest < 2:
        raise Wrong(f"step 2 was done, {newest} is saved")
    goes_on(rig, run, newest)


def in_an_evaluation(rig, number):
    run = rig.dir / "run"
    process = rig.start(run, train__steps=FOR_EVER, eval__every=4, eval__batches=16777216,
                        checkpoint__every=0, log__every=1)
    wait_for(lambda: re.search(r"^step +4/", rig.out(), re.M), process, "the evaluation")
    process.send_signal(number)
    goes_on(rig, run, stopped(rig, process, run, number))


def in_a_save(rig, number):
    run = rig.dir / "run"
    process = rig.start(run, train__steps=FOR_EVER)
    wait_for(lambda: (run / "checkpoints" / "step-0000010").is_dir(), process, "the second save")
    process.send_signal(number)
    newest = stopped(rig, process, run, number)
    if newest < 10:
        raise Wrong(f"step 10 was being saved, {newest} is the newest")
    goes_on(rig, run, newest)


def in_the_last_save(rig, number):
    """All steps are done: the run ends as if nobody had asked."""
    run = rig.dir / "run"
    process = rig.start(run, train__steps=9, checkpoint__every=0)
    last = run / "checkpoints" / "step-0000009"
    wait_for(last.is_dir, process, "the last save")
    process.send_signal(number)
    code = rig.wait(process, (0, 75))
    rig.check(run, allowed=[9])
    words = (run / "STATUS").read_text()
    if not words.startswith("done 0" if code == 0 else "stopped 75"):
        raise Wrong(f"exit {code}, STATUS {words!r}")
    goes_on(rig, run, 9)


def long_step(rig, run):
    """A process in a step of many seconds, at the least."""
    keys = {"model.dim": 128, "model.layers": 2, "model.ffn_dim": 512, "train.global_batch": 32768,
            "train.micro_batch": 64, "eval.every": 10**9}
    process = rig.start(run, train__steps=FOR_EVER, **keys)
    wait_for(lambda: (run / "STATUS").is_file(), process, "STATUS: running")
    return process


def pending(process, number):
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", text, re.M)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def a_second_int(rig, _):
    """Quits at once, by the signal: a shell sees 130."""
    run = rig.dir / "run"
    process = long_step(rig, run)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: not pending(process, signal.SIGINT), process, "delivery of the first")
    process.send_signal(signal.SIGINT)
    code = rig.wait(process)
    if code != -signal.SIGINT:
        raise Wrong(f"ended with {code}, expected death by SIGINT")


def generating(rig, number):
    """Nothing is there to save: the process dies by the signal and what it printed is whole text."""
    run = rig.dir / "run"
    rig.run(run, train__steps=2, model__context=65536)
    with open(rig.dir / "out", "w") as out, open(rig.dir / "err", "w") as err:
        process = subprocess.Popen([rig.program, "generate", run, "--prompt", "the ship",
                                    "--max-tokens", "60000"], stdout=out, stderr=err,
                                   stdin=subprocess.DEVNULL)
    rig.processes.append(process)
    wait_for(lambda: rig.out() != "", process, "the first text")
    process.send_signal(number)
    code = rig.wait(process)
    if code not in (-number, 75):
        raise Wrong(f"ended with {code}\n{rig.tail()}")
    rig.check(run, allowed=[2])


PHASES = [before_the_first_step, while_text_becomes_tokens, while_weights_are_imported, in_a_step,
          in_an_evaluation, in_a_save, in_the_last_save, a_second_int, generating]


def trial(phase, number):
    global failures
    name = f"{signal.Signals(number).name} {phase.__name__.replace('_', ' ')}"
    rig = Rig(steps=20, every=5)
    try:
        phase(rig, number)
        print(f"[       OK ] {name}", flush=True)
    except Wrong as wrong:
        failures += 1
        print(f"[  FAILED  ] {name}: {wrong}", flush=True)
    finally:
        rig.close()


def main():
    for turn, phase in enumerate(PHASES):
        if sys.argv[1:] and phase.__name__ not in sys.argv[1:]:
            continue
        stops = STOPS if phase is not a_second_int else (signal.SIGINT,)
        for number in stops[turn % len(stops):][:1] if IN_TURN else stops:
            trial(phase, number)
    sys.exit(failures > 0)


main()

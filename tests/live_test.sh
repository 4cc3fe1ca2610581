#!/bin/bash
# `train` on several ranks, seen on a terminal: one live line at the bottom, as with one rank, no wider than
# the terminal, gone at the end; never in a log. Without a terminal there is none.
set -u
. tests/support/named.sh
command -v python3 >/dev/null || { echo "skipped: no python3, which makes the terminal"; exit 77; }
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
cat >terminal.py <<'END'
import fcntl, os, pty, signal, struct, sys, termios

def show(columns, command, when=None, number=0):
    """What the command writes to a terminal, and its exit code; `number` is sent to it when `when` is seen."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm")
        os.environ.pop("COLUMNS", None)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execvp(command[0], command)
    seen = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            piece = b""
        if not piece:
            break
        seen += piece
        if when is not None and when in seen:
            os.kill(pid, number)
            when = None
    return seen.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

trireme, folder, kind = sys.argv[1:4]
keys = sys.argv[4:]
command = [trireme, "train", "demo", "run.dir=" + folder, "layout.dp=2", *keys]
if kind == "killed":
    seen, code = show(70, command, b"\r[", signal.SIGINT)
    assert code == 75, (code, seen)
    assert "SIGINT" in seen, seen
else:
    seen, code = show(70, command)
    assert code == 0, (code, seen)
    assert "done " in seen, seen
live = [part.split("\033[K")[0] for part in seen.split("\r")[1:] if part.startswith("[")]
assert len(live) > (kind == "whole"), seen
assert all(len(line) <= 70 for line in live), live
assert seen.split("\r[")[-1].split("\033[K")[1] == "\r", seen  # the last one is erased
for name in ("log.txt", "logs/rank-00000.log", "logs/rank-00001.log"):
    text = open(os.path.join(folder, name)).read()
    assert "\r" not in text and "\033" not in text, (name, text)
    assert name.endswith("1.log") or "step " in text, (name, text)
END
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=4 eval.every=0 log.every=20"
code "a terminal shows a live line" 0 python3 terminal.py "$trireme" live whole $keys train.steps=60
code "and gives it up when it is stopped" 0 python3 terminal.py "$trireme" stopped killed $keys train.steps=100000
code "no terminal" 0 "$trireme" train demo run.dir=plain layout.dp=2 $keys train.steps=20
if grep -q $'\r\|\033' out; then failed "no terminal: whole lines only"; else passed "no terminal: whole lines only"; fi
[ $failures = 0 ]

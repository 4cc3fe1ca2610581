#!/bin/bash
# Makes a sample of a save's system calls fail or kill. SEED is an option
# (tests/support/ckpt_syscalls.py).
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_syscalls.py --seed "${SEED:-1}" ${ALL:+--all}

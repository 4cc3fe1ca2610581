#!/bin/bash
# System calls of a save that fail or kill: a sample (tests/support/ckpt_syscalls.py). SEED.
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_syscalls.py --seed "${SEED:-1}" ${ALL:+--all}

#!/bin/bash
# kill -9 at random moments: no checkpoint lost or wrong (tests/support/ckpt_kill.py). KILLS, SEED.
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_kill.py --kills "${KILLS:-20}" --seed "${SEED:-1}"

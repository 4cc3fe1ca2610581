#!/bin/bash
# Kills runs with kill -9 at random moments; no checkpoint may be lost or wrong. KILLS and SEED are
# options (tests/support/ckpt_kill.py).
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_kill.py --kills "${KILLS:-20}" --seed "${SEED:-1}"

#!/bin/bash
# Simulates power cuts on a small ext4 image. CUTS and SEED are options
# (tests/support/ckpt_power.py).
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_power.py --cuts "${CUTS:-10}" --seed "${SEED:-1}"

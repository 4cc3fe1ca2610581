#!/bin/bash
# Tests saves on a full disk (tests/support/ckpt_full.py).
# Without root, only the cases that need none.
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_full.py

#!/bin/bash
# Saves that find no room (tests/support/ckpt_full.py); without root only what needs none.
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/ckpt_full.py

#!/bin/bash
# INT, TERM and USR1 in every phase of a run (tests/support/signals.py).
set -u
command -v python3 >/dev/null || { echo "SKIP: no python3"; exit 77; }
exec python3 tests/support/signals.py

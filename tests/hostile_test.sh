#!/usr/bin/env bash
# The program on files that lie: hostile_cases.py makes them, runs it, and judges how it ends.
set -u
: "${TRIREME:?the program to test}"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
python3 tests/hostile_cases.py "$TRIREME" "$scratch"

#!/usr/bin/env bash
# Wrong inputs of each command get a clear answer: tests/support/wrong_inputs.py. By day one of eight.
set -u
: "${TRIREME:?the program to test}"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
python3 tests/support/wrong_inputs.py "$TRIREME" "$scratch/inputs" "${INPUTS_PART:-8}"

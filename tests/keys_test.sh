#!/usr/bin/env bash
# Every key and flag changes something, or the command says that it does not: tests/support/key_walk.py.
# By day an eighth of the lines, and that no key lacks a line; tests/keys_night.sh tries all.
set -u
: "${TRIREME:?the program to test}"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
python3 tests/support/key_walk.py "$TRIREME" "$scratch/walk" "${KEYS_PART:-8}"

#!/bin/bash
# Eight ranks that wait for a part of the time, as devices of equal speed; one of them waits longer. It is named, its
# micro-batches move to the others, and the digest is that of a run without it.
set -u
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
script=$PWD/bench/straggler.py
. tests/support/named.sh
cd "$dir" || exit 1
code "a rank at half speed leaves no trace" 0 python3 "$script" "$trireme" --steps 24
says "it is named" out 'rank 3 compute'
says "its micro-batches move" out 'rank 3 micro-batches moved'
[ $failures = 0 ]

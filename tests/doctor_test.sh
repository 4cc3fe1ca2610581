#!/usr/bin/env bash
# `doctor` from outside: every check is told once, what is missing is told with its cost, a folder that
# cannot be written is exit 4, and nothing is left behind.
set -u
trireme=${TRIREME:?the program to test}
scratch=$(mktemp -d) && cd "$scratch" || exit 1
trap 'rm -rf "$scratch"' EXIT
failures=0

# check EXIT_CODE WHAT... -- COMMAND...: it exits so, and each WHAT stands in what it prints.
check() {
    local code=$1 found wanted=()
    shift
    while [ "$1" != -- ]; do wanted+=("$1"); shift; done
    shift
    "$@" >out 2>&1
    found=$?
    if [ "$found" -ne "$code" ]; then
        echo "$*: exit $found, $code expected"; cat out
        failures=$((failures + 1))
    fi
    for what in ${wanted[@]+"${wanted[@]}"}; do
        grep -qF -- "$what" out && continue
        echo "$*: \"$what\" is not in"; cat out
        failures=$((failures + 1))
    done
}

check 0 'summary  ' ' 0 fail' -- "$trireme" doctor
for name in cpu oneDNN memory cuda storage network launchers clock limits tools; do
    [ "$(grep -cE "^(ok|warn|fail) +$name " out)" -eq 1 ] && continue
    echo "doctor: not one line of $name"; cat out
    failures=$((failures + 1))
done
awk 'length > 100' out | grep . && { echo "doctor: too wide"; failures=$((failures + 1)); }

check 0 '"checks": [' '"name": "network", "level": "ok"' '"fail": 0' -- "$trireme" doctor --json
check 4 'fail  storage' 'nowhere to write' 'error[E001]' -- "$trireme" doctor missing
check 4 '"level": "fail"' '"fail": 1' -- "$trireme" doctor missing --json
[ ! -d /proc/self ] || check 4 'not writable' -- "$trireme" doctor /proc
check 2 'nothing' -- "$trireme" doctor . nothing

# Programs are looked for on PATH, and only there.
mkdir bin && printf '#!/bin/sh\n' >bin/mpirun && printf '#!/bin/sh\n' >bin/tensorboard && chmod +x bin/*
check 0 'mpirun there, srun none' 'tensorboard there, python3 none' -- env PATH="$scratch/bin" "$trireme" doctor
check 0 'mpirun none' 'events are written anyway' -- env PATH="$scratch" "$trireme" doctor
check 0 'warn  limits' 'nofile 64' -- bash -c 'ulimit -n 64; exec "$0" doctor' "$trireme"
check 4 'not writable' -- bash -c "trap '' XFSZ; ulimit -f 100; exec \"\$0\" doctor" "$trireme"

rm -rf bin out
[ -z "$(ls -A)" ] || { echo "left behind: $(ls -A)"; failures=$((failures + 1)); }
[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

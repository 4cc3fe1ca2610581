#!/usr/bin/env bash
# `doctor` from outside: every check is told once, what is missing is told with its cost, a folder that
# cannot be written is exit 4, and nothing is left behind.
set -u
. tests/support/check.sh

check 0 'summary  ' ' 0 fail' 'products have their known bits' -- doctor
for name in cpu oneDNN memory cuda storage network comm launchers clock limits tools; do
    [ "$(grep -cE "^(ok|warn|fail) +$name " out)" -eq 1 ] && continue
    echo "doctor: not one line of $name"; cat out
    failures=$((failures + 1))
done
awk 'length > 100' out | grep . && { echo "doctor: too wide"; failures=$((failures + 1)); }

check 0 '"checks": [' '"name": "network", "level": "ok"' '"fail": 0' -- doctor --json
# The ways between ranks are tried, and the one that is taken is told.
check 0 'comm       shm: ranks of this host' 'add 1 MiB over' -- doctor
python3 - "$("$trireme" doctor --json)" <<'EOF2' || failures=$((failures + 1))
import json, sys
row = [c for c in json.loads(sys.argv[1])["checks"] if c["name"] == "comm"][0]
assert "GB/s (direct" in row["found"], row
apart = "none between hosts" not in row["found"]
assert (row["level"], row["cost"] is None) == (("ok", True) if apart else ("warn", False)), row
EOF2

check 4 'fail  storage' 'cannot write there' 'error[E001]' -- doctor missing
check 4 '"level": "fail"' '"fail": 1' -- doctor missing --json
[ ! -d /proc/self ] || check 4 'not writable' -- doctor /proc
check 2 'nothing' -- doctor . nothing

# Programs are looked for on PATH, and only there.
mkdir bin && printf '#!/bin/sh\n' >bin/mpirun && printf '#!/bin/sh\n' >bin/tensorboard && chmod +x bin/*
check_any 0 'mpirun there, srun none' 'tensorboard there, python3 none' -- env PATH="$scratch/bin" "$trireme" doctor
check_any 0 'mpirun none' 'runs write events in any case' -- env PATH="$scratch" "$trireme" doctor
check_any 0 'warn  limits' 'nofile 64' -- bash -c 'ulimit -n 64; exec "$0" doctor' "$trireme"
check_any 4 'not writable' -- bash -c "trap '' XFSZ; ulimit -f 100; exec \"\$0\" doctor" "$trireme"

rm -rf bin out
[ -z "$(ls -A)" ] || { echo "left behind: $(ls -A)"; failures=$((failures + 1)); }
[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

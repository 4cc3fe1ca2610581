#!/bin/bash
# tests/restart_test.sh with longer runs and more faults, for several seeds.
set -u
for seed in $(seq "${RESTART_SEEDS:-20}"); do
    RESTART_STEPS=2000 RESTART_SECONDS=40 RESTART_SEED=$seed bash tests/restart_test.sh || { echo "seed $seed"; exit 1; }
done
# A rank that runs half of the time is named, with its cause, while it does.
. tests/support/named.sh
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
printf '4 slow 1\n' >slow
code "a slow rank" 0 "$trireme" chaos demo/config.yaml run.dir="$dir/slow-run" layout.dp=2 model.layers=2 model.dim=64 \
     model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64 train.global_batch=8 eval.every=0 kernels.threads=1 \
     train.steps=2500 --schedule slow
says "is named with its cause" slow-run/metrics.jsonl '"event": "straggler", "rank": 1.*"cause": "compute"'
[ $failures = 0 ]

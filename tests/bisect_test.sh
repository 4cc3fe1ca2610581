#!/bin/bash
# `trireme bisect` from outside: layouts that agree, what it prints, what it refuses.
set -u -o pipefail
. tests/support/named.sh

small="model.layers=2 model.dim=32 model.heads=2 model.ffn_dim=64 model.context=64 train.seq=32 eval.every=0
    train.global_batch=4 train.micro_batch=1 kernels.threads=1 train.steps=10"
code "init" 0 "$trireme" init "$dir/demo"
bisect() { timeout 600 "$trireme" bisect "$dir/demo/config.yaml" $small "$@"; }

code "four ranks" 0 bisect layout.dp=2 layout.tp=2 --steps 2
says "phases in their order" out "step 2 +update"
says "and the end" out "^agrees +2 steps, [0-9]+ tensors"
says "with the measure" out "bounds by one rank against fp64"
code "a pipeline in bf16, each tensor" 0 bisect layout.pp=2 train.precision=bf16 --steps 1 --verbose
says "a line each" out "step 1 +forward +layers.1, attention.y +[0-9]+ values"
code "as JSON" 0 bisect layout.dp=2 layout.zero=1 --steps 1 --json
says "an object" out '^\{"differs": false, "ranks": 2, "steps": 1,'
# Losses of answers: of sequences whose answers lie on two ranks, and of a reward model.
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%d+1=", "chosen": "%d", "rejected": "ab"}\n' $i $((i + 1)); done >"$dir/pairs.jsonl"
answers="data.train=$dir/pairs.jsonl data.valid=0 train.precision=fp32"
code "answers along cp" 0 bisect $answers train.objective=dpo layout.cp=2 --steps 1
code "a reward model along dp" 0 bisect $answers train.objective=reward layout.dp=2 --steps 1
if [ -e "$dir/demo/run/metrics.jsonl" ]; then failed "no run is begun"; else passed "no run is begun"; fi

code "a layout that there is not" 3 bisect layout.tp=3
code "a codec between ranks" 3 bisect layout.dp=2 comm.compression=bf16
says "named" err "comm.compression=none"
code "no steps" 2 bisect --steps 0

[ $failures = 0 ]

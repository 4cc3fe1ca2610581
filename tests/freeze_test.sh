#!/bin/bash
# Frozen weights (train.freeze): they keep their values, have no gradient and no optimizer state, and
# take less memory; the other weights get the same update as without; every layout gives one digest.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
keys="model.layers=4 model.dim=64 model.heads=4 model.ffn_dim=128 train.seq=64 train.global_batch=8
      eval.every=2 eval.batches=1 kernels.threads=1"
strict="determinism=strict determinism.tp_shards=2 determinism.cp_shards=2 train.steps=3"
lower="train.freeze=layers.[01].*,embed.*"
"$trireme" init demo >/dev/null || exit 1
train() { # NAME KEY...: with the standard ones
    local name=$1
    shift
    timeout 600 "$trireme" train demo run.dir="$dir/$name" $keys "$@"
}

code "all weights, one step" 0 train all train.steps=1 optimizer.clip=0 schedule.warmup=0
code "lower half frozen, one step" 0 train half train.steps=1 optimizer.clip=0 schedule.warmup=0 $lower
code "they differ" 8 "$trireme" inspect all --diff half --tensors
cp out differ
says "frozen weights differ" differ '^weight/layers.0.attn.q '
if grep -qE '^(weight|m|v)/(layers.[23]|norm)' differ; then
    failed "trained weights and their state have the same bits"
else
    passed "trained weights and their state have the same bits"
fi
code "tensors of the frozen run" 0 "$trireme" inspect half/checkpoints/step-0000001 --tensors
says "a frozen weight is saved" out 'weight/layers.0.attn.q'
if grep -qE '[mv]/(layers.[01]|embed)' out; then failed "no state of frozen weights"; else passed "no state of frozen weights"; fi
says "a trained weight has its state" out 'm/layers.2.attn.q'
if [ "$(arena half)" -lt "$(arena all)" ]; then passed "less memory"; else failed "less memory"; fi

code "strict, one rank" 0 train one $strict $lower
want=$(digest one)
same_digests "$want" l "$strict $lower" layout.dp=2 layout.pp=2 layout.tp=2 layout.cp=2 "layout.dp=2 layout.zero=2" \
    "layout.dp=2 layout.zero=3 layout.pp=2" "layout.pp=2 layout.schedule=zb-v" train.recompute=full
code "frozen layers above and below trained ones" 0 train odd $strict 'train.freeze=layers.[13].*'
code "the same in four ranks" 0 train odd4 $strict 'train.freeze=layers.[13].*' layout.pp=2 layout.dp=2
same "the same digest" "$(digest odd4)" "$(digest odd)"

code "the head alone is trained" 0 train head $strict model.tied=no 'train.freeze=layers.*,embed.*,norm.*' layout.pp=2
code "two steps" 0 train resumed $strict $lower train.steps=2
code "a third" 0 train resumed $strict $lower
code "other weights are refused" 3 train resumed $strict train.steps=4 'train.freeze=layers.0.*'
says "by the key" err 'train.freeze'

code "a pattern that matches nothing" 3 train none 'train.freeze=layer.0.*'
says "is named" err 'no weight of the model has a name like "layer.0'
code "a part of a fused matrix" 3 train part 'train.freeze=layers.*.attn.q'
says "is named with its matrix" err 'layers.0.attn.q but not layers.0.attn.[kv].*layers.0.attn.qkv'
code "every weight" 3 train every 'train.freeze=*'
says "leaves nothing to train" err 'nothing is left to train'
[ $failures = 0 ]

#!/bin/bash
# Training with products in fp8: it learns, has one digest in every layout that cuts no block, goes on
# exactly after a stop, and sizes that would cut blocks in strict order are refused.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="model.layers=2 model.dim=128 model.heads=2 model.kv_heads=2 model.ffn_dim=256 model.context=256 train.seq=128
      train.global_batch=2 eval.every=0 checkpoint.every=0 kernels.threads=1 schedule.name=constant schedule.warmup=1
      schedule.min_ratio=0 train.precision=fp8"
strict="determinism=strict train.steps=2"
train() { # NAME KEY...
    local name=$1
    shift
    timeout 60 "$trireme" train demo/config.yaml --quiet run.dir="$dir/$name" $keys "$@"
}

code "strict, one rank" 0 train one $strict
want=$(digest one)
same_digests "$want" l "$strict" "layout.dp=2 layout.zero=3 train.recompute=full" "layout.pp=2 train.micro_batch=1"
code "one step" 0 train resumed $strict train.steps=1
code "one more" 0 train resumed $strict layout.dp=2 layout.zero=1
same "goes on exactly" "$(digest resumed)" "$want"
code "bf16" 0 train bf16 $strict train.precision=bf16
code "fast" 0 train fast train.steps=1 train.seq=100
if [ "$(digest bf16)" = "$want" ]; then failed "fp8 is not bf16"; else passed "fp8 is not bf16"; fi
code "part of a block of tokens" 3 train no $strict train.seq=64
says "names the size" err "a multiple of 128"
code "part of a block of a weight" 3 train no $strict train.seq=256 determinism.tp_shards=2
says "names the weight" err "cuts layers.0.attn.qkv into pieces of 64"
[ "$failures" = 0 ]

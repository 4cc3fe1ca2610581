#!/bin/bash
# Training with products in fp8, with factors of blocks and of whole operands: it learns, has one digest in every
# layout that cuts no block, goes on exactly after a stop, and sizes that would cut blocks in strict order are refused.
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
    timeout 600 "$trireme" train demo/config.yaml --quiet run.dir="$dir/$name" $keys "$@"
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

# Factors of whole operands: sizes are free, and a history of three steps forgets within the run.
tensor="$strict train.steps=4 train.seq=96 determinism.tp_shards=2 precision.fp8=tensor precision.fp8_history=3"
code "tensor, one rank" 0 train t1 $tensor
want=$(digest t1)
code "tensor, tp" 0 train t2 $tensor layout.tp=2 layout.sp=yes train.micro_batch=1
same "tensor, tp: the same digest" "$(digest t2)" "$want"
code "tensor, two steps" 0 train t3 $tensor train.steps=2 layout.dp=2 layout.zero=3
code "tensor, two more" 0 train t3 $tensor layout.pp=2
same "tensor: goes on exactly" "$(digest t3)" "$want"
code "tensor, another history" 0 train t4 $tensor precision.fp8_history=1
if [ "$(digest t4)" = "$want" ]; then failed "the history matters"; else passed "the history matters"; fi
# A history belongs to each product that has a gradient; below the first trained weight there is none.
code "tensor, frozen" 0 train f1 $tensor train.freeze=[embed.*,layers.0.*]
want=$(digest f1)
same_digests "$want" f "$tensor train.freeze=[embed.*,layers.0.*]" "layout.dp=2 layout.zero=3 train.recompute=full"
code "tensor, adapter" 0 train a1 $tensor adapter.kind=lora
want=$(digest a1)
same_digests "$want" a "$tensor adapter.kind=lora" "layout.tp=2 layout.sp=yes"
code "tensor, adapter: what is stored" 0 "$trireme" inspect a1/checkpoints/latest --tensors
says "a history of a frozen matrix" out "layers.1.attn.qkv.fp8"
says "histories are no weights" out "7 fp8 history"
if grep -q "layers.0.attn.qkv.fp8" out; then failed "none of the first product"; else passed "none of the first product"; fi

# Sums of gradients in fewer bits leave the counts as they are.
few="train.steps=3 train.seq=32 precision.fp8=tensor layout.dp=2"
code "tensor, codec" 0 train c1 $few comm.compression=int8
code "tensor, no codec" 0 train c2 $few
code "tensor, sums in bf16" 0 train c3 $few precision.grads=bf16
last() { sed -n 's/^{"step": 3.*"loss": \([0-9.]*\).*/\1/p' "$dir/$1/metrics.jsonl"; }
near() { awk -v a="$(last "$1")" -v b="$(last "$2")" 'BEGIN { print (a > 1 && b > 0.99 * a && b < 1.01 * a) }'; }
same "tensor, codec: the same loss within 1%" "$(near c2 c1)" 1
same "tensor, sums in bf16: the same loss within 1%" "$(near c2 c3)" 1

code "tensor: no history in an exported folder" 0 "$trireme" export "$dir/t1" "$dir/hf"
if grep -q fp8 "$dir/hf/model.safetensors"; then failed "no fp8 tensor there"; else passed "no fp8 tensor there"; fi
printf 'model.from: %s\ndata.train: demo/text.txt\n' "$dir/hf" >from.yaml
code "tensor: from a folder" 0 "$trireme" train from.yaml --quiet run.dir="$dir/t5" train.precision=fp8 precision.fp8=tensor \
    train.steps=1 train.seq=32 train.global_batch=2 kernels.threads=1 checkpoint.every=0 eval.every=0

# Each expert has a history, which lies where the expert does.
keys="model.preset=moe-tiny model.layers=1 model.dim=64 model.heads=2 model.kv_heads=2 model.expert_ffn_dim=64
      model.context=64 train.seq=32 train.global_batch=8 eval.every=0 checkpoint.every=0 kernels.threads=1
      schedule.name=constant schedule.warmup=1 schedule.min_ratio=0 train.precision=fp8 precision.fp8=tensor"
code "tensor, experts" 0 train e1 $strict
want=$(digest e1)
same_digests "$want" e "$strict" "layout.dp=2 layout.ep=2"
[ "$failures" = 0 ]

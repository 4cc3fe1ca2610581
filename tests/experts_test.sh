#!/bin/bash
# Mixtures of experts: a small one learns, has one digest in every layout that strict order allows, goes
# on exactly after a stop, and is exported and read back; options that it cannot have yet are refused.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="model.preset=moe-tiny model.layers=2 model.dim=32 model.heads=2 model.expert_ffn_dim=16 model.context=64
      train.seq=32 train.global_batch=8 eval.every=0 checkpoint.every=0 kernels.threads=1 schedule.name=constant
      schedule.min_ratio=0 optimizer.lr=1e-2 model.dropout=0.1"
strict="determinism=strict train.steps=4"
train() { # NAME KEY...
    local name=$1
    shift
    timeout 600 "$trireme" train demo/config.yaml --quiet run.dir="$dir/$name" $keys "$@"
}
loss() { sed -n "s/^{\"step\": $2,.*\"loss\": \([0-9.]*\).*/\1/p" "$1/metrics.jsonl"; }

code "strict, one rank" 0 train one $strict
want=$(digest one)
same_digests "$want" l "$strict" "layout.dp=2 layout.zero=3 train.recompute=selective" "layout.pp=2 train.recompute=full" \
    "layout.dp=2 layout.ep=2 train.micro_batch=2"
code "two steps" 0 train resumed $strict train.steps=2 layout.dp=4 layout.ep=4
code "two more" 0 train resumed $strict layout.dp=4 layout.ep=2 layout.zero=1
same "go on exactly" "$(digest resumed)" "$want"
muon="optimizer.name=muon schedule.warmup=1"
code "Muon" 0 train muon $strict $muon
export TRIREME_FAULTS=observe.append=3+:DISK_FULL
code "Muon with ep, and no space for records and events" 0 train muon2 $strict $muon layout.dp=4 layout.ep=2 \
     layout.zero=1 moe.rebalance=2
unset TRIREME_FAULTS
says "goes on without them" out "record of step 1 lost: .*training goes on"
same "one digest" "$(digest muon2)" "$(digest muon)"
same "learns too" "$(awk -v a="$(loss muon 1)" -v b="$(loss muon 4)" 'BEGIN { print(a > 5 && b > 0 && b < a - 0.5) }')" 1
code "fast, bf16" 0 train bf16 train.precision=bf16 train.steps=20 layout.dp=2 layout.zero=2
same "learns" "$(awk -v a="$(loss bf16 1)" -v b="$(loss bf16 20)" 'BEGIN { print(a > 5 && b > 0 && b < a - 1.5) }')" 1

code "a limit of tokens" 0 train limited $strict moe.capacity_factor=1
code "the same with ep" 0 train limited2 $strict moe.capacity_factor=1 layout.dp=2 layout.ep=2
same "drops the same tokens" "$(digest limited2)" "$(digest limited)"
if [ "$(digest limited)" = "$want" ]; then failed "some tokens"; else passed "some tokens"; fi
code "a limit above all" 0 train wide $strict moe.capacity_factor=8 layout.dp=2 layout.ep=2
same "drops none" "$(digest wide)" "$want"
code "explain" 0 "$trireme" explain demo/config.yaml $keys layout.dp=4 layout.ep=2
says "who holds which experts" out '^  4-7 +1, 3$'
balance="moe.aux_loss=0.05 moe.z_loss=0.001"
code "losses of routers" 0 train balanced $strict $balance
same "change the weights" "$([ "$(digest balanced)" != "$want" ] && echo yes)" yes
code "in another layout" 0 train balanced2 $strict $balance layout.dp=2 layout.zero=1 layout.ep=2 train.recompute=full
same "to the same bits" "$(digest balanced2)" "$(digest balanced)"

loads() { sed -n 's/^{"step": 4,.*\("moe_load_max.*\)}$/\1/p' "$1/metrics.jsonl"; }
same "the same loads and losses" "$(loads balanced2)" "$(loads balanced)"
says "by layer" balanced/metrics.jsonl '"moe_aux_loss": 0\.[0-9]+, "moe_layers_load_max": \[[0-9.]+, [0-9.]+\]'
says "what a limit drops" limited2/metrics.jsonl '"moe_dropped": 0\.[0-9]+, "moe_idle_experts": '
bias="model.router.bias_rate=0.01 moe.aux_loss=0.05 moe.aux_loss_scope=batch"
code "a bias and a loss of the batch" 0 train biased $strict $bias
code "two steps in another layout, where experts move" 0 train biased2 $strict $bias train.steps=2 layout.dp=4 layout.ep=2 layout.zero=3 moe.rebalance=1
says "between ranks" biased2/metrics.jsonl '^{"step": 1, "event": "rebalance", "experts": [0-9]+, "layers": 2, "rank_load_max": 1\.[0-9]+'
code "one more" 0 train biased2 $strict $bias train.steps=3 layout.dp=4 layout.ep=2 layout.zero=1 moe.rebalance=1
code "one more in a third" 0 train biased2 $strict $bias layout.pp=2 layout.dp=2 layout.ep=2
same "to the same bits" "$(digest biased2)" "$(digest biased)"
random="moe.aux_loss=0.05 precision.moments=bf16 optimizer.stochastic_rounding=yes train.steps=3"
code "random rounding" 0 train random $strict $random
code "of experts that move" 0 train random2 $strict $random layout.dp=4 layout.ep=2 layout.zero=1 moe.rebalance=1
says "between ranks" random2/metrics.jsonl '"event": "rebalance", "experts": [1-9]'
same "draws the same" "$(digest random2)" "$(digest random)"
code "what moved" 0 "$trireme" inspect biased2 --experts
says "is counted" out '^moved +[0-9]+ experts between ranks, at [123] steps'
code "a bias that does not move" 0 train unbiased $strict model.router.score=sigmoid moe.aux_loss=0.05 moe.aux_loss_scope=batch
same "is another run" "$([ "$(digest unbiased)" != "$(digest biased)" ] && echo yes)" yes
code "bf16 in cp" 0 train bf16b $bias train.precision=bf16 train.steps=4 layout.cp=2 layout.ep=2
says "counts there" bf16b/metrics.jsonl '"moe_aux_loss": 0\.[0-9]+'
balance_of() { sed -n 's/^{"step": 4,.*"moe_aux_loss": \([0-9.]\{6\}\).*/\1/p' "$1/metrics.jsonl"; }
pieces="moe.aux_loss=0.05 moe.z_loss=1e-3 determinism.tp_shards=2"
cut="layout.tp=2 layout.ep=4 layout.dp=2 layout.sp=yes layout.etp=1"
code "losses of sequences" 0 train whole $strict $pieces
code "of pieces of sequences" 0 train parts $strict $pieces $cut train.micro_batch=1
same "to the same bits" "$(digest parts)" "$(digest whole)"
same "the same loads and losses" "$(loads parts)" "$(loads whole)"
code "losses of micro-batches" 0 train wholes $strict $pieces moe.aux_loss_scope=micro train.micro_batch=2
code "of pieces of micro-batches" 0 train parts2 $strict $pieces $cut moe.aux_loss_scope=micro train.micro_batch=2
same "to the same bits, too" "$(digest parts2)" "$(digest wholes)"
code "cp cuts sequences" 0 train parts3 $pieces train.steps=4 determinism.tp_shards=1 layout.cp=2 layout.ep=2 moe.aux_loss=0.5
code "and none" 0 train whole3 $pieces train.steps=4 determinism.tp_shards=1 moe.aux_loss=0.5
same "with the same balance" "$(balance_of parts3)" "$(balance_of whole3)"
shards="$strict determinism.cp_shards=2"
code "shards of sequences on one rank" 0 train shards $shards $balance
same_digests "$(digest shards)" shards "$shards $balance" "layout.cp=2 layout.cp_heads=2 layout.ep=2" "layout.dp=2 layout.ep=2 train.micro_batch=1" \
    "layout.cp=2 layout.dp=2 layout.ep=4 layout.zero=1 train.recompute=full"
wide="model.preset=olmoe-1b-7b model.heads=4 model.kv_heads=2 model.experts=4 model.experts_per_token=2 model.ffn_dim=16 model.vocab=260 $strict train.steps=2
      determinism.tp_shards=4 determinism.etp_shards=2"
code "a norm over all heads" 0 train wide1 $wide
code "whose ranks add their squares" 0 train wide2 $wide layout.tp=2 layout.sp=yes train.recompute=full
same "to the same bits" "$(digest wide2)" "$(digest wide1)"
latent="model.preset=deepseek-v2-lite model.heads=4 model.experts=8 model.shared_experts=1 model.dense_layers=1
        model.ffn_dim=32 model.vocab=260 $strict train.steps=2 determinism.tp_shards=4 determinism.etp_shards=2"
code "latent attention" 0 train latent $latent
code "cut by tp" 0 train latent2 $latent layout.tp=2 layout.sp=yes train.recompute=full train.micro_batch=2
same "to the same bits" "$(digest latent2)" "$(digest latent)"
code "export" 0 "$trireme" export biased biased.hf
says "is a GLM-4.5" biased.hf/config.json '"model_type": "glm4_moe"'
code "softmax with a bias" 0 train soft $strict train.steps=1 $bias model.router.score=softmax
code "has no such folder" 3 "$trireme" export soft soft.hf
says "and says what has" err 'model.router.score=sigmoid'

code "export" 0 "$trireme" export one one.hf
says "is a Mixtral" one.hf/config.json '"model_type": "mixtral"'
says "with its experts" one.hf/config.json '"num_local_experts": 8'
adapted() { # NAME KEY...: an adapter of the exported model
    local name=$1
    shift
    timeout 600 "$trireme" train demo/config.yaml --quiet run.dir="$dir/$name" model.preset=null model.from=one.hf \
        train.seq=32 train.global_batch=8 eval.every=0 checkpoint.every=0 kernels.threads=1 schedule.name=constant \
        schedule.min_ratio=0 adapter.kind=lora adapter.rank=2 optimizer.lr=1e-2 determinism=strict "$@"
}
code "an adapter" 0 adapted adapter train.steps=3
code "two steps while experts of its base move" 0 adapted adapter2 train.steps=2 layout.dp=2 layout.ep=2 moe.rebalance=1
says "between ranks" adapter2/metrics.jsonl '"event": "rebalance", "experts": [1-9]'
code "one more" 0 adapted adapter2 train.steps=3 layout.dp=2 layout.ep=2 moe.rebalance=1
same "to the same bits" "$(digest adapter2)" "$(digest adapter)"
code "import" 0 "$trireme" import one.hf again
code "export it again" 0 "$trireme" export again again.hf
if cmp -s one.hf/model.safetensors again.hf/model.safetensors; then passed "the same bytes"; else failed "the same bytes"; fi
code "generate" 0 "$trireme" generate one.hf --prompt 'the ' --temperature 0 --max-tokens 8
cp out text
code "from the run" 0 "$trireme" generate one --prompt 'the ' --temperature 0 --max-tokens 8
if cmp -s out text; then passed "the same text"; else failed "the same text"; fi

refused() { # NAME PATTERN KEY...
    local name=$1 pattern=$2
    shift 2
    code "$name is refused" 3 train refused "$@"
    says "by name" err "$pattern"
}
refused "a width that tp does not divide" 'layout.tp = 2 does not divide .* 15 columns' layout.tp=2 model.expert_ffn_dim=15
refused "sums without an order" 'use determinism.etp_shards=2, or' $strict layout.tp=2 determinism.tp_shards=2
refused "terms of whole experts" 'determinism.etp_shards = 2 has no effect' $strict layout.tp=2 layout.sp=yes layout.ep=2 layout.etp=1 determinism.tp_shards=2 determinism.etp_shards=2
refused "rows that do not travel" 'moe.dispatch = bf16 has no effect: no rows travel' moe.dispatch=bf16
refused "rows that are narrower" 'moe.dispatch = fp32 has no effect: rows of experts are narrower' moe.dispatch=fp32 layout.dp=2 layout.ep=2 train.precision=bf16
refused "experts that cannot move" 'moe.rebalance = 2 has no effect: with layout.ep = 1' moe.rebalance=2
refused "ranks of one expert" 'moe.rebalance = 2 has no effect: each rank .* has one expert' moe.rebalance=2 layout.dp=8 layout.ep=8
refused "tp alone in strict order" 'use layout.ep=2, or' $strict layout.tp=2 layout.sp=yes layout.etp=1 determinism.tp_shards=2
refused "a limit of pieces of sequences" 'use layout.cp=1 or moe.capacity_factor=0' layout.cp=2 moe.capacity_factor=1
refused "a limit without experts" 'moe.capacity_factor = 1 has no effect' model.preset=tiny model.experts=0 model.expert_ffn_dim=0 moe.capacity_factor=1
refused "Muon for experts that tp cuts" 'optimizer.name = muon needs whole matrices' optimizer.name=muon layout.tp=2
refused "ranks with different batches" 'use train.global_batch=6' layout.dp=3 layout.ep=3 model.experts=6 train.global_batch=8
refused "experts that ep does not divide" 'layout.ep = 3 does not divide' layout.dp=3 layout.ep=3 train.global_batch=6
refused "a bias without experts" 'model.router.bias_rate has no effect' model.preset=tiny model.expert_ffn_dim=0 model.router.bias_rate=0.1
refused "a loss of experts without them" 'moe.aux_loss = 0.1 has no effect' model.preset=tiny model.expert_ffn_dim=0 moe.aux_loss=0.1
refused "a width that no MLP has" 'model.ffn_dim = 64 has no effect' model.ffn_dim=64
refused "a key of experts without them" 'model.expert_ffn_dim = 16 has no effect' model.preset=tiny
[ $failures = 0 ]

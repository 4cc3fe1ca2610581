#!/bin/bash
# A layer that predicts the token after the next: losses and norms of a reference, one digest in every layout that
# strict order allows, the tensors of published files there and back; evaluation and generation do without it.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
printf 'First Citizen:\nBefore we proceed ' >text.txt
printf 'data: {tokenizer: bytes, train: text.txt, valid: 0, packing: plain}\n' >c.yaml
run="train.seq=32 train.steps=3 eval.every=0 checkpoint.every=0 schedule.name=constant schedule.warmup=0
     schedule.min_ratio=0 optimizer.lr=1e-2 kernels.threads=1"
keys="$run model.preset=moe-tiny model.layers=2 model.dim=32 model.heads=2 model.expert_ffn_dim=16 model.context=64
      model.vocab=257 model.router.score=sigmoid model.shared_experts=1 model.mtp_layers=1"
train() { # NAME KEY...
    local name=$1
    shift
    timeout 600 "$trireme" train c.yaml --quiet run.dir="$dir/$name" $keys "$@"
}
numbers() { sed -n 's/.*"loss": \([0-9.]\{6\}\).*"grad_norm": \([0-9.]\{6\}\).*/\1 \2/p' "$1/metrics.jsonl" | tr '\n' ' '; }

# Computed with PyTorch in fp64 from the initial weights: cross-entropy + 0.3 x that of the token after the next.
reference="5.5302 1.5391 5.1757 2.3307 4.8997 5.0841 "
untied="model.tied=no train.global_batch=2"
code "one rank" 0 train one $untied
same "losses and norms of the reference" "$(numbers one)" "$reference"
code "cut by pp and tp" 0 train cut $untied layout.pp=2 layout.tp=2 layout.sp=yes
same "the same" "$(numbers cut)" "$reference"
code "cut by cp" 0 train cut2 $untied layout.cp=2 layout.ep=2 train.recompute=full
same "the same" "$(numbers cut2)" "$reference"

strict="determinism=strict train.global_batch=8 train.steps=2 model.router.bias_rate=0.01"
code "strict, tied" 0 train tied $strict
want=$(digest tied)
same_digests "$want" l "$strict" "layout.pp=2 layout.dp=2 layout.ep=2 layout.zero=2" \
    "layout.dp=2 layout.ep=2 layout.zero=1 moe.rebalance=1 train.recompute=full"
code "one step" 0 train resumed $strict train.steps=1 layout.pp=2
code "one more" 0 train resumed $strict layout.dp=4 layout.zero=3
same "go on exactly" "$(digest resumed)" "$want"

code "export" 0 "$trireme" export one one.hf
says "the key of published files" one.hf/config.json '"num_nextn_predict_layers": 1'
names() { tr '{},' '\n' <"$1/model.safetensors" | grep -a -o '"model.layers.2.[a-z._]*norm.weight\|"model.layers.2.e[a-z_]*.weight\|"model.layers.2.shared_head.head.weight' | sort -u | tr '\n"' ' '; }
same "and their tensors" "$(names one.hf)" " model.layers.2.eh_proj.weight  model.layers.2.embed_tokens.weight  model.layers.2.enorm.weight  model.layers.2.hnorm.weight  model.layers.2.input_layernorm.weight  model.layers.2.post_attention_layernorm.weight  model.layers.2.shared_head.head.weight  model.layers.2.shared_head.norm.weight "
code "import" 0 "$trireme" import one.hf again
code "export it again" 0 "$trireme" export again again.hf --tokenizer one.hf
if cmp -s one.hf/model.safetensors again.hf/model.safetensors; then passed "the same bytes"; else failed "the same bytes"; fi
sed 's/"num_nextn_predict_layers": 1/"num_nextn_predict_layers": 0/' one.hf/config.json >config.json
cp -r one.hf without.hf && cp config.json without.hf/
code "evaluate" 0 "$trireme" eval one.hf --data text.txt
cp out evaluated
code "evaluate without the layer" 0 "$trireme" eval without.hf --data text.txt
same "the same loss" "$(cat out)" "$(cat evaluated)"
code "generate" 0 "$trireme" generate one.hf --prompt 'First' --temperature 0 --max-tokens 8
cp out generated
code "without the layer" 0 "$trireme" generate without.hf --prompt 'First' --temperature 0 --max-tokens 8
same "the same text" "$(cat out)" "$(cat generated)"

refuses 3 'model.mtp_layers = 1 cannot be used with an adapter' train refused adapter.kind=lora
refuses 3 'model.mtp_layers = 1 cannot be used with this train.objective' train refused train.objective=dpo data.packing=best-fit
refuses 3 'train.mtp_loss = 0.1 has no effect' train refused model.mtp_layers=0 train.mtp_loss=0.1
[ $failures = 0 ]

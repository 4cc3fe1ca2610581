#!/bin/bash
# `trireme plan` as people and scripts use it: the best layouts, JSON, what does not fit, the questions.
set -u -o pipefail
. tests/support/named.sh

small="model.layers=4 model.dim=512 model.heads=8 model.kv_heads=8 model.ffn_dim=1024 model.vocab=8192
    train.seq=1024 train.global_batch=64"
plan() { "$trireme" plan tiny --cluster h100 $small "$@"; }
# value FILE EXPRESSION: of the JSON object `d`
value() { python3 -S -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"; }

code "plan" 0 plan cluster.devices=16
says "it says what was searched" out "^searched +[0-9,]+ layouts"
says "the best" out "^ 1 [0-9]+x[0-9]+s?x[0-9]+"
says "where the bytes go" out "weights .* gradients .* master"
says "the recipes" out "^  18  2 \+ 4 \+ 4 \+ 8"
says "inference" out "^inference in bf16"
says "what one percent is worth" out "FLOP/s +-0\.[0-9]+%"
if awk 'length($0) > 80 { exit 1 }' "$dir/out"; then passed "80 columns"; else failed "80 columns"; fi

code "plan as JSON" 0 plan cluster.devices=16 --json --top 2 train.tokens=1e9
same "two plans" "$(value "$dir/out" 'len(d["plans"])')" 2
same "the best first" "$(value "$dir/out" 'd["plans"][0]["step_s"] <= d["plans"][1]["step_s"]')" True
same "they fit" "$(value "$dir/out" 'all(p["fits"] for p in d["plans"])')" True
same "fixed names" "$(value "$dir/out" 'all(k in d["plans"][0] for k in "layout micro_batch recompute precision devices step_s tokens_per_s tflops_per_device mfu hfu fits peak_bytes memory bubble exposed_comm_s idle days gpu_hours cost_usd failures goodput".split())')" True
same "no question, no answer" "$(value "$dir/out" 'd["answer"]')" None
same "16 devices" "$(value "$dir/out" 'd["plans"][0]["devices"]')" 16

code "a part that is fixed" 0 plan cluster.devices=16 --json layout.pp=4 layout.zero=1
same "stays" "$(value "$dir/out" '[p["layout"]["pp"] == 4 and p["layout"]["zero"] == 1 for p in d["plans"]] == [True] * 3')" True

# --- what is planned is what is simulated ---
code "more ranks than heads of keys" 0 "$trireme" plan tiny --cluster h100 cluster.devices=8 --global-batch 64 model.kv_heads=1 layout.tp=4
code "write" 0 plan cluster.devices=16 --json --top 1 --write "$dir/best.yaml"
best=$(value "$dir/out" 'd["plans"][0]["step_s"]')
code "the written configuration" 0 "$trireme" simulate "$dir/best.yaml" --cluster h100 --json
same "has the same step" "$(value "$dir/out" 'd["step_s"]')" "$best"

# --- gradients that travel compressed ---
packed="comm.compression=topk comm.compression.warmup=5 train.steps=10"
code "plan with a codec" 0 plan cluster.devices=16 --json $packed --write "$dir/packed.yaml"
same "of sums of a step" "$(value "$dir/out" 'all(p["layout"]["zero"] <= 1 and p["layout"]["dp"] * p["layout"]["cp"] > 1 for p in d["plans"])')" True
best=$(value "$dir/out" 'd["plans"][0]["step_s"]')
code "the written configuration" 0 "$trireme" simulate "$dir/packed.yaml" --cluster h100 --json
same "has the same step" "$(value "$dir/out" 'd["step_s"]')" "$best"
code "nothing to compress" 3 plan cluster.devices=1 $packed
says "says what it wants" err "comm.compression needs several ranks and layout.zero_sums=step or zero < 2"

# --- nothing fits ---
code "too large" 8 "$trireme" plan llama2-70b --cluster h100 cluster.devices=2
says "by how many bytes" err "[0-9]+ bytes over"
code "too large, as JSON" 8 "$trireme" plan llama2-70b --cluster h100 cluster.devices=2 --json
same "no plans" "$(value "$dir/out" 'd["plans"]')" "[]"
same "over" "$(value "$dir/out" 'd["too_large"]["over_bytes"] > 0')" True

# --- the other way round, exact at the boundary ---
fixed="layout.tp=1 layout.cp=1 layout.pp=1 layout.zero=3 cluster.device.usable_gib=4"
code "max-model" 0 plan cluster.devices=4 --max-model --json $fixed
layers=$(value "$dir/out" 'd["answer"]["layers"]')
same "the next does not" "$(value "$dir/out" 'd["answer"]["too_many_layers"]')" $((layers + 1))
code "so many layers fit" 0 plan cluster.devices=4 --json $fixed model.layers="$layers"
code "one more does not" 8 plan cluster.devices=4 --json $fixed model.layers=$((layers + 1))
code "min-devices" 0 "$trireme" plan llama2-7b --cluster h100 --min-devices --json layout.pp=1 layout.cp=1 train.global_batch=512
devices=$(value "$dir/out" 'd["answer"]["devices"]')
code "so many do" 0 "$trireme" plan llama2-7b --cluster h100 --json layout.pp=1 layout.cp=1 train.global_batch=512 cluster.devices="$devices"
code "days" 0 plan cluster.devices=64 --days 0.5 train.tokens=1e11 --json
same "one node fewer is not" "$(value "$dir/out" 'd["answer"]["devices"] is None or d["answer"]["too_few_devices"] is None or d["answer"]["devices"] - d["answer"]["too_few_devices"] == 8 and (d["answer"]["their_days"] or 9) > 0.5')" True
same "in time" "$(value "$dir/out" 'd["answer"]["devices"] is None or d["answer"]["days"] <= 0.5')" True
code "budget" 0 plan cluster.devices=64 --budget 1e6 train.tokens=1e10 --json
same "one node more is not" "$(value "$dir/out" 'd["answer"]["devices"] is None or d["answer"]["too_many_devices"] is None or d["answer"]["their_cost_usd"] > 1e6')" True
same "within it" "$(value "$dir/out" 'd["answer"]["cost_usd"] <= 1e6')" True

same "the states of fewer do not" "$(value "$dir/out" 'd["answer"]["devices"] > 0')" True
code "days that no number meets" 0 plan cluster.devices=64 --days 0.001 train.tokens=1e12
says "the nearest" out '^answer +0\.001 days: not with 64 devices; all of them need [0-9.]+ days and \$'
code "as JSON" 0 plan cluster.devices=64 --days 0.001 train.tokens=1e12 --json
same "too" "$(value "$dir/out" 'd["answer"]["devices"] is None and d["answer"]["nearest_devices"] == 64 and d["answer"]["nearest_days"] > 0.001')" True
code "a budget that is too small" 0 plan cluster.devices=64 --budget 1 train.tokens=1e12
says "what the cheapest costs" out '^answer +\$1\.00: not enough|^answer +\$1: not enough'

# --- tables ---
code "numbers of devices" 0 plan --devices 8..64 train.tokens=1e10
same "a row each" "$(grep -cE '^ +(8|16|32|64)  ' "$dir/out")" 4
code "as CSV" 0 plan --devices 8..64 train.tokens=1e10 --csv
if python3 - "$dir/out" <<'END'; then passed "that reads as one"; else failed "that reads as one"; fi
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert [r["devices"] for r in rows] == ["8", "16", "32", "64"]
days = [float(r["days"]) for r in rows]
assert days == sorted(days, reverse=True) and all(float(r["cost_usd"]) > 0 and 0 < float(r["mfu"]) < 1 for r in rows)
END
printf 'layout.dp=8\n# a comment\nlayout.dp=4 layout.tp=2\n' >"$dir/layouts"
code "layouts of a file" 0 plan --layouts "$dir/layouts" --csv
same "a row each" "$(cut -d, -f1,2 "$dir/out" | tail -2 | tr '\n' ' ')" "layout.dp=8,8 layout.dp=4 layout.tp=2,8 "
code "CSV of no table" 2 plan --csv
code "a wrong range" 2 plan --devices 64-128
says "what it wants" err '64\.\.16384'

# --- train takes what the planner finds ---
auto="model.layers=2 model.dim=32 model.heads=2 model.ffn_dim=64 model.context=64 train.seq=32 train.global_batch=4
    schedule.name=constant schedule.min_ratio=0 schedule.warmup=0 eval.every=0 checkpoint.every=0 train.steps=3"
code "init" 0 "$trireme" init "$dir/demo"
code "layout: auto" 0 "$trireme" train "$dir/demo/config.yaml" $auto layout=auto train.micro_batch=auto run.dir="$dir/run"
says "the run has a layout" run/config.resolved.yaml "^  mode: given"
code "a part of it given" 0 "$trireme" train "$dir/demo/config.yaml" $auto layout=auto layout.dp=2 run.dir="$dir/run2"
says "stays" run2/config.resolved.yaml "^  dp: 2"
code "a layout that is given" 0 "$trireme" train "$dir/demo/config.yaml" $auto layout.dp=2 train.micro_batch=auto train.global_batch=8 run.dir="$dir/run3"
says "gets its micro-batch" run3/config.resolved.yaml "^  micro_batch: [124] "
taken=$(sed -n 's/^  micro_batch: \([0-9]*\).*/\1/p' "$dir/run3/config.resolved.yaml")
code "the same elsewhere" 0 "$trireme" explain "$dir/demo/config.yaml" $auto layout.dp=2 train.micro_batch=auto train.global_batch=8
says "as train takes it" out "8 sequences x 32 tokens, $taken at once"
code "and in a proof" 0 "$trireme" verify "$dir/demo/config.yaml" $auto layout.dp=2 train.micro_batch=auto train.global_batch=8
says "too" out "micro-batches of $taken"
code "the run goes on" 0 "$trireme" train "$dir/run3" train.steps=5
code "a configuration with an open layout" 0 "$trireme" config check "$dir/demo/config.yaml" layout=auto train.micro_batch=auto
code "elsewhere it is refused" 3 "$trireme" explain "$dir/demo/config.yaml" layout=auto
says "with what to do" err "trireme plan --write"

# --- mistakes ---
# --- experts, from a folder as Hugging Face writes it ---
mkdir -p "$dir/moe"
cat >"$dir/moe/config.json" <<'EOF'
{"model_type": "deepseek_v3", "num_hidden_layers": 6, "hidden_size": 1024, "num_attention_heads": 16,
 "num_key_value_heads": 16, "vocab_size": 32000, "max_position_embeddings": 4096, "intermediate_size": 4096,
 "moe_intermediate_size": 512, "n_routed_experts": 32, "num_experts_per_tok": 4, "n_shared_experts": 1,
 "first_k_dense_replace": 1, "kv_lora_rank": 128, "q_lora_rank": 256, "qk_nope_head_dim": 64,
 "qk_rope_head_dim": 32, "v_head_dim": 64}
EOF
moe="cluster.devices=16 train.seq=1024 train.global_batch=128 layout.pp=1 layout.cp=1 layout.tp=1"
code "plan with experts" 0 "$trireme" plan "$dir/moe" --cluster h100 --json $moe
same "layouts have ep" "$(value "$dir/out" 'all(32 % p["layout"]["ep"] == 0 and 16 % p["layout"]["ep"] == 0 for p in d["plans"])')" True
code "ep is fixed" 0 "$trireme" plan "$dir/moe" --cluster h100 --json --top 1 $moe layout.ep=8 layout.zero=1 --write "$dir/moe.yaml"
same "stays" "$(value "$dir/out" 'd["plans"][0]["layout"]["ep"]')" 8
best=$(value "$dir/out" 'd["plans"][0]["step_s"]')
code "simulate the written configuration" 0 "$trireme" simulate "$dir/moe.yaml" --cluster h100 --json
same "is that plan" "$(value "$dir/out" 'd["step_s"]')" "$best"
same "it sends rows of experts" "$(value "$dir/out" 'd["exposed_comm"]["ep"] > 0')" True
code "tp's ranks may share them" 0 "$trireme" plan "$dir/moe" --cluster h100 --json --top 1 $moe layout.tp=2 layout.ep=16 layout.etp=1 --write "$dir/whole.yaml"
same "whole" "$(value "$dir/out" '[d["plans"][0]["layout"][k] for k in ("tp", "dp", "ep", "etp")]')" "[2, 8, 16, 1]"
best=$(value "$dir/out" 'd["plans"][0]["step_s"]')
code "simulate that configuration" 0 "$trireme" simulate "$dir/whole.yaml" --cluster h100 --json
same "is that plan too" "$(value "$dir/out" 'd["step_s"]')" "$best"
code "a search takes what is faster" 0 "$trireme" plan "$dir/moe" --cluster h100 --json --top 1 $moe layout.tp=2
same "no slower" "$(value "$dir/out" "d['plans'][0]['step_s'] <= $best")" True
code "for people" 0 "$trireme" plan "$dir/moe" --cluster h100 $moe layout.ep=8 layout.zero=1
says "ep in the table" out "^ 1 16x1x1 e8 "
code "train refuses it" 3 "$trireme" train "$dir/moe.yaml" layout.ep=1 layout.dp=1
code "import needs its weights" 4 "$trireme" import "$dir/moe" "$dir/moe.out"
says "by name" err "holds neither model.safetensors"

code "no cluster" 2 "$trireme" plan tiny
code "a wrong cluster" 3 "$trireme" plan tiny --cluster h10O
says "the nearest" err "h100"
code "little memory is an error, no answer" 4 bash -c 'ulimit -v 200000; exec "$@"' - "$trireme" plan gpt2-1.5b --cluster h100 cluster.devices=8 --min-devices
code "two questions" 2 plan --max-model --min-devices
code "days without a length" 3 plan --days 3
says "what to give" err "train.tokens"
code "a layout that is none" 3 plan cluster.devices=16 layout.tp=3
[ $failures = 0 ]

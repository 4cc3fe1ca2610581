#!/bin/bash
# Steps in virtual time as people and scripts ask for them: names and sums of the JSON, presets, run files and
# folders, bytes equal to what `verify` proves of the same layout, mistakes.
set -u -o pipefail
. tests/support/named.sh

small="model.vocab=300 model.layers=4 model.dim=32 model.heads=4 model.ffn_dim=64 model.context=64 train.seq=32
    train.global_batch=8 train.micro_batch=1 schedule.name=constant schedule.min_ratio=0 schedule.warmup=0
    eval.every=0 checkpoint.every=0 determinism=fast"
sim() { "$trireme" simulate "$@"; }
# field NAME: of the JSON in $dir/out, as Python has it
field() { python3 -S -c 'import json,sys; print(json.load(open(sys.argv[1]))'"$1"')' "$dir/out"; }
# holds NAME EXPRESSION over the object j
holds() {
    if python3 -S -c 'import json,sys; j = json.load(open(sys.argv[1])); sys.exit(0 if ('"$2"') else 1)' \
        "$dir/out" 2>>"$dir/err"; then passed "$1"; else failed "$1"; fi
}

# --- the executor itself ---
for keys in "layout.tp=4 layout.pp=4 layout.zero=1" "layout.tp=2 layout.pp=4 profile=megatron-2022 profile.sum_bytes=900000000" "layout.tp=2 layout.sp=yes layout.cp=2 layout.zero=3" \
    "layout.pp=4 layout.schedule=zb-h1 optimizer.name=muon" "layout.cp=4 layout.cp_heads=2 layout.pp=2 determinism=strict determinism.cp_shards=4" \
    "layout.tp=4 layout.pp=2 layout.vpp=2 layout.schedule=interleaved train.recompute=full"; do
    code "the executor takes the same time: $keys" 0 \
        sim llama2-7b --cluster h100 --execute cluster.devices=32 train.global_batch=64 train.micro_batch=1 $keys
    says "and says so" out "equal to the ns"
done
code "experts too" 0 sim mixtral-8x7b --cluster h100 --execute cluster.devices=64 layout.tp=2 layout.pp=2 \
    layout.ep=4 train.global_batch=64 train.micro_batch=1
says "to the ns" out "equal to the ns"

# --- a preset ---
big="cluster.devices=1024 layout.tp=8 layout.pp=4 train.global_batch=512 layout.zero=1"
code "a preset on a cluster" 0 sim llama3-70b --cluster h100 --json $big
holds "all fixed names are there" 'all(k in j for k in ("layout", "micro_batch", "recompute", "precision", "devices",
    "step_s", "tokens_per_s", "tflops_per_device", "mfu", "hfu", "fits", "peak_bytes", "memory", "bubble",
    "exposed_comm_s", "idle"))'
holds "of the layout" 'all(k in j["layout"] for k in ("dp", "tp", "pp", "cp", "ep", "vpp", "zero", "schedule"))'
holds "of memory" 'sorted(j["memory"]) == ["activations", "buffers", "gradients", "master", "moments", "weights"]'
holds "of idle" 'sorted(j["idle"]) == ["bubble", "checkpoint", "data", "sync"]'
holds "dp follows from the devices" 'j["layout"]["dp"] == 32 and j["devices"] == 1024'
holds "bytes add up" 'sum(j["memory"].values()) == j["peak_bytes"]'
holds "so do tokens" 'abs(j["tokens_per_s"] * j["step_s"] / (512 * j["seq"]) - 1) < 1e-6'
holds "shares are shares" 'all(0 <= v <= 1 for v in list(j["idle"].values()) + [j["bubble"], j["mfu"], j["hfu"]])'
holds "nothing is computed again" 'abs(j["hfu"] - j["mfu"]) < 1e-9'
holds "mfu is tflops of the peak" '0.1 < j["mfu"] < 0.8 and abs(j["tflops_per_device"] / j["mfu"] / 989.4 - 1) < 0.01'
holds "each stage is there" 'len(j["stages"]) == 4 and j["stages"][3]["first_rank"] == 768'
holds "a kind of layer has its row" 'j["layers"][1]["count"] == 80 and j["layers"][1]["forward_s"] > 0'
step=$(field '["step_s"]')
code "the same again" 0 sim llama3-70b --cluster h100 --json $big
same "to the digit" "$step" "$(field '["step_s"]')"
code "layout.dp instead of devices" 0 sim llama3-70b --cluster h100 --json layout.dp=32 ${big#* }
same "is the same run" "$step" "$(field '["step_s"]')"
code "recompute" 0 sim llama3-70b --cluster h100 --json $big train.recompute=full
holds "costs time and FLOPs, saves bytes" "j['step_s'] > $step and j['hfu'] > 1.2 * j['mfu']"
code "another convention" 0 sim llama3-70b --cluster h100 --json $big flops_convention=nemo
holds "counts more FLOPs in the same time" "abs(j['step_s'] - $step) < 1e-9 and j['flops_convention'] == 'nemo'"

code "fp8" 0 sim llama3-70b --cluster h100 --json $big train.precision=fp8
holds "is quicker where the device has it" "j['step_s'] < 0.95 * $step and j['precision'] == 'fp8'"
# --- what other software keeps of layers: 12 of 768 columns, 1,024 tokens ---
one="cluster.devices=1 train.global_batch=1 train.micro_batch=1 train.recompute=none train.precision=fp8"
code "a plan's activations" 0 sim gpt2-124m --cluster h100 --json $one
kept=$(field '["memory"]["activations"]')
code "masks of dropouts" 0 sim gpt2-124m --cluster h100 --json $one profile.mask_bytes=2
holds "are 2 bytes of each element more" "j['memory']['activations'] - $kept == 12 * 1024 * 768 * 2"
code "inputs of products in fp8" 0 sim gpt2-124m --cluster h100 --json $one profile.fp8_inputs=yes
holds "are a byte less of norms and activations, one more of attention" \
    "$kept - j['memory']['activations'] == 12 * 1024 * 768 * (1 + 1 + 4 - 1)"
weights=$(field '["memory"]["weights"]')
code "weights of products in fp8" 0 sim gpt2-124m --cluster h100 --json $one profile.fp8_weights=yes
holds "are 12 matrices of 12 x 768 x 768 elements, a byte less of each" \
    "$weights - j['memory']['weights'] == 12 * 12 * 768 * 768"
code "all logits at once" 0 sim gpt2-124m --cluster h100 --json $one profile.logit_bytes=10
holds "are 10 bytes of each of 1,024 x 50,257" "j['memory']['activations'] - $kept == 1024 * 50257 * 10"
two="cluster.devices=2 layout.tp=2 model.vocab=50304 train.global_batch=1 train.micro_batch=1 train.recompute=none"
code "of two ranks of tp" 0 sim gpt2-124m --cluster h100 --json $two
halves=$(field '["memory"]["activations"]')
code "half of the columns each" 0 sim gpt2-124m --cluster h100 --json $two profile.logit_bytes=10
holds "are half of the logits" "j['memory']['activations'] - $halves == 1024 * 50304 // 2 * 10"
code "or all of them" 0 sim gpt2-124m --cluster h100 --json $two profile.logit_bytes=10 profile.whole_logits=yes
holds "are all of them" "j['memory']['activations'] - $halves == 1024 * 50304 * 10"
code "in bf16" 0 sim gpt2-124m --cluster h100 --json $one profile.fp8_inputs=yes train.precision=bf16
holds "they are as they were" "j['memory']['activations'] == $kept"
code "where nothing of activations is left at the fullest moment" 0 sim gpt2-124m --cluster h100 --json $one train.seq=64 \
    profile.fp8_inputs=yes
holds "nothing is taken off them" "0 <= j['memory']['activations'] < 12 * 64 * 768"
code "a key that no profile has" 3 sim gpt2-124m --cluster h100 profile.maks_bytes=2
says "says the nearest" err 'did you mean "mask_bytes"'
code "fp8 where there is none" 0 sim llama3-70b --cluster a100-80 --json $big train.precision=fp8
holds "is bf16" "j['step_s'] > $step"
code "another software" 0 sim llama3-70b --cluster h100 --json $big profile=megatron
holds "has its habits" "j['step_s'] > $step and j['profile'].startswith('megatron')"

# --- experts ---
code "a model with experts" 0 sim deepseek-v3 --cluster h800 --json cluster.devices=2048 layout.pp=16 layout.zero=1 \
    layout.ep=64 train.seq=4096 train.global_batch=15360
holds "counts all of them" '670e9 < j["parameters"] < 672e9 and j["layout"]["ep"] == 64'
holds "computes with those that a token meets" 'abs(j["mfu"] * 989.4e12 * 2048 / j["tokens_per_s"] / 250e9 - 1) < 0.02'
few=$(field '["memory"]["weights"]')
code "over fewer ranks" 0 sim deepseek-v3 --cluster h800 --json cluster.devices=2048 layout.pp=16 layout.zero=1 \
    layout.ep=8 train.seq=4096 train.global_batch=15360
holds "each has more of them" "j['memory']['weights'] > 2.5 * $few"
code "ranks that do not divide them" 3 sim mixtral-8x7b --cluster h100 layout.dp=48 layout.ep=16
says "the nearest number" err "that do: 8"
mixtral="layout.dp=8 layout.tp=4 layout.ep=8 layout.zero=1 layout.sp=yes"
code "experts that tp cuts" 0 sim mixtral-8x7b --cluster h100 --json $mixtral
held=$(field '["memory"]["weights"]')
cut=$(field '["exposed_comm"]["tp"]')
code "whole ones" 0 sim mixtral-8x7b --cluster h100 --json $mixtral layout.etp=1
holds "a rank has more of them" "j['layout']['etp'] == 1 and j['memory']['weights'] > 2.5 * $held"
holds "nothing of them is summed over tp" "j['exposed_comm']['tp'] < 0.5 * $cut"
even=$(field '["step_s"]') sent=$(field '["exposed_comm"]["ep"]')
code "a rank with half more rows than the mean" 0 sim mixtral-8x7b --cluster h100 --json $mixtral layout.etp=1 profile.imbalance=1.5
half=$(field '["step_s"]')
code "with twice the mean" 0 sim mixtral-8x7b --cluster h100 --json $mixtral layout.etp=1 profile.imbalance=2
holds "it delays the step twice as much" "abs((j['step_s'] - $even) / ($half - $even) - 2) < 0.01"
holds "by less than twice the step, as the rest is even" "1.2 * $even < j['step_s'] < 2 * $even"
holds "and messages of experts too" "1.8 < j['exposed_comm']['ep'] / $sent < 2.1"
code "more ranks than dp x cp" 0 sim qwen3-235b-a22b --cluster h100 --json layout.dp=4 layout.tp=4 layout.ep=16 layout.pp=4 layout.sp=yes
holds "tp's share them" "j['layout']['etp'] == 1"
code "the same without sp" 3 sim qwen3-235b-a22b --cluster h100 layout.dp=4 layout.tp=4 layout.ep=16 layout.pp=4
says "what would do" err "nearest that do: 4; or add layout.sp=yes"
code "half of tp" 3 sim mixtral-8x7b --cluster h100 $mixtral layout.etp=2
says "all or none" err "nearest: 1 or 4"
code "all ranks with the same rows" 3 sim mixtral-8x7b --cluster h100 $mixtral layout.etp=1 layout.sp=no
says "sp" err "add layout.sp=yes"
code "experts of a dense model" 3 sim llama3-8b --cluster h100 layout.dp=2 layout.ep=2

# --- what does not fit, and a whole run ---
code "what does not fit is no error" 0 sim llama3.1-405b --cluster h100 --json layout.dp=8
holds "it is said" 'j["fits"] is False and j["peak_bytes"] > j["usable_bytes"]'
code "for people" 0 sim llama3.1-405b --cluster h100 layout.dp=8 train.tokens=1e9
says "it has no speed" out '^step +not printed: the run does not fit'
says "and no days" out '^time +no days and no cost'
if grep -q "MFU [0-9]" "$dir/out"; then failed "no MFU"; else passed "no MFU"; fi
code "a run of 10 billion tokens" 0 sim llama3-8b --cluster h100 --json layout.dp=64 layout.zero=1 train.tokens=10e9
holds "has days, cost and failures as percentiles" 'all(j[k]["p10"] <= j[k]["p50"] <= j[k]["p90"] for k in
    ("days", "gpu_hours", "cost_usd", "energy_kwh", "failures", "goodput", "checkpoint_interval_s", "spares"))'
code "for people" 0 sim llama3-8b --cluster h100 layout.dp=32 layout.tp=2 layout.zero=1 train.tokens=10e9 --trace "$dir/trace.json"
says "step" out "^step .*MFU"
says "days" out "days"
says "parts of the bill" out '^bill +work \$[0-9.kM]+, idle time \$.*, spares \$'
says "which price" out '^price +\$6\.88 per device and hour, on demand'
says "load on the store" out '^storage +.* per checkpoint, .*/s in the mean'
says "never measured" out 'Trireme was never measured'
says "two other softwares" out '^ +trireme +megatron\.h100 +torchtitan'
says "each has a cost" out '^cost +\$[^ ]+ +\$[^ ]+ +\$[^ ]+ *$'
if awk 'length($0) > 84 { exit 1 }' "$dir/out"; then passed "in lines that are short"; else failed "in lines that are short"; fi
if python3 -S -c 'import json,sys; assert len(json.load(open(sys.argv[1]))["traceEvents"]) > 100' "$dir/trace.json"
then passed "the trace is JSON"; else failed "the trace is JSON"; fi

# --- a run file: bytes as `verify` has them ---
code "init" 0 "$trireme" init "$dir/demo"
for layout in "layout.dp=2 layout.zero=1" "layout.pp=2" "layout.tp=2 layout.sp=yes" "layout.cp=2" \
    "layout.dp=2 layout.pp=2 layout.zero=3" "layout.pp=2 layout.schedule=zb-h1 train.recompute=full"; do
    code "verify $layout" 0 "$trireme" verify "$dir/demo/config.yaml" $small kernels.threads=1 $layout
    peak=$(sed -n 's/.* \([0-9]*\) bytes.*/\1/p' "$dir/out" | sort -n | tail -1)
    code "simulate $layout" 0 sim "$dir/demo/config.yaml" --cluster h100 --json $small kernels.threads=1 $layout
    same "bytes of $layout" "$peak" "$(field '["peak_bytes"]')"
done

# --- a run of the catalogue, with its own cluster and settings ---
code "a run" 0 sim gpt3 --json
holds "is as the catalogue has it" 'j["cluster"] == "azure-v100-10k" and j["devices"] == 9216 and j["layout"]["pp"] == 12'
holds "and has an end" 'j["days"]["p10"] <= j["days"]["p50"] <= j["days"]["p90"]'
code "on another cluster, with another layout" 0 sim gpt3 --json --cluster a100-80 layout.dp=8
holds "is the run still" 'j["devices"] == 768 and j["cluster"] == "a100-80" and j["global_batch"] == 1536'

# --- a run on another cluster keeps its layout and its batch ---
code "with as many devices" 0 sim llama3.1-405b --json --cluster h100 cluster.devices=16384
holds "all of it" 'j["devices"] == 16384 and j["global_batch"] == 2048 and j["layout"]["tp"] == 8 and j["layout"]["pp"] == 16 and "published" not in j'
code "on fewer" 0 sim llama2-70b --cluster p4d
says "what changed" out 'run +settings of the run llama2-70b on another cluster; changed to fit: cluster\.devices|changed to fit:'
code "its layout on too few" 3 sim mt-nlg-530b --cluster h100 cluster.devices=64
says "what would do" err 'take a larger cluster\.devices, or layout=auto'
code "with a layout of one's own it is the model" 0 sim llama3-70b --cluster h100 cluster.devices=64 layout.tp=8 layout.zero=3 train.recompute=full
says "and that is said" out 'the run llama3-70b is not used'
code "a model without a layout" 0 sim llama3-8b --cluster h100 cluster.devices=16
says "gets the fastest" out 'no layout was given: layout=auto takes'

# --- published figures beside the predicted ones ---
for run in llama3.1-405b palm-540b opt-175b mt-nlg-530b llama3-70b llama2-70b bloom-176b gpt-1t deepseek-v3 deepseek-v2; do
    sim $run --json 2>/dev/null
done >"$dir/out"
code "runs with a published figure" 0 python3 - "$dir/out" <<'END'
import json, re, statistics, sys
runs = [json.loads(line) for line in open(sys.argv[1])]
assert len(runs) == 10 and all(r["published"]["source"] and r["fits"] for r in runs)
off = {r["model"]: r["published"]["difference"] for r in runs}
print(off)
assert statistics.median(map(abs, off.values())) <= 0.10
for r in runs:
    if abs(r["published"]["difference"]) > 0.10: assert len(r["published"]["why"]) > 40, r["model"]
assert all(abs(d) <= 0.25 for d in off.values())
# The guide comes to the same steps on paper.
steps = {r["model"]: r["step_s"] for r in runs}
page = [re.findall(r"`([^`]+)` \| ([0-9.]+) s \| ([0-9.]+) s", l) for l in open("docs/guide/by-hand.md")]
table = [row[0] for row in page if row]
assert len(table) == 5
for model, hand, predicted in table:
    assert abs(float(predicted) / steps[model] - 1) < 0.01, (model, predicted, steps[model])
    assert abs(float(hand) / steps[model] - 1) < 0.10, (model, hand, steps[model])
END
# DeepSeek's own trace has 32.4 ms of kernels for a layer forward and back. Messages without another micro-batch beside
# them are not hidden; with no messages hidden at all it makes no difference which are.
layer() { sim deepseek-v3 --json "$@" 2>/dev/null | python3 -S -c 'import json, sys
j = json.load(sys.stdin); l = [x for x in j["layers"] if x["name"] == "layers.3"][0]
print(round(1e3 * (l["forward_s"] + l["recompute_s"] + l["backward_s"]), 1), round(j["step_s"], 1))'; }
same "a layer as in the trace" "$(layer | cut -d' ' -f1)" 32.3
same "gradients of weights at their own speed" "$(layer profile.product_dw=0.295 | cut -d" " -f1)" 40.5
same "none hidden, whichever" "$(layer profile.ep_overlap=0)" "$(layer profile.ep_overlap=0 profile.ep_pairs=no)"
code "some hidden" 0 test "$(layer profile.ep_pairs=no | cut -d' ' -f2)" \< "$(layer | cut -d' ' -f2)"
code "and as the executor has them" 0 sim deepseek-v3 --execute layout.pp=4 model.layers=8 cluster.devices=256 train.global_batch=1024
says "to the ns" out 'equal to the ns'
code "a figure that is held against nothing" 0 sim llama4-maverick
says "has its reason" out '^published +2.38 million H100 hours .*'
code "a run that is changed" 0 sim palm-540b --json train.global_batch=1024
holds "is not held against it" '"published" not in j'

# --- a layout that is left open ---
open="cluster.devices=64 train.global_batch=256"
code "the planner's first" 0 "$trireme" plan llama3-8b --cluster h100 --json $open
best=$(field '["plans"][0]["step_s"], json.load(open(sys.argv[1]))["plans"][0]["layout"]')
code "is what a layout that is left open takes" 0 sim llama3-8b --cluster h100 --json $open layout=auto
same "its step and its layout" "$best" "$(field '["step_s"], json.load(open(sys.argv[1]))["layout"]')"
code "a part that is given stays" 0 sim llama3-8b --cluster h100 --json $open layout=auto layout.tp=8 train.micro_batch=1
holds "and so does a micro-batch" 'j["layout"]["tp"] == 8 and j["micro_batch"] == 1'
printf 'model: {preset: gpt2-124m}\ntrain: {seq: 1024, global_batch: 64, micro_batch: 4}\nlayout: auto\n' >"$dir/open.yaml"
code "of a run file" 0 sim "$dir/open.yaml" --cluster a100-80 --json cluster.devices=8
holds "that has its micro-batch" 'j["micro_batch"] == 4 and j["layout"]["dp"] == 8'
code "on a processor" 0 sim "$dir/open.yaml" --cluster cpu --json cluster.devices=2 train.micro_batch=auto
holds "a small micro-batch is as good" 'j["micro_batch"] <= 16 and j["peak_bytes"] < 6e9'
code "where nothing fits" 0 sim llama3.1-405b --cluster h100 --json cluster.devices=8 train.global_batch=16 layout=auto
holds "it is the smallest, and does not" 'not j["fits"] and j["layout"]["tp"] == 8'
code "what a search does not vary" 3 sim llama3-8b --cluster h100 $open layout=auto layout.zero_group=4
says "is said with its place" err "command line: the search does not vary layout.zero_group"

# --- a micro-batch that is left open ---
for layout in "layout.tp=8" "layout.tp=4 layout.pp=4 layout.stages=7.5,8.5,9,7" "layout.zero=3 layout.zero_group=8" \
    "layout.cp=4 layout.cp_heads=2 layout.zero=1" "layout.pp=8 layout.schedule=zb-h1 layout.zero=1"; do
    best=1e9 at=0
    for b in 1 2 4 8 16 32; do
        sim llama3-8b --cluster h100 --json $open $layout train.recompute=none train.micro_batch=$b >"$dir/out" 2>/dev/null || continue
        step=$(python3 -S -c 'import json, sys; j = json.load(open(sys.argv[1])); print(j["step_s"] if j["fits"] else 1e9)' "$dir/out")
        if python3 -S -c "import sys; sys.exit($step >= $best)"; then best=$step at=$b; fi
    done
    code "$layout" 0 sim llama3-8b --cluster h100 --json $open $layout train.recompute=none train.micro_batch=auto
    holds "takes the fastest of them, $at" 'j["fits"] and j["micro_batch"] == '"$at"' and j["step_s"] == '"$best"
done
code "with what is computed again open" 0 sim llama3-70b --cluster h100 --json cluster.devices=64 layout.tp=8 layout.zero=1 train.micro_batch=auto
holds "that is chosen too" 'j["fits"] and j["recompute"] != "none"'
code "a batch that grows" 0 sim llama3-8b --cluster h100 --json cluster.devices=8 layout.tp=8 train.batch_ramp=0=12,10=20 train.steps=20 train.micro_batch=auto
holds "is divided at every size" '4 % j["micro_batch"] == 0'
code "where nothing fits" 0 sim llama3.1-405b --cluster h100 --json cluster.devices=8 train.global_batch=16 layout.tp=8 train.micro_batch=auto
holds "it is the smallest" 'not j["fits"] and j["micro_batch"] == 1 and j["recompute"] == "full"'

# --- mistakes ---
code "no cluster" 2 sim llama3-8b
says "asks for one" err "--cluster"
code "no such cluster" 3 sim llama3-8b --cluster h10
says "offers the nearest" err "h100"
code "no such model" 3 sim llama3-9b --cluster h100
says "offers the nearest model" err "llama3-8b"
code "devices that no layout has" 3 sim llama3-8b --cluster h100 cluster.devices=100 layout.tp=8
says "offers the nearest numbers" err "96 and 104"
code "devices and ranks that differ" 3 sim llama3-8b --cluster h100 cluster.devices=64 layout.dp=4
code "heads that tp does not divide" 3 sim llama3-8b --cluster h100 layout.tp=5
says "offers the nearest tp" err "4 or 8"
for key in device.l2_mb device.clock_mhz device.lanes_per_unit device.dies device.sparse_tflops.bf16 node.cpu_cores prices.device_usd; do
    code "a figure that is only shown: $key" 3 sim llama3-8b --cluster h100 layout.tp=8 cluster.$key=1
done
says "no prediction reads it" err 'cluster\.prices\.device_usd has no effect'
code "plan refuses it too" 3 "$trireme" plan llama3-8b --cluster h100 cluster.device.dies=2
code "one step" 0 sim llama3-8b --cluster h100 --json layout.tp=8 train.tokens=1e10
cp "$dir/out" "$dir/one"
for key in device.peak_tflops.bf16=500 device.memory_gb_s=1000 device.usable_gib=70 device.product_share.bf16=0.5 \
    device.memory_share=0.5 device.attention_share.forward=0.3 device.launch_us=20 device.watts=900 node.watts=1 pue=2 \
    levels.1.gbit_s=100 levels.1.latency_us=90 prices.on_demand_usd_h=9 prices.network_usd_h=1 prices.storage_usd_gb_month=9 failures.mtbf_device_h=900 failures.restart_s=9000; do
    code "a figure that acts: $key" 0 sim llama3-8b --cluster h100 --json layout.tp=8 train.tokens=1e10 cluster.$key
    if cmp -s "$dir/out" "$dir/one"; then failed "changes the prediction"; else passed "changes the prediction"; fi
done
code "no such profile" 3 sim llama3-8b --cluster h100 profile=mega
code "no such convention" 3 sim llama3-8b --cluster h100 flops_convention=pal
says "offers palm" err "palm"
code "train takes none of it" 3 "$trireme" train "$dir/demo/config.yaml" $small profile=megatron --dry-run
says "and says so" err "simulate"
[ "$failures" = 0 ]

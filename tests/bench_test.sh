#!/bin/bash
# `bench`: what it prints is whole and adds up, mistakes are named, a slower machine is exit code 8.
# Nothing here looks at how long something took.
set -u -o pipefail
. tests/support/named.sh
command -v python3 >/dev/null || { echo "skipped: no python3 to read JSON"; exit 77; }
# holds NAME PYTHON: an expression on d, the JSON in $dir/out
holds() {
    if python3 -S -c "import json,sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if ($2) else 1)" "$dir/out" 2>>"$dir/err"; then passed "$1"; else failed "$1"; fi
}
step() { "$trireme" bench step --model tiny --batch 1 --seq 16 --steps 2 --threads 2 --size 4MiB "$@"; }
gemm() { "$trireme" bench gemm --n 16 --m 24 --k 8 --repeats 2 --threads 2 "$@"; }
attention() { "$trireme" bench attention --seq 24 --heads 2 --kv-heads 1 --head-dim 8 --repeats 2 --threads 2 "$@"; }

# --- step ---
code "step" 0 step --json
cp "$dir/out" "$dir/step.json"
holds "its fields" "list(d)[:9] == ['tokens_per_s', 'step_s', 'flops', 'peak_flops', 'mfu', 'peak_bytes', 'rss_bytes', 'bench', 'what']"
holds "the parts add up to the step" "abs(sum(p['seconds'] for p in d['parts']) - d['step_s']) < 1e-7 * d['step_s'] + 1e-12"
holds "the last part is no operation" "d['parts'][-1]['name'] == 'no operation' and d['parts'][-1]['calls'] == 0"
holds "each part has a bound" "all(abs(p['bound_s'] - max(p['flops'] / d['peak_flops'], p['bytes'] / d['copy_bytes_per_s'])) <= 1e-4 * p['bound_s'] for p in d['parts'])"
holds "tokens and share" "abs(d['tokens_per_s'] * d['step_s'] / 16 - 1) < 1e-4 and abs(d['mfu'] * d['peak_flops'] * d['step_s'] / d['flops'] - 1) < 1e-4"
code "step, a table" 0 step train.precision=bf16
says "it names what ran" out "^model +tiny  1 x 16 tokens, bf16, 1\.[0-9]+M params, 2 threads, "
says "the parts" out "^matmul_dw +[0-9]+ "
says "and their sum" out "^step +[0-9.]+ 100\.0 "
if awk 'length > 80 { exit 1 }' "$dir/out"; then passed "80 columns"; else failed "80 columns"; fi

# A step's results are read before its updates: their time is in the table even with one step.
code "one step" 0 "$trireme" bench step --model tiny --batch 1 --seq 16 --steps 1 --threads 2 --size 4MiB optimizer.name=muon --json
holds "its updates are in operations" "all(p['seconds'] > 0 for p in d['parts'] if p['name'] in ('adamw', 'muon'))"

# --- generate ---
generate() { "$trireme" bench generate --model tiny --precision bf16 --context 8 --repeats 6 --threads 2 --size 4MiB "$@"; }
code "generate" 0 generate --json
cp "$dir/out" "$dir/generate.json"
holds "its fields" "d['bench'] == 'generate' and d['tokens'] == 6 and d['what'] == 'tiny  bf16, after 8 tokens'"
holds "bytes a token, of two bytes each" "2 * 1000000 < d['weight_bytes'] < 2 * 1400000"
holds "speed and share" "abs(d['tokens_per_s'] * d['token_s'] - 1) < 1e-4 and abs(d['weight_bytes'] / d['token_s'] / d['weight_bytes_per_s'] - 1) < 1e-4 and abs(d['share'] * d['copy_bytes_per_s'] / d['weight_bytes_per_s'] - 1) < 1e-4"
holds "copies in turn" "d['copies'] == 3 and d['copy_bytes_per_s_min'] <= d['copy_bytes_per_s'] <= d['copy_bytes_per_s_max']"
holds "the parts add up to the token" "abs(sum(p['seconds'] for p in d['parts']) - d['token_s']) < 1e-7 * d['token_s'] + 1e-12"
holds "one draw a token" "[p['calls'] for p in d['parts'] if p['name'] == 'sample'] == [1]"
code "generate, a table" 0 generate kernels.level=scalar
says "the level is named" out "^model +tiny  bf16, after 8 tokens, 2 threads, scalar$"
if awk 'length > 80 { exit 1 }' "$dir/out"; then passed "80 columns"; else failed "80 columns"; fi
code "a longer text than the model's context" 3 generate --context 100000

# --- machine ---
code "machine" 0 "$trireme" bench machine --size 512KiB --threads 2 --json --write "$dir/device.yaml"
holds "its fields" "{'cpu', 'level', 'threads', 'cores', 'frequency_hz', 'cache_bytes', 'thread_share', 'fp32', 'bf16', 'barrier_s', 'copy_bytes_per_s', 'memory', 'latency'} <= set(d)"
holds "the peak is the larger" "all(d[t]['peak_flops'] == max(d[t]['loop_flops'], d[t]['product_flops']) for t in ('fp32', 'bf16'))"
holds "both numbers of threads" "[r['threads'] for r in d['memory']] == [1, 1, 1, 2, 2, 2]"
says "the catalogue's entry" device.yaml "^base: cpu$"
says "it says what measured it" device.yaml "^about: .*measured by trireme [0-9].* on 20[0-9-]+\"$"
says "it has the peak" device.yaml "^    fp32: [0-9.e-]+$"
says "and the bandwidth" device.yaml "^  memory_gb_s: [0-9.]+ "
says "what its products reach in steps" device.yaml "^  product_half: {m: [0-9.e+-]+, n: [0-9.e+-]+, k: [0-9.e+-]+}$"
says "and its norms" device.yaml "^  pointwise_gops: {fp32: [0-9.]+, bf16: [0-9.]+}$"
says "and what their rows take" device.yaml "^  pointwise_half: [0-9.]+ +# columns$"
says "and all threads together" device.yaml "^  team: [01][.0-9]* "
code "a step is predicted with it" 0 "$trireme" simulate gpt2-tiny --cluster "$dir/device.yaml" train.seq=64 train.global_batch=2
code "it is a cluster" 0 "$trireme" explain catalog "$dir/device.yaml"
code "machine, a table" 0 "$trireme" bench machine --size 64KiB --threads 1
if awk 'length > 80 { exit 1 }' "$dir/out"; then passed "80 columns"; else failed "80 columns"; fi
code "write where nothing can be" 4 "$trireme" bench machine --size 64KiB --threads 1 --write "$dir/no/where.yaml"

# --- gemm, attention ---
code "gemm" 0 gemm --json
cp "$dir/out" "$dir/gemm.json"
holds "three products" "[r['name'] for r in d['rows']] == ['forward 16 x 24 x 8', 'dx 16 x 24 x 8', 'dw 16 x 24 x 8']"
holds "FLOPs" "all(r['flops'] == 2 * 16 * 24 * 8 and r['count'] == 2 for r in d['rows'])"
holds "share of the peak" "all(0 < r['share'] <= 1 and abs(r['share'] * d['peak_flops'] / r['flops_per_s'] - 1) < 1e-4 for r in d['rows'])"
code "gemm of a model" 0 "$trireme" bench gemm --model tiny --batch 1 --seq 8 --repeats 1 --dtype bf16
says "its head" out "^head 8 x 257 x 128 +1 "
if awk 'length > 80 { exit 1 }' "$dir/out"; then passed "80 columns"; else failed "80 columns"; fi
code "attention" 0 attention --json
holds "forward and backward" "[r['name'] for r in d['rows']] == ['forward 1 x 24', 'backward 1 x 24']"
holds "half of the square" "[r['flops'] for r in d['rows']] == [2 * 2 * 2 * 8 * 24 * 24 / 2, 4 * 2 * 2 * 8 * 24 * 24 / 2]"
code "attention, a level" 0 attention kernels.level=scalar
says "which is named" out ", 2 threads, scalar$"

# --- baselines: no machine takes an hour for this, none is done in a picosecond ---
slow() { sed -E 's/("(step|median|token)_s": )[0-9.e+-]+/\13600/' "$1"; }
fast() { sed -E 's/("(step|median|token)_s": )[0-9.e+-]+/\11e-12/' "$1"; }
for what in step gemm generate; do
    slow "$dir/$what.json" >"$dir/slow.json"
    fast "$dir/$what.json" >"$dir/fast.json"
    code "$what is faster than it was" 0 $what --baseline "$dir/slow.json"
    code "$what is slower than it was" 8 $what --baseline "$dir/fast.json" --json
    says "both are told" err "is slower than .*fast.json: .* s instead of 1e-12 s"
    holds "the figures are printed all the same" "d['bench'] == '$what'"
done
code "another kind" 2 step --baseline "$dir/gemm.json"
sed -E 's/dw 16/dw 17/' "$dir/gemm.json" >"$dir/other.json"
code "a row that is not there" 5 gemm --baseline "$dir/other.json"
code "no such baseline" 4 step --baseline "$dir/none.json"
echo 'step_s: 3' >"$dir/text.json"
code "no JSON" 5 step --baseline "$dir/text.json"

# --- mistakes ---
code "no such bench" 2 "$trireme" bench stpe
says "did you mean" err 'did you mean "bench step"\?'
code "nothing near" 2 "$trireme" bench everything
says "what there is" err "step, generate, machine, gemm, attention and comm"
code "a flag of another" 2 "$trireme" bench machine --model tiny
says "which" err "bench machine takes no --model"
code "a key of another" 2 "$trireme" bench gemm train.seq=4
code "half a shape" 2 "$trireme" bench gemm --n 4
code "a shape and a model" 2 "$trireme" bench gemm --n 4 --m 4 --k 4 --model tiny
code "heads that do not divide" 2 "$trireme" bench attention --heads 3 --kv-heads 2
code "no such preset" 3 "$trireme" bench gemm --model nothing
"$trireme" help --completion bash >"$dir/out"
says "completion knows them" out "bench\) words=\"step +generate +machine +gemm +attention"
[ $failures = 0 ]

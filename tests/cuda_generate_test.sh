#!/bin/bash
# Texts from device cuda without a GPU (tests/fixtures/cuda): `generate`, `eval`, `serve` and the completions of
# a run have the tokens of the CPU. By night all reference models, types, layouts and ways of drawing.
set -u -o pipefail
. tests/support/named.sh
library=$(realpath "$(dirname "$trireme")")/tests/cuda models=$(realpath "${TRIREME_SHARED:-../shared}")/golden/models
texts=$(realpath tests/support/serve_texts.py) night=${CUDA_NIGHT:-}
[ -e "$library/libcuda.so.1" ] || { echo "skipped: $library/libcuda.so.1 is not built"; exit 77; }
[ -d "$models" ] || { echo "skipped: $models is not there"; exit 77; }
mkdir "$dir/bin"
cp "$trireme" "$dir/bin/trireme"
trireme=$dir/bin/trireme
echo kernels >"$dir/bin/trireme.fatbin"
cd "$dir" || exit 1
on() { # on DEVICE COMMAND...
    local device=$1
    shift
    LD_LIBRARY_PATH=$([ "$device" = cpu ] || echo "$library") timeout ${CUDA_LIMIT:-600} "$@" kernels.device="$device"
}
# tokens: of the JSON lines in $dir/out
tokens() { python3 -c 'import json,sys; [print(r["tokens"]) for r in map(json.loads, open(sys.argv[1]))]' "$dir/out"; }
printf 'hello\nIn the beginning was\nab\nhello\n' >prompts
# both NAME MODEL FLAGS...: the same tokens on both
both() {
    local name=$1 model=$2 want
    shift 2
    code "$name on the CPU" 0 on cpu "$trireme" generate "$models/$model" --tokenizer bytes --prompts prompts --threads 1 --json "$@"
    want=$(tokens)
    code "$name on the GPU" 0 on cuda "$trireme" generate "$models/$model" --tokenizer bytes --prompts prompts --json "$@"
    same "has the CPU's tokens" "$(tokens)" "$want"
}
if [ -z "$night" ]; then
    both "GPT-2, drawn" gpt2 --seed 3 --max-tokens 3 --batch 2
else
    for model in "$models"/*; do
        for flags in "--temperature 0" "--seed 5 --top-p 0.9 --top-k 40" "--seed 6 --precision fp16 --max-tokens 2"; do
            # shellcheck disable=SC2086
            both "$(basename "$model") $flags" "$(basename "$model")" --max-tokens 6 --batch 3 $flags
        done
    done
fi
if [ -n "$night" ]; then
    cp prompts short
    echo 'a prompt that is longer than the windows of sixteen, of ten and of eight tokens' >>prompts
    for model in llama_gqa mistral_window gemma2 gpt_oss; do # the last three have windows
        rm -f strict
        for flags in "--batch 1" "--batch 3" "--batch 2 --cache 128"; do
            # shellcheck disable=SC2086
            code "strict order, $model, $flags" 0 on cuda "$trireme" generate "$models/$model" --tokenizer bytes \
                --prompts prompts --json --strict --max-tokens 5 --seed 8 --precision fp32 $flags
            tokens >>strict
        done
        same "is one" "$(sort strict | uniq -c | awk '{ print $1 % 3 }' | sort -u)" 0
        same "of all prompts" "$(grep -c . strict)" 15
    done
    mv short prompts
fi
cp prompts text
FAKE_CUDA_MIB=1 code "a GPU that is too small" 3 on cuda "$trireme" eval "$models/gpt2" --tokenizer bytes --data text --seq 64 --batch 64
says "is told what the model needs" err 'needs .*MiB, memory.limit is'
code "losses on the CPU" 0 on cpu "$trireme" eval "$models/gpt2" --tokenizer bytes --data text --seq 8 --threads 1
cp out want
code "losses on the GPU" 0 on cuda "$trireme" eval "$models/gpt2" --tokenizer bytes --data text --seq 8
same "are the CPU's" "$(head -1 out)" "$(head -1 want)"

# --- a server on two ranks, with a cache in pages ---
served() { # served DEVICE KEYS...: answers in $dir/DEVICE.texts
    local device=$1 pid port
    shift
    : >log # which the shell may empty only after this one reads it
    LD_LIBRARY_PATH=$([ "$device" = cpu ] || echo "$library") "$trireme" serve "$models/llama_gqa" --tokenizer bytes --threads 1 \
        --name tiny --port 0 --key none --batch 3 --context "${night:+4}8" kernels.device="$device" "$@" >log 2>log.err &
    pid=$!
    listening log "$pid" || return 1
    if [ -n "$night" ]; then python3 "$texts" "$port" tiny; else python3 - "$port" <<'END'; fi >"$device.all"
import json, sys, urllib.request
body = {"model": "tiny", "prompt": ["hello", "ab"], "max_tokens": 2, "seed": 4, "logprobs": 1}
url = f"http://127.0.0.1:{sys.argv[1]}/v1/completions"
asked = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
for c in json.load(urllib.request.urlopen(asked))["choices"]:
    print(repr(c["text"]), c["logprobs"]["token_logprobs"])
END
    python3 -c 'import re,sys; print(re.sub(r"-?\d+\.\d+", lambda m: "%.3f" % float(m[0]), sys.stdin.read()))' \
        <"$device.all" >"$device.texts"
    kill -TERM "$pid"
    wait "$pid"
}
if served cpu; then
    served cuda layout.tp=2 --cache "${night:+6}32" || failed "a server on the GPU"
    same "a server's texts and probabilities" "$(cat cuda.texts)" "$(cat cpu.texts)"
    same "there are some" "$(grep -c . cpu.texts | awk '{ print($1 > 1) }')" 1
else
    grep -q "built without HTTP\|libmicrohttpd" log.err || failed "a server on the CPU"
fi

# --- a run that draws its completions itself ---
for a in 1 333; do for b in 2 57; do printf '{"prompt": "%d+%d=", "answer": %d}\n' $a $b $((a + b)); done; done >prompts.jsonl
cat >run.yaml <<END
train: {objective: grpo, steps: 2, seq: 16, global_batch: 8}
model: {layers: 1, dim: 16, heads: 2, vocab: 258, context: 16}
rollout: {prompts: prompts.jsonl, group: 4, max_tokens: 4, cache: 96}
reward: {kind: regex, pattern: '^[[:print:]]'}
optimizer: {lr: 2e-2}
schedule: {name: constant}
checkpoint: {every: 0}
kernels: {threads: 1}
END
values() { sed -n "s/^{\"step\": [0-9]*,.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1/metrics.jsonl" | tr '\n' ' '; }
drawn() { # drawn NAME KEYS...
    local name=$1
    shift
    code "$name on the CPU" 0 on cpu "$trireme" train run.yaml --quiet run.dir="$dir/cpu" "$@"
    code "$name on the GPU" 0 on cuda "$trireme" train run.yaml --quiet run.dir="$dir/gpu" "$@"
    same "the completions have the CPU's rewards" "$(values gpu reward)" "$(values cpu reward)"
    same "their log-probabilities are those of training" "$(values gpu ratio_gap | awk '{ print($1 < 2e-6 && $2 < 2e-6) }')" 1
    rm -r cpu gpu
}
drawn "completions"
if [ -n "$night" ]; then
    drawn "rows of slots" rollout.cache=0
    drawn "two ranks" layout.dp=2
    drawn "weights in pieces" layout.dp=2 layout.zero=3
    drawn "tensor parallelism" layout.tp=2
    drawn "two stages" layout.pp=2 train.micro_batch=2
    drawn "context parallelism" layout.cp=2
    for keys in train.steps=2 "layout.dp=2 layout.zero=3 rollout.slots=2"; do
        # shellcheck disable=SC2086
        code "strict, $keys" 0 on cuda "$trireme" train run.yaml --quiet run.dir="$dir/strict" determinism=strict $keys
        same "the log-probabilities are those of training" "$(values strict ratio_gap)" "0 0 "
        digest strict >>digests
        rm -r strict
    done
    same "and the digest is one" "$(sort -u digests | grep -c .)" 1
    drawn "an adapter" adapter.kind=lora adapter.rank=4
fi
[ $failures = 0 ]

#!/usr/bin/env bash
# `inspect` from outside: what a file is called, what --verify finds, what --diff tells, and the exit codes.
set -u
shared=${TRIREME_SHARED:-../shared}
models=$(cd "$shared/golden/models" 2>/dev/null && pwd) || {
    echo "skipped: $shared/golden/models is not there"
    exit 77
}
. tests/support/golden.sh
known=$(TRIREME=${TRIREME:-} golden_models "$models") || exit 1
words=$(cd "$shared/data" && pwd)
. tests/support/check.sh

put() { # put BYTES FILE OFFSET
    printf '%b' "$1" | dd of="$2" bs=1 seek="$3" conv=notrunc 2>/dev/null
}

for i in $(seq 400); do printf 'line %d of a text, in which the word %d stands\n' "$i" $((i * 7 % 31)); done >text.txt
cat >run.yaml <<END
model: {preset: tiny, layers: 2}
train: {steps: 4, seq: 32, global_batch: 4}
schedule: {warmup: 0}
eval: {every: 0}
checkpoint: {every: 2}
data: {train: text.txt, tokenizer: bytes, valid: 0}
END
"$trireme" train run.yaml run.dir=run --quiet || exit 1
steps=run/checkpoints
state=$(basename "$steps"/step-0000004/*.safetensors)

# ---- what it is
check 0 'kind        run' 'checkpoints 2' 'status      done' -- inspect run
check 0 'verified    ok: 2 checkpoints' -- inspect run --verify
check 0 'kind        checkpoint' 'step        4' 'digest' -- inspect "$steps/step-0000004"
check 0 'kind        metrics' 'steps       1 to 4' -- inspect run/metrics.jsonl --verify
check 0 'kind        TensorBoard events' -- inspect run/events.out.tfevents.* --verify
check 0 'kind        configuration' 'batch       4' -- inspect run.yaml --verify
check 0 'format      token file, trireme' 'ok: the checksum' -- inspect run/cache/*.tok --verify
check 0 'kind        safetensors' 'weight/embed.tokens' '257 x 128' -- inspect "$steps/step-0000004/$state" --tensors
check 0 '"kind": "checkpoint"' '"step": 4' '"verified": true' -- inspect "$steps/step-0000004" --verify --json
for folder in $known; do
    check 0 'kind        Hugging Face folder' 'are those of config.json' -- inspect "$folder" --verify
done
check 0 'kind        Hugging Face configuration' -- inspect "$models/qwen3/config.json"
check 0 'kind        safetensors' 'files       3' -- inspect "$models/llama_sharded/model.safetensors.index.json" --verify
check 0 'kind        tokenizer' '50257' -- inspect "$words" --verify
check 0 'kind        text' 'documents   1' 'encoding    UTF-8' -- inspect text.txt --verify
gzip -k text.txt
check 0 'bytes       ' -- inspect text.txt.gz --verify
printf '{"text": "a"}\n{"text": "b"}\n' >two.jsonl
check 0 'kind        JSON lines' 'documents   2' -- inspect two.jsonl --verify
printf '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2}]}' >trace.json
check 0 'kind        Chrome trace' 'spans       1' -- inspect trace.json --verify
"$trireme" train run.yaml run.dir=other train.seed=2 --quiet || exit 1

# ---- token files of others
printf '\1\0\2\0\3\0' >plain.bin
check 0 'nanogpt' 'tokens      3' 'not stated' 'largest id  3' -- inspect plain.bin --verify
{ printf '\x88\xd8\x34\x01\1\0\0\0\2\0\0\0'; head -c 1012 /dev/zero; printf '\5\0\6\0'; } >llmc.bin
check 0 'llm.c' 'tokens      2' 'largest id  6' -- inspect llmc.bin --verify
truncate -s 1026 llmc.bin
check 5 'bytes' -- inspect llmc.bin
{ printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0'
  printf '\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0'; } >mega.idx
printf '\7\0\x8\0' >mega.bin
check 0 'megatron' 'tokens      2' -- inspect mega.idx --verify

# ---- what cannot be read is named
printf 'GGUF\3\0\0\0' >a.gguf
printf '\x80\x02}q' >meta.pkl
printf 'PK\3\4....' >pytorch_model.bin
printf '\x08\x07\x12\x07pytorch' >a.onnx
head -c 300 /dev/zero >zeros
check 0 'a GGUF model' 'readable    no' -- inspect a.gguf
check 0 'a Python pickle' 'never run' -- inspect meta.pkl
check 0 'a PyTorch checkpoint' -- inspect pytorch_model.bin
check 0 'kind        ONNX model' -- inspect a.onnx
check 0 'kind        unknown bytes' -- inspect zeros
check 3 'verified    not possible' -- inspect a.gguf --verify
check 4 'nothing does not exist' -- inspect nothing

# ---- damage: which file, which tensor, which byte
cp -r run bad
put XY "bad/checkpoints/step-0000004/$state" 100000
check 8 "step-0000004/$state byte " '(tensor weight/' 'NO: 1 damage' -- inspect bad --verify
check 8 '"verified": false' '"damage": [' -- inspect "bad/checkpoints/step-0000004" --verify --json
events=$(ls bad/events.out.tfevents.*)
put X "$events" 60
check 8 'byte ' 'checksum of a record' -- inspect "$events" --verify
truncate -s 70 "$events"
check 8 'cut inside a record at byte' -- inspect "$events" --verify
echo '{"step": 3, bad' >>bad/metrics.jsonl
check 8 'line 5, at byte' -- inspect bad/metrics.jsonl --verify
printf '{"step": 9' >>bad/metrics.jsonl
check 8 'has no end' 'NO: 2 damages' -- inspect bad/metrics.jsonl --verify
put X bad/cache/*.tok 70
check 8 'checksum' -- inspect bad/cache/*.tok --verify
printf '{"text": "a"}\n{"text": 7}\n' >bad.jsonl
check 8 'bad.jsonl:2' -- inspect bad.jsonl --verify
cp -r "$models/llama_gqa" wrong && chmod -R u+w wrong
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' wrong/config.json
check 8 'model.layers.2.mlp.up_proj.weight is missing' -- inspect wrong --verify
check 0 -- inspect wrong

# ---- so broken that it cannot be opened
head -c 100 "$models/gpt2/model.safetensors" >cut.safetensors
check 5 'cut.safetensors' -- inspect cut.safetensors --verify
truncate -s 30 bad/checkpoints/step-0000002/manifest.json
check 5 'manifest.json' -- inspect bad/checkpoints/step-0000002 --verify
echo '{' >bad.json
check 5 'bad.json' -- inspect bad.json

# ---- names that leave the folder: refused before any file is opened
mkdir escape
cp "$models/llama_sharded/config.json" escape
printf '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "../../key"}}' \
    >escape/model.safetensors.index.json
check 76 'error[S001]' 'names "../../key"' 'nothing was opened' -- inspect escape
check 76 'error[S001]' 'nothing was opened' -- import escape taken
check 76 'error[S001]' -- generate escape --tokenizer bytes --prompt a

# ---- two of them
check 0 'equal to the bit' -- inspect "$steps/step-0000004" --diff run
check 8 'worst first' 'step: 4 -> 2' -- inspect "$steps/step-0000004" --diff "$steps/step-0000002"
check 8 'seed: 1 -> 2' -- inspect run --diff other
check 8 '"same": false' '"relative": ' -- inspect run --diff other --json
"$trireme" export run a >/dev/null && "$trireme" export run b --dtype bf16 >/dev/null
check 0 -- inspect a --diff a/model.safetensors
check 8 'config.torch_dtype: "float32" -> "bfloat16"' 'type fp32 -> bf16' -- inspect a --diff b
check 8 'only in' 'shape ' -- inspect a --diff "$models/llama_gqa"
check 2 'trireme export' -- inspect a --diff run
check 2 'is not a model' -- inspect a --diff text.txt
for name in gpt2 llama_sharded llama_tied_bf16 mistral_window qwen2 qwen3; do
    "$trireme" import "$models/$name" "$name" >/dev/null && "$trireme" export "$name" "$name.hf" >/dev/null
    check 0 'equal to the bit' -- inspect "$models/$name" --diff "$name.hf"
done

[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

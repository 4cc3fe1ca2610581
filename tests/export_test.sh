#!/usr/bin/env bash
# What `import` takes, `export` gives back byte for byte; what cannot be written whole is not there.
set -u
shared=${TRIREME_SHARED:-../shared}
models=$(cd "$shared/golden/models" 2>/dev/null && pwd) || {
    echo "skipped: $shared/golden/models is not there"
    exit 77
}
tokenizers=$(cd "$shared/data" && pwd)
. tests/support/golden.sh
known=$(golden_models "$models") || exit 1
. tests/support/check.sh

digest() {
    "$trireme" digest "$1" 2>&1
}

# ---- every family, whole and in pieces
for folder in $known; do
    name=$(basename "$folder")
    check 0 -- import "$folder" "$name"
    check 0 'all bytes right' -- export "$name" "$name.hf"
    check 0 'files; read back' -- export "$name" "$name.cut" --shard-bytes 20000
    for made in "$name.hf" "$name.cut"; do
        check 0 -- import "$made" "$made.again"
        same "$made" "$(digest "$made.again")" "$(digest "$name")"
    done
    grep -q '"total_size"' "$name.cut/model.safetensors.index.json" || same "$name.cut" "an index" "none"
done
check 0 'bf16' -- export llama_tied_bf16 bf16
check 0 'fp32' -- export gpt2 gpt2.fp32 --dtype fp32
check 0 'fp16' -- export gpt2 gpt2.fp16 --dtype fp16

# ---- rows for new tokens: the old ones stay, the new ones are their mean; the model says the same
vocab=$(sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' "$models/llama_gqa/config.json")
check 0 'and 7 new ones, whose rows are the mean' -- import "$models/llama_gqa" grown --vocab $((vocab + 7))
check 0 'read back' -- export grown grown.hf --tokenizer none
python3 - "$models/llama_gqa" grown.hf <<'END' || same "grown rows" "the mean" "others"
import json, math, struct, sys
def read(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: (v["shape"], struct.unpack_from(f"<{math.prod(v['shape'])}f", data, 8 + n + v["data_offsets"][0]))
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
was, now = read(sys.argv[1]), read(sys.argv[2])
assert set(was) == set(now)
for name, (shape, values) in was.items():
    new_shape, new = now[name]
    assert new[:len(values)] == values, name
    if new_shape == shape: continue
    rows, columns = shape
    assert "embed" in name or "head" in name, name
    for j in range(columns):
        mean = sum(values[i * columns + j] for i in range(rows)) / rows
        for i in range(rows, new_shape[0]):
            assert abs(new[i * columns + j] - mean) < 1e-7, (name, i, j)
assert sum(now[n][0] != was[n][0] for n in was) == 2
END
check 2 'rows are only added' -- import "$models/llama_gqa" shrunk --vocab $((vocab - 1))

# ---- through training: masters of fp32 that no step has changed are the bf16 they came as
for i in $(seq 400); do printf 'line %d of a text, in which the word %d stands\n' "$i" $((i * 7 % 31)); done >text.txt
cat >run.yaml <<END
train: {steps: 1, seq: 16, global_batch: 4}
schedule: {warmup: 0}
optimizer: {lr: 0, weight_decay: 0}
eval: {every: 0}
data: {train: text.txt, tokenizer: bytes, valid: 0}
END
for name in llama_tied_bf16 gpt2 qwen2; do
    "$trireme" train run.yaml "model.from=$models/$name" "run.dir=run-$name" --quiet || same "$name" trained not
    check 0 'bytes, 3 files' -- export "run-$name" "run-$name.hf"
    check 0 -- import "run-$name.hf" "run-$name.again"
    same "$name, a step of nothing" "$(digest "run-$name.again")" "$(digest "$name")"
done

# ---- a model of our own: its end of a text, its tokenizer, its words
check 0 -- train run.yaml model.preset=tiny optimizer.lr=1e-3 run.dir=own --quiet
check 0 'fp32' -- export own own.hf
grep -q '"eos_token_id": 256' own.hf/config.json || same own.hf "eos 256" "another"
check 0 'bytes, 3 files' -- export own/checkpoints/latest own.latest
check 0 'equal to the bit' -- inspect own.hf --diff own.latest
for from in own own.hf; do # with the tokenizer that each brings
    check 0 'the ' -- generate "$from" --prompt 'the ' --temperature 0 --max-tokens 12
    mv out "of-$from"
done
cmp of-own of-own.hf || same generated equal different
check 2 'has 50257 ids, the model 257' -- export own own.gpt2 --tokenizer "$tokenizers"
[ ! -e own.gpt2 ] && [ ! -e own.gpt2.export ] || same 'a tokenizer too large' nothing something
check 0 -- train run.yaml model.preset=tiny model.layers=1 model.dim=32 model.heads=1 \
    "data.tokenizer=$tokenizers" run.dir=words --quiet
check 0 '4 files' -- export words own.gpt2
grep -q '"eos_token_id": 50256' own.gpt2/config.json || same own.gpt2 "eos 50256" "another"
cmp -s own.gpt2/vocab.json "$tokenizers/gpt2_encoder.json" || same vocab.json equal changed
cmp -s own.gpt2/merges.txt "$tokenizers/gpt2_vocab.bpe" || same merges.txt equal changed
check 0 'tokenizer  none' -- export own own.none --tokenizer none
check 4 'missing/tokenizer.json does not exist' -- export own other --tokenizer missing/tokenizer.json

# ---- refusals, and nothing left of them
mkdir links && cp own.hf/tokenizer.json links && echo secret >secret && ln -s ../secret links/special_tokens_map.json
check 76 'error[S001]' -- export own linked --tokenizer links
[ ! -e linked ] && [ ! -e linked.export ] || same 'a link' nothing something
check 2 'has files in it' -- export own own.hf
check 0 -- export own own.hf --force --dtype bf16
mkdir mine && touch mine/letter
check 2 'give another folder' -- export own mine --force
cp -r own.hf kept && mkdir kept/photos
check 2 'photos' -- export own kept --force
check 2 'Hugging Face folder already' -- export own.hf other
check 4 "nothing does not exist" -- export nothing other
mkdir empty
check 0 -- export own empty
mkdir other.export && touch other.export/model.safetensors # of one that was killed
check 0 -- export own other
[ ! -e other.export ] || same 'work folder' gone there
(trap '' XFSZ; ulimit -f 100; "$trireme" export own full >out 2>&1)
same 'a disk that takes no more, exit' "$?" 4
[ ! -e full ] && [ ! -e full.export ] || same 'a failed export' nothing something
state=$(ls own/checkpoints/step-0000001/*.safetensors | head -1)
for i in $(seq 19); do # in many tensors: those of the optimizer are not read
    printf X | dd of="$state" bs=1 seek=$(($(stat -c %s "$state") * i / 20)) conv=notrunc 2>/dev/null
done
check 5 'checksum' -- export own broken
[ ! -e broken ] && [ ! -e broken.export ] || same 'a damaged checkpoint' nothing something

[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

#!/usr/bin/env bash
# config, data and import from outside: what they print, what they leave, what they exit with.
set -u
shared=${TRIREME_SHARED:-../shared}
models=$(cd "$shared/golden/models" 2>/dev/null && pwd) || {
    echo "skipped: $shared/golden/models is not there"
    exit 77
}
. tests/support/check.sh

text() { # some words, without a file from elsewhere
    for i in $(seq 400); do printf 'line %d of a text, in which the word %d stands\n' "$i" $((i * 7 % 31)); done
}
text >text.txt
cat >run.yaml <<END
train: {steps: 3, seq: 16, global_batch: 4}
schedule: {warmup: 0}
determinism: strict
eval: {every: 0}
data: {train: text.txt, tokenizer: bytes, valid: 0}
END

# ---- config
check 0 ok -- config check run.yaml model.preset=tiny
check 3 'did you mean "train.steps"' 'train.seq = "abc"' -- config check run.yaml train.stepz=3 train.seq=abc
check 4 'run.yaml' -- config check run.yaml missing.yaml model.preset=tiny
check 0 'seed: 7  # command line' 'seq: 16  # run.yaml:1' -- config show run.yaml model.preset=tiny train.seed=7
"$trireme" config show run.yaml model.preset=tiny run.dir=r >resolved.yaml
check 0 -- config diff resolved.yaml resolved.yaml
sed 's/steps: 3 /steps: 9 /' resolved.yaml >changed.yaml
check 8 'train.steps: 3 -> 9' 'differ in 1 key' -- config diff resolved.yaml changed.yaml
check 0 '"$schema"' -- config schema
check 0 '`train.steps`' -- config reference
check 2 'did you mean "config show"' -- config shwo

# ---- data
printf '{"text":"one"}\n{"text":"two, longer"}\n' >lines.jsonl
check 0 'documents   2' 'bytes       14' -- data inspect lines.jsonl
check 0 'lines.jsonl-' 'text.txt-' 'all 2' -- data pack lines.jsonl text.txt --tokenizer bytes -o packed
same 'packing again' "$("$trireme" data pack lines.jsonl text.txt --tokenizer bytes -o packed | md5sum)" "$(md5sum <out)"
check 0 'tokens      16' 'vocabulary  257' 'checksum    right' -- data inspect packed/lines*.tok
cp packed/lines*.tok damaged.tok
printf X | dd of=damaged.tok bs=1 seek=70 conv=notrunc 2>/dev/null
check 5 'checksum' -- data inspect damaged.tok
check 2 'already' -- data pack damaged.tok --tokenizer bytes -o packed
check 2 '--out' -- data inspect text.txt --out x
check 0 'sequence 1' ' of a text' -- data show run.yaml model.preset=tiny train.seq=64 run.dir=shown

# ---- import
for name in gpt2 llama_sharded llama_tied_bf16 qwen3; do
    check 0 digest params -- import "$models/$name" "$name"
    cp -r "$models/$name" older && chmod -R u+w older && mv older/config.older.json older/config.json
    check 0 -- import older "$name.older"
    rm -rf older
    same "$name, both spellings" "$("$trireme" digest "$name")" "$("$trireme" digest "$name.older")"
    # Trained on from the folder and from what was made of it: the same bits.
    for from in "$models/$name" "$name"; do
        "$trireme" train run.yaml "model.from=$from" "run.dir=of-$name" --resume none --quiet
        "$trireme" digest "of-$name"
    done >digests
    same "$name, trained" "$(sed -n 1p digests)" "$(sed -n 2p digests)"
    [ "$(wc -l <digests)" -eq 2 ] || same "$name" "two digests" "fewer"
done
for name in gpt2 llama_sharded; do
    for from in "$models/$name" "$name"; do
        "$trireme" generate "$from" --tokenizer bytes --prompt ab --temperature 0 --max-tokens 12 --json |
            grep -o '"tokens": [^]]*'
    done >texts
    same "$name, generated" "$(sed -n 1p texts)" "$(sed -n 2p texts)"
done
check 0 'kept as bf16' -- import "$models/llama_tied_bf16" again
check 2 'already' -- import "$models/gpt2" gpt2
check 2 'checkpoint' -- import gpt2 other
cp -r "$models/llama_sharded" torn && chmod -R u+w torn && rm torn/model-00002-of-00003.safetensors
check 5 'model-00002-of-00003' -- import torn other
cp -r "$models/llama_gqa" wrong && chmod -R u+w wrong
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' wrong/config.json
check 3 'model.layers.2.mlp.up_proj.weight is missing' -- import wrong other
[ ! -e other ] && [ ! -e other.import ] || same "a refused import" "nothing" "something"

[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

#!/bin/bash
# export --format gguf: every tensor of reference models in every type, read back by a reader of its own
# (tests/support/gguf.py); the keys of each family of tokenizers; what llama.cpp lacks is refused.
set -u
. tests/support/named.sh
shared=$(realpath "${TRIREME_SHARED:-../shared}" 2>/dev/null || echo none)
models=$shared/golden/models tokenizers=$shared/golden/tokenizers
reader=$PWD/tests/support/gguf.py
[ -d "$models" ] && [ -d "$tokenizers" ] || { echo "skipped: $shared has no models"; exit 77; }
cd "$dir" || exit 1

number=0
for model in llama_gqa llama_bias llama_tied_bf16 llama_rope_llama3 llama_head_dim qwen2 qwen3 gpt2; do
    for type in fp32 fp16 bf16 q8_0; do
        number=$((number + 1))
        # By day one type a model, another for each.
        [ -z "${TRIALS_PART:-}" ] || [ $(((number + number / 4) % 4)) = 1 ] || continue
        code "$model in $type" 0 "$trireme" export "$models/$model" model.gguf --format gguf --dtype $type --tokenizer none --force
        code "as in its folder" 0 python3 "$reader" model.gguf "$models/$model" $type
    done
done
code "keys" 0 "$trireme" export "$models/llama_rope_linear" model.gguf --format gguf --tokenizer none --force
code "are read" 0 python3 "$reader" model.gguf
says "the factor of positions" out 'llama.rope.scaling.type linear'
code "positions of Llama 3.1" 0 "$trireme" export "$models/llama_rope_llama3" model.gguf --format gguf --tokenizer none --force
code "are a tensor" 0 python3 "$reader" model.gguf
says "of half a head" out '^rope_freqs.weight 0 '

# ---- tokenizers -----------------------------------------------------------------------------------
for i in $(seq 100); do echo "line $i of a text, in which the word $((i * 7 % 31)) stands"; done >text.txt
cat >run.yaml <<END
model: {layers: 1, dim: 32, heads: 2, ffn_dim: 32}
train: {steps: 1, seq: 16, global_batch: 2}
schedule: {warmup: 0}
eval: {every: 0}
data: {train: text.txt, valid: 0}
END
train() { "$trireme" train run.yaml run.dir="$1" data.tokenizer="$2" --quiet; }
words() { # NAME MODEL PRE BOS
    code "a model with $1" 0 train "$1" "$([ "$1" = bytes ] && echo bytes || echo "$tokenizers/$1/tokenizer.json")"
    code "$1 exported" 0 "$trireme" export "$1" "$1.gguf" --format gguf --dtype q8_0
    code "and read" 0 python3 "$reader" "$1.gguf"
    says "$1: its family" out "^tokenizer.ggml.model $2"
    says "$1: how it cuts words" out "^tokenizer.ggml.pre $3"
    says "$1: what is before a text" out "^tokenizer.ggml.add_bos_token $4"
}
words llama2 llama default True
words llama3 gpt2 llama-bpe True
words qwen2 gpt2 qwen2 False
words bytes gpt2 gpt-2 False
cp -r "$tokenizers/qwen2" named && mkdir -p named/additional_chat_templates
printf 'the default' >named/chat_template.jinja
printf 'of tools' >named/additional_chat_templates/tool_use.jinja
printf '{"chat_template": [{"name": "default", "template": "no"}, {"name": "tool_use", "template": "no"}, {"name": "rag-2", "template": "of texts"}]}' >named/tokenizer_config.json
code "a model with named templates" 0 train templates named
code "templates exported" 0 "$trireme" export templates templates.gguf --format gguf
code "and read" 0 python3 "$reader" templates.gguf
says "the default" out '^tokenizer.chat_template the default$'
says "one of a file" out '^tokenizer.chat_template.tool_use of tools$'
says "one of tokenizer_config.json" out '^tokenizer.chat_template.rag_2 of texts$'
says "their names" out "^tokenizer.chat_templates .*'tool_use', 'rag_2'"
code "a model with unigram" 0 train unigram "$tokenizers/unigram/tokenizer.json"
code "is refused" 3 "$trireme" export unigram unigram.gguf --format gguf
says "by its model" err 'which is no BPE'
if [ -e unigram.gguf ] || [ -e unigram.gguf.export ]; then failed "nothing is left"; else passed "nothing is left"; fi

# ---- refused --------------------------------------------------------------------------------------
code "windows" 3 "$trireme" export "$models/mistral_window" model.gguf --format gguf --tokenizer none --force
says "are named" err 'llama.cpp has no window'
code "another type of model" 3 "$trireme" export "$models/gemma2" other.gguf --format gguf --tokenizer none
says "is named" err 'models of type gemma2 are not written yet'
code "a file that is there" 2 "$trireme" export bytes bytes.gguf --format gguf
says "stays" err '--force replaces it'
code "blocks in a folder" 2 "$trireme" export bytes folder --dtype q8_0
says "have no type" err 'q8_0 is a type of --format gguf'
code "an adapter alone" 2 "$trireme" export bytes x.gguf --format gguf --adapter
says "is no model" err 'merge the adapter with --merge'
[ $failures = 0 ]

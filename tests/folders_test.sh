#!/usr/bin/env bash
# Hugging Face folders as people have them: a head of its own with a tied embedding, gated GELU, the files of the
# tokenizer, weights of other formats; and paths with blanks, "=" and "~".
set -u
. tests/support/check.sh
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

cat >make.py <<'END_PY'
import json, random, struct, os
plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
rest = [b for b in range(256) if b not in plain]
vocab = {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}
added = [{"id": 256, "content": "<|endoftext|>", "special": True},
         {"id": 257, "content": "<|im_start|>", "special": True}]
tokenizer = {"version": "1.0", "added_tokens": added, "normalizer": None,
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
             "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": vocab, "merges": []}}

def make(folder, act="silu", tied=True, head=None, embed=True):
    random.seed(5)
    os.makedirs(folder, exist_ok=True)
    json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8,
               "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1,
               "num_hidden_layers": 1, "vocab_size": 260, "max_position_embeddings": 64,
               "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": tied,
               "hidden_act": act, "bos_token_id": 1, "eos_token_id": 2}, open(folder + "/config.json", "w"))
    def values(*shape):
        n = 1
        for x in shape: n *= x
        return list(shape), [random.gauss(0, .4) for _ in range(n)]
    p, one = "model.layers.0.", ([8], [1.0] * 8)
    w = {"model.embed_tokens.weight": values(260, 8), "model.norm.weight": one,
         p + "input_layernorm.weight": one, p + "post_attention_layernorm.weight": one,
         p + "self_attn.q_proj.weight": values(8, 8), p + "self_attn.k_proj.weight": values(4, 8),
         p + "self_attn.v_proj.weight": values(4, 8), p + "self_attn.o_proj.weight": values(8, 8),
         p + "mlp.gate_proj.weight": values(16, 8), p + "mlp.up_proj.weight": values(16, 8),
         p + "mlp.down_proj.weight": values(8, 16)}
    if head == "same": w["lm_head.weight"] = w["model.embed_tokens.weight"]
    if head == "other": w["lm_head.weight"] = values(260, 8)
    if not embed: del w["model.embed_tokens.weight"]
    header, data = {}, b""
    for name, (shape, numbers) in w.items():
        x = struct.pack("<%df" % len(numbers), *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(x)]}
        data += x
    head = json.dumps(header).encode()
    open(folder + "/model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + data)

make("plain")
make("same", head="same")
make("alone", head="same", embed=False)
make("other", head="other")
make("gelu", act="gelu")
make("tanh", act="gelu_pytorch_tanh")
json.dump(tokenizer, open("plain/tokenizer.json", "w"))
open("chat.jsonl", "w").write((json.dumps({"text": "<|im_start|>user"}) + "\n") * 200)
END_PY
python3 make.py || exit 1
for i in $(seq 60); do printf 'line %d of a text, in which the word %d stands\n' "$i" $((i * 7 % 31)); done >text.txt
digest() { "$trireme" digest "$1" 2>&1; }

# ---- a tied pair: both equal, or the head alone, are the same model; another head is refused
for name in plain same alone; do check 0 -- import "$name" "$name.ck"; done
same 'a head that is the embedding' "$(digest same.ck)" "$(digest plain.ck)"
same 'the head alone' "$(digest alone.ck)" "$(digest plain.ck)"
check 3 'lm_head.weight differs' 'tie_word_embeddings' -- import other other.ck

# ---- the files of the tokenizer go there and back
rm -r plain.ck
echo '{"eos_token":"<|endoftext|>"}' >plain/tokenizer_config.json
echo '{"eos_token":"<|endoftext|>"}' >plain/special_tokens_map.json
echo '{"temperature":0.6,"top_p":0.9}' >plain/generation_config.json
echo '{"<|im_start|>":257}' >plain/added_tokens.json
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >plain/chat_template.jinja
mkdir plain/additional_chat_templates
for name in tool_use rag-2.0; do echo "{{ '$name' }}" >plain/additional_chat_templates/$name.jinja; done
echo a note >plain/additional_chat_templates/README
check 0 -- import plain plain.ck
check 0 -- digest plain.ck
check 0 -- export plain.ck back
check 0 -- export plain.ck back2 --tokenizer plain
same 'named chat templates' "$(cd back/additional_chat_templates && sha256sum *)" "$(cd plain/additional_chat_templates && sha256sum *.jinja)"
same 'of another folder' "$(cd back2/additional_chat_templates && sha256sum *)" "$(cd plain/additional_chat_templates && sha256sum *.jinja)"
check 0 -- export plain.ck bare --tokenizer none
for name in tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json added_tokens.json chat_template.jinja; do
    cmp plain/$name back/$name || same $name kept lost
done
touch 'plain/additional_chat_templates/two words.jinja'
check 3 'two words.jinja' 'rename it' -- import plain words.ck
cmp plain/generation_config.json bare/generation_config.json || same 'without a tokenizer' kept lost

# ---- gated GELU: imported, trained, exported, and unlike SiLU
cat >run.yaml <<'END'
run: {dir: r}
train: {steps: 2, seq: 16, global_batch: 4}
schedule: {warmup: 0}
eval: {every: 0}
data: {train: text.txt, tokenizer: bytes, valid: 0}
END
loss() { "$trireme" eval "$1" --tokenizer bytes --data text.txt --json | sed 's/.*"loss": \([0-9.]*\).*/\1/'; }
for act in gelu tanh; do
    check 0 -- import $act $act.ck
    check 0 -- export $act.ck $act.hf --tokenizer none
    same "$act there and back" "$(loss $act.hf)" "$(loss $act)"
    [ "$(loss $act)" != "$(loss plain)" ] || same "$act is used" GELU SiLU
    check 0 -- train run.yaml model.from=$act run.dir=of-$act --quiet
done
[ "$(loss gelu)" != "$(loss tanh)" ] || same 'the two GELU' different equal

# ---- special tokens in texts and prompts, by a key
tokens_of() { "$trireme" data inspect "$1"/cache/*.tok | awk '$1 == "tokens" {print $2}'; }
for how in tokens text; do
    check 0 -- train run.yaml model.preset=tiny model.layers=1 data.train=chat.jsonl data.tokenizer=plain/tokenizer.json \
        data.special_tokens=$how run.dir=s-$how --quiet
    prompt=$("$trireme" generate s-$how --prompt '<|im_start|>user' --max-tokens 1 --json |
        sed 's/.*"prompt_tokens": \[\([^]]*\)\].*/\1/' | tr ',' '\n' | wc -l)
    same "special tokens as $how" "$(tokens_of s-$how)" $((200 * (prompt + 1)))
done

# ---- bad lines are left out by a key, and counted
printf '{"text":"one"}\n{"text":\n[1]\n{"text":"two, longer","score":NaN}\n' >bad.jsonl
check 5 'bad.jsonl:2:' -- data pack bad.jsonl --tokenizer bytes -o packed
check 0 'skipped 2 lines' 'bad.jsonl:2:' -- data pack bad.jsonl --tokenizer bytes --on-error skip -o packed

# ---- folders that hold something else
mkdir torch vision && cp plain/config.json torch && touch torch/pytorch_model.bin
check 4 'pytorch_model.bin' 'safe_serialization=True' -- import torch torch.ck
echo '{"model_type":"gemma3","text_config":{"model_type":"gemma3_text"}}' >vision/config.json
check 3 'text_config' 'gemma3_text' -- import vision vision.ck

# ---- paths: blanks in what is printed, "=" in names, "~"
check 0 "my runs/a' train.steps=4" "my runs/a-hf'" -- train run.yaml model.preset=tiny model.layers=1 'run.dir=my runs/a'
mkdir -p lr=3 home && cp run.yaml lr=3 && cp text.txt lr=3/seed=5 && cp text.txt home
check 0 -- train lr=3/run.yaml model.preset=tiny model.layers=1 data.train=lr=3/seed=5 run.dir=lr=3/run --quiet
export HOME=$PWD/home
check 0 -- train run.yaml model.preset=tiny model.layers=1 'data.train=~/text.txt' 'run.dir=~/r' --quiet
[ -f home/r/run.json ] && [ ! -e './~' ] || same "~ in run.dir" expanded taken
check 0 'nats per token' -- eval home/r --data '~/text.txt' --limit 50
check 3 'run.dir' 'only ~ and ~/' -- train run.yaml model.preset=tiny 'run.dir=~bob/r'

# ---- names: without case, by what people call them, and the nearest few
check 3 'llama2-7b or mistral-7b?' -- simulate 7b --cluster h100
check 0 'gpt2-124m' -- catalog models GPT2
check 3 'there is no preset "gpt9"' 'did you mean' -- train run.yaml model.preset=gpt9
grep -q 'bloom' out && same 'the nearest presets' few all
check 4 '"nothing"' 'did you mean' -- simulate nothing
check 3 'train.steps: the value is empty' -- train run.yaml model.preset=tiny train.steps=
check 0 'steps: 1000000000 ' -- config show run.yaml model.preset=tiny train.steps=1B
[ $failures = 0 ]

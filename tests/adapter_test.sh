#!/bin/bash
# Adapters (adapter.kind): the reference cases with every layout, folders of PEFT in and out byte for
# byte, checkpoints that hold the adapter alone, one digest in every layout, merging and its undoing.
set -u
. tests/support/named.sh
shared=${TRIREME_SHARED:-../shared}
shared=$(realpath "$shared" 2>/dev/null || echo none)
post=$shared/golden/post
top=$PWD
cd "$dir" || exit 1

agrees() { # FOLDER [key=value ...]
    code "check $(basename "$1") ${*:2}" 0 timeout 600 "$trireme" check "$@" --json
}
if [ -d "$post" ]; then
    layouts=("kernels.threads=1" "layout.tp=2" "layout.pp=2" "layout.dp=2 layout.zero=3" "layout.cp=2"
        "layout.tp=2 layout.sp=yes" "train.recompute=full" "train.precision=bf16"
        "layout.tp=2 layout.pp=2 layout.dp=2 layout.zero=3 train.micro_batch=1"
        "determinism=strict determinism.tp_shards=2 determinism.cp_shards=2 layout.tp=2")
    for case in "$post"/lora_*; do
        [ -d "$case/adapter" ] || continue
        number=0
        for layout in "${layouts[@]}"; do
            number=$((number + 1))
            # By day two layouts a case, others for each.
            turn=$(((number + $(basename "$case" | wc -c)) % 5))
            [ -z "${TRIALS_PART:-}" ] || [ $turn = 0 ] || continue
            [[ $layout != *tp=2* ]] || grep -qE '"num_attention_heads": [0-9]*[02468]' "$case/config.json" || continue
            agrees "$case" $layout
        done
        code "$(basename "$case"): PEFT in and out" 0 "$trireme" export "$case" out-peft --adapter --peft "$case/adapter" --force
        for file in adapter_config.json adapter_model.safetensors; do
            code "$file has the same bytes" 0 cmp "out-peft/$file" "$case/adapter/$file"
        done
        code "$(basename "$case"): merged" 0 "$trireme" export "$case" merged --merge --peft out-peft --tokenizer none --force
        code "as PEFT merges" 0 python3 "$top/tests/support/merged.py" "$case/golden.safetensors" merged/model.safetensors
        if grep -q '"use_dora": true' out-peft/adapter_config.json; then
            code "DoRA is not taken out again" 3 "$trireme" export merged plain --unmerge --peft out-peft --tokenizer none --force
            says "because lengths are gone" err 'lengths of the base model cannot be found again'
            continue
        fi
        code "the adapter taken out again" 0 "$trireme" export merged plain --unmerge --peft out-peft --tokenizer none --force
        code "gives the base model" 0 python3 "$top/tests/support/merged.py" "$case/model.safetensors" plain/model.safetensors 1e-6
    done
fi

# ---- runs -----------------------------------------------------------------------------------------
"$trireme" init demo >/dev/null || exit 1
shape="model.layers=3 model.dim=32 model.heads=4 model.kv_heads=2 model.ffn_dim=64"
keys="train.seq=32 train.global_batch=4
      eval.every=2 eval.batches=1 kernels.threads=1 optimizer.lr=1e-2 schedule.warmup=0"
strict="determinism=strict determinism.tp_shards=2 determinism.cp_shards=2 train.steps=3"
train() { # NAME KEY...
    local name=$1
    shift
    timeout 600 "$trireme" train demo run.dir="$dir/$name" $keys "$@"
}
lora="adapter.kind=lora adapter.rank=4 adapter.targets=q_proj,layers.[02].attn.v,mlp.*"

over="model.preset=null model.from=hf"
code "a base model" 0 train base $shape train.steps=3
code "as a folder" 0 "$trireme" export base hf
code "an adapter over it" 0 train one $strict $lora $over adapter.dropout=0.1
want=$(digest one)
number=0
for layout in layout.dp=2 layout.pp=2 layout.tp=2 layout.cp=2 "layout.dp=2 layout.zero=3" train.recompute=full; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [ $((number % 3)) = 0 ] || continue
    code "$layout" 0 train "l$number" $strict $lora $over adapter.dropout=0.1 $layout
    same "$layout: the same digest" "$(digest "l$number")" "$want"
done
code "all weights" 0 train all train.steps=1 $over
if [ "$(arena one)" -lt "$(arena all)" ]; then passed "an adapter takes less memory"; else failed "an adapter takes less memory"; fi
code "tensors of its checkpoint" 0 "$trireme" inspect one/checkpoints/step-0000003 --tensors
says "the adapter is saved" out 'layers.0.attn.q.lora_A'
if grep -qE 'attn.qkv|embed|/layers.[0-9].attn.out|layers.1.attn.v' out; then
    failed "neither the base model nor layers without target"
else
    passed "neither the base model nor layers without target"
fi
code "two steps and a third" 0 train resumed $strict train.steps=2 $lora $over adapter.dropout=0.1 schedule.decay_steps=0
code "resumed" 0 train resumed $strict $lora $over adapter.dropout=0.1
code "generation" 0 "$trireme" generate one --prompt "The " --max-tokens 4 --temperature 0
cp out text
code "the adapter as a folder" 0 "$trireme" export one peft --adapter
code "the base with that folder" 0 "$trireme" generate hf --adapter peft --prompt "The " --max-tokens 4 --temperature 0
same "says the same" "$(cat out)" "$(cat text)"
code "merged" 0 "$trireme" export one merged-run --merge
code "merged weights" 0 "$trireme" generate merged-run --prompt "The " --max-tokens 4 --temperature 0
same "say the same" "$(cat out)" "$(cat text)"
# The layer of a fused matrix has some parts with lengths of their own; attn.out is cut by columns.
dora="adapter.kind=dora adapter.rank=4 adapter.targets=q_proj,layers.[02].attn.v,attn.out,mlp.* adapter.dropout=0.1"
code "DoRA" 0 train dora $strict $dora $over
number=1
for layout in layout.tp=2 layout.pp=2 layout.dp=2 layout.cp=2 "layout.dp=2 layout.zero=3" "layout.tp=2 layout.sp=yes"; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [ $((number % 6)) = 2 ] || continue
    code "DoRA $layout" 0 train "d$number" $strict $dora $over $layout
    same "$layout: the same digest" "$(digest "d$number")" "$(digest dora)"
done
code "DoRA merged" 0 "$trireme" export dora dora-merged --merge
code "says" 0 "$trireme" generate dora --prompt "The " --max-tokens 4 --temperature 0
cp out text
code "merged" 0 "$trireme" generate dora-merged --prompt "The " --max-tokens 4 --temperature 0
same "the same" "$(cat out)" "$(cat text)"

code "training goes on from the folder" 0 train more train.steps=1 $over adapter.from=peft

# ---- a base model in few bits: one digest in every layout, and less memory for its weights
wide="model.layers=2 model.dim=128 model.heads=4 model.ffn_dim=256"
number=0
for kind in int8 nf4; do
    few="$wide adapter.kind=lora adapter.rank=4 adapter.quantize=$kind"
    code "$kind" 0 train "$kind" $strict $few
    for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" layout.cp=2 train.recompute=full; do
        number=$((number + 1))
        [ -z "${TRIALS_PART:-}" ] || [ $number = 1 ] || [ $number = 8 ] || continue
        code "$kind $layout" 0 train "$kind$number" $strict $few $layout
        same "$kind $layout: the same digest" "$(digest "$kind$number")" "$(digest "$kind")"
    done
done
code "all bits" 0 train bits $strict $wide adapter.kind=lora adapter.rank=4
# 2 layers of 4 x 128 x 128 + 3 x 128 x 256 numbers: 4 bytes each, or 68 or 36 bytes for 64 of them. What
# products widen for a moment is less than the difference.
if [ "$(arena nf4)" -lt "$(arena int8)" ] && [ "$(arena int8)" -lt "$(arena bits)" ]; then passed "fewer bits take less memory"; else failed "fewer bits take less memory"; fi
code "columns that tp cannot cut between blocks" 3 train bad model.dim=96 model.heads=4 model.ffn_dim=200 adapter.kind=lora adapter.quantize=int8 layout.tp=2
says "are named" err 'whose blocks have 64'
code "no adapter" 3 train bad $wide adapter.quantize=nf4
says "has no effect" err 'the run has no adapter'

# ---- adapters by name over one base model: each request says what the model with its adapter alone says
code "another adapter" 0 train two train.steps=2 $over adapter.kind=rslora adapter.rank=2 adapter.targets=mlp.down,k_proj optimizer.lr=0.1
code "as a folder" 0 "$trireme" export two peft-two --adapter
prompt='The cat and the '
said() { "$trireme" generate hf --prompt "$prompt" --max-tokens 12 --temperature 0 --strict --ignore-eot "$@" 2>/dev/null | tail -c +$((${#prompt} + 1)); }
"$trireme" serve hf --key none --port 0 --name base --threads 1 --batch 2 --strict --adapters one=peft --adapters two=peft-two >log 2>log.err &
server=$!
if listening log $server; then
    for one in base one two; do said $([ $one = base ] || echo --adapter "$([ $one = one ] && echo peft || echo peft-two)") >"want-$one"; done
    code "requests with three models at once" 0 python3 - "$port" "$prompt" <<'END'
import http.client, json, sys, threading
port, prompt, got = int(sys.argv[1]), sys.argv[2], {}
def ask(path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("POST" if body else "GET", path, body and json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    return r.status, json.loads(r.read())
def one(i, model):
    code, answer = ask("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0})
    assert code == 200 and answer["model"] == model, answer
    got.setdefault(model, set()).add(answer["choices"][0]["text"])
threads = [threading.Thread(target=one, args=(i, m)) for i, m in enumerate(["one", "base", "two", "base", "one", "two"])]
[t.start() for t in threads]
[t.join() for t in threads]
for model in ("base", "one", "two"):
    want = open("want-" + model, encoding="utf-8", errors="replace").read().rstrip("\n")
    assert len(got[model]) == 1 and want.startswith(got[model].pop().rstrip("\n")[:8]), (model, want, got)
assert len({open("want-" + m, "rb").read() for m in ("base", "one", "two")}) > 1, "all say the same"
code, models = ask("/v1/models")
assert [m["id"] for m in models["data"]] == ["base", "one", "two"] and models["data"][1]["parent"] == "base", models
assert ask("/v1/completions", {"model": "three", "prompt": prompt})[0] == 404
END
    kill -TERM "$server"
    wait "$server"
elif ! grep -q "built without HTTP\|libmicrohttpd" log.err; then
    cp log.err err
    failed "it serves adapters"
fi
code "a name without a folder" 2 "$trireme" serve hf --key none --port 0 --adapters one
says "is refused" err 'expected NAME=DIR'
code "a name twice" 2 "$trireme" serve hf --key none --port 0 --adapters a=peft --adapters a=peft-two
says "is taken" err 'the name a is taken'

# ---- refused --------------------------------------------------------------------------------------
code "a target without a match" 3 train bad $shape adapter.kind=lora adapter.targets=attn.x
says "is named" err 'no matrix that an adapter can have is called "attn.x"'
code "rank without kind" 3 train bad $shape adapter.rank=4
says "has no effect" err 'the run has no adapter'
code "kind and folder" 3 train bad $over adapter.from=peft adapter.kind=rslora
says "exclude each other" err 'adapter_config.json of adapter.from sets it'
code "export of a run with an adapter" 2 "$trireme" export one elsewhere
says "asks which" err 'adapter exports it alone, --merge'
code "a base that changed" 0 train base2 $shape train.steps=2
code "exported over the other" 0 "$trireme" export base2 hf --force
code "is noticed" 3 "$trireme" generate one --prompt "The "
says "by its digest" err 'was trained with the base model'
sed 's/"r": 4/"r": 5/' peft/adapter_config.json >wrong.json && mkdir bad-peft && cp peft/adapter_model.safetensors bad-peft && mv wrong.json bad-peft/adapter_config.json
code "another rank" 3 "$trireme" generate hf --adapter bad-peft --prompt a
says "is named" err 'has rank 4, and r of adapter_config.json is 5'
sed 's/"bias": "none"/"bias": "all"/' peft/adapter_config.json >bad-peft/adapter_config.json
code "trained biases" 3 "$trireme" generate hf --adapter bad-peft --prompt a
says "are refused" err 'bias'
[ $failures = 0 ]

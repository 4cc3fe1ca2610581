#!/bin/bash
# Fine-tuning on conversations: losses and gradient norms of the references in every layout, `data
# look`, and refusals.
set -u
. tests/support/named.sh
shared=${TRIREME_SHARED:-$PWD/../shared}
[ -d "$shared/golden/post" ] || { echo "skipped: no reference cases in $shared"; exit 77; }
make_run() { # CASE: a folder $dir/CASE with the model, its chat template and run.yaml
    python3 - "$shared/golden/post/$1" "$dir/$1" <<'END'
import json, os, shutil, sys
case, out = sys.argv[1:]
os.makedirs(out)
for name in ("config.json", "model.safetensors", "tokenizer.json"):
    shutil.copy(case + "/" + name, out)
chat, golden = json.load(open(case + "/chat.json")), json.load(open(case + "/golden.json"))
json.dump({"bos_token": chat["bos_token"], "eos_token": chat["eos_token"], "chat_template": chat["template"]},
          open(out + "/tokenizer_config.json", "w"))
with open(out + "/train.jsonl", "w") as f:
    f.writelines(json.dumps({"messages": c["messages"]}) + "\n" for c in chat["conversations"])
o = golden["optimizer"]
open(out + "/run.yaml", "w").write(f"""
model: {{from: {out}}}
train: {{objective: sft, steps: {o["steps"]}, seq: {golden["packed_width"]},
         global_batch: {len(golden["packed_rows"])}, precision: fp32}}
data: {{train: {out}/train.jsonl, valid: 0}}
eval: {{every: 0}}
optimizer: {{lr: {o["lr"]}, beta1: {o["beta1"]}, beta2: {o["beta2"]}, eps: {o["eps"]:.1e},
             weight_decay: {o["weight_decay"]}, clip: {o["clip_norm"]}}}
schedule: {{name: constant}}
kernels: {{threads: 1}}
""")
END
}
near() { # CASE RUN: losses and norms of the run are those of the case
    python3 - "$shared/golden/post/$1/golden.json" "$2/metrics.jsonl" <<'END' 2>>"$dir/err"
import json, sys
golden, steps = json.load(open(sys.argv[1])), [json.loads(line) for line in open(sys.argv[2])]
o, limits = golden["optimizer"], golden["tolerance"]
assert len(steps) == len(o["losses"]), len(steps)
for step, loss, norm in zip(steps, o["losses"], o["grad_norm"]):
    assert abs(step["loss"] - loss) <= limits["losses_absolute"], (step, loss)
    assert abs(step["grad_norm"] / norm - 1) <= limits["grad_norm_relative"], (step, norm)
assert steps[0]["tokens"] == golden["tokens_in_loss"], steps[0]
END
}
one=0
for case in sft_llama_chatml sft_qwen2_headers; do
    make_run $case
    for layout in layout.dp=1 layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" layout.cp=2 train.micro_batch=1; do
        [ "$case $layout" = "sft_qwen2_headers layout.tp=2" ] && continue # three heads
        one=$((one + 1))
        code "$case, $layout" 0 "$trireme" train "$dir/$case/run.yaml" run.dir="$dir/run$one" $layout
        if near $case "$dir/run$one"; then passed "$case, $layout: the reference's losses"; else failed "$case, $layout: the reference's losses"; fi
    done
done
yaml=$dir/sft_llama_chatml/run.yaml
code "look" 0 "$trireme" data look "$yaml" --sequences 4
says "it counts" out '^6 samples, 405 tokens, 146 of them trained, in 4 sequences of 128'
says "it marks an answer and its end" out '^\[\+Paris\.<\|im_end\|>\+\]$'
says "it marks nothing of a user" out '^What is the capital of France\?<\|im_end\|>$'
says "it warns of a sample without an answer" err 'warning  1 of 6 samples have no trained token'
code "look, short sequences" 0 "$trireme" data look "$yaml" train.seq=32
says "it warns of samples that are cut" err 'samples are longer than train.seq = 32 and are cut; the longest has'
code "look, a template that the tokenizer does not know" 0 "$trireme" data look "$yaml" data.template=llama3
says "it warns of answers without an end" err 'no end-of-turn token is ever trained'
# --- strict: one digest for every layout; a run that goes on; answers ---
strict="determinism=strict determinism.tp_shards=2 determinism.cp_shards=2 train.micro_batch=1"
code "strict" 0 "$trireme" train "$yaml" run.dir="$dir/strict" $strict
want=$("$trireme" digest "$dir/strict")
for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" layout.cp=2; do
    code "strict, $layout" 0 "$trireme" train "$yaml" run.dir="$dir/strict-$layout" $strict $layout
    same "strict, $layout: the digest of one rank" "$("$trireme" digest "$dir/strict-$layout")" "$want"
done
code "three steps" 0 "$trireme" train "$yaml" run.dir="$dir/part" $strict train.steps=3
code "two more" 0 "$trireme" train "$dir/part" train.steps=5
same "the digest of five" "$("$trireme" digest "$dir/part")" "$want"
code "sixty more" 0 "$trireme" train "$dir/part" train.steps=65
code "an answer" 0 "$trireme" generate "$dir/part" --template auto --temperature 0 --json --prompt "What is the capital of France?"
says "it is the one that was trained, and ends" out '"text": "Paris\.".*"finish": "eos"'
code "an answer after a system message" 0 "$trireme" generate "$dir/part" --template auto --temperature 0 \
    --system "Answer in one word." --prompt "Is seven prime?"
says "the answer alone is printed" out '^Yes\.$'
code "a system message without a template" 2 "$trireme" generate "$dir/part" --system x --prompt x
code "an unknown template" 4 "$trireme" data look "$yaml" data.template="$dir/none.jinja"
printf '{%% for m in messages %%}\n{%% include "x" %%}{%% endfor %%}' >"$dir/bad.jinja"
code "a template outside of the subset" 5 "$trireme" data look "$yaml" data.template="$dir/bad.jinja"
says "it names the place" err 'bad.jinja:2:4: the statement include is not supported here'
code "formats without sft" 3 "$trireme" train "$yaml" run.dir="$dir/no" train.objective=pretrain data.format=messages
says "it names the key" err 'data.format'
[ $failures = 0 ]

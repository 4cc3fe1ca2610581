#!/bin/bash
# Preferences: losses, gradient norms and rewards of the references in every layout, one digest in
# strict order, the kept log-probabilities of the reference model, and refusals.
set -u
. tests/support/named.sh
shared=${TRIREME_SHARED:-$PWD/../shared}
[ -d "$shared/golden/post" ] || { echo "skipped: no reference cases in $shared"; exit 77; }
make_run() { # CASE: a folder $dir/CASE with the model, its reference, a tokenizer and run.yaml
    python3 - "$shared/golden/post/$1" "$dir/$1" <<'END'
import json, os, shutil, sys
case, out = sys.argv[1:]
os.makedirs(out + "/reference")
for name in ("config.json", "model.safetensors", "reference/model.safetensors"):
    shutil.copy(case + "/" + name, out + "/" + name)
shutil.copy(case + "/config.json", out + "/reference")
golden = json.load(open(case + "/golden.json"))
letters = [chr(0x4e00 + i) for i in range(json.load(open(case + "/config.json"))["vocab_size"])]
json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
           "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"},
           "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                     "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                     "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}},
          open(out + "/tokenizer.json", "w"))
with open(out + "/train.jsonl", "w") as f:
    for pair in golden["pairs"]:
        f.write(json.dumps({k: "".join(letters[i] for i in ids) for k, ids in pair.items()}) + "\n")
o = golden["optimizer"]
longest = max(2 * len(p["prompt"]) + len(p["chosen"]) + len(p["rejected"]) for p in golden["pairs"])
open(out + "/run.yaml", "w").write(f"""
model: {{from: {out}}}
train: {{objective: dpo, steps: {o["steps"]}, seq: {longest}, global_batch: {len(golden["pairs"])}, precision: fp32}}
objective: {{beta: {golden["beta"]}, reference: {out}/reference}}
data: {{train: {out}/train.jsonl, valid: 0}}
eval: {{every: 0}}
optimizer: {{lr: {o["lr"]}, beta1: {o["beta1"]}, beta2: {o["beta2"]}, eps: {o["eps"]:.1e},
             weight_decay: {o["weight_decay"]}, clip: {o["clip_norm"]}}}
schedule: {{name: constant}}
kernels: {{threads: 1}}
""")
END
}
near() { # CASE RESULT RUN: losses, norms and rewards of the run are those of the case
    python3 - "$shared/golden/post/$1/golden.json" "$2" "$3/metrics.jsonl" <<'END' 2>>"$dir/err"
import json, sys
golden, steps = json.load(open(sys.argv[1])), [json.loads(line) for line in open(sys.argv[3])]
want, limits, s = golden["results"][sys.argv[2]], golden["tolerance"], golden["sequences"]
assert len(steps) == len(want["losses"]), len(steps)
assert abs(steps[0]["loss"] - want["loss"]) <= limits["loss_absolute"], steps[0]
for step, loss, norm in zip(steps, want["losses"], want["grad_norm"]):
    assert abs(step["loss"] - loss) <= limits["losses_absolute"], (step, loss)
    assert abs(step["grad_norm"] / norm - 1) <= limits["grad_norm_relative"], (step, norm)
n, first = len(s["margin"]), steps[0]
for key, all_ in (("reward_first", s["reward_chosen"]), ("reward_second", s["reward_rejected"]), ("reward_margin", s["margin"])):
    assert abs(first[key] - sum(all_) / n) <= limits["logps_absolute"], (key, first)
assert first["reward_accuracy"] == sum(m > 0 for m in s["margin"]) / n, first
END
}
one=0
compare() { # CASE RESULT NAME KEY=VALUE...
    local case=$1 result=$2 name=$3
    shift 3
    one=$((one + 1))
    code "$case, $result, $name" 0 "$trireme" train "$dir/$case/run.yaml" run.dir="$dir/run$one" "$@"
    if near "$case" "$result" "$dir/run$one"; then passed "$case, $result, $name: the reference's losses"; else failed "$case, $result, $name: the reference's losses"; fi
}
for case in dpo_llama dpo_qwen2; do
    make_run $case
    compare $case sigmoid "one rank"
    compare $case ipo "one rank" objective.loss=ipo
    compare $case sigmoid_smoothed "one rank" objective.label_smoothing=0.1
    compare $case robust "one rank" objective.loss=robust objective.label_smoothing=0.1
    for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" train.micro_batch=1 train.seq=128; do
        [ "$case $layout" = "dpo_qwen2 layout.tp=2" ] && continue # three heads
        batch=
        [ "$layout" = train.seq=128 ] && batch=train.global_batch=$(python3 -c "
import json; g = json.load(open('$shared/golden/post/$case/golden.json'))
rows = []
for n in (2 * len(p['prompt']) + len(p['chosen']) + len(p['rejected']) for p in g['pairs']):
    k = next((i for i, r in enumerate(rows) if r + n <= 128), len(rows))
    rows[k:k + 1] = [(rows[k] if k < len(rows) else 0) + n]
print(len(rows))")
        compare $case sigmoid "$layout" $layout $batch
    done
done
yaml=$dir/dpo_llama/run.yaml
strict="determinism=strict determinism.tp_shards=2 train.micro_batch=1"
code "strict" 0 "$trireme" train "$yaml" run.dir="$dir/strict" $strict
want=$("$trireme" digest "$dir/strict")
for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3"; do
    code "strict, $layout" 0 "$trireme" train "$yaml" run.dir="$dir/strict-$layout" $strict $layout
    same "strict, $layout: the digest of one rank" "$("$trireme" digest "$dir/strict-$layout")" "$want"
done
code "two steps" 0 "$trireme" train "$yaml" run.dir="$dir/part" $strict train.steps=2
code "one more" 0 "$trireme" train "$dir/part" train.steps=3
same "the digest of three" "$("$trireme" digest "$dir/part")" "$want"
if grep -q "under the reference model" "$dir/out"; then failed "the second run reads the reference's numbers"; else passed "the second run reads the reference's numbers"; fi
# --- others ---
code "orpo" 0 "$trireme" train "$yaml" run.dir="$dir/orpo" train.objective=orpo objective.reference=auto train.steps=20
python3 - "$dir/dpo_llama/train.jsonl" "$dir/kto.jsonl" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
open(sys.argv[2], "w").writelines(json.dumps({"prompt": l["prompt"], "completion": l[k], "label": k == "chosen"}) + "\n" for k in ("chosen", "rejected") for l in lines)
END
code "kto" 0 "$trireme" train "$yaml" run.dir="$dir/kto" train.objective=kto data.train="$dir/kto.jsonl" train.steps=20
for run in orpo kto; do
    code "$run raises the margin" 0 python3 -c "
import json
s = [json.loads(line) for line in open('$dir/$run/metrics.jsonl')]
assert s[-1]['reward_margin'] > s[0]['reward_margin'] + 0.05 and s[-1]['loss'] < s[0]['loss'], (s[0], s[-1])"
done
code "no reference" 0 "$trireme" train "$yaml" run.dir="$dir/none" objective.reference=none
code "cp" 3 "$trireme" train "$yaml" run.dir="$dir/no" layout.cp=2
says "it names the objective" err 'layout.cp = 2 cannot be used with train.objective = dpo'
code "a key of another objective" 3 "$trireme" train "$yaml" run.dir="$dir/no" objective.wanted=2
says "it names the key" err 'objective.wanted has no effect: train.objective = dpo does not read it'
printf '{"prompt": "a", "chosen": ["b"], "rejected": "c"}\n' >"$dir/bad.jsonl"
code "a line of two kinds" 5 "$trireme" train "$yaml" run.dir="$dir/no" data.train="$dir/bad.jsonl"
says "it names the line" err 'bad.jsonl:1: "prompt", "chosen" and "rejected" are not texts or lists'
[ $failures = 0 ]

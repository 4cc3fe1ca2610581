#!/bin/bash
# Preferences: losses, gradient norms and rewards of the references in every layout, one digest in
# strict order, the kept log-probabilities of the reference model, and refusals.
set -u
. tests/support/named.sh
shared=${TRIREME_SHARED:-$PWD/../shared}
[ -d "$shared/golden/post" ] || { echo "skipped: no reference cases in $shared"; exit 77; }
make_run() { # CASE: a folder $dir/CASE with the model, its reference, a tokenizer and run.yaml
    PYTHONPATH=tests/support python3 - "$shared/golden/post/$1" "$dir/$1" <<'END'
import json, os, shutil, sys
from letters import letter, write_tokenizer
case, out = sys.argv[1:]
os.makedirs(out + "/reference")
for name in ("config.json", "model.safetensors", "reference/model.safetensors"):
    shutil.copy(case + "/" + name, out + "/" + name)
shutil.copy(case + "/config.json", out + "/reference")
golden = json.load(open(case + "/golden.json"))
write_tokenizer(out, json.load(open(case + "/config.json"))["vocab_size"])
with open(out + "/train.jsonl", "w") as f:
    for pair in golden["pairs"]:
        f.write(json.dumps({k: "".join(letter(i) for i in ids) for k, ids in pair.items()}) + "\n")
o = golden["optimizer"]
longest = max(2 * len(p["prompt"]) + len(p["chosen"]) + len(p["rejected"]) for p in golden["pairs"])
longest = -(-longest // 8) * 8 # layout.cp cuts it into pieces
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
    for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" layout.cp=2 train.micro_batch=1 train.seq=128; do
        [ "$case $layout" = "dpo_qwen2 layout.tp=2" ] && continue # three heads
        [ -n "${TRIALS_PART:-}" ] && [ "$layout" = layout.cp=2 ] && continue
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
strict="determinism=strict determinism.tp_shards=2 determinism.cp_shards=2"
code "strict" 0 "$trireme" train "$yaml" run.dir="$dir/strict" $strict
want=$("$trireme" digest "$dir/strict")
for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" "layout.cp=2 layout.tp=2 layout.sp=yes" "layout.cp=2 layout.pp=2 train.micro_batch=1" "layout.cp=2 layout.zero=3 train.recompute=full"; do
    [ -n "${TRIALS_PART:-}" ] && [ "${layout#layout.cp=2 layout.zero}" != "$layout" ] && continue
    code "strict, $layout" 0 "$trireme" train "$yaml" run.dir="$dir/strict-$layout" $strict $layout
    same "strict, $layout: the digest of one rank" "$("$trireme" digest "$dir/strict-$layout")" "$want"
done
code "two steps" 0 "$trireme" train "$yaml" run.dir="$dir/part" $strict train.steps=2
code "one more" 0 "$trireme" train "$dir/part" train.steps=3
same "the digest of three" "$("$trireme" digest "$dir/part")" "$want"
if grep -q "under the reference model" "$dir/out"; then failed "the second run reads the reference's numbers"; else passed "the second run reads the reference's numbers"; fi
# --- a rank is lost, and the reference's numbers with it: the rank that lives on computes them again, on the device
# that has the state, and must not go on with the weights of the reference ---
lost() { # NAME KEYS REMOVED: the same digest as without the loss; REMOVED: a file that is lost too
    local keys="$strict train.steps=100 $2"
    code "$1: undisturbed" 0 "$trireme" train "$yaml" run.dir="$dir/$1" $keys
    "$trireme" train "$yaml" run.dir="$dir/$1-lost" $keys layout.dp=2 resilience.mode=live resilience.buddy.ranks=1 >"$dir/out" 2>"$dir/err" &
    soon $! grep -q '"step": 3,' "$dir/$1-lost/metrics.jsonl"
    [ -z "$3" ] || rm -f "$dir/$1-lost"/$3
    kill -9 "$(awk '$1 == 1 { print $2 }' "$dir/$1-lost/logs/processes")"
    wait $!
    same "$1: goes on without a rank" $? 0
    says "$1: it lost the rank" "$1-lost/metrics.jsonl" '"event": "lost", "rank": 1'
    same "$1: the digest of the undisturbed run" "$("$trireme" digest "$dir/$1-lost")" "$("$trireme" digest "$dir/$1")"
}
lost long "" "cache/reference-*.bin"
same "the reference's numbers were made twice" "$(grep -c "under the reference model" "$dir/long-lost/log.txt")" 2
# --- an adapter: the reference is the base model without it, of which there is no second copy ---
lora="adapter.kind=lora adapter.rank=4 objective.reference=auto optimizer.lr=1e-2"
code "an adapter" 0 "$trireme" train "$yaml" run.dir="$dir/lora" $strict $lora
[ -n "${TRIALS_PART:-}" ] || lost long-lora "$lora" "" # its base is loaded again, and the adapter must not be new
number=0
for layout in "layout.cp=2 layout.zero=3" layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" "layout.cp=2 layout.pp=2" "layout.cp=2 layout.tp=2"; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [ $number = 1 ] || continue
    code "an adapter, $layout" 0 "$trireme" train "$yaml" run.dir="$dir/lora-$layout" $strict $lora $layout
    same "an adapter, $layout: the same digest" "$("$trireme" digest "$dir/lora-$layout")" "$("$trireme" digest "$dir/lora")"
done
code "all weights, of the same reference" 0 "$trireme" train "$yaml" run.dir="$dir/all" $strict objective.reference=auto train.steps=1
if cmp -s "$dir"/lora/cache/reference-*.bin "$dir"/all/cache/reference-*.bin; then passed "its log-probabilities are the base model's"; else failed "its log-probabilities are the base model's"; fi
code "it begins at the reference and leaves it" 0 python3 -c "
import json, math
s = [json.loads(line) for line in open('$dir/lora/metrics.jsonl')]
assert abs(s[0]['loss'] - math.log(2)) < 1e-6 and abs(s[0]['reward_margin']) < 1e-6, s[0]
assert s[-1]['reward_margin'] > 0.001, s[-1]"
code "DoRA" 0 "$trireme" train "$yaml" run.dir="$dir/dora" $lora adapter.kind=dora train.steps=1
code "orpo with an adapter" 0 "$trireme" train "$yaml" run.dir="$dir/orpo-lora" train.objective=orpo $lora train.steps=1
# --- others ---
code "orpo" 0 "$trireme" train "$yaml" run.dir="$dir/orpo" train.objective=orpo objective.reference=auto train.steps=20
python3 - "$dir/dpo_llama/train.jsonl" "$dir/kto.jsonl" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
open(sys.argv[2], "w").writelines(json.dumps({"prompt": l["prompt"], "completion": l[k], "label": k == "chosen"}) + "\n" for k in ("chosen", "rejected") for l in lines)
END
code "kto" 0 "$trireme" train "$yaml" run.dir="$dir/kto" train.objective=kto data.train="$dir/kto.jsonl" train.steps=20
for run in orpo kto; do
    rows=train
    [ $run = kto ] && rows=kto
    cp "$dir/dpo_llama/train.jsonl" "$dir/train.jsonl"
    short="train.objective=$run data.train=$dir/$rows.jsonl objective.reference=auto train.steps=2"
    [ -n "${TRIALS_PART:-}" ] && [ $run = orpo ] || code "$run, strict" 0 "$trireme" train "$yaml" run.dir="$dir/$run-1" $strict $short
    number=0
    for layout in layout.cp=2 "layout.cp=2 layout.tp=2" "layout.cp=2 layout.pp=2 train.micro_batch=2" "layout.cp=2 layout.zero=3"; do
        number=$((number + 1))
        [ -z "${TRIALS_PART:-}" ] || [ $run$number = kto1 ] || continue
        code "$run, $layout" 0 "$trireme" train "$yaml" run.dir="$dir/$run-cp$number" $strict $short $layout
        same "$run, $layout: the digest of one rank" "$("$trireme" digest "$dir/$run-cp$number")" "$("$trireme" digest "$dir/$run-1")"
    done
    code "$run raises the margin" 0 python3 -c "
import json
s = [json.loads(line) for line in open('$dir/$run/metrics.jsonl')]
assert s[-1]['reward_margin'] > s[0]['reward_margin'] + 0.05 and s[-1]['loss'] < s[0]['loss'], (s[0], s[-1])"
done
# --- groups of answers with rewards ---
make_group() { # CASE: train.jsonl with the case's rollouts, run.yaml
    mkdir -p "$dir/$1"
    PYTHONPATH=tests/support python3 - "$shared/golden/post/$1" "$dir/$1" <<'END'
import json, math, shutil, struct, sys
from letters import letter, write_tokenizer
case, out = sys.argv[1:]
for name in ("config.json", "model.safetensors"):
    shutil.copy(case + "/" + name, out)
golden = json.load(open(case + "/golden.json"))
data = open(case + "/golden.safetensors", "rb").read()
head = struct.unpack("<Q", data[:8])[0]
entries = json.loads(data[8:8 + head])
def tensor(name):
    e = entries[name]
    begin, end = (8 + head + x for x in e["data_offsets"])
    return [x[0] for x in struct.iter_unpack({"F32": "<f", "I64": "<q", "F64": "<d"}[e["dtype"]], data[begin:end])]
write_tokenizer(out, json.load(open(case + "/config.json"))["vocab_size"])
word = lambda ids: "".join(letter(i) for i in ids)
width, per = entries["old_logps"]["shape"][1], len(golden["rewards"][0])
old, reference = tensor("old_logps"), tensor("reference_logps")
lengths = []
with open(out + "/train.jsonl", "w") as f:
    for g, prompt in enumerate(golden["prompts"]):
        rows = range(g * per, (g + 1) * per)
        answers = [golden["completions"][r] for r in rows]
        cut = lambda all_: [all_[r * width:r * width + len(a)] for r, a in zip(rows, answers)]
        f.write(json.dumps({"prompt": word(prompt), "completions": [word(a) for a in answers], "rewards": golden["rewards"][g],
                            "old": cut(old), "reference": cut(reference)}) + "\n")
        lengths += [len(prompt) + len(a) for a in answers]
def rows_of(seq):
    rows = []
    for n in lengths:
        k = next((i for i, used in enumerate(rows) if used + n <= seq), len(rows))
        rows[k:k + 1] = [(rows[k] if k < len(rows) else 0) + n]
    return len(rows)
seq = next(s for s in range(-(-max(lengths) // 8) * 8, 1000, 8) if rows_of(s) % 2 == 0)
norms = {name: math.sqrt(sum(x * x for key in entries if key.startswith("grad." + name + ".") for x in tensor(key)))
         for name in golden["results"]}
json.dump(norms, open(out + "/norms.json", "w"))
open(out + "/run.yaml", "w").write(f"""
model: {{from: {out}}}
train: {{objective: grpo, steps: 1, seq: {seq}, global_batch: {rows_of(seq)}, precision: fp32}}
objective: {{clip: {golden["epsilon_low"]}, clip_high: {golden["epsilon_high"]}, kl: {golden["beta"]}}}
data: {{train: {out}/train.jsonl, valid: 0}}
eval: {{every: 0}}
optimizer: {{clip: 0}}
schedule: {{name: constant}}
kernels: {{threads: 1}}
""")
END
}
group() { # CASE RESULT NAME KEY=VALUE...
    local case=$1 result=$2 name=$3
    shift 3
    one=$((one + 1))
    code "$case, $result, $name" 0 "$trireme" train "$dir/$case/run.yaml" run.dir="$dir/run$one" "$@"
    if python3 - "$shared/golden/post/$case/golden.json" "$result" "$dir/$case/norms.json" "$dir/run$one/metrics.jsonl" <<'END' 2>>"$dir/err"
import json, sys
golden, norm, step = json.load(open(sys.argv[1])), json.load(open(sys.argv[3]))[sys.argv[2]], json.loads(open(sys.argv[4]).readline())
want, limits = golden["results"][sys.argv[2]], golden["tolerance"]
assert abs(step["loss"] - want["loss"]) <= limits["loss_absolute"], (step, want)
assert abs(step["grad_norm"] / norm - 1) <= limits["grad_norm_relative"], (step, norm)
assert want["beta"] == 0 or abs(step["kl"] - want["mean_kl"]) <= limits["logps_absolute"], (step, want)
END
    then passed "$case, $result, $name: the reference's loss"; else failed "$case, $result, $name: the reference's loss"; fi
}
for case in grpo_llama grpo_qwen2; do
    make_group $case
    group $case grpo.group "one rank"
    group $case bnpo.group "one rank" objective.loss=bnpo
    group $case dr_grpo.none "one rank" objective.loss=dr_grpo objective.scale=none objective.length=$(python3 -c "import json; print(json.load(open('$shared/golden/post/$case/golden.json'))['max_completion_length'])")
    group $case grpo.none.no_kl "one rank" objective.scale=none objective.kl=0
    for layout in layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" layout.cp=2 "layout.cp=2 layout.pp=2 train.micro_batch=1"; do
        [ "$case $layout" = "grpo_qwen2 layout.tp=2" ] && continue
        [ -n "${TRIALS_PART:-}" ] && [ "${layout#layout.cp}" != "$layout" ] && [ "$case $layout" != "grpo_llama layout.cp=2" ] && continue
        group $case bnpo.group "$layout" objective.loss=bnpo $layout
    done
done
printf '{"prompt": "a", "completions": ["b"], "rewards": [1, 2], "old": [[0.5]]}\n' >"$dir/bad.jsonl"
code "rewards of other completions" 5 "$trireme" train "$dir/grpo_llama/run.yaml" run.dir="$dir/no" data.train="$dir/bad.jsonl"
code "a loss of another objective" 3 "$trireme" train "$dir/grpo_llama/run.yaml" run.dir="$dir/no" objective.loss=ipo
says "it names the objective" err 'objective.loss is no loss of train.objective = grpo'
code "no reference" 0 "$trireme" train "$yaml" run.dir="$dir/none" objective.reference=none
code "pieces that strict order does not have" 3 "$trireme" train "$yaml" run.dir="$dir/no" determinism=strict layout.cp=2
says "it names them" err 'layout.cp = 2 does not divide determinism.cp_shards = 1'
code "a key of another objective" 3 "$trireme" train "$yaml" run.dir="$dir/no" objective.wanted=2
says "it names the key" err 'objective.wanted has no effect: train.objective = dpo does not read it'
printf '{"prompt": "a", "chosen": ["b"], "rejected": "c"}\n' >"$dir/bad.jsonl"
code "a line of two kinds" 5 "$trireme" train "$yaml" run.dir="$dir/no" data.train="$dir/bad.jsonl"
says "it names the line" err 'bad.jsonl:1: "prompt", "chosen" and "rejected" are not texts or lists'
[ $failures = 0 ]

#!/bin/bash
# `data trace` and `data.exclude` of conversations: the samples of a step and the steps of a sample, for every
# objective; a list counts from the resumption on, and what it names is neither shown nor compared with.
set -u
. tests/support/named.sh
trireme=$(realpath "$trireme")
cd "$dir" || exit 1
python3 - <<'END_OF_DATA'
import json
words = ["red", "green", "blue", "cyan", "pink", "grey", "gold", "teal"]
def write(name, lines):
    with open(name, "w") as f:
        for i, line in enumerate(lines):
            f.write(json.dumps(dict({"id": "c%d" % i} if i % 2 else {}, **line)) + "\n")
write("sft.jsonl", ({"prompt": "colour %d? " % i, "completion": w} for i, w in enumerate(words)))
write("dpo.jsonl", ({"prompt": "colour %d? " % i, "chosen": w, "rejected": "none"} for i, w in enumerate(words)))
write("less.jsonl", ({"prompt": "colour %d? " % i, "chosen": w, "rejected": "none"} for i, w in enumerate(words) if i != 2))
write("kto.jsonl", ({"prompt": "colour %d? " % i, "completion": w, "label": i % 3 > 0} for i, w in enumerate(words)))
write("grpo.jsonl", ({"prompt": "colour %d? " % i, "completions": [w, "no"], "rewards": [1, 0],
                      "old": [[-2] * (len(w) + 1), [-2] * 3]} for i, w in enumerate(words)))
write("prompts.jsonl", ({"prompt": "say %d " % i} for i in range(8)))
END_OF_DATA
cat >run.yaml <<'END'
model: {layers: 1, dim: 16, heads: 2, vocab: 258}
train: {steps: 4, seq: 64, global_batch: 2}
data: {valid: 0}
eval: {every: 0}
checkpoint: {every: 2}
kernels: {threads: 1}
END
"$trireme" train run.yaml --quiet run.dir="$dir/base" data.train=sft.jsonl train.objective=sft train.steps=1 checkpoint.every=1
run() { # NAME KEY...: of run.yaml, or of the run NAME if it exists
    local name=$1 from=$config
    shift
    timeout 600 "$trireme" train "$from" --quiet run.dir="$dir/$name" "$@"
}
trace() { "$trireme" data trace "$@" 2>&1; }
names() { sed 's/.*"name": "\([^"]*\)".*/\1/' | sort -u; }
steps() { # RUN STEP...: what the steps trained on, as JSON lines
    local run=$1 step
    shift
    for step in "$@"; do trace "$run" --step "$step" --json; done
}

for objective in sft dpo orpo kto grpo; do
    file=$objective.jsonl
    [ $objective = orpo ] && file=dpo.jsonl
    keys="data.train=$file train.objective=$objective"
    case $objective in dpo | kto) keys="$keys objective.reference=$dir/base/checkpoints/latest" ;; esac
    config=run.yaml
    code "$objective: trains" 0 run $objective $keys
    same "$objective: the steps name every line" "$(steps $objective 1 2 3 4 | names | wc -l)" 8
    trace $objective --document $file:3 >before
    same "$objective: line 3 was seen" "$(grep -c '^step' before | sed 's/[1-9][0-9]*/1/')" 1
    same "$objective: line 2 is c1" "$(trace $objective --document c1)" "$(trace $objective --document $file:2)"
    echo "$file:3" >list
    config=$objective
    code "$objective: resumes without it" 0 run $objective train.steps=8 data.exclude=list
    same "$objective: no later step" "$(trace $objective --document $file:3)" "$(cat before)"
    same "$objective: nor is it listed" "$(steps $objective 5 6 7 8 | grep -c "$file:3\"")" 0
done

# A list of JSON lines is what the trace prints.
config=run.yaml
trace orpo --step 2 --json | head -1 >list
code "a list that trace printed" 0 run printed data.train=dpo.jsonl train.objective=orpo data.exclude=list
same "leaves it out" "$(steps printed 1 2 3 4 | grep -c "$(sed 's/.*\("name": "[^"]*"\).*/\1/' list)")" 0

# The loss without a line is that of a file without it; the reference's numbers stay those of all lines.
keys="train.objective=dpo objective.reference=$dir/base/checkpoints/latest train.steps=1 train.global_batch=8"
echo dpo.jsonl:3 >list
code "a file without a line" 0 run less data.train=less.jsonl $keys
code "a list of the line" 0 run left data.train=dpo.jsonl data.exclude=list $keys
code "all lines" 0 run whole data.train=dpo.jsonl $keys
loss() { sed -n 's/.*"loss": \([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl"; }
same "have one loss" "$(awk -v a="$(loss left)" -v b="$(loss less)" 'BEGIN { d = a - b; print(d < 1e-6 && d > -1e-6) }')" 1
same "another than with it" "$(awk -v a="$(loss left)" -v b="$(loss whole)" 'BEGIN { d = a - b; print(d > 1e-7 || d < -1e-7) }')" 1
same "one file of the reference" "$(cat left/cache/reference-* | cksum)" "$(cat whole/cache/reference-* | cksum)"

# Prompts of a run that draws completions.
cat >draw.yaml <<'END'
model: {layers: 1, dim: 16, heads: 2, vocab: 258}
train: {objective: grpo, steps: 2, seq: 16, global_batch: 8}
rollout: {prompts: prompts.jsonl, group: 2, max_tokens: 4}
reward: {kind: regex, pattern: '[0-9]'}
checkpoint: {every: 0}
kernels: {threads: 1}
END
config=draw.yaml
code "draws" 0 run draw
same "prompts of two steps" "$(steps draw 1 2 | names | wc -l)" 8
same "a prompt's step" "$(trace draw --document c3 | grep -c '^step')" 1
printf 'c3\nprompts.jsonl:1\n' >list
code "draws without two" 0 run fewer data.exclude=list
same "they are not drawn" "$(steps fewer 1 2 | grep -cE 'jsonl:(4|1)"')" 0
same "others take their places" "$(steps fewer 1 2 | wc -l)" 8

echo none >list
refuses 4 'no sample of the training data has the name "none"' "$trireme" data trace sft --document none
refuses 4 'no prompt has the name "none"' "$trireme" data trace draw --document none
refuses 4 "none of its 1 entries names a sample" "$trireme" train dpo train.steps=9 data.exclude=list
refuses 4 "none of its 1 entries names a prompt" "$trireme" train draw train.steps=3 data.exclude=list
refuses 2 "the run has 8 steps" "$trireme" data trace sft --step 9
[ $failures = 0 ]

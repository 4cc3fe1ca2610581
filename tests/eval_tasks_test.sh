#!/bin/bash
# `eval --task FILE`: log-likelihoods, accuracies and perplexities of the references, few-shot and
# the formats of published tasks, refusals.
set -u
. tests/support/named.sh
shared=${TRIREME_SHARED:-$PWD/../shared}
[ -d "$shared/golden/post" ] || { echo "skipped: no reference cases in $shared"; exit 77; }
near() { # CASE: $dir/out and $dir/items are those of the case
    python3 - "$shared/golden/post/$1" "$dir/out" "$dir/items" <<'END' 2>>"$dir/err"
import json, sys
golden = json.load(open(sys.argv[1] + "/golden.json"))
choice, rolling = json.load(open(sys.argv[2]))["tasks"]
wanted = [json.loads(line) for line in open(sys.argv[1] + "/items.jsonl")]
got = [json.loads(line) for line in open(sys.argv[3])]
limits = golden["tolerance"]
close = lambda a, b: abs(a - b) <= max(limits["loglikelihood_absolute"], limits["loglikelihood_relative"] * abs(b))
assert len(wanted) == len(got) == choice["items"]
for w, g in zip(wanted, got):
    assert len(w["loglikelihood"]) == len(g["loglikelihood"])
    assert all(close(a, b) for a, b in zip(g["loglikelihood"], w["loglikelihood"])), (w, g)
    assert all(g[k] == w[k] for k in ("prediction", "prediction_norm", "prediction_bytes")), (w, g)
for key in ("acc", "acc_norm", "acc_bytes"):
    assert abs(choice[key] - golden["multiple_choice"][key]) < 1e-12, key
r = golden["rolling"]
assert close(rolling["loglikelihood"], r["loglikelihood"]), rolling
for key in ("tokens", "words", "bytes"):
    assert rolling[key] == r[key], key
for key in ("word_perplexity", "byte_perplexity", "bits_per_byte", "token_perplexity"):
    assert abs(rolling[key] / r[key] - 1) < 1e-3, key
END
}
for case in eval_llama eval_qwen2; do
    # The delimiter differs between the items of a case: the context's template holds it.
    python3 - "$shared/golden/post/$case" "$dir" <<'END'
import json, sys
golden = json.load(open(sys.argv[1] + "/golden.json"))
json.dump({"text": golden["rolling"]["text"]}, open(sys.argv[2] + "/rolling.jsonl", "w"))
open(sys.argv[2] + "/rolling.yaml", "w").write("{kind: perplexity, data: rolling.jsonl}\n")
open(sys.argv[2] + "/choice.yaml", "w").write(
    f'data: {sys.argv[1]}/items.jsonl\ncontext: "{{{{ context }}}}{{{{ delimiter }}}}"\ndelimiter: ""\n')
END
    most=$(python3 -S -c 'import json, sys; print(json.load(open(sys.argv[1]))["max_length"])' "$shared/golden/post/$case/golden.json")
    for batch in 0 3; do
        code "$case, batch $batch" 0 "$trireme" eval "$shared/golden/post/$case" --task "$dir/choice.yaml" "$dir/rolling.yaml" \
            --items "$dir/items" --json --seq "$most" --batch $batch --threads 1
        if near $case; then passed "$case: the reference's scores"; else failed "$case: the reference's scores"; fi
    done
done
model=$shared/golden/post/eval_llama
cat >"$dir/arc.jsonl" <<'END'
{"question": "Is it?", "choices": {"text": ["yes", "no"], "label": ["A", "B"]}, "answerKey": "B"}
{"question": "Was it?", "choices": {"text": ["yes", "no"], "label": ["A", "B"]}, "answerKey": "A"}
END
cat >"$dir/arc.yaml" <<'END'
name: arc
data: arc.jsonl
context: "Question: {{ question }}\nAnswer:"
choices: choices.text
labels: choices.label
gold: answerKey
shots: 1
shots_data: arc.jsonl
END
code "labels and shots" 0 "$trireme" eval "$model" --task "$dir/arc.yaml" --threads 1
says "a table" out '^  acc +[01]\.[0-9]{4} \+- [0-9.]+ +likeliest choice'
says "its name and items" out '^arc, 2 items'
refuse() { # NAME CODE PATTERN LINE...: a task file of these lines
    local name=$1 exit=$2 pattern=$3
    shift 3
    printf '%s\n' "$@" >"$dir/bad.yaml"
    code "$name" "$exit" "$trireme" eval "$model" --task "$dir/bad.yaml" --threads 1
    says "$name: why" err "$pattern"
}
refuse "no data" 3 'data is not given' 'kind: perplexity'
refuse "an unknown key" 3 'did you mean "choices"' 'data: arc.jsonl' 'choises: x'
refuse "no such member" 5 'arc.jsonl:1: no list of 2 to 64 choices: choices' 'data: arc.jsonl'
refuse "no such label" 5 'arc.jsonl:1: this is not the number' 'data: arc.jsonl' 'choices: choices.text' 'gold: question'
refuse "a template that is none" 5 'context:1:4: ' 'data: arc.jsonl' 'context: "{% x %}"'
refuse "a target of a choice" 3 'target applies to kind: generation' 'data: arc.jsonl' 'target: x'
refuse "no target" 3 'needs .target., .command. or .match.' 'kind: generation' 'data: arc.jsonl'
refuse "equal samples" 3 'with temperature 0 all answers' 'kind: generation' 'data: arc.jsonl' 'target: x' 'samples: 2'
refuse "k beyond the samples" 3 'expected at most 8 numbers from 1 to .samples. .1.' 'kind: generation' 'data: arc.jsonl' 'target: x' 'pass: [2]'
refuse "a program without a command" 3 'program applies with .command. only' 'kind: generation' 'data: arc.jsonl' 'target: x' 'program: y'
refuse "no expression" 3 'regular expression "\(\(" is wrong' 'kind: generation' 'data: arc.jsonl' 'target: x' 'extract: "(("' 'context: "{{ question }}"' 'max_tokens: 2'
refuse "an answer of the whole context" 3 'leaves nothing of the model' 'kind: generation' 'data: arc.jsonl' 'target: x' 'max_tokens: 100000'
refuse "choices of a perplexity" 3 'applies to kind: multiple_choice' 'kind: perplexity' 'data: arc.jsonl' 'gold: x'
code "task files and --data" 2 "$trireme" eval "$model" --task "$dir/arc.yaml" --data "$dir/arc.jsonl"
code "loss among task files" 2 "$trireme" eval "$model" --task loss --task "$dir/arc.yaml"

# --- generated answers: the results are those that Python finds in the answers ---
for i in 1 2 3 4 5 6; do echo "{\"question\": \"How many are $i and $i?\", \"answer\": \"$i + $i\\n#### $((2 * i))\"}"; done >"$dir/sums.jsonl"
cat >"$dir/sums.yaml" <<'END'
name: sums
kind: generation
data: sums.jsonl
context: "Question: {{ question }}\nAnswer:"
target: "{{ answer }}"
extract: "([a-z]{2,})"
extract_last: "([a-f])|([g-z])"
stop: ["ing", "Q"]
temperature: 1
samples: 4
pass: [1, 3]
max_tokens: 12
time_limit: 100s
shots: 1
shots_data: sums.jsonl
command: "grep -q '[ae]' program.py && [ $(wc -l <program.py) -ge 1 ] && grep -q '^# How many' program.py"
program: "# {{ question }}\n{{ answer }}"
END
grade() { # grade DATA: recomputes the results of $dir/out from the answers in $dir/items
    python3 - "$dir/out" "$dir/items" "$1" <<'END' 2>>"$dir/err"
import json, math, re, sys
result = json.load(open(sys.argv[1]))["tasks"][0]
got = [json.loads(line) for line in open(sys.argv[2])]
data = [json.loads(line) for line in open(sys.argv[3])]
n, k = result["items"], result["samples"]
assert [(g["item"], g["sample"]) for g in got] == [(i, j) for i in range(n) for j in range(k)]
assert len({g["answer"] for g in got}) > n # each sample has draws of its own
def find(pattern, text, place):
    found = re.findall(pattern, text)
    if not found: return "[invalid]"
    found = found[place]
    return ([f for f in found if f] or ["[invalid]"])[0].strip() if isinstance(found, tuple) else found.strip()
tried = []
for g in got:
    target = data[g["item"]]["answer"]
    assert not any(stop in g["answer"] for stop in ("ing", "Q")) and g["tokens"] <= 12
    assert g["extracted"] == find("([a-z]{2,})", g["answer"], 0), g
    assert g["extracted_last"] == find("([a-f])|([g-z])", g["answer"], -1), g
    assert g["exact_match"] == (g["extracted"] == target) and g["exact_match_last"] == (g["extracted_last"] == target), g
    program = "# " + data[g["item"]]["question"] + "\n" + g["answer"].split("\0")[0]
    assert g["passed"] == any(c in "ae" for c in program), g
def close(name, values):
    mean = sum(values) / n
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    assert abs(result[name] - mean) < 1e-12 and abs(result[name + "_stderr"] - error) < 1e-5, (name, result, mean, error)
def counts(key): return [sum(g[key] for g in got if g["item"] == i) for i in range(n)]
for key in ("exact_match", "exact_match_last", "passed"): close(key, [c / k for c in counts(key)])
for p in (1, 3): close(f"pass@{p}", [1 - math.comb(k - c, p) / math.comb(k, p) for c in counts("passed")])
print(result, file=sys.stderr)
END
}
code "answers" 0 "$trireme" eval "$model" --task "$dir/sums.yaml" --threads 1 --json --items "$dir/items"
if grep -q 'cannot keep a command' "$dir/err"; then
    echo "[  SKIPPED ] commands: this kernel confines none"
else
    if grade "$dir/sums.jsonl"; then passed "Python's results"; else failed "Python's results"; fi
    # Targets that are what the model answered: half of the items are right.
    cp "$dir/items" "$dir/first"
    python3 - "$dir" <<'END'
import json, sys
folder = sys.argv[1]
got = [json.loads(line) for line in open(folder + "/first")]
data = [json.loads(line) for line in open(folder + "/sums.jsonl")]
with open(folder + "/known.jsonl", "w") as out:
    for i, d in enumerate(data):
        if i % 2 == 0: d["answer"] = got[4 * i]["extracted"]
        out.write(json.dumps(d) + "\n")
END
    sed 's/^data: .*/data: known.jsonl/' "$dir/sums.yaml" >"$dir/known.yaml"
    code "known answers" 0 "$trireme" eval "$model" --task "$dir/known.yaml" --threads 1 --json --items "$dir/items" --batch 3
    if grade "$dir/known.jsonl"; then passed "right answers count"; else failed "right answers count"; fi
    if python3 -S -c 'import json, sys; r = json.load(open(sys.argv[1]))["tasks"][0]; assert r["exact_match"] >= 3 / 24, r' "$dir/out"; then
        passed "some are right"
    else
        failed "some are right"
    fi
    code "as a table" 0 "$trireme" eval "$model" --task "$dir/sums.yaml" --threads 1 --limit 2
    says "pass@k" out '^  pass@3 +[01]\.[0-9]{4} \+- [0-9.]+'
fi

# --- during training: the results are those of `eval` on the checkpoints, and come once ---
"$trireme" init "$dir/demo" >/dev/null
head -c 20000 "$dir/demo/text.txt" >"$dir/some.txt"
printf '{"text": "The king is dead."}\n{"text": "Long live the king."}\n' >"$dir/kings.jsonl"
echo '{name: kings, kind: perplexity, data: kings.jsonl}' >"$dir/kings.yaml"
train() {
    "$trireme" train "$dir/demo/config.yaml" model.layers=1 model.dim=32 model.heads=2 train.seq=32 \
        train.global_batch=4 train.steps=4 data.tokenizer=bytes data.train="$dir/some.txt" data.valid=0 eval.every=0 \
        kernels.threads=1 determinism=strict run.dir="$dir/tasks" layout.dp=2 eval.tasks="$dir/kings.yaml,$dir/arc.yaml" \
        eval.tasks_every=2 "$@"
}
events() { grep '"event": "task"' "$dir/tasks/metrics.jsonl"; }
code "tasks while a run trains" 0 train
says "in its log" out '^note +task kings, step 4:  word_perplexity'
events >"$dir/events"
for step in 2 4; do
    code "eval of step $step" 0 "$trireme" eval "$dir/tasks/checkpoints/step-000000$step" --task "$dir/kings.yaml" "$dir/arc.yaml" --json
    if python3 - "$dir/out" "$dir/events" $step <<'END' 2>>"$dir/err"; then passed "the same results, step $step"; else failed "the same results, step $step"; fi
import json, sys
tasks = json.load(open(sys.argv[1]))["tasks"]
events = [e for e in map(json.loads, open(sys.argv[2])) if e["step"] == int(sys.argv[3])]
assert [e["task"] for e in events] == ["kings", "arc"]
for task, event in zip(tasks, events):
    names = [n for n in task if n.endswith(("perplexity", "per_byte")) or n.startswith("acc")]
    assert len(names) in (4, 6) and all(abs(event[n] - task[n]) <= 1e-8 * abs(task[n]) for n in names), (task, event)
END
done
# A run killed before its last tasks: the next session does what is missing, and nothing twice.
sed -i '$d' "$dir/tasks/metrics.jsonl"
code "the same command again" 0 train
same "the missing result, and no other" "$(events | sed 's/, "seconds.*//')" "$(sed 's/, "seconds.*//' "$dir/events")"
code "a task file that is none" 4 train eval.tasks=nothing.yaml run.dir="$dir/none" layout.dp=1
says "by its name" err 'nothing.yaml'
[ $failures = 0 ]

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
    most=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["max_length"])' "$shared/golden/post/$case/golden.json")
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
refuse "choices of a perplexity" 3 'applies to kind: multiple_choice' 'kind: perplexity' 'data: arc.jsonl' 'gold: x'
code "task files and --data" 2 "$trireme" eval "$model" --task "$dir/arc.yaml" --data "$dir/arc.jsonl"
code "loss among task files" 2 "$trireme" eval "$model" --task loss --task "$dir/arc.yaml"
[ $failures = 0 ]

#!/bin/bash
# Reward models (train.objective=reward): the numbers of transformers in every layout, one digest in strict order,
# folders of transformers in and out, what a language model becomes, and refusals.
set -u
. tests/support/named.sh
python3 tests/support/reward_model.py "$dir/rm" && python3 tests/support/reward_model.py "$dir/lm" causal || exit 1
trireme=$(realpath "$trireme")
cd "$dir" || exit 1
cat >run.yaml <<END
model: {from: rm}
train: {objective: reward, steps: 1, seq: 24, global_batch: 14, precision: fp32}
data: {train: rm/train.jsonl, valid: 0}
eval: {every: 0}
optimizer: {lr: 2e-2, clip: 1000}
schedule: {name: constant}
kernels: {threads: 1}
END
train() { timeout 600 "$trireme" train run.yaml --quiet run.dir="$dir/$1" "${@:2}"; }
# bench/peers/reward.py printed these: transformers 5.24, in fp64.
near() { # NAME
    python3 - "$1/metrics.jsonl" <<'END' 2>>err
import json, sys
got = json.loads(open(sys.argv[1]).readline())
want = {"loss": 0.6560366181407734, "grad_norm": 2.7406631936994996, "reward_first": 0.278151854415499,
        "reward_second": 0.052286646454133306, "reward_accuracy": 0.625}
for key, value in want.items():
    assert abs(got[key] - value) <= 2e-6 * max(1, value), (key, got[key], value)
END
}
number=0
for layout in "layout.dp=1" "layout.tp=2" "layout.tp=2 layout.sp=yes" "layout.pp=2" "layout.dp=2 layout.zero=3" layout.cp=2; do
    number=$((number + 1))
    code "$layout" 0 train "n$number" $layout
    if near "n$number"; then passed "$layout: the numbers of transformers"; else failed "$layout: the numbers of transformers"; fi
done
strict="determinism=strict determinism.tp_shards=2 determinism.cp_shards=2 train.steps=3"
code "strict" 0 train strict $strict
number=0
for layout in "layout.cp=2 layout.tp=2 layout.sp=yes" layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=3" train.micro_batch=7 "layout.cp=2 layout.tp=2" "layout.cp=2 layout.pp=2 train.micro_batch=7" "layout.cp=2 layout.zero=3"; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [[ $number = [135] ]] || continue
    code "strict, $layout" 0 train "s$number" $strict $layout
    same "strict, $layout: the digest of one rank" "$(digest "s$number")" "$(digest strict)"
done
code "two steps" 0 train part $strict train.steps=2
code "and a third" 0 train part $strict
same "the digest of three" "$(digest part)" "$(digest strict)"
code "bf16" 0 train bf16 train.precision=bf16 train.steps=2

# --- folders of transformers ---
code "export" 0 "$trireme" export strict made
code "its class has one label" 0 python3 -c "
import json
c = json.load(open('made/config.json'))
assert c['architectures'] == ['LlamaForSequenceClassification'] and list(c['id2label']) == ['0'], c"
code "its tensors" 0 python3 -c "
import json, struct
f = open('made/model.safetensors', 'rb')
head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
assert head['score.weight']['shape'] == [1, 16] and 'lm_head.weight' not in head, head.keys()"
code "import" 0 "$trireme" import made imported
code "export again" 0 "$trireme" export imported again
if cmp -s made/model.safetensors again/model.safetensors && cmp -s made/config.json again/config.json; then passed "has the same bytes"; else failed "has the same bytes"; fi
code "goes on from it" 0 train more model.from=made
for from in lm lm-run/checkpoints/latest; do
    [ $from = lm ] || code "a language model of ours" 0 "$trireme" import lm lm-run/checkpoints/latest
    code "a reward model from $from" 0 train "from-${from%%/*}" model.from=$from train.steps=25 train.global_batch=10 data.valid=0.2 eval.every=25 eval.batches=1
    code "it learns, and its held-out accuracy is recorded" 0 python3 -c "
import json
s = [json.loads(line) for line in open('from-${from%%/*}/metrics.jsonl')]
assert s[-1]['reward_accuracy'] > 0.9 and s[-1]['loss'] < s[0]['loss'] - 0.3, s[-1]
assert 0 <= s[-1]['val_reward_accuracy'] <= 1, s[-1]"
done
same "and both begin alike" "$(head -1 from-lm/metrics.jsonl | grep -o '"loss": [^,]*')" "$(head -1 from-lm-run/metrics.jsonl | grep -o '"loss": [^,]*')"

# --- adapters, whose folder has the head ---
lora="adapter.kind=lora adapter.rank=4"
code "an adapter" 0 train adapted $strict $lora
number=0
for layout in "layout.cp=2 layout.zero=3" layout.pp=2 "layout.dp=2 layout.zero=3" "layout.tp=2 layout.sp=yes" "layout.cp=2 layout.tp=2 layout.sp=yes"; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [ $number = 1 ] || continue
    code "an adapter, $layout" 0 train "a$number" $strict $lora $layout
    same "an adapter, $layout: the digest of one rank" "$(digest "a$number")" "$(digest adapted)"
done
code "an adapter as a folder of PEFT" 0 "$trireme" export adapted peft --adapter
code "names the class and the head, as PEFT does" 0 python3 -c "
import json, struct
f = open('peft/adapter_model.safetensors', 'rb')
head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
c = json.load(open('peft/adapter_config.json'))
assert head['base_model.model.score.weight']['shape'] == [1, 16], head.keys()
assert c['task_type'] == 'SEQ_CLS' and c['modules_to_save'] == ['classifier', 'score'], c"
code "an adapter in its base model" 0 "$trireme" export adapted merged --merge
code "goes on from the adapter" 0 train from-peft adapter.from=peft
code "goes on from the merged model" 0 train from-merged model.from=merged
code "both begin with the same loss" 0 python3 -c "
import json
a, b = (json.loads(open(f'from-{name}/metrics.jsonl').readline())['loss'] for name in ('peft', 'merged'))
assert abs(a - b) < 1e-6 and a < 0.2, (a, b)"
code "an adapter over a language model" 0 train adapted-lm $strict $lora model.from=lm
code "in its base model" 0 "$trireme" export adapted-lm merged-lm --merge
code "goes on from it" 0 train from-merged-lm model.from=merged-lm
code "with a lower loss" 0 python3 -c "
import json
was = [json.loads(line)['loss'] for line in open('adapted-lm/metrics.jsonl')]
now = json.loads(open('from-merged-lm/metrics.jsonl').readline())['loss']
assert now < was[-1] < was[0], (now, was)"

# --- refused ---
refuses 3 "is a reward model" "$trireme" generate made --prompt 一
refuses 3 "is a reward model" "$trireme" eval made --data rm/train.jsonl
refuses 3 "is a reward model, which writes no text" train bad train.objective=dpo
refuses 3 "objective.beta has no effect" train bad objective.beta=0.5
refuses 3 "whose head was trained with the adapter" "$trireme" export merged unmerged --unmerge --peft peft
cp -r peft peft-more && sed -i 's/"classifier"/"lm_head"/' peft-more/adapter_config.json
refuses 3 "modules_to_save.*the head of a reward model" train bad adapter.from=peft-more
sed 's/"0": "LABEL_0"/"0": "a", "1": "b"/' rm/config.json >two.json && cp -r rm two && cp two.json two/config.json
refuses 3 "with 2 labels" train bad model.from=two
cp -r lm headless && sed 's/ForCausalLM/ForSequenceClassification/' rm/config.json >headless/config.json
refuses 3 "score.weight is missing" train bad model.from=headless
[ $failures = 0 ]

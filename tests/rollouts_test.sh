#!/bin/bash
# Rollouts inside a run: the log-probabilities of drawn tokens are those of the training pass to the bit, the
# same completions are drawn in every layout and after a resumption, and a run learns what is rewarded.
set -u
. tests/support/named.sh
trireme=$(realpath "$trireme")
top=$PWD
cd "$dir" || exit 1
for a in 1 20 333 4; do for b in 2 57; do printf '{"prompt": "%d+%d=", "answer": %d}\n' $a $b $((a + b)); done; done >prompts.jsonl
cat >run.yaml <<END
train: {objective: grpo, steps: 2, seq: 16, global_batch: 8}
model: {layers: 2, dim: 16, heads: 2, vocab: 258, context: 16}
rollout: {prompts: prompts.jsonl, group: 4, max_tokens: 4}
reward: {kind: regex, pattern: '^[[:print:]]'}
optimizer: {lr: 2e-2}
schedule: {name: constant}
checkpoint: {every: 0}
kernels: {threads: 1}
END
train() { timeout 600 "$trireme" train run.yaml --quiet run.dir="$dir/$1" "${@:2}"; }
value() { sed -n "s/^{\"step\": $3,.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1/metrics.jsonl"; }
exact() { same "$1: log-probabilities are those of training" "$(value "$1" ratio_gap 1) $(value "$1" ratio_gap 2)" "0 0"; }

strict="determinism=strict"
code "strict, one rank" 0 train one $strict
exact one
same "some completions are rewarded" "$(awk -v r="$(value one reward 1)" 'BEGIN { print(r > 0 && r < 1) }')" 1
want=$(digest one)
number=0
for layout in "rollout.slots=1 rollout.cache=32" "rollout.slots=3 train.micro_batch=2 rollout.cache=64" layout.dp=2 "layout.dp=4 layout.zero=2 rollout.slots=1" \
    "layout.dp=2 layout.zero=3 rollout.slots=3 rollout.cache=48" "layout.pp=2 train.micro_batch=2" \
    "layout.dp=2 layout.pp=2 layout.zero=3 layout.schedule=gpipe rollout.slots=3 train.micro_batch=2 rollout.cache=80"; do
    number=$((number + 1))
    code "$layout" 0 train "l$number" $strict $layout
    same "$layout: the same digest" "$(digest "l$number")" "$want"
done
tp="determinism.tp_shards=2"
code "tp = 1" 0 train tp1 $strict $tp train.global_batch=16
code "tp = 2" 0 train tp2 $strict $tp train.global_batch=16 layout.tp=2 rollout.slots=5 rollout.cache=96
exact tp2
same "tp = 2: the same digest" "$(digest tp2)" "$(digest tp1)"
# Pages: a group shares those of its prompt of 40 tokens, so eight completions of 45 take less than half of their rows.
printf '{"prompt": "%040d", "answer": 1}\n' 7 >long.jsonl
long="$strict train.seq=48 train.steps=1 model.context=48 rollout.prompts=long.jsonl rollout.group=8"
code "without pages" 0 train rows $long
code "in pages" 0 train pages $long rollout.cache=1000
same "the same digest" "$(digest pages)" "$(digest rows)"
exact_one() { same "$1: exact" "$(value "$1" ratio_gap 1)" 0; }
exact_one pages
same "tokens in use, of 9 x 48" "$(value pages cache_tokens 1)" $((2 * 16 + 16 + 8 * 16))
code "in fewer" 0 train fewer $long rollout.cache=96
same "the same digest again" "$(digest fewer)" "$(digest rows)"
same "no more in use than there are" "$(value fewer cache_tokens 1)" 96
# Ranks along cp draw some completions each; of 20 positions in two pieces each the kernels add no pairs of rows.
cp="determinism.cp_shards=2 $tp train.seq=20 model.context=20"
code "cp = 1" 0 train cp1 $strict $cp train.precision=bf16
number=0
for layout in layout.cp=2 "layout.cp=2 layout.tp=2 rollout.slots=2" "layout.cp=2 layout.pp=2 train.micro_batch=2" "layout.cp=2 layout.zero=3 layout.dp=2 rollout.slots=3 rollout.cache=96"; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [[ $number = [34] ]] || continue
    code "$layout" 0 train "cp-$number" $strict $cp train.precision=bf16 $layout
    exact "cp-$number"
    same "$layout: the same digest" "$(digest "cp-$number")" "$(digest cp1)"
done
few="$strict determinism.cp_shards=4 train.global_batch=2 rollout.group=2"
code "fewer sequences than ranks" 0 train few $few
code "on all of them" 0 train few4 $few layout.cp=4
same "the same digest" "$(digest few4)" "$(digest few)"
code "ranks that draw unequally often" 0 train unequal layout.dp=2 train.global_batch=6 rollout.group=2 rollout.slots=2
code "one step" 0 train resumed $strict train.steps=1
code "one more" 0 train resumed $strict layout.dp=2
same "go on exactly" "$(digest resumed)" "$want"
code "another seed" 0 train seed $strict rollout.seed=2
same "draws others" "$([ "$(digest seed)" != "$want" ] && echo yes)" yes
ahead="$strict rollout.staleness=2"
code "ahead of the steps" 0 timeout 600 "$trireme" train run.yaml run.dir="$dir/ahead" $ahead train.steps=3
says "the log says how far" out "the completions of step s are drawn with the weights that step s - 2 begins with"
same "the first step is exact, the second is not" "$(value ahead ratio_gap 1) $(awk -v r="$(value ahead ratio_gap 2)" 'BEGIN { print(r > 0) }')" "0 1"
code "one step ahead" 0 train ahead2 $ahead train.steps=1
code "and two more in another layout" 0 train ahead2 $ahead train.steps=3 layout.dp=2 layout.pp=2 train.micro_batch=2
if [ -z "${TRIALS_PART:-}" ]; then
    code "along cp too" 0 train ahead3 $ahead determinism.cp_shards=2 train.steps=3
    code "with two ranks" 0 train ahead4 $ahead determinism.cp_shards=2 train.steps=3 layout.cp=2
    same "older weights along cp: the same digest" "$(digest ahead4)" "$(digest ahead3)"
fi
same "older weights: go on exactly" "$(digest ahead2)" "$(digest ahead)"
code "learning" 0 train learnt train.steps=60 train.global_batch=32
same "the reward rises" "$(awk -v a="$(value learnt reward 1)" -v b="$(value learnt reward 60)" 'BEGIN { print(a < 0.7 && b > 0.9) }')" 1

# Both rules give the same rewards: even sums.
code "an expression" 0 train even $strict reward.pattern='[02468]'
code "a command" 0 train shell $strict reward.kind=command reward.pattern=null reward.command="grep -q [02468] completion && [ -s prompt ] && [ -s answer ]"
same "rewards alike" "$(digest shell)" "$(digest even)"
code "a command that takes too long" 0 train slow $strict train.steps=1 reward.kind=command reward.pattern=null reward.command="sleep 5" reward.time_limit=100ms
same "has no reward" "$(value slow reward 1)" 0

# --- a judge over HTTP: the same rewards again; answers of every hostile kind end the run by name ---
python3 "$top/tests/support/judge.py" >port &
judge=$!
trap 'kill $judge; rm -rf "$dir"' EXIT
soon $judge test -s port
url=http://127.0.0.1:$(cat port)
http="reward.kind=http reward.pattern=null"
for path in even chunks flaky; do
    code "a judge: $path" 0 train "$path-http" $strict $http reward.url=$url/$path reward.retries=9
    same "rewards alike" "$(digest "$path-http")" "$(digest even)"
done
for path in closed noise half huge endless text nan infinite deep chunk moved error slow; do
    code "a judge that answers: $path" 4 train "no-$path" $http reward.url=$url/$path reward.retries=0 reward.time_limit=500ms
    says "ends the run" err "reward.url: 127.0.0.1:[0-9]* gave no reward in 1 attempt"
done
code "no judge" 4 train nojudge $http reward.url=http://127.0.0.1:1 reward.retries=1
says "is named after two attempts" err "in 2 attempts; the last: cannot connect"

# --- a reward model in the job ---
for a in 1 2 3 4 5 6; do for b in 0 2 4 6 8; do printf '{"prompt": "%d+1=", "chosen": "%d", "rejected": "a"}\n' $a $b; done; done >pairs.jsonl
cat >rm.yaml <<END
train: {objective: reward, steps: 30, seq: 16, global_batch: 4}
model: {layers: 1, dim: 16, heads: 2, vocab: 258, context: 16}
data: {train: pairs.jsonl, valid: 0}
eval: {every: 0}
optimizer: {lr: 2e-2}
kernels: {threads: 1}
END
code "a reward model" 0 "$trireme" train rm.yaml --quiet run.dir="$dir/rm"
model="reward.kind=model reward.pattern=null reward.model=rm/checkpoints/latest"
code "rewards of a model" 0 train scored $strict $model
number=0
for layout in layout.dp=2 rollout.slots=3; do
    number=$((number + 1))
    code "$layout" 0 train "scored$number" $strict $model $layout
    same "$layout: the same digest" "$(digest "scored$number")" "$(digest scored)"
done
code "in two pieces" 0 train scored3 $strict $model determinism.cp_shards=2 train.steps=1
code "on two ranks" 0 train scored4 $strict $model determinism.cp_shards=2 train.steps=1 layout.cp=2
same "the same digest" "$(digest scored4)" "$(digest scored3)"
same "its rewards are scores" "$(awk -v r="$(value scored reward 1)" 'BEGIN { print(r != 0 && r != 1) }')" 1

refuses 3 "model has dropout" train no model.dropout=0.1
refuses 3 "resilience.mode = live cannot be used" train no resilience.mode=live
refuses 3 "sdc.replay = 0.5 cannot be used" train no sdc.replay=0.5
refuses 3 "objective.kl = 0.1 cannot be used with rollout.prompts yet" train no objective.kl=0.1
refuses 3 "rollout.cache = 31 cannot hold one completion" train no rollout.cache=31
refuses 3 "rollout.group = 3 does not divide a batch of 8" train no rollout.group=3
refuses 3 "leaves no place for a prompt" train no rollout.max_tokens=16
refuses 3 "reward.pattern" train no "reward.pattern=["
refuses 3 "reward.command is not given" train no reward.kind=command reward.pattern=null
refuses 3 "reward.command has no effect" train no reward.command=true
refuses 3 "reward.url: expected http://" train no $http reward.url=https://example.org/
refuses 3 "a name and password" train no $http reward.url=http://a:b@example.org/
refuses 3 "reward.url is not given" train no $http
refuses 3 "reward.model is not given" train no reward.kind=model reward.pattern=null
refuses 3 "is no reward model" train no $model reward.model=one/checkpoints/latest
refuses 3 "data.train has no effect" train no data.train=prompts.jsonl
refuses 3 "only train.objective = grpo draws completions" train no train.objective=pretrain
refuses 5 "prompts.jsonl:1: the prompt has 4 tokens, and train.seq less rollout.max_tokens leaves 3" train no rollout.max_tokens=13
printf '{"prompt": "1+2="}\n' >bare.jsonl
refuses 5 'prompt 1 has no "answer"' train no rollout.prompts=bare.jsonl reward.kind=numeric
printf '{"prompt": 5}\n' >bad.jsonl
refuses 5 'bad.jsonl:1: "prompt" is neither a text nor a list of messages' train no rollout.prompts=bad.jsonl
[ $failures = 0 ]

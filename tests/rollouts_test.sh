#!/bin/bash
# Rollouts inside a run: the log-probabilities of drawn tokens are those of the training pass to the bit, the
# same completions are drawn in every layout and after a resumption, and a run learns what is rewarded.
set -u
. tests/support/named.sh
trireme=$(realpath "$trireme")
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
train() { # NAME KEY...
    local name=$1
    shift
    timeout 60 "$trireme" train run.yaml --quiet run.dir="$dir/$name" "$@"
}
digest() { "$trireme" digest "$dir/$1" 2>&1; }
value() { sed -n "s/^{\"step\": $3,.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1/metrics.jsonl"; }
exact() { same "$1: log-probabilities are those of training" "$(value "$1" ratio_gap 1) $(value "$1" ratio_gap 2)" "0 0"; }

strict="determinism=strict"
code "strict, one rank" 0 train one $strict
exact one
same "some completions are rewarded" "$(awk -v r="$(value one reward 1)" 'BEGIN { print(r > 0 && r < 1) }')" 1
want=$(digest one)
number=0
for layout in rollout.slots=1 "rollout.slots=3 train.micro_batch=2" layout.dp=2 "layout.dp=4 layout.zero=2 rollout.slots=1" \
    "layout.dp=2 layout.zero=3 rollout.slots=3" "layout.pp=2 train.micro_batch=2" \
    "layout.dp=2 layout.pp=2 layout.zero=3 layout.schedule=gpipe rollout.slots=3 train.micro_batch=2"; do
    number=$((number + 1))
    code "$layout" 0 train "l$number" $strict $layout
    same "$layout: the same digest" "$(digest "l$number")" "$want"
done
tp="determinism.tp_shards=2"
code "tp = 1" 0 train tp1 $strict $tp train.global_batch=16
code "tp = 2" 0 train tp2 $strict $tp train.global_batch=16 layout.tp=2 rollout.slots=5
exact tp2
same "tp = 2: the same digest" "$(digest tp2)" "$(digest tp1)"
code "one step" 0 train resumed $strict train.steps=1
code "one more" 0 train resumed $strict layout.dp=2
same "go on exactly" "$(digest resumed)" "$want"
code "another seed" 0 train seed $strict rollout.seed=2
same "draws others" "$([ "$(digest seed)" != "$want" ] && echo yes)" yes
ahead="$strict rollout.staleness=2"
code "ahead of the steps" 0 timeout 60 "$trireme" train run.yaml run.dir="$dir/ahead" $ahead train.steps=3
says "the log says how far" out "the completions of step s are drawn with the weights that step s - 2 begins with"
same "the first step is exact, the second is not" "$(value ahead ratio_gap 1) $(awk -v r="$(value ahead ratio_gap 2)" 'BEGIN { print(r > 0) }')" "0 1"
code "one step ahead" 0 train ahead2 $ahead train.steps=1
code "and two more in another layout" 0 train ahead2 $ahead train.steps=3 layout.dp=2 layout.pp=2 train.micro_batch=2
same "older weights: go on exactly" "$(digest ahead2)" "$(digest ahead)"
code "learning" 0 train learnt train.steps=60 train.global_batch=32
same "the reward rises" "$(awk -v a="$(value learnt reward 1)" -v b="$(value learnt reward 60)" 'BEGIN { print(a < 0.7 && b > 0.9) }')" 1

# Both rules give the same rewards: even sums.
code "an expression" 0 train even $strict reward.pattern='[02468]'
code "a command" 0 train shell $strict reward.kind=command reward.pattern=null reward.command="grep -q [02468] completion && [ -s prompt ] && [ -s answer ]"
same "rewards alike" "$(digest shell)" "$(digest even)"
code "a command that takes too long" 0 train slow $strict train.steps=1 reward.kind=command reward.pattern=null reward.command="sleep 5" reward.time_limit=100ms
same "has no reward" "$(value slow reward 1)" 0

refuse() { # CODE WHAT KEY...
    local want=$1 what=$2
    shift 2
    code "refuses $*" "$want" train no "$@"
    says "says why" err "$what"
}
refuse 3 "model has dropout" model.dropout=0.1
refuse 3 "resilience.mode = live cannot be used" resilience.mode=live
refuse 3 "sdc.replay = 0.5 cannot be used" sdc.replay=0.5
refuse 3 "objective.kl = 0.1 cannot be used with rollout.prompts yet" objective.kl=0.1
refuse 3 "rollout.group = 3 does not divide a batch of 8" rollout.group=3
refuse 3 "leaves no place for a prompt" rollout.max_tokens=16
refuse 3 "reward.pattern" "reward.pattern=["
refuse 3 "reward.command is not given" reward.kind=command reward.pattern=null
refuse 3 "reward.command has no effect" reward.command=true
refuse 3 "data.train has no effect" data.train=prompts.jsonl
refuse 3 "only train.objective = grpo draws completions" train.objective=pretrain
refuse 5 "prompts.jsonl:1: the prompt has 4 tokens, and train.seq less rollout.max_tokens leaves 3" rollout.max_tokens=13
printf '{"prompt": "1+2="}\n' >bare.jsonl
refuse 5 'prompt 1 has no "answer"' rollout.prompts=bare.jsonl reward.kind=numeric
printf '{"prompt": 5}\n' >bad.jsonl
refuse 5 'bad.jsonl:1: "prompt" is neither a text nor a list of messages' rollout.prompts=bad.jsonl
[ $failures = 0 ]

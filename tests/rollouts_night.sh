#!/bin/bash
# 100,000 tokens drawn in strict order, with tp = 1 and 2 and 1 to 16 completions at once: each has the
# log-probability of the training pass, to the bit, and all draw the same.
set -u
. tests/support/named.sh
trireme=$(realpath "$trireme")
cd "$dir" || exit 1
for a in $(seq 10 34); do printf '{"prompt": "%d+%d="}\n' "$a" $((a * 3)); done >prompts.jsonl
cat >run.yaml <<END
train: {objective: grpo, steps: 1, seq: 80, global_batch: 100}
model: {layers: 2, dim: 32, heads: 2, vocab: 258, context: 80}
rollout: {prompts: prompts.jsonl, group: 4, max_tokens: 64}
reward: {kind: regex, pattern: '[aeiou]'}
schedule: {name: constant}
checkpoint: {every: 0}
determinism: {mode: strict, tp_shards: 2}
kernels: {threads: 1}
END
value() { sed -n "s/^{\"step\": 1,.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1/metrics.jsonl"; }
tokens=0
for slots in $(seq 1 16); do
    for tp in 1 2; do
        run=tp$tp-$slots
        code "$slots at once, tp = $tp" 0 "$trireme" train run.yaml --quiet run.dir=$run rollout.slots=$slots layout.tp=$tp
        same "$slots at once, tp = $tp: no log-probability differs" "$(value $run ratio_gap)" 0
        same "$slots at once, tp = $tp: the same digest" "$("$trireme" digest $run)" "$("$trireme" digest tp1-1)"
        tokens=$(awk -v a=$tokens -v b="$(value $run answer_tokens)" 'BEGIN { print(a + 100 * b) }')
    done
done
same "at least 100,000 tokens ($tokens)" "$(awk -v n=$tokens 'BEGIN { print(n >= 100000) }')" 1
[ $failures = 0 ]

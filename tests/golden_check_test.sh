#!/usr/bin/env bash
# `trireme check` on every reference model: fp32 inside the stated limits, bf16 inside what bf16 explains,
# and one case strict, in micro-batches of one, on the shadow device. With TRIALS_PART, by day, each model is in
# one of the two.
set -u
trireme=${TRIREME:?the program to test}
shared=${TRIREME_SHARED:-../shared}
[ -d "$shared/golden/models" ] || { echo "skipped: $shared/golden/models is not there"; exit 77; }
. tests/support/golden.sh
known=$(golden_models "$shared/golden/models") || exit 1
failures=0
cases=0

agrees() { # agrees FOLDER [key=value ...]
    cases=$((cases + 1))
    "$trireme" check "$@" --json >/dev/null 2>&1 && return
    echo "trireme check $*: differs"
    "$trireme" check "$@"
    failures=$((failures + 1))
}

turn=0
for folder in $known; do
    [ -n "${TRIALS_PART:-}" ] && [ $((turn % 2)) = 1 ] || agrees "$folder"
    [ -n "${TRIALS_PART:-}" ] && [ $((turn % 2)) = 0 ] || agrees "$folder" train.precision=bf16
    turn=$((turn + 1))
done
agrees "$shared/golden/models/llama_gqa" determinism=strict train.micro_batch=1 kernels.device=shadow
agrees "$shared/golden/models/gpt2" train.recompute=full kernels.threads=1

# More ranks than heads of keys.
agrees "$shared/golden/models/llama_gqa" layout.tp=4
agrees "$shared/golden/models/qwen3" layout.tp=4
agrees "$shared/golden/models/llama_rope_llama3" layout.tp=2 determinism=strict determinism.tp_shards=2
agrees "$shared/golden/models/llama_tied_bf16" layout.tp=4 layout.zero=1 layout.dp=2
# Stages that meet in the middle of layers; the head on another chunk than the first.
agrees "$shared/golden/models/llama_gqa" layout.pp=2 layout.schedule=zb-v layout.stages=0.5,0.5,0.5,0.5 train.micro_batch=1
agrees "$shared/golden/models/gpt2" layout.pp=2 layout.stages=1.5,0.5
agrees "$shared/golden/models/gpt2" layout.pp=3 layout.stages=0,2,0

# Several ranks, whose pieces are gathered: each model in the next of these layouts.
layouts=("layout.dp=2 layout.zero=2" "layout.pp=2" "layout.pp=2 layout.dp=2 layout.zero=1 train.micro_batch=1"
         "layout.tp=2" "layout.pp=2 layout.schedule=zb-h1 determinism=strict"
         "layout.tp=2 layout.pp=2 layout.dp=2 layout.zero=3 train.micro_batch=1"
         "layout.dp=2 determinism=strict layout.zero=3" "layout.tp=2 layout.dp=2 layout.zero=3 layout.zero_sums=step"
         "layout.pp=2 layout.tp=2 train.micro_batch=1" "layout.cp=2" "layout.cp=2 layout.cp_heads=2"
         "layout.cp=2 layout.cp_ring=yes layout.dp=2"
         "layout.cp=2 determinism=strict determinism.cp_shards=2 layout.pp=2")
# A norm over all heads, whose ranks add their squares; one head of keys for all.
olmo="$shared/golden/models/olmo2"
agrees "$olmo" layout.tp=2 layout.sp=yes determinism=strict determinism.tp_shards=4 train.micro_batch=1
next=0
mixtral="$shared/golden/models/mixtral"
agrees "$mixtral" layout.dp=2 layout.zero=3 determinism=strict train.micro_batch=1
agrees "$mixtral" layout.cp=2 layout.pp=2 determinism=strict determinism.cp_shards=2 train.micro_batch=1
agrees "$mixtral" layout.tp=2 layout.dp=2 layout.ep=2 layout.etp=2 layout.zero=1
agrees "$shared/golden/models/deepseek_v3" layout.tp=2 layout.sp=yes layout.etp=2 layout.pp=2 train.micro_batch=1
oss="$shared/golden/models/gpt_oss"
agrees "$oss" layout.dp=2 layout.ep=2 layout.tp=2 layout.sp=yes layout.etp=1
agrees "$oss" layout.dp=2 layout.ep=2 layout.pp=2 train.micro_batch=1
agrees "$oss" layout.dp=2 layout.cp=2 layout.ep=4 layout.zero=1
agrees "$oss" determinism=strict train.micro_batch=1 train.recompute=full
for folder in $known; do
    [ "$folder" != "$mixtral" ] || continue # it has lines of its own
    agrees "$folder" ${layouts[next]}
    next=$(((next + 1) % ${#layouts[@]}))
done
# A long one for each way of context parallelism.
llama="$shared/golden/models/llama_gqa"
agrees "$llama" layout.cp=4
agrees "$llama" layout.cp=4 layout.cp_ring=yes
agrees "$llama" layout.cp=4 layout.cp_heads=2 layout.cp_ring=yes
agrees "$llama" layout.cp=4 layout.cp_heads=4

echo "$cases checks, $failures failed"
exit $((failures > 0))

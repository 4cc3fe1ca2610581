#!/bin/bash
# Predictions against published figures: the tool runs, judges, and cannot say that all is well of nothing. What the
# profiles' memory habits add is checked by hand.
set -eu
cd "$(dirname "$0")/.."
T=${TRIREME:-build/trireme}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
said() { echo "FAILED: $1"; exit 1; }

held() { # held KIND PROFILE KEY=VALUE...: bytes of it
    local kind=$1 profile=$2
    shift 2
    "$T" simulate gpt2-124m --cluster a100-80 profile="$profile" layout.dp=8 train.global_batch=64 \
        train.micro_batch=4 profile.logit_bytes=0 "$@" --json | sed -E 's/.*"memory": \{[^}]*"'"$kind"'": ([0-9]+).*/\1/'
}

# 12 layers x 12 heads x 1024^2 scores x 4 sequences x 5 bytes, and two masks of 4 x 1024 x 768 bytes; of one layer where
# all is recomputed, without the scores where they are recomputed.
scores=$((12 * 1024 * 1024 * 4 * 5)) masks=$((2 * 4 * 1024 * 768))
own=$(held activations trireme) theirs=$(held activations megatron)
[ $((theirs - own)) = $((12 * (scores + masks))) ] || said "scores and masks kept: $theirs less $own"
theirs=$(held activations megatron-selective)
[ $((theirs - own)) = $((12 * masks)) ] || said "masks kept where scores are made again: $theirs less $own"
own=$(held activations trireme train.recompute=full) theirs=$(held activations megatron train.recompute=full)
[ $((theirs - own)) = $((scores + masks)) ] || said "scores and masks of one layer: $theirs less $own"

# What an allocator loses: a share of what comes and goes within a step, gradients of two bytes too but not those of four.
printf 'base: trireme\nabout: "a quarter"\nslack: 0.25\nloose_grads: 2\nsources: ["a test"]\n' >"$dir/slack.yaml"
loses() { # loses BYTES precision.grads=TYPE
    lost=$(($(held buffers "$dir/slack.yaml" "$2") - $(held buffers trireme "$2")))
    [ $(($1 / 4)) = $lost ] || said "lost by the allocator with $2: $lost of $1"
}
loses "$(held activations trireme)" precision.grads=fp32
loses $(($(held activations trireme precision.grads=bf16) + $(held gradients trireme precision.grads=bf16))) precision.grads=bf16

# DeepSpeed holds less of whole gradients than a layer's.
gradients() { # gradients PROFILE: bytes of them with ZeRO-3
    "$T" simulate llama2-70b --cluster a100-80 profile="$1" layout.dp=64 layout.zero=3 train.global_batch=64 \
        train.micro_batch=1 train.recompute=full --json | sed -E 's/.*"gradients": ([0-9]+).*/\1/'
}
own=$(gradients megatron) theirs=$(gradients deepspeed)
[ "$theirs" -lt "$own" ] || said "gradients that are held: $theirs, and $own without a limit"

# And gathers piece by piece: of 98 vectors that are whole on all of 8 ranks each piece once in a step; of 36 weights
# that are computed with again (the last product of a layer need not be) once more.
pieces() { # pieces MICROSECONDS REUSE_DISTANCE PERSISTENT: nanoseconds of a step
    printf 'about: "pieces"\ndp_overlap: 0\npiece_us: %s\nreuse_distance: %s\npersistent: %s\nsources: ["a test"]\n' \
        "$@" >"$dir/pieces.yaml"
    "$T" simulate gpt2-124m --cluster a100-80 profile="$dir/pieces.yaml" layout.dp=8 layout.zero=3 train.global_batch=8 \
        train.micro_batch=1 train.recompute=full --json | sed -E 's/.*"step_s": ([0-9.e-]+).*/\1/' | awk '{ printf "%.0f\n", $1 * 1e9 }'
}
never=1000000000000
[ $(($(pieces 500 $never 100000) - $(pieces 500 $never 0))) = $((98 * 8 * 500000)) ] || said "vectors piece by piece"
few=$(($(pieces 500 0 0) - $(pieces 500 $never 0))) many=$(($(pieces 1000 0 0) - $(pieces 1000 $never 0)))
[ $((many - few)) = $((36 * 8 * 500000)) ] || said "weights gathered again: $few, then $many"

# A profile whose name is wrong.
! "$T" simulate gpt2-124m --cluster h100 profile=fsp --json >"$dir/out" 2>&1 || said "a wrong profile is taken"
grep -q 'did you mean fsdp' "$dir/out" || said "no nearest profile: $(cat "$dir/out")"

# No tables: a line and 77.
code=0
study/validate "$T" --shared "$dir" >"$dir/out" || code=$?
[ $code = 77 ] && grep -q '^skipped' "$dir/out" || said "no tables: $code, $(cat "$dir/out")"
shared=${TRIREME_SHARED:-../shared}
if [ ! -d "$shared/validation" ]; then
    echo "skipped: no tables in $shared/validation"
    exit 77
fi
# A few rows: each role has its part, and what was not tested is a bound missed.
study/validate "$T" --shared "$shared" --only 'llm_c/llmc-124M|llmf-48' --rows --strict >"$dir/out" || true
grep -q '^fit llm_foundry_mpt/llmf-48: step [-+]' "$dir/out" || said "no row fitted on: $(cat "$dir/out")"
grep -q '^test llm_c/llmc-124M: step [-+]' "$dir/out" || said "no row tested: $(cat "$dir/out")"
# With the profile that each was first simulated with; what is recomputed stays.
study/validate "$T" --shared "$shared" --only 'kor-t5-22B' >"$dir/out" || true
grep -q '^  korthikanti_table3_5 (megatron) .* 1 rows' "$dir/out" || said "no first profile: $(cat "$dir/out")"
grep -q '^  korthikanti_table3_5 (megatron-selective)' "$dir/out" || said "another recomputation: $(cat "$dir/out")"
# What another profile stands in for is printed apart, and is judged with the rest.
study/validate "$T" --shared "$shared" --only 'glm_130b|llm_c/llmc-124M' >"$dir/out" || true
grep -q '^  where another stands in for a profile .* 2 rows' "$dir/out" || said "no stand-ins: $(cat "$dir/out")"
grep -q '^  of profiles. own software  *step  *1 rows' "$dir/out" || said "nothing apart: $(cat "$dir/out")"
grep -q '^  all  *step  *3 rows' "$dir/out" || said "stand-ins are not judged: $(cat "$dir/out")"
code=0
study/validate "$T" --shared "$shared" --only llmf-48 --strict >"$dir/out" || code=$?
[ $code = 8 ] && grep -q 'nothing was tested' "$dir/out" || said "nothing tested: $code, $(cat "$dir/out")"
echo "validate: ok"

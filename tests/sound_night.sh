#!/bin/bash
# `trireme verify` on random layouts: what is not refused (exit 3) is sound (exit 0), never broken (exit 8). Stages by
# the dozen with many micro-batches, where a circle of waits needs many ranks to close.
set -u
trireme=${TRIREME:?the program to test}
LAYOUTS=${LAYOUTS:-2000}
RANDOM=${SEED:=$RANDOM}
echo "SEED=$SEED"
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
head -c 4096 /dev/zero | tr '\0' 'x' >"$dir/text.txt"
cat >"$dir/config.yaml" <<END
run: {dir: run}
model: {layers: 48, dim: 32, heads: 4, ffn_dim: 48, vocab: 257, context: 64}
data: {train: text.txt, tokenizer: bytes}
train: {steps: 2, seq: 16, global_batch: 16, micro_batch: 1}
kernels: {threads: 1}
END
sound=0 refused=0 failures=0

one_of() { # one_of NAME VALUE ...: a variable, for a subshell would have dice of its own
    local -n it=$1
    shift
    shift $((RANDOM % $#))
    it=$1
}
roll() { # the next layout, in `keys`
    local schedule dp tp cp arch tied recompute strict vpp zero sums sp heads
    one_of schedule 1f1b gpipe interleaved zb-h1 zb-h2 zb-v dualpipe dualpipe-v
    one_of dp 1 1 2
    one_of tp 1 1 2
    one_of cp 1 1 2
    one_of arch gpt2 llama
    one_of tied true false
    one_of recompute none selective full
    one_of strict false false true
    one_of vpp 2 3 4
    one_of zero 0 1 2 3
    one_of sums microbatch step
    one_of sp true false
    one_of heads 1 2
    local most=$((24 / (dp * tp * cp))) batch=$((1 + RANDOM % 48))
    local pp=$((2 + RANDOM % (most < 16 ? most - 1 : 15)))
    case $schedule in
        interleaved) batch=$((pp * (1 + RANDOM % 4))) ;;
        dualpipe) pp=$((pp + pp % 2)) batch=$((2 * pp + 2 * (RANDOM % 16))) ;;
        dualpipe-v) batch=$((2 * pp + RANDOM % 31)) ;;
    esac
    keys=("layout.pp=$pp" "layout.schedule=$schedule" "layout.dp=$dp" "layout.tp=$tp" "layout.cp=$cp" "model.arch=$arch"
        "model.tied=$tied" "train.global_batch=$((dp * batch))" "train.recompute=$recompute")
    [ "$schedule" != interleaved ] || keys+=("layout.vpp=$vpp")
    [ $((dp * cp)) = 1 ] || keys+=("layout.zero=$zero")
    [ $((dp * cp)) = 1 ] || [ "$zero" = 0 ] || keys+=("layout.zero_sums=$sums")
    [ "$tp" = 1 ] || keys+=("layout.sp=$sp")
    [ "$cp" = 1 ] || keys+=("layout.cp_heads=$heads")
    if $strict; then keys+=(determinism=strict "determinism.tp_shards=$tp" "determinism.cp_shards=$cp"); fi
}

for ((i = 0; i < LAYOUTS; i++)); do
    roll
    out=$("$trireme" verify "$dir/config.yaml" "${keys[@]}" 2>&1)
    case $? in
        0) sound=$((sound + 1)) ;;
        3) refused=$((refused + 1)) ;;
        *) failures=$((failures + 1)) && printf 'trireme verify %s:\n%s\n' "${keys[*]}" "$out" | head -5 ;;
    esac
done
echo "$sound sound, $refused refused, $failures broken"
[ $failures -eq 0 ] && [ $sound -ge $((LAYOUTS / 3)) ]

#!/bin/bash
# `trireme verify`, and what train does of it before it starts: sound layouts, schedules from a file that are
# broken in several ways, configurations of which no plan can be made.
set -u -o pipefail
. tests/support/named.sh

small="model.layers=4 model.dim=32 model.heads=2 model.ffn_dim=64 model.context=64 train.seq=32 eval.every=0
    train.global_batch=4 train.micro_batch=1 kernels.threads=1 schedule.warmup=0 train.steps=2"
code "init" 0 "$trireme" init "$dir/demo"
verify() { "$trireme" verify "$dir/demo/config.yaml" $small "$@"; }

# --- sound ---
code "one rank" 0 verify
says "it says so" out "^sound .* 1 rank, 4 sequences"
says "and what a rank needs" out "rank 0 +peak .* bytes"
code "dp and ZeRO" 0 verify layout.dp=2 layout.zero=1
code "pp, dp, strict" 0 verify layout.dp=2 layout.pp=2 determinism=strict
says "collectives are counted" out "[1-9][0-9]* collectives"
code "a ramp and an evaluation" 0 verify layout.dp=2 train.batch_ramp=0=2,10=4 train.steps=20 eval.every=1
says "each plan is proved" out "3 plans of each rank"
# Ranks with fewer micro-batches take part in the gathers of the others, which nothing of theirs reads.
seq 3000 >"$dir/text"
printf 'data: {train: text, tokenizer: bytes}\nmodel: {arch: llama, layers: 2, dim: 32, heads: 4, kv_heads: 2, ffn_dim: 48}\n' >"$dir/uneven.yaml"
for keys in "layout.dp=3 train.micro_batch=2" "layout.dp=5 train.micro_batch=1"; do
    code "uneven batches: $keys" 0 "$trireme" verify "$dir/uneven.yaml" train.seq=32 train.global_batch=8 layout.zero=3 determinism=strict $keys
done

code "tp, rows cut too" 0 verify layout.tp=2 layout.sp=yes
code "tp in strict order" 0 verify layout.tp=2 layout.dp=2 determinism=strict determinism.tp_shards=2
code "shards of tp on one rank" 0 verify determinism=strict determinism.tp_shards=2

code "cp, in shards of a sequence" 0 verify layout.cp=2 layout.dp=2 determinism=strict determinism.cp_shards=4
code "many ranks" 0 verify layout.dp=128 layout.pp=2 train.global_batch=256
says "a smaller dp stands for them" out "^by +dp 2 of the same layout"
says "of all ranks it says so" out "^sound .*256 ranks, 256 sequences"

# --- schedules from a file: two stages, four micro-batches ---
lists() { printf '%s\n' "$2" "$3" >"$dir/$1.txt"; }
of_file() { verify layout.pp=2 layout.schedule="$dir/$1.txt"; }
good="F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3"
lists good "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3" "$good"
lists circle "$good" "F0.0 F0.1 B0.0 B0.1 F0.2 B0.2 F0.3 B0.3"
lists missing "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2" "$good"
lists twice "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3" "$good B0.3"
lists early "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3" "B0.0 F0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3"
lists syntax "F0.x" "$good"
code "a sound file" 0 of_file good
code "ranks that wait for each other" 8 of_file circle
says "both are named" err "rank 0, action [0-9]+ .*micro-batch 0"
says "with what they do" err "waits for rank 1, action [0-9]+ \(send of gradients"
code "a backward that is missing" 8 of_file missing
says "and where" err "missing.txt:1: rank 0: the backward of chunk 0, micro-batch 3"
code "a backward that comes twice" 8 of_file twice
code "a backward before its forward" 8 of_file early
code "a file that cannot be read" 3 of_file syntax
code "help of the code" 0 "$trireme" help P001

# --- no plan can be made ---
code "more ranks than sequences" 3 verify layout.dp=7
code "a key that there is not" 3 verify layout.dq=2
code "a file that is not there" 4 "$trireme" verify "$dir/none.yaml"

# --- train does the same before it starts ---
train() { timeout 600 "$trireme" train "$dir/demo/config.yaml" $small layout.pp=2 run.dir="$dir/$1" layout.schedule="$dir/$1.txt"; }
code "train refuses it" 8 train circle
says "with the reason" err "wait for each other for ever"
if [ -e "$dir/circle/metrics.jsonl" ] && [ -s "$dir/circle/metrics.jsonl" ]; then failed "no step was taken"; else passed "no step was taken"; fi
code "and runs what is sound" 0 train good

[ $failures = 0 ]

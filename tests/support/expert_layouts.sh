# One digest over layouts of a small mixture of experts that differ in ep, etp, tp, dp, cp, pp, ZeRO,
# schedule, micro-batch and recomputation, and in whether experts move after each step. The caller sets `every`: which layouts of the table run.
. tests/support/named.sh
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="model.preset=moe-tiny model.layers=4 model.dim=32 model.heads=2 model.expert_ffn_dim=16 model.shared_experts=1 model.context=64
      model.dropout=0.1 train.seq=32 train.global_batch=8 train.steps=3 eval.every=0 checkpoint.every=0
      kernels.threads=1 schedule.name=constant schedule.warmup=1 schedule.min_ratio=0 optimizer.lr=1e-2
      determinism=strict model.router.bias_rate=0.01 moe.aux_loss=0.02 moe.z_loss=1e-3"
whole="layout.sp=yes layout.etp=1"
digest_of() { # KEY...
    rm -rf "$dir/one"
    timeout 600 "$trireme" train demo/config.yaml --quiet run.dir="$dir/one" $keys "$@" >"$dir/out" 2>"$dir/err" &&
        "$trireme" digest "$dir/one" 2>&1
}
# Compares layouts, one on a line, with one rank; both have the same keys of determinism.
layouts() { # KEYS
    local want n=0 line
    want=$(digest_of $1)
    while read -r line; do
        n=$((n + 1))
        [ $((n % every)) = 0 ] || continue
        same "$line" "$(digest_of $1 $line)" "$want"
    done
}
layouts determinism.tp_shards=2 <<TABLE
layout.dp=2
layout.dp=2 layout.ep=2
layout.dp=2 layout.ep=2 train.micro_batch=2
layout.dp=2 layout.ep=2 train.micro_batch=4
layout.dp=2 layout.ep=2 train.recompute=full
layout.dp=2 layout.ep=2 train.recompute=selective train.micro_batch=2
layout.dp=2 layout.ep=2 layout.zero=1
layout.dp=2 layout.ep=2 layout.zero=2
layout.dp=2 layout.ep=2 layout.zero=3 train.recompute=full
layout.dp=4 layout.ep=2
layout.dp=4 layout.ep=2 layout.zero=1 train.micro_batch=2
layout.dp=4 layout.ep=2 layout.zero=2
layout.dp=4 layout.ep=2 layout.zero=3 moe.rebalance=1
layout.dp=4 layout.ep=2 layout.zero=3
layout.dp=4 layout.ep=4
layout.dp=4 layout.ep=4 layout.zero=1
layout.dp=4 layout.ep=4 layout.zero=3 train.recompute=selective
layout.dp=8 layout.ep=2 layout.zero=1
layout.dp=8 layout.ep=4
layout.dp=8 layout.ep=8 layout.zero=2
layout.pp=2 train.micro_batch=2
layout.pp=2 layout.dp=2 layout.ep=2
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=gpipe layout.zero=1
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=interleaved
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=zb-h1
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=zb-h2 train.recompute=full
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=zb-v
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=dualpipe
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=dualpipe-v
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=dualpipe layout.zero=1
layout.pp=2 layout.dp=4 layout.ep=4 layout.zero=2
layout.pp=2 layout.dp=4 layout.ep=2 layout.zero=3
layout.pp=4 layout.dp=2 layout.ep=2
layout.tp=2 layout.ep=2 $whole
layout.tp=2 layout.ep=2 $whole train.micro_batch=4
layout.tp=2 layout.ep=2 $whole train.recompute=full
layout.tp=2 layout.ep=2 layout.dp=2 $whole
layout.tp=2 layout.ep=2 layout.dp=2 $whole layout.zero=1
layout.tp=2 layout.ep=2 layout.dp=4 $whole layout.zero=3
layout.tp=2 layout.ep=4 layout.dp=2 $whole
layout.tp=2 layout.ep=4 layout.dp=2 $whole layout.zero=2 train.micro_batch=2
layout.tp=2 layout.ep=8 layout.dp=4 $whole layout.zero=1
layout.tp=2 layout.ep=2 layout.pp=2 $whole
layout.tp=2 layout.ep=4 layout.pp=2 layout.dp=2 $whole layout.schedule=zb-h1
layout.tp=2 layout.ep=4 layout.pp=2 layout.dp=2 $whole layout.schedule=dualpipe-v
layout.dp=2 layout.ep=2 moe.rebalance=1 train.recompute=full
layout.dp=4 layout.ep=4 layout.zero=1 train.micro_batch=2 moe.rebalance=2
layout.dp=8 layout.ep=2 layout.zero=2 moe.rebalance=1
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=dualpipe moe.rebalance=1
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=zb-v layout.zero=1 moe.rebalance=1
layout.tp=2 layout.ep=2 layout.dp=2 $whole moe.rebalance=1
layout.tp=2 layout.ep=4 layout.dp=4 $whole layout.zero=3 moe.rebalance=1
TABLE
layouts "determinism.cp_shards=2" <<TABLE
layout.dp=2 layout.ep=2
layout.dp=2 layout.ep=2 layout.zero=3 train.micro_batch=1
layout.pp=2 layout.dp=4 layout.ep=4 layout.schedule=zb-h1
layout.cp=2
layout.cp=2 layout.dp=2
layout.cp=2 layout.ep=2
layout.cp=2 layout.dp=2 layout.ep=2 layout.zero=1
layout.cp=2 layout.dp=2 layout.ep=4 train.micro_batch=2
layout.cp=2 layout.dp=2 layout.ep=4 layout.zero=3
layout.cp=2 layout.pp=2 layout.ep=2 layout.schedule=1f1b
layout.cp=2 layout.dp=2 layout.ep=2 layout.zero=2 moe.rebalance=1
TABLE
layouts "determinism.cp_shards=4" <<TABLE
layout.cp=2 layout.dp=2 layout.ep=4
layout.cp=4 layout.dp=2 layout.ep=2 layout.zero=1
layout.dp=4 layout.ep=4 layout.zero=2 moe.rebalance=1
TABLE
# Experts that tp cuts, in sums of two terms.
layouts "determinism.tp_shards=2 determinism.etp_shards=2" <<TABLE
layout.tp=2
layout.dp=2 layout.ep=2 train.micro_batch=2
layout.tp=2 layout.dp=2 layout.ep=2 layout.sp=yes layout.zero=3
layout.tp=2 layout.sp=yes train.recompute=full
layout.tp=2 layout.etp=2 train.recompute=selective train.micro_batch=2
layout.tp=2 layout.dp=2 layout.zero=1
layout.tp=2 layout.dp=2 layout.ep=2
layout.tp=2 layout.dp=2 layout.ep=2 layout.zero=2
layout.tp=2 layout.dp=4 layout.ep=4 layout.zero=1
layout.tp=2 layout.pp=2 layout.schedule=zb-h1
layout.tp=2 layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=dualpipe-v
layout.tp=2 layout.pp=2 layout.sp=yes layout.zero=1 layout.dp=2
layout.tp=2 layout.dp=4 layout.ep=4 layout.zero=1 moe.rebalance=1
TABLE
# Random rounding follows an expert to its slot, and to its pieces.
layouts "determinism.tp_shards=2 determinism.etp_shards=2 precision.moments=bf16 optimizer.stochastic_rounding=yes" <<TABLE
layout.dp=4 layout.ep=2 layout.zero=3 moe.rebalance=1
layout.tp=2 layout.dp=2 layout.ep=2 layout.zero=1 moe.rebalance=1
layout.tp=2 layout.pp=2
TABLE
layouts "moe.dispatch=fp8" <<TABLE
layout.dp=2 layout.ep=2
layout.dp=4 layout.ep=2 layout.zero=2 train.recompute=full
layout.pp=2 layout.dp=2 layout.ep=2 layout.schedule=dualpipe-v
layout.dp=4 layout.ep=2 moe.rebalance=1
TABLE
# Fast order: one layout has one digest, wherever its experts are.
while read -r line; do
    same "$line, and experts that move" "$(digest_of determinism=fast $line moe.rebalance=1)" "$(digest_of determinism=fast $line)"
done <<TABLE
train.precision=bf16 layout.dp=2 layout.ep=2
train.precision=bf16 layout.dp=4 layout.ep=2 layout.zero=1
layout.dp=4 layout.ep=4 layout.zero=3
TABLE
layouts "moe.dispatch=bf16" <<TABLE
layout.dp=2 layout.ep=2 train.micro_batch=2
layout.dp=4 layout.ep=4 layout.zero=1
TABLE
[ $failures = 0 ]

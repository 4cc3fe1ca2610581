#!/bin/bash
# 1,000 steps in which most experts have no token, others from step to step, on four ranks that share them:
# no rank waits for ever, and the end is that of one rank. STEPS and TIMEOUT may be given.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
steps=${STEPS:-1000}
keys="model.preset=moe-tiny model.layers=2 model.dim=32 model.heads=2 model.experts=64 model.experts_per_token=1
      model.expert_ffn_dim=8 model.context=16 train.seq=4 train.global_batch=8 train.steps=$steps eval.every=0
      checkpoint.every=0 kernels.threads=1 determinism=strict optimizer.lr=3e-3 model.router.bias_rate=0.05"
train() { # NAME KEY...
    local name=$1
    shift
    timeout "${TIMEOUT:-1800}" "$trireme" train demo/config.yaml --quiet run.dir="$dir/$name" $keys "$@"
}
code "one rank" 0 train one
code "four ranks" 0 train four layout.dp=4 layout.ep=4
code "four ranks with pieces of the state" 0 train zero layout.dp=4 layout.ep=2 layout.zero=3
want=$("$trireme" digest one 2>&1)
same "the same digest" "$("$trireme" digest four 2>&1)" "$want"
same "and again" "$("$trireme" digest zero 2>&1)" "$want"
idle() { sed -n 's/.*"moe_idle_experts": \([0-9]*\).*/\1/p' four/metrics.jsonl; }
same "every step has idle experts" "$(idle | awk '$1 >= 32' | wc -l)" "$steps"
same "not always as many" "$([ "$(idle | sort -u | wc -l)" -gt 8 ] && echo yes)" yes
[ $failures = 0 ]

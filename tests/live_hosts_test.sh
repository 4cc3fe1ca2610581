#!/bin/bash
# resilience.mode=live with one launcher for each host, started torchrun's way: three on this machine, with a
# rank each. A killed rank is replaced. Then the launcher that leads is killed, with the first rank: the others
# make another one the leader and go on. The same command starts the killed one again: it comes back into the run,
# which ends with all three, and with the bits of one process.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
head -c 32 /dev/urandom >key
chmod 600 key
keys="model.layers=1 model.dim=32 model.heads=2 model.kv_heads=2 model.ffn_dim=64 train.seq=16 train.global_batch=6
      train.steps=${LIVE_STEPS:-200} determinism=strict checkpoint.every=100000 eval.every=0 log.every=10"
live="layout.dp=3 layout.zero=1 resilience.mode=live resilience.buddy.ranks=1 log.format=json"
"$trireme" init demo >/dev/null || exit 1
free_port
# launch INDEX COUNT COMMAND...: one launcher of COUNT; its output in launcher.INDEX
launch() {
    local index=$1 count=$2
    shift 2
    RANK=$index LOCAL_RANK=$index WORLD_SIZE=$count LOCAL_WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        TRIREME_KEY=key exec "$@" >>"launcher.$index" 2>&1
}
wait_step() { # until this step is in the metrics
    soon $! grep -q "\"step\": $1," run/metrics.jsonl
}

code "one process" 0 "$trireme" train demo run.dir="$dir/one" $keys
pids=()
for i in 0 1 2; do
    launch $i 3 "$trireme" train demo run.dir="$dir/run" $keys $live &
    pids+=($!)
done
wait_step 15
read -r rank process <run/logs/processes-1
kill -9 "$process"
wait_step 35
kill -9 "${pids[0]}"
launch 0 3 "$trireme" train demo run.dir="$dir/run" $keys $live &
pids[0]=$!
codes=
for i in 0 1 2; do
    wait "${pids[$i]}"
    codes+=" $?"
done 2>/dev/null
cat launcher.* >out
: >err
same "a rank and the leader are killed: exit codes" "$codes" " 0 0 0"
same "a rank and the leader are killed: the digest of one process" "$(digest run)" "$(digest one)"
says "the lost rank is told" run/metrics.jsonl "\"event\": \"lost\", \"rank\": $rank, \"epoch\": [0-9]+, \"ranks\": 3"
says "the lost launcher is told" run/metrics.jsonl '"epoch": [0-9]+, "ranks": [23].*host 0 of 3'
says "it comes back" run/logs/processes-0 '^0 '
same "the files by which launchers come back are gone after the run" "$(ls run | grep -c ^hosts)" 0
code "no host is missing" 4 "$trireme" train run --join
says "no host is missing: why" err 'run does not go on .* on several hosts of which one is missing'

free_port
refused() { (launch 1 2 "$@"); }
code "without copies in other ranks" 3 refused "$trireme" train demo run.dir="$dir/none" $keys layout.dp=2 resilience.mode=live
says "without copies in other ranks: why" launcher.1 'resilience.buddy.ranks=1'
code "ranks that cannot be divided" 3 refused "$trireme" train demo run.dir="$dir/none" $keys $live
says "ranks that cannot be divided: why" launcher.1 'torchrun started 2 processes, and the layout has 3 ranks'
[ $failures = 0 ]

#!/bin/bash
# Several processes train what one trains: started by `train` itself or torchrun's way, killed, stopped,
# continued by another number of them. Every digest must be that of one undisturbed process.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=6 train.steps=12 determinism=strict checkpoint.every=4 eval.every=0"
long="train.steps=600 checkpoint.every=10"
"$trireme" init demo >/dev/null || exit 1
train() { # NAME KEY...: with the standard ones
    local name=$1
    shift
    "$trireme" train demo run.dir="$dir/$name" $keys "$@"
}
start() { # the same beside this script: $launcher
    local name=$1
    shift
    : >out # under_way must not read the last run's
    "$trireme" train demo run.dir="$dir/$name" $keys "$@" >out 2>err &
    launcher=$!
}
under_way() {
    soon $launcher grep -q "^step\|^ckpt" out
}
wait_for() { # FILE: a run has begun to save
    soon $launcher compgen -G "$1" >/dev/null && return
    echo "nothing at $1" >"$dir/err"
    failed "$1"
}
last_rank() { # the child of the launcher that was started last
    processes "run.dir=$dir/" | sort -n | awk -v launcher="$launcher" '$2 == launcher { last = $1 } END { print last }'
}
none_of() { [ -z "$(processes "run.dir=$dir/$1 ")" ]; }
gone() { # NAME: no process of that run is left
    if soon $$ none_of "$1"; then passed "$1: no process is left"; return; fi
    processes "run.dir=$dir/$1 " >"$dir/err"
    failed "$1: no process is left"
}

code "one process" 0 train one
want=$(digest one)
code "two ranks" 0 train two layout.dp=2
same "two ranks: the digest of one" "$(digest two)" "$want"
code "three ranks, ZeRO-1" 0 train three layout.dp=3 layout.zero=1
same "three ranks: the digest of one" "$(digest three)" "$want"
code "two stages, two ranks each, ZeRO-1" 0 train four layout.pp=2 layout.dp=2 layout.zero=1
same "four ranks: the digest of one" "$(digest four)" "$want"
says "what the layout is" four/log.txt 'layout   dp 2 · pp 2 1f1b · zero 1'
# Many streams, each of which meets its peers' memory first when it comes to it.
code "one process, sums in halves" 0 train halves determinism.tp_shards=2
code "both directions, cut by tp" 0 train both determinism.tp_shards=2 layout.pp=2 layout.tp=2 layout.schedule=dualpipe
same "both directions: the digest of one" "$(digest both)" "$(digest halves)"
code "no such schedule" 3 train refused layout.pp=2 layout.schedule=zbh1
says "which there are" err 'none of gpipe, 1f1b'
for file in log.txt logs/rank-00000.log logs/rank-00002.log STATUS; do
    if [ -s "three/$file" ]; then passed "three ranks: $file"; else failed "three ranks: $file"; fi
done

# A long run that is stopped in different ways, each time continued by another layout.
code "straight" 0 train straight $long
straight=$(digest straight)
start killed $long layout.pp=2
wait_for "killed/checkpoints/step-*/manifest.json"
kill -9 "$(last_rank)"
wait $launcher
same "a rank is killed: exit code" "$?" 7
says "a rank is killed: which" err 'rank 1 \(.*\) died by signal 9'
gone killed
start killed $long layout.dp=2
under_way
victim=$(last_rank)
kill -STOP "$victim"
"$trireme" hang-report "$dir/killed" >report 2>&1
if grep -q "^rank 1 .* is alive" report; then passed "hang-report of a live run"; else failed "hang-report of a live run"; fi
soon $launcher grep -q "rank 1 .* is stopped" out
says "a rank stands still: the others say which" out 'rank 1 \(.*\) is stopped'
kill -9 "$victim"
wait $launcher
same "a rank stands still: exit code" "$?" 7
gone killed
code "hang-report of a dead run" 0 "$trireme" hang-report "$dir/killed"
says "it knows the last operations" out 'all_reduce #|barrier #'
start killed $long layout.dp=3 layout.zero=1
under_way
kill -TERM $launcher
wait $launcher
same "SIGTERM to the launcher: exit code" "$?" 75
says "SIGTERM: a checkpoint" out 'SIGTERM|stopped'
gone killed
start killed $long layout.pp=2 layout.dp=2 layout.zero=1
under_way
kill -9 $launcher
wait $launcher 2>/dev/null
gone killed
code "goes on as one process" 0 train killed $long
same "after three ends: the digest of none" "$(digest killed)" "$straight"

# torchrun's way: no launcher of ours.
head -c 32 /dev/urandom >key
chmod 600 key
as_rank() { # RANK NAME KEY...
    local rank=$1
    shift
    env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK="$rank" LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port TRIREME_KEY=key timeout 600 "$trireme" train demo run.dir="$dir/$1" $keys "${@:2}"
}
free_port
as_rank 1 torchrun layout.dp=2 >rank1 2>&1 &
other=$!
code "torchrun's variables, rank 0" 0 as_rank 0 torchrun layout.dp=2
wait $other
same "torchrun's variables, rank 1: exit code" "$?" 0
same "torchrun's variables: the digest of one" "$(digest torchrun)" "$want"
free_port
# Each plans for itself, and finds the same.
as_rank 1 planned layout=auto train.micro_batch=auto >rank1 2>&1 &
other=$!
code "a layout that is left open, rank 0" 0 as_rank 0 planned layout=auto train.micro_batch=auto
wait $other
same "rank 1: exit code" "$?" 0
same "the digest of one" "$(digest planned)" "$want"
free_port
code "ranks of ours get what was planned" 0 train asked layout.dp=2 train.micro_batch=auto
same "the digest is that of one, too" "$(digest asked)" "$want"
as_rank 1 refused layout.dp=2 optimizer.lr=0.5 >rank1 2>&1 &
other=$!
as_rank 0 refused layout.dp=2 >out 2>err
wait $other
same "a rank with another configuration: exit code" "$?" 3
if grep -q "optimizer.lr" rank1 out err; then passed "it is named"; else failed "it is named"; fi
chmod 644 key
code "a key that others may read" 76 as_rank 0 open layout.dp=2
[ $failures = 0 ]

#!/bin/bash
# Unusual surroundings and ends of a run: closed descriptors, small limits, a launcher's variables that are
# not complete, another key, SIGHUP, a second ^C, kills of one rank and of all. Each ends in time, says what it was, and
# leaves a STATUS that is true.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
small_run >c.yaml
train() { # NAME KEY...
    timeout 600 "$trireme" train c.yaml run.dir="$dir/$1" "${@:2}"
}
start() { # NAME KEY...: beside this script, until it takes steps (not awaited of RANK=1, nor of LONG=1 with a step of minutes); $run is its number
    "$trireme" train c.yaml run.dir="$dir/$1" train.steps=10000000 "${@:2}" >"$1.out" 2>"$1.err" </dev/null &
    run=$!
    if [ -n "${LONG-}" ]; then soon $run grep -q running "$1/STATUS"
    elif [ "${RANK-0}" = 0 ]; then soon $run test -s "$1/metrics.jsonl"
    fi
}
ended() { # NAME EXPECTED NUMBER: the exit code of a run that was started
    local got=0
    wait "$3" 2>/dev/null || got=$?
    cp "${1%%[ ,]*}.out" out && cp "${1%%[ ,]*}.err" err
    same "$1: exit code" "$got" "$2"
}
ranks_of() { # NAME [RANK]: process numbers of the ranks of a run
    local pid
    for pid in $(processes "run.dir=$dir/$1 " | awk '{ print $1 }'); do
        if tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -q "^TRIREME_LAUNCH=${2-}"; then echo "$pid"; fi
    done
}

# These wait for two seconds, so they run beside the others.
head -c 32 /dev/urandom >key0
head -c 32 /dev/urandom >key1
chmod 600 key0 key1
free_port
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TRIREME_KEY=key$rank \
        timeout 600 "$trireme" train c.yaml run.dir="$dir/keys" layout.dp=2 >key$rank.out 2>key$rank.err &
    keys[rank]=$!
done
: >out
: >err
for closed in '>&-' '<&- >&- 2>&-'; do
    eval 'train "closed$closed" layout.dp=2 '"$closed"
    same "$closed: exit code" "$?" 0
    if [ -d "closed$closed/checkpoints/step-0000002" ]; then passed "$closed: trained"; else failed "$closed: trained"; fi
done
code "ulimit -f" 4 bash -c 'ulimit -f 1000; exec "$@"' . "$trireme" train c.yaml run.dir="$dir/f" layout.dp=2
says "ulimit -f is named" err 'ulimit -f'
says "STATUS of a run that did not begin" f/STATUS '^failed 4 .*ulimit -f'
code "ulimit -n" 4 bash -c 'ulimit -n 16; exec "$@"' . timeout -s KILL 600 "$trireme" train c.yaml run.dir="$dir/n" layout.dp=4
says "ulimit -n is named" err 'ulimit -n'
code "ulimit -n, live" 4 bash -c 'ulimit -n 20; exec "$@"' . timeout -s KILL 600 "$trireme" train c.yaml run.dir="$dir/nl" layout.dp=2 resilience.mode=live
says "ulimit -n is named, live" err 'ulimit -n'
code "ulimit -s" 4 bash -c 'ulimit -s 256; exec "$@"' . "$trireme" train c.yaml run.dir="$dir/s"
says "ulimit -s is named" err 'ulimit -s'
code "train" 0 train over layout.dp=2
code "the same again, with a bad rank" 4 env TRIREME_CONSOLE= bash -c 'ulimit -n 16; exec "$@"' . timeout -s KILL 120 "$trireme" train c.yaml run.dir="$dir/over" layout.dp=2 train.steps=4
says "STATUS is no longer that of the first" over/STATUS '^failed 4 '
code "RANK without MASTER_ADDR" 3 env RANK=0 WORLD_SIZE=2 MASTER_PORT=29500 "$trireme" train c.yaml run.dir="$dir/t"
says "MASTER_ADDR is named" err 'MASTER_ADDR is not'
code "a launcher that is not read" 3 env FLUX_TASK_RANK=0 FLUX_JOB_SIZE=2 "$trireme" train c.yaml run.dir="$dir/t"
says "its variable is named" err 'FLUX_TASK_RANK'

start one
kill -HUP $run
ended one 75 $run
says "SIGHUP saves" one/STATUS '^stopped 75 SIGHUP in step'
start quit
kill -QUIT $run
ended quit 75 $run
says "SIGQUIT saves" quit/STATUS '^stopped 75 SIGQUIT in step'
for signal in USR2 XCPU; do # of batch systems
    start $signal
    kill -$signal $run
    ended $signal 75 $run
    says "SIG$signal saves" $signal/STATUS "^stopped 75 SIG$signal in step"
done
delivered() { ! signal_in ShdPnd $run 2; }
twice() { # in the middle of a step, so that the first one cannot end the run before the second comes
    kill -INT $run
    soon $run delivered
    kill -INT $run
}
LONG=1 start quits train.global_batch=1000000
twice
ended "quits, one rank" 130 $run
says "a second ^C" quits/STATUS '^failed 130 a second SIGINT'
start first layout.dp=2
kill -9 "$(ranks_of first 0)"
ended "first rank killed" 7 $run
says "its STATUS" first/STATUS '^failed 7 rank 0 .*died by signal 9'
LONG=1 start both layout.dp=2 train.global_batch=1000000
twice
ended "both ranks, a second ^C" 130 $run
says "its STATUS" both/STATUS '^failed 130 a second SIGINT'

start away layout.dp=2 resilience.mode=live
rm -rf away
kill -9 "$(ranks_of away post | tail -1)"
soon $run grep -q 'training continues' away.out # the epoch after the loss takes steps
kill -TERM $run
ended away 75 $run
says "a rank killed after its folder was removed" out 'training continues after step'

start frozen layout.dp=2
kill -STOP $(ranks_of frozen)
ended "frozen, all ranks stopped" 7 $run
says "its STATUS" frozen/STATUS '^failed 7 rank .* like every other rank, was stopped'
start hung layout.dp=2
reported() { grep -qE '#[0-9]+ (sum|none) of' hung/dumps/last-*; } # it is written twice a second
soon $run reported
kill -9 $run $(ranks_of hung)
wait $run 2>/dev/null
buried() { "$trireme" inspect hung | grep -q killed; }
soon $$ buried
code "inspect after a kill of all" 0 "$trireme" inspect hung
says "it knows that the run does not go on" out '^status .*killed: STATUS says running, but process [0-9]+ has ended'
code "hang-report after a kill of all" 0 "$trireme" hang-report hung
says "it has the last operations" out '^rank 1 .* [0-9]+ operations'
says "by their names" out '#[0-9]+ (sum|none) of'
cp key0 key1
free_port
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TRIREME_KEY=key$rank \
        start torchrun layout.dp=2
    [ $rank = 0 ] || other=$run
done
kill -9 $run
wait $run
ended torchrun 7 $other
says "torchrun, first rank killed: STATUS" torchrun/STATUS '^failed 7 rank 0 .* is dead'
free_port
for rank in 1 0; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TRIREME_KEY=key$rank \
        start still layout.dp=2
    [ $rank = 0 ] || other=$run
done
kill -STOP $run
ended still 7 $other
says "torchrun, first rank stopped: STATUS" still/STATUS '^failed 7 rank 0 '
kill -9 $run
wait $run
says "it stays" still/STATUS '^failed 7 rank 0 '
for rank in 0 1; do
    wait "${keys[rank]}"
    same "another key, rank $rank: exit code" "$?" 76
    cp key$rank.err err
    says "rank $rank says so" err 'rank 1 .* was refused.*key'
done
[ $failures = 0 ]

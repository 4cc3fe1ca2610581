#!/bin/bash
# What `bench comm` says of the way that was taken. The table of `bench comm --tune` from its making to a run that uses it and records it, and tables that say
# what cannot be.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
keys="model.layers=2 model.dim=64 model.heads=4 model.kv_heads=2 model.ffn_dim=128 train.seq=64
      train.global_batch=4 eval.every=0 determinism=strict train.steps=6"
"$trireme" init demo >/dev/null || exit 1
train() { "$trireme" train demo run.dir="$dir/$1" $keys "${@:2}"; }
in_run() { # NAME KEY VALUE: run.json has it
    if python3 -S -c 'import json,sys; sys.exit(json.load(open(sys.argv[1]))[sys.argv[2]] != sys.argv[3])' "$@"
    then passed "$1 records $2"; else cat "$1" >err; failed "$1 records $2"; fi
}
code "a measurement" 0 "$trireme" bench comm --ranks 2 --bytes 64KiB
says "it says what ran" out 'on this host over shm'
code "buffers of a rank's own" 0 "$trireme" bench comm --ranks 2 --bytes 64KiB --private
says "are a warning" out 'staged: the buffers are not in shared memory'
code "the same for programs" 0 "$trireme" bench comm --ranks 2 --bytes 64KiB --private --json
says "says both" out '"transport": "shm".*"staged": true'
code "messages one way" 0 "$trireme" bench comm --ranks 2 --op send --stream --bytes 8,256KiB --json
says "are sends" out '"op": "send", "ranks": 2, "bytes": 262144'
code "a stream of sums" 2 "$trireme" bench comm --ranks 2 --op all_reduce --stream --bytes 8
says "there is none" err '--stream is for --op send'
code "a table is written" 0 "$trireme" bench comm --ranks 2 --op all_reduce --bytes 8,64KiB --tune table
if grep -qE '^all_reduce 2 9223372036854775807 [a-z_]+$' table; then passed "up to any size"; else failed "up to any size"; fi
echo "barrier 2 0 dissemination" >>table
code "one rank" 0 train one
code "two ranks by the table" 0 train two layout.dp=2 comm.tuning=table
same "the digest of one" "$("$trireme" digest two)" "$("$trireme" digest one)"
says "the resolved configuration has it" two/config.resolved.yaml 'tuning: .*/table'
if command -v python3 >/dev/null; then
    in_run two/run.json comm_tuning "$(cat table)
"
    in_run two/run.json transport shm
fi
printf '# op ranks bytes algorithm\nall_reduce 2 64 fastest\n' >wrong
code "a table that names what is not there" 3 train refused layout.dp=2 comm.tuning=wrong
says "it says where" err 'line 2 .* no algorithm "fastest" of all_reduce'
code "a table for one rank" 3 train refused comm.tuning=table
says "it has no effect" err 'comm.tuning has no effect: layout.dp is 1'
code "no such table" 4 train refused layout.dp=2 comm.tuning=nowhere
[ $failures = 0 ]

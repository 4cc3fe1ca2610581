#!/bin/bash
# Thirty small training runs, each of which must end with the very digest that stands in tests/bits.txt.
#
# It is for changes that only move code: one that alters a single bit of a weight or of the optimizer, in any of
# these layouts, precisions, models and optimizers, fails here and names the runs. The digests may be recorded
# anew only where the arithmetic was changed on purpose; tests/bits.txt says when, and what its lines mean.
#
#   BITS_RECORD=1   writes the digests of this program into tests/bits.txt instead of comparing
#
# All runs had the same digests each time: 12 times on two cores, 9 times with three of these tests at once and 6
# times with all ranks on one core (EPYC with AVX-512, November 2026). In fast order too, which promises that much
# for the same layout: no sum waits for whoever comes first. So no run needed to be left out or eased.
set -u
. tests/support/named.sh
for flag in avx2 fma f16c; do
    grep -qw $flag /proc/cpuinfo || { echo "skipped: this processor has no $flag, which kernels.level=avx2 needs"; exit 77; }
done
table=$PWD/tests/bits.txt
record=${BITS_RECORD:-}
head -c 65536 share/text/kjv.txt >"$dir/text.txt" || exit 1
head -n 500 share/text/kjv.txt | sed -n 's/..*/{"text": "&"}/p' >"$dir/verses.jsonl" || exit 1
cd "$dir" || exit 1
: >config.yaml # the table gives every key

digest_of() { # KEY...: of a run with them, in $got
    rm -rf run
    timeout 600 "$trireme" train config.yaml run.dir=run "$@" >out 2>err </dev/null
    local rc=$?
    [ $rc = 0 ] || { echo "trireme train: exit $rc" >>err; return 1; }
    got=$("$trireme" digest run 2>err)
}

all=() runs=0 agree=0 changed=0
while IFS= read -r line; do
    read -ra words <<<"$line"
    case ${words[0]-} in
        '' | '#'*) echo "$line" >>recorded; continue ;;
        all) all=("${words[@]:1}"); echo "$line" >>recorded; continue ;;
    esac
    name=${words[0]} keys=("${words[@]:1}") expected="none is recorded"
    if [[ ${words[-1]} =~ ^[0-9a-f]{32}$ ]]; then
        expected=${words[-1]}
        unset 'keys[-1]'
    fi
    runs=$((runs + 1))
    if ! digest_of "${all[@]}" "${keys[@]}"; then
        failed "$name"
        continue
    fi
    echo "$name${keys[*]:+ ${keys[*]}} $got" >>recorded
    if [ "$got" = "$expected" ]; then
        agree=$((agree + 1))
        passed "$name"
    elif [ -n "$record" ]; then
        changed=$((changed + 1))
        echo "[ RECORDED ] $name: $got, before: $expected"
    else
        : >out
        printf '%s\n' "expected $expected" "got      $got" >err
        failed "$name"
    fi
done <"$table"

if [ -n "$record" ]; then
    [ $failures = 0 ] || { echo "$failures of $runs runs failed, nothing was recorded"; exit 1; }
    cat recorded >"$table" || exit 1
    echo "$runs digests are in tests/bits.txt, $changed of them new"
    exit 0
fi
echo "$agree of $runs runs agree"
[ $runs -gt 0 ] && [ $failures = 0 ]

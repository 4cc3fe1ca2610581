#!/usr/bin/env bash
# `trireme check` on every reference model in every layout of up to 8 ranks that fits it: all of tp 1, 2, 4, cp, pp
# and dp 1, 2 with each ZeRO stage; schedules, layout.sp and the ways of cp by turns. What does not fit (exit 3,
# too many stages or ranks for this model) is counted, not failed. PART=K/N: each Nth from the Kth on.
set -u
trireme=${TRIREME:?the program to test}
shared=${TRIREME_SHARED:-../shared}
[ -d "$shared/golden/models" ] || { echo "skipped: $shared/golden/models is not there"; exit 77; }
part=${PART:-0/1}
schedules=(1f1b gpipe zb-h1 zb-h2 zb-v dualpipe dualpipe-v interleaved)
failures=0 fits=0 refused=0 turn=0

agrees() { # agrees FOLDER key=value ...
    local out rc
    out=$("$trireme" check "$@" --json 2>&1) && { fits=$((fits + 1)); return; }
    rc=$?
    [ $rc -eq 3 ] && { refused=$((refused + 1)); return; }
    echo "trireme check $*: exit $rc"
    echo "$out" | tail -5
    failures=$((failures + 1))
}

layout() { # layout TP CP PP DP ZERO: its keys, in `keys`
    keys=("layout.tp=$1" "layout.cp=$2" "layout.pp=$3" "layout.dp=$4")
    if [ "$4" -gt 1 ]; then keys+=("layout.zero=$5"); fi
    if [ "$5" = 3 ] && [ $((turn / 4 % 2)) = 0 ]; then keys+=(layout.zero_sums=step); fi
    if [ "$1" -gt 1 ]; then keys+=("layout.sp=$([ $((turn % 2)) = 0 ] && echo true || echo false)"); fi
    if [ "$2" -gt 1 ]; then keys+=("layout.cp_heads=$((turn / 2 % 2 + 1))"); fi
    if [ "$3" -gt 1 ]; then
        local schedule=${schedules[turn % ${#schedules[@]}]}
        keys+=("layout.schedule=$schedule" train.micro_batch=1)
        [ "$schedule" = interleaved ] && keys+=(layout.vpp=2)
        # The models have two layers: two chunks a rank are halves of them, and other stages meet in a layer by turns.
        case $schedule in
            interleaved | *-v) keys+=(layout.stages=0.5,0.5,0.5,0.5) ;;
            *) [ $((turn / 8 % 2)) = 0 ] || keys+=(layout.stages=1.5,0.5) ;;
        esac
    fi
}

. tests/support/golden.sh
known=$(golden_models "$shared/golden/models") || exit 1
for folder in $known; do
    for tp in 1 2 4; do for cp in 1 2; do for pp in 1 2; do for dp in 1 2; do for zero in 0 1 2 3; do
        ranks=$((tp * cp * pp * dp))
        [ $((dp * cp)) -gt 1 ] || [ $zero -eq 0 ] || continue
        turn=$((turn + 1))
        [ $ranks -gt 1 ] && [ $ranks -le 8 ] || continue
        [ $((turn % ${part#*/})) -eq "${part%/*}" ] || continue
        layout $tp $cp $pp $dp $zero
        agrees "$folder" "${keys[@]}"
    done; done; done; done; done
    grep -q 'num_\(local_\)*experts' "$folder/config.json" || continue
    for keys in layout.ep=2 "layout.ep=2 layout.tp=2" "layout.ep=2 layout.pp=2" "layout.ep=4 layout.zero=1"; do
        agrees "$folder" $keys
    done
done
echo "$fits checks agree, $failures differ, $refused layouts do not fit their model"
exit $((failures > 0 || fits == 0))

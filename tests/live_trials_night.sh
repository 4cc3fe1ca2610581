#!/bin/bash
# Seeded trials of resilience.mode=live: a single fault of every kind at a random time, and pairs of faults, of which
# the second one often meets the recovery from the first. Each trial must end with the digest of the undisturbed run.
# TRIALS: single faults (1,000); PAIRS (500). A trial whose fault met no running rank is not counted.
# STOPS (500): a rank is stopped, and goes on after 0.05 to 2.5 s, before or after the others have given it up. FLIPS
# (2,000): a bit of one of three ranks changes, at each stage of ZeRO: of its weights or its moments (written into its
# memory), or of a gradient after it was summed (fault point). All of these must be found before the next commit and
# attributed to that rank. Or of the memory where a step has its gradients, at any time, which may have no effect, or
# be a part of the sum: that is only counted. PRODUCTS (200): a bit of a product of one of three ranks flips, before anything is summed
# over ranks. A flip that rounding could explain may change the weights unseen; one that is found leaves no trace.
# GRADIENTS (200): a bit of a rank's own gradient flips in a step or in a replay of it, and is named in each case.
# CALM (100,000; 34 at least): steps without a fault, over layouts and kinds of training, in which sdc.digests=1 must find nothing.
# Digests are of state, whatever a step computes it from: so these steps have few and short sequences, and cost 2 to 13 ms of CPU time.
# CALM_JOBS (4) runs are side by side, because ranks mostly wait for each other on a machine that does other things; CALM_KINDS names some.
set -u
shopt -s extglob
. tests/support/named.sh
python3 tests/support/reward_model.py "$dir/rm" || exit 1
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="model.layers=2 model.dim=32 model.heads=2 model.context=64 train.seq=32 train.global_batch=8 eval.every=0
      checkpoint.every=20 kernels.threads=1 determinism=strict train.steps=60"
experts="model.experts=8 model.experts_per_token=2 model.expert_ffn_dim=16 model.ffn_dim=0"
timeout 300 "$trireme" train demo/config.yaml run.dir="$dir/calm" $keys >/dev/null 2>&1 || exit 1
timeout 300 "$trireme" train demo/config.yaml run.dir="$dir/calm-experts" $keys $experts >/dev/null 2>&1 || exit 1
layouts=("layout.dp=2" "layout.dp=2 layout.zero=1" "layout.dp=3 resilience.spares=1"
         "layout.dp=2 layout.pp=2" "layout.dp=4 layout.zero=2 resilience.min_ranks=1"
         "layout.dp=2 layout.zero=3"
         "$experts layout.dp=4 layout.ep=2 layout.zero=1 moe.rebalance=3 resilience.buddy.ranks=2")
# Six kinds and seven layouts: each kind meets each layout.
kinds=(kill stop cut flip pause diskfull)
field() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" out; }
trial() { # NUMBER KINDS EVERY SECONDS
    local layout=${layouts[$(($1 % ${#layouts[@]}))]} calm=calm
    case $layout in *experts*) calm=calm-experts ;; esac
    rm -rf shaken
    timeout 300 "$trireme" chaos demo/config.yaml run.dir="$dir/shaken" $keys sdc.digests=1 resilience.mode=live $layout --faults "$2" \
        --every "$3" --seconds "$4" --seed "$1" --against $calm --json >out 2>err
    local code=$?
    if [ $code = 0 ] && [ "$(field faults)" = 0 ]; then empty=$((empty + 1)); return; fi
    counted=$((counted + 1))
    if [ $code = 0 ] && [ "$(field same)" = true ]; then good=$((good + 1)); return; fi
    # The disk may be full until the run's end: then its last save fails, and the run goes on when called again.
    if [ "$2" = diskfull ] && grep -q 'error.E001. cannot save step' shaken/chaos.log &&
        timeout 300 "$trireme" train shaken >out 2>err && [ "$(digest shaken)" = "$(digest "$calm")" ]; then
        good=$((good + 1)) && resumed=$((resumed + 1)) && return
    fi
    echo "replay: $layout --faults $2 --every $3 --seconds $4 --seed $1: exit $code"
    cat out err | cut -c1-300
    tail -5 shaken/chaos.log
}
# Lets stopped ranks of the run in $dir/shaken go on after SECONDS.
resume_after() {
    local pid
    while [ ! -e over ]; do
        for pid in $(awk '{ print $2 }' shaken/logs/processes 2>/dev/null); do
            case $(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null) in
            T) sleep "$1"; kill -CONT "$pid" 2>/dev/null ;;
            esac
        done
        sleep 0.02
    done
}
stopped() { # NUMBER
    rm -f over
    resume_after "$(awk -v n="$1" 'BEGIN { print 0.05 * 1.22 ^ (n % 20) }')" &
    trial "$1" stop "0.$((3 + $1 % 7))s" "0.$((3 + $1 % 7))s"
    touch over
    wait $!
}
declare -A flips # "KIND counted", "KIND good", "KIND found" and "KIND named"
of_flip() { flips["$1 $2"]=$((${flips["$1 $2"]:-0} + ${3:-1})); }
flip_kinds=(flip_weight flip_moment gradient flip_gradient)
sdc_events() { grep '"event": "sdc"' "$1/metrics.jsonl" | grep -vc '"verdict"'; } # RUN
flipped() { # NUMBER
    local kind=${flip_kinds[$(($1 % 4))]} rank=$(($1 / 4 % 3)) zero=$(($1 / 12 % 4)) code=0 events named_ all
    all="$keys sdc.digests=1 resilience.mode=live layout.dp=3 layout.zero=$zero"
    rm -rf shaken
    case $kind in
    flip_*)
        echo "0.$((3 + $1 % 6)) $kind $rank" >flip
        timeout 300 "$trireme" chaos demo/config.yaml run.dir="$dir/shaken" $all --schedule flip --seed "$1" --json >out 2>err || code=$?
        if [ $code = 0 ] && [ "$(field faults)" = 0 ]; then empty=$((empty + 1)); return; fi
        ;;
    gradient)
        TRIREME_FAULTS="train.gradient.$rank=$((1 + $1 * 677 % 800))" timeout 300 "$trireme" train demo/config.yaml \
            run.dir="$dir/shaken" $all >out 2>err || code=$?
        ;;
    esac
    events=$(sdc_events shaken)
    named_=$(grep '"event": "sdc"' shaken/metrics.jsonl | grep -v '"verdict"' | grep -c "\"rank\": $rank,")
    of_flip $kind counted
    of_flip $kind found $((events > 0))
    of_flip $kind named $((named_ > 0 && named_ == events))
    [ $code != 0 ] || [ "$(digest shaken)" != "$(digest calm)" ] || of_flip $kind good
    [ $kind != flip_gradient ] || return 0
    counted=$((counted + 1))
    if [ $code = 0 ] && [ "$(digest shaken)" = "$(digest calm)" ]; then good=$((good + 1)); return; fi
    echo "replay: $kind of rank $rank, layout.zero=$zero, number $1: exit $code"
    cat out err | cut -c1-300
}
product() { # NUMBER
    local rank=$(($1 % 3)) code=0
    rm -rf shaken
    TRIREME_FAULTS="kernels.product.$rank=$((20 + $1 * 677 % 2200))" timeout 300 "$trireme" train demo/config.yaml \
        run.dir="$dir/shaken" $keys sdc.abft=1 resilience.mode=live layout.dp=3 >out 2>err || code=$?
    counted=$((counted + 1))
    if [ $code = 0 ] && ! grep -q '"event": "sdc"' shaken/metrics.jsonl; then return; fi
    found=$((found + 1))
    named=$((named + $(grep -c "\"event\": \"sdc\", \"rank\": $rank,.*\"cause\": \"abft\"" shaken/metrics.jsonl)))
    if [ $code = 0 ] && [ "$(digest shaken)" = "$(digest calm)" ]; then good=$((good + 1)); return; fi
    echo "replay: a flip in product $((20 + $1 * 677 % 2200)) of rank $rank: exit $code"
    tail -q -n 3 out err
}
calms=("layout.dp=3" "layout.dp=2 layout.zero=1 train.precision=bf16" "layout.dp=2 layout.zero=2 train.freeze=layers.0.*"
       "layout.dp=3 layout.zero=3 train.precision=bf16" "layout.dp=2 layout.zero=1 optimizer.name=muon"
       "layout.dp=2 layout.zero=2 train.precision=fp8 model.context=128 train.seq=128 train.global_batch=2"
       "layout.dp=2 layout.pp=2 layout.schedule=interleaved model.layers=4 layout.zero=1"
       "layout.tp=2 layout.dp=2 determinism.tp_shards=2 layout.zero=3" "layout.cp=2 layout.dp=2 determinism.cp_shards=2 layout.zero=1"
       "$experts layout.dp=4 layout.ep=2 layout.zero=1 moe.rebalance=3 train.global_batch=8"
       "layout.dp=2 layout.zero=1 determinism=fast comm.compression.mode=topk comm.compression.warmup=1"
       "layout.dp=2 determinism=fast comm.compression.mode=onebit comm.compression.warmup=1"
       "adapter layout.dp=2 layout.zero=1" "adapter layout.dp=2 layout.zero=3 adapter.quantize=nf4" "adapter layout.pp=2"
       "reward layout.dp=2 layout.zero=1" "reward layout.dp=2 layout.zero=3")
quiet() { # NUMBER STEPS
    local layout=${calms[$1]} steps=$2 code=0 config=demo/config.yaml all begin=$SECONDS
    all="$keys train.seq=16 train.global_batch=4"
    case $layout in
    adapter*)
        all="${keys//model.*([a-z])=*([0-9])/} model.preset=null model.from=hf adapter.kind=lora adapter.rank=4
             train.seq=16 train.global_batch=4"
        layout=${layout#adapter }
        ;;
    reward*)
        config=reward.yaml all="determinism=strict kernels.threads=1"
        layout=${layout#reward }
        ;;
    esac
    timeout 20000 "$trireme" train $config run.dir="$dir/quiet-$1" $all checkpoint.every=0 sdc.digests=1 train.steps=$steps $layout \
        >quiet-$1.out 2>&1 || code=$?
    if [ $code = 0 ] && ! grep -q '"event": "sdc"' quiet-$1/metrics.jsonl && ! grep -q D005 quiet-$1.out; then
        echo "calm: $steps steps in $((SECONDS - begin)) s: ${calms[$1]}"
        echo $steps >quiet-$1.done
    else
        echo "a false alarm, or no run: $layout: exit $code"
        tail -n 3 quiet-$1.out
    fi
    rm -rf quiet-$1
}
quiets() { # STEPS
    local n at_once=0
    cat >reward.yaml <<END
model: {from: rm}
train: {objective: reward, seq: 24, global_batch: 14, precision: fp32}
data: {train: rm/train.jsonl, valid: 0}
eval: {every: 0}
optimizer: {lr: 1e-3, clip: 1}
END
    "$trireme" export calm hf >/dev/null || exit 1
    for n in ${CALM_KINDS:-${!calms[*]}}; do
        if [ $at_once -lt "${CALM_JOBS:-4}" ]; then at_once=$((at_once + 1)); else wait -n; fi
        quiet $n $((($1 + ${#calms[@]} - 1) / ${#calms[@]})) &
    done
    wait
    done_=$(cat quiet-*.done | awk '{ n += $1 } END { print n + 0 }')
    echo "calm: $done_ steps, no false alarm"
    [ -n "${CALM_KINDS:-}" ] || same "no false alarm in any layout" $((done_ >= $1)) 1
}
gradient() { # NUMBER
    local rank=$(($1 % 2)) code=0
    rm -rf shaken
    TRIREME_FAULTS="train.local.$rank=$((1 + $1 * 677 % 4000))" timeout 300 "$trireme" train demo/config.yaml \
        run.dir="$dir/shaken" $keys sdc.replay=100% resilience.mode=live layout.dp=2 >out 2>err || code=$?
    counted=$((counted + 1))
    # One of a replay alone has a line; one of the step undoes it, which leaves the event with the same words.
    grep '"event": "sdc"' shaken/metrics.jsonl | grep -v '"verdict": "agree"' >wrong
    found=$((found + $(grep -c . wrong)))
    named=$((named + $(grep -cE "\"rank\": $rank,.*(\"tensor\": .*\"verdict\": \"once\"|rank $rank computed a wrong gradient of [a-z_0-9.]+ once)" wrong)))
    if [ $code = 0 ] && [ "$(digest shaken)" = "$(digest calm)" ]; then good=$((good + 1)); return; fi
    echo "replay: a flip in gradient $((1 + $1 * 677 % 4000)) of rank $rank: exit $code"
    tail -3 out err
}
run() { # NAME COUNT
    local n
    good=0 counted=0 empty=0 found=0 named=0 resumed=0
    for n in $(seq "$2"); do
        if [ "$1" = stops ]; then
            stopped "$n"
        elif [ "$1" = flips ]; then
            flipped "$n"
        elif [ "$1" = products ]; then
            product "$n"
        elif [ "$1" = gradients ]; then
            gradient "$n"
        elif [ "$1" = single ]; then
            trial "$n" "${kinds[$((n % ${#kinds[@]}))]}" "0.$((3 + n % 7))s" "0.$((3 + n % 7))s"
        else
            trial "$n" kill,stop,cut "0.$((2 + n % 4))s" "0.$((2 * (2 + n % 4)))s"
        fi
        [ -z "${UNTIL:-}" ] || [ "$(date +%s)" -lt "$UNTIL" ] || break
    done
    echo "$1: $good of $counted without a trace; $empty met no rank; $resumed resumed after a full disk"
    [ "$1" != products ] || counted=$found # others may be rounding
    same "$1 faults leave no trace" "$good" "$counted"
}
[ "${CALM:-100000}" = 0 ] || quiets "${CALM:-100000}"
run single "${TRIALS:-1000}"
run pairs "${PAIRS:-500}"
run stops "${STOPS:-500}"
run flips "${FLIPS:-2000}"
for kind in ${flip_kinds[@]}; do
    seen() { echo "${flips["$kind $1"]:-0}"; }
    echo "flips: $kind: $(seen counted) trials, $(seen found) found, $(seen named) attributed to the right rank alone," \
         "$(seen good) without a trace"
done
run products "${PRODUCTS:-200}"
echo "products: $found found, $named attributed to the right rank"
same "no product of another rank is blamed" "$named" "$found"
run gradients "${GRADIENTS:-200}"
echo "gradients: $found of $counted found, $named attributed to the right rank"
same "each wrong gradient is named" "$named" "$counted"
export TRIREME_FAULTS="kernels.product.1=501,kernels.product.1=502"
code "a product that stays wrong" 0 "$trireme" train demo/config.yaml run.dir="$dir/stays" $keys sdc.abft=1 \
     resilience.mode=live layout.dp=3
says "is told with its rank" stays/metrics.jsonl '"event": "sdc", "rank": 1,.*also when computed again'
same "and undone with its step" "$(digest stays)" "$(digest calm)"
same "once, and the rank stays" "$(sdc_events stays)" 1
says "and its step is replayed" stays/metrics.jsonl '"verdict": "agree", "cause": "replay"'
unset TRIREME_FAULTS
[ $failures = 0 ]

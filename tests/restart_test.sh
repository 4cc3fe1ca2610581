#!/bin/bash
# resilience.mode=restart: ranks that are killed or stopped cost a moment and leave no trace in the weights,
# a launcher that is killed leaves the copies in memory to the next one, and a run without progress ends.
set -u
# With a /dev/shm of its own, where what is left can only be this test's.
if [ -z "${RESTART_APART:-}" ] && unshare -m mount -t tmpfs none /dev/shm 2>/dev/null; then
    RESTART_APART=1 exec unshare -m bash -c 'mount -t tmpfs none /dev/shm && exec bash "$0"' "$0"
fi
. tests/support/named.sh
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="model.layers=2 model.dim=32 model.heads=2 model.context=64 train.seq=32 train.global_batch=8 eval.every=40
      checkpoint.every=50 kernels.threads=1 determinism=strict train.steps=${RESTART_STEPS:-250}"
train() { timeout 600 "$trireme" train demo/config.yaml run.dir="$dir/$1" $keys "${@:2}"; }
chaos() { timeout 600 "$trireme" chaos demo/config.yaml run.dir="$dir/$1" $keys --against calm --json "${@:2}"; }
field() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" out; }
copies() { find /dev/shm -maxdepth 1 -name 'trireme-[0-9a-f]*' | wc -l; }

code "an undisturbed run" 0 train calm
code "ranks that are killed and stopped" 0 chaos shaken layout.dp=2 layout.zero=1 --faults kill,stop --every 0.5s \
     --seconds "${RESTART_SECONDS:-3}" --seed "${RESTART_SEED:-5}"
same "leave no trace" "$(field same)" true
# A fault while the ranks end because of another one is no further loss.
same "the losses are in the records" \
     "$(awk -v n="$(field losses)" -v most="$(field losses_expected)" 'BEGIN { print(n >= 1 && n <= most) }')" 1
code "the same command, when the run has ended" 0 chaos shaken layout.dp=2 layout.zero=1
same "counts no loss of before" "$(field losses)$(field steps)" 00
code "they are listed" 0 "$trireme" inspect shaken --faults
says "with their cause" out 'died by signal 9|was stopped'
code "one rank, ZeRO or not" 0 chaos alone --every 0.4s --seconds 1s
same "leaves no trace either" "$(field same)" true
code "a pipeline" 0 chaos stages layout.pp=2 --every 0.4s --seconds 1s
same "leaves none" "$(field same)" true
[ -z "${RESTART_SEED:-}" ] ||
    same "a pause is no loss" "$(chaos paused layout.dp=2 --faults pause --every 0.4s --seconds 1s >out; field losses)" 0
printf '0.5 flip\n' >flips
code "a flipped bit" 0 chaos flipped layout.dp=2 --schedule flips sdc.digests=1
same "is found and undone" "$(field same)" true
says "and told" flipped/metrics.jsonl '"event": "sdc".*D005'
says "and the step is replayed" flipped/metrics.jsonl '"event": "sdc", "rank": -?[0-9]+, "epoch": 1, "verdict": "agree", "cause": "replay"'
code "a flipped bit of a shard" 0 chaos shard layout.dp=2 layout.zero=3 --schedule flips sdc.digests=1
same "is undone, though no other rank has it" "$(field same)" true
says "and told with rank and tensor" shard/metrics.jsonl '"event": "sdc".* of rank [01] has changed since it was written'
TRIREME_FAULTS="train.gradient.1=150" code "a sum that two replicas do not share" 0 train unnamed layout.dp=2 sdc.digests=1 \
    resilience.mode=restart train.steps=20
code "its line in the list" 0 "$trireme" inspect unnamed --faults
says "has no rank" out '^ +[0-9]+  sdc +1 +-  '
says "is told without a rank, for no third one decides" unnamed/metrics.jsonl '"event": "sdc", "rank": -1,.*no majority'
printf '0.5 flip_weight\n' >lasting # a moment may forget it
code "without digests it" 8 chaos unseen layout.dp=2 --schedule lasting
same "changes the weights" "$(field same)" false
if [ -n "${RESTART_APART:-}" ]; then same "nothing is left in memory" "$(copies)" 0
else echo "[  SKIPPED ] nothing is left in memory: no file system of its own, which takes root"; fi

train orphan layout.dp=2 resilience.mode=restart >/dev/null 2>&1 &
until [ "$(cat orphan/metrics.jsonl 2>/dev/null | wc -l)" -ge 20 ]; do sleep 0.02; done
kill -9 $(processes "run.dir=$dir/orphan " | awk '{ print $1 }') && wait
until [ -z "$(processes "run.dir=$dir/orphan ")" ]; do sleep 0.02; done
code "a launcher that was killed" 0 train orphan layout.dp=2 resilience.mode=restart
says "leaves the newest step" out 'continued after step'
same "and no trace" "$("$trireme" digest orphan)" "$("$trireme" digest calm)"

code "ranks that live on, with spares" 0 chaos lived layout.dp=2 layout.zero=1 resilience.mode=live resilience.spares=2 \
     --faults kill,stop --every 0.5s --seconds 2s --seed "${RESTART_SEED:-5}"
same "leave no trace" "$(field same)" true
code "their losses are listed" 0 "$trireme" inspect lived --faults
says "with what took the place" lived/log.txt 'a spare takes the place|a new process takes the place'

# A spare is prepared before a loss, and reserves what a rank takes.
train spared layout.dp=2 layout.zero=1 resilience.mode=live resilience.spares=1 >spared.out 2>&1 &
run=$!
until { [ -s spared/logs/spares ] && [ -s spared/metrics.jsonl ]; } || ! kill -0 $run; do sleep 0.02; done
kill -9 "$(awk '$1 == 1 { print $2 }' spared/logs/processes)"
wait $run
same "a run with a prepared spare ends in order" $? 0
same "the spare had plans of both places, and the memory of a rank" \
     "$(sed -n '1s/process [0-9]* is ready: //p' spared/logs/spares)" \
     "plans of 2 places, $(sed -n 's/.*"arena_bytes": \([0-9]*\).*/\1/p' spared/run.json) bytes reserved"
same "neither rank made them after the loss" "$(grep -c '"lost".*"ready": 2,' spared/metrics.jsonl)" 1
same "and it left no trace" "$("$trireme" digest spared)" "$("$trireme" digest calm)"

# Spares that took a place or ended are started again. At night.
if [ -n "${RESTART_SEED:-}" ]; then
    train kept layout.dp=2 resilience.mode=live resilience.spares=1 train.steps=1000000 >kept.out 2>&1 &
    run=$!
    ready() { until [ "$(cat kept/logs/spares 2>/dev/null | grep -c 'is ready')" -ge "$1" ] || ! kill -0 $run; do sleep 0.05; done; }
    ready 1
    until [ -s kept/metrics.jsonl ] || ! kill -0 $run; do sleep 0.05; done
    kill -9 "$(awk '$1 == 1 { print $2 }' kept/logs/processes)"
    ready 2
    kill -9 "$(awk '{ n = $2 } END { print n }' kept/logs/spares)"
    ready 3
    same "a spare is started when one has a place, and when one has ended" "$(grep -c 'is ready' kept/logs/spares)" 3
    says "and its end is told" kept/logs/spares 'process [0-9]+, a spare, is not ready: died by signal 9'
    says "also to people" kept.out 'a spare, is not ready: died by signal 9'
    kill "$(processes "run.dir=$dir/kept " | awk '{ print $1 }' | sort -n | head -1)"
    wait $run
    same "the run goes on to its stop" $? 75
    TRIREME_FAULTS="kernels.product.1=501,kernels.product.1=502" code "products that stay wrong" 0 train products layout.dp=2 \
        resilience.mode=restart sdc.abft=yes train.steps=40
    same "name their rank, not one that saw it end" "$(grep -c '"event": "sdc", "rank": 1,' products/metrics.jsonl)" \
        "$(grep -cE '"event": "(sdc|lost)"' products/metrics.jsonl)"
    train given layout.dp=2 resilience.mode=restart >/dev/null 2>&1 &
    until [ "$(cat given/metrics.jsonl 2>/dev/null | wc -l)" -ge 20 ]; do sleep 0.02; done
    kill -9 $(processes "run.dir=$dir/given " | awk '{ print $1 }') && wait
    until [ -z "$(processes "run.dir=$dir/given ")" ]; do sleep 0.02; done
    printf 1 >given/memory/wrong # its ranks had blamed one, and it was killed before it read that
    printf '0.3 kill 0\n' >kills
    code "a loss after a launcher that was killed" 0 chaos given layout.dp=2 --schedule kills
    same "is not taken for wrong values" "$(grep -c '"event": "lost", "rank": 0,' given/metrics.jsonl)" \
        "$(grep -cE '"event": "(sdc|lost)"' given/metrics.jsonl)"
    says "and is told" given/metrics.jsonl '"event": "lost", "rank": 0,'
fi

# Four ranks, killed one by one, and three that join: 4, 3, 2, 1, 2, 4 ranks.
train sized layout.dp=4 resilience.mode=live resilience.min_ranks=1 >sized.out 2>&1 &
run=$!
later() { # until this many more steps have ended
    local until=$(($(grep -c loss sized/metrics.jsonl) + $1))
    while [ "$(grep -c loss sized/metrics.jsonl)" -lt "$until" ] && kill -0 $run; do sleep 0.05; done
}
until [ -s sized/metrics.jsonl ] || ! kill -0 $run; do sleep 0.05; done
left=4
for rank in 2 0 1; do
    later 2
    kill -9 "$(awk -v r=$rank '$1 == r { print $2 }' sized/logs/processes)"
    left=$((left - 1))
    until grep -q "\"ranks\": $left," sized/metrics.jsonl || ! kill -0 $run; do sleep 0.02; done
done
"$trireme" train sized --join >/dev/null 2>&1 &
until grep -q joined sized/metrics.jsonl || ! kill -0 $run; do sleep 0.05; done
"$trireme" train sized --join >/dev/null 2>&1 &
"$trireme" train sized --join >/dev/null 2>&1 &
wait $run
same "a run that shrinks and grows ends in order" $? 0
same "with four ranks again" "$(grep -c '"joined".*"ranks": 4,' sized/metrics.jsonl)" 1
same "and no trace" "$("$trireme" digest sized)" "$("$trireme" digest calm)"
wait
code "a run that has ended" 4 "$trireme" train sized --join
says "takes no rank" err 'no rank can join|does not go on'
code "too few ranks" 3 train refused layout.dp=2 resilience.mode=live resilience.min_ranks=3
says "are refused" err 'the layout has 2 ranks'

printf '0.4 cut\n0.8 diskfull\n' >cuts
chaos cut layout.dp=2 resilience.mode=live --schedule cuts >out 2>err
# The disk may be full until the run ends; then the same command goes on from its last checkpoint.
code "cut connections and a full disk" 0 train cut layout.dp=2 resilience.mode=live
same "leave no trace" "$("$trireme" digest cut)" "$("$trireme" digest calm)"

# A recorded step, computed again by one process in place of two.
code "steps are recorded" 0 train recorded layout.dp=2 layout.zero=1 train.steps=20 sdc.replay=0.1
code "a replay of one" 0 "$trireme" replay recorded --step 10 --rank 1
says "agrees" out 'rank 1: all [0-9]+ pieces of its state agree to the bit'
sed -i '/"rank": 1, "name": "m.embed/s/"hash": "..../"hash": "0000/' recorded/replay/step-0000010.jsonl
code "another bit" 8 "$trireme" replay recorded --step 10 --rank 1
says "is seen in its tensor" out '^m/embed'
code "the other rank" 0 "$trireme" replay recorded --step 10
code "experts that tp cuts, and that move" 0 train striped layout.tp=2 layout.etp=2 layout.dp=2 layout.ep=2 moe.rebalance=1 \
     determinism.tp_shards=2 determinism.etp_shards=2 model.experts=4 model.experts_per_token=2 model.expert_ffn_dim=32 train.steps=4 sdc.replay=0.5
says "their rows are recorded" striped/replay/step-0000004.jsonl '"stripe".*"expert_of": \[[0-9, ]+\], "hash"'
says "and have moved" striped/metrics.jsonl '"event": "rebalance", "experts": [1-9]'
code "and computed again" 0 "$trireme" replay striped --rank 1
code "a rank that is none" 2 "$trireme" replay recorded --rank 2
code "a step that was not recorded" 4 "$trireme" replay recorded --step 11
says "is refused with the remedy" err 'sdc.replay'

# Tiers: all checkpoints of the disk are damaged, so the run continues from the durable one.
code "a run with tiers" 0 train tiers train.steps=40 checkpoint.tiers="disk:20,durable:20:$dir/store"
for state in tiers/checkpoints/step-*/state*; do printf X | dd of="$state" bs=1 seek=70000 conv=notrunc 2>/dev/null; done
code "damaged on its disk" 8 "$trireme" inspect tiers/checkpoints/step-0000040 --verify
code "continues" 0 "$trireme" train tiers train.steps=41
says "from the durable tier" out 'continuing from .*store/step-0000040'
printf X | dd of="$(ls tiers/checkpoints/step-0000041*/state*)" bs=1 seek=70000 conv=notrunc 2>/dev/null
code "the newest of both" 0 "$trireme" train tiers train.steps=42
says "is in the durable tier, before older ones of the disk" out 'continuing from .*store/step-0000041'
code "a damaged checkpoint" 0 "$trireme" inspect tiers/checkpoints/step-0000040 --repair
says "is rebuilt" out 'is whole again'
code "and is whole" 0 "$trireme" inspect tiers/checkpoints/step-0000040 --verify
printf X | dd of="$(ls tiers/checkpoints/step-0000020/state*)" bs=1 seek=70001 conv=notrunc 2>/dev/null
rm -r store
code "without a source it is refused" 5 "$trireme" inspect tiers/checkpoints/step-0000020 --repair
says "by the name of the tensor" err 'no other checkpoint holds an intact [a-z]+/'
code "an interval that the run chooses" 0 train chosen checkpoint.every=auto train.steps=30
says "is told" out 'a checkpoint every [0-9]+ steps'
code "an unknown tier" 3 train refused checkpoint.tiers=tape:1
says "is refused by name" err 'no tier "tape"'
code "buddies that no process outlives" 3 train refused checkpoint.tiers=buddy:1 layout.dp=2
says "are refused by name" err 'buddy has an effect only with resilience.mode = live'

code "a key without its mode" 3 train refused resilience.buddy.every=2
says "is refused" err 'only to resilience.mode = restart'
code "digests of one rank" 3 train refused sdc.digests=1
says "are refused" err 'the run has one rank'
# A person or a scheduler ends it: the run does not go on without it.
chaos left layout.dp=2 train.steps=200000 --faults pause --every 90s --seconds 90s >/dev/null 2>&1 &
soon $! test -s left/metrics.jsonl
kill -TERM $(processes "chaos demo/config.yaml run.dir=$dir/left " | cut -d' ' -f1)
wait $!
soon $$ grep -q stopped left/STATUS
says "a chaos that is ended ends its run" left/STATUS '^stopped 75'

printf '0.2 explode\n' >plan
code "an unknown fault" 2 chaos refused --schedule plan
says "names those there are" err 'kill .ends a rank by SIGKILL., stop'
printf '1 kill 0\n0.5 kill\n' >plan
code "a schedule out of order" 2 chaos refused --schedule plan
says "names the line" err 'plan, line 2'
printf '1 kill 2\n' >plan
code "a rank that is none" 2 chaos refused layout.dp=2 --schedule plan
says "is named" err 'kill of rank 2; the run has 2 ranks'
code "a run that cannot start" 8 chaos calm layout.dp=2 determinism=fast
says "says why" err 'exit code 3: determinism.mode = fast'
[ $failures = 0 ]

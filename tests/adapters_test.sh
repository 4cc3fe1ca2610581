#!/bin/bash
# Several adapters over one base model in one job (adapter.files): each has the digest and the folder of PEFT of its
# own run, also after a stop; one base model in memory; refusals.
set -u
. tests/support/named.sh
trireme=$(realpath "$trireme")
cd "$dir" || exit 1
"$trireme" init demo >/dev/null || exit 1
keys="model.layers=2 model.dim=32 model.heads=4 model.kv_heads=2 model.ffn_dim=64"
code "a base model" 0 "$trireme" train demo --quiet run.dir="$dir/base" $keys train.seq=16 train.global_batch=2 train.steps=2 eval.every=0
code "as a folder" 0 "$trireme" export base hf
for i in 1 2 3 4; do for n in 1 2 3 4 5 6 7 8; do printf 'Sample %d of text %d, and some more words.\n' $n $i; done >"text$i.txt"; done
cat >many.yaml <<END
run: {dir: many}
model: {from: hf}
adapter: {files: [one.yaml, two.yaml, three.yaml, four.yaml]}
train: {steps: 3, seq: 16, global_batch: 4}
data: {valid: 0}
eval: {every: 0}
optimizer: {lr: 1e-2}
schedule: {name: constant, warmup: 0}
determinism: {mode: strict, tp_shards: 2, cp_shards: 2}
kernels: {threads: 1}
END
printf 'adapter: {kind: lora, rank: 4}\ndata: {train: text1.txt}\n' >one.yaml
printf 'adapter: {kind: rslora, rank: 2, alpha: 4, targets: [q_proj, mlp.*]}\ndata: {train: [text2.txt, text1.txt]}\n' >two.yaml
printf 'adapter: {kind: dora, rank: 3}\ndata: {train: text3.txt}\ntrain: {steps: 2}\n' >three.yaml
printf 'adapter: {kind: lora, rank: 8, dropout: 0.1}\ndata: {train: text4.txt}\noptimizer: {lr: 2e-2}\n' >four.yaml
code "four adapters" 0 "$trireme" train many.yaml
for name in one two three four; do says "$name has lines of its own" out "^$name  *done"; done
single() { # NAME: keys of the adapter over those of many.yaml
    python3 - "$1" <<'END'
import re, sys
own, common = open(sys.argv[1] + ".yaml").read(), open("many.yaml").read()
for section in ("adapter", "data", "train", "optimizer"):
    line = re.search(rf"^{section}: {{(.*)}}$", own, re.M)
    was = re.search(rf"^{section}: {{(.*)}}$", common, re.M).group(1)
    if section == "adapter":
        was = ""
    if line:
        names = set(re.findall(r"(\w+):", line.group(1)))
        was = ", ".join(p for p in was.split(", ") if p and p.split(":")[0] not in names)
        was = ", ".join(filter(None, [was, line.group(1)]))
    common = re.sub(rf"^{section}: .*$", f"{section}: {{{was}}}", common, flags=re.M)
open("single-" + sys.argv[1] + ".yaml", "w").write(common)
END
    "$trireme" train "single-$1.yaml" --quiet run.dir="$dir/single/$1"
}
most=0 sum=0
for name in one two three four; do
    code "$name alone" 0 single $name
    same "$name: the digest of its own run" "$(digest many/$name)" "$(digest single/$name)"
    code "$name as a folder of PEFT" 0 "$trireme" export many/$name peft-$name --adapter
    code "and of its own run" 0 "$trireme" export single/$name single-peft-$name --adapter
    if cmp -s peft-$name/adapter_model.safetensors single-peft-$name/adapter_model.safetensors; then passed "the same bytes"; else failed "the same bytes"; fi
    bytes=$(arena single/$name)
    sum=$((sum + bytes))
    [ "$bytes" -le "$most" ] || most=$bytes
done
all=$(arena many/one)
same "all have one arena" "$(arena many/four)" "$all"
if [ "$all" -gt "$most" ] && [ "$all" -lt $((sum / 2)) ]; then passed "the base model is in memory once"; else echo "$all, alone at most $most, together $sum" >>err; failed "the base model is in memory once"; fi
code "two steps" 0 "$trireme" train many.yaml --quiet run.dir="$dir/part" train.steps=2
code "and a third" 0 "$trireme" train many.yaml --quiet run.dir="$dir/part"
for name in one two four; do same "$name: goes on exactly" "$(digest part/$name)" "$(digest many/$name)"; done
"$trireme" train many.yaml --quiet run.dir="$dir/stopped" train.steps=1000000 >out 2>err &
pid=$!
soon $pid test -s stopped/four/metrics.jsonl
kill -TERM $pid
wait $pid
same "a signal stops all" $? 75
for name in one two three four; do
    newest=$(ls "stopped/$name/checkpoints" | tail -1)
    same "$name says after which step" "$(cat stopped/$name/STATUS)" "stopped 75 SIGTERM in step $((10#${newest#step-}))"
done
number=0
for layout in "layout.dp=2 layout.zero=3" layout.tp=2 layout.pp=2 "layout.dp=2 layout.zero=1" "layout.cp=2 layout.tp=2" "layout.cp=2 layout.zero=3"; do
    number=$((number + 1))
    [ -z "${TRIALS_PART:-}" ] || [ $number = 1 ] || continue
    code "four adapters, $layout" 0 "$trireme" train many.yaml --quiet run.dir="$dir/ranks$number" train.steps=2 $layout
    code "and a third step on one rank" 0 "$trireme" train many.yaml --quiet run.dir="$dir/ranks$number"
    for name in one two three four; do same "$name, $layout: the same digest" "$(digest ranks$number/$name)" "$(digest many/$name)"; done
done
code "one goes on alone" 0 "$trireme" train many/one --quiet train.steps=4
printf 'data: {train: text1.txt}\n' >plain.yaml
printf 'adapter: {kind: lora}\ndata: {train: text1.txt}\ntrain: {precision: bf16}\n' >narrow.yaml
refuses 3 "has another base model|holds it in another" "$trireme" train many.yaml --quiet run.dir="$dir/bad" adapter.files=one.yaml,narrow.yaml
refuses 3 "has no adapter" "$trireme" train many.yaml --quiet run.dir="$dir/bad" adapter.files=one.yaml,plain.yaml
refuses 3 "several adapters train on the CPU, without layout.mode" "$trireme" train many.yaml --quiet run.dir="$dir/bad" resilience.mode=restart
printf 'adapter: {kind: lora}\ndata: {train: text1.txt}\nlayout: {dp: 2}\n' >cut.yaml
refuses 3 "layout.dp is 1 for one and 2 for cut; all adapters have one layout" "$trireme" train many.yaml --quiet run.dir="$dir/bad" adapter.files=one.yaml,cut.yaml
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555 refuses 3 "starts the ranks, and several adapters" "$trireme" train many.yaml --quiet run.dir="$dir/bad" layout.dp=2
refuses 3 "two files are called one" "$trireme" train many.yaml --quiet run.dir="$dir/bad" adapter.files=one.yaml,one.yaml
refuses 3 "is read by .trireme train FILE. alone" "$trireme" verify many.yaml
[ $failures = 0 ]

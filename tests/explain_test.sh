#!/bin/bash
# `explain`: timelines, meshes and bytes as text that fits, a picture that is whole, and one rank's card.
set -u -o pipefail
. tests/support/named.sh
small="model.layers=8 model.dim=32 model.heads=4 model.ffn_dim=64 model.context=64 train.seq=32 train.micro_batch=1
    kernels.threads=1"
explain() { COLUMNS=80 "$trireme" explain "$dir/demo/config.yaml" $small "$@"; }
# fits NAME: no line of $dir/out is wider than 80
fits() { if python3 -S -c 'import sys; sys.exit(any(len(l.rstrip("\n")) > 80 for l in open(sys.argv[1], encoding="utf-8")))' "$dir/out"; then passed "$1"; else failed "$1"; fi; }

"$trireme" init "$dir/demo" >/dev/null

# --- published figures, equal times 4 stages, 8 micro-batches ---
code "zb-h2" 0 explain layout.pp=4 layout.schedule=zb-h2 train.global_batch=8 --equal
says "its list" out '^  pp 0    F0F1F2F3F4F5F6I0W0F7I1W1I2W2I3W3I4W4I5W5I6W6I7W7\.+$'
says "its bubble" out 'in equal times 11\.1%, 3 of 27 units$'
says "and what the optimizer's barrier costs" out 'without the optimizer.s barrier .*; 0\.0%: the barrier costs 3 units$'
says "2 P - 1 held" out 'held +at most 7 micro-batches'
code "zb-v" 0 explain layout.pp=4 layout.schedule=zb-v train.global_batch=8 --equal
says "no bubble but for the barrier" out 'in equal times 5\.9%, 3 of 51 units$'
says "which is the barrier's" out '; 0\.0%: the barrier costs 3 units$'
says "both chunks of a rank" out '^  1 +1 \+ 6 '
code "1f1b" 0 explain layout.pp=4 train.global_batch=8 --equal
says "(P - 1)(F + B) of it" out 'in equal times 27\.3%, 9 of 33 units$'
code "zb-h1" 0 explain layout.pp=4 layout.schedule=zb-h1 train.global_batch=8 --equal
says "a third of that" out 'in equal times 11\.1%, 3 of 27 units$'
code "dualpipe-v" 0 explain layout.pp=4 layout.schedule=dualpipe-v train.global_batch=10 --equal
says "as in its drawing" out 'in equal times 9\.1%, 6 of 66 units$'

# --- stages that meet in the middle of a layer ---
code "a layer on two stages" 0 explain layout.pp=2 layout.stages=4.5,3.5
says "its attention" out '^  0 +embed, 0-4\.attn '
says "and the rest of it" out '^  1 +4\.mlp-7, head '

# --- a schedule from a file, good and bad ---
code "lists are written" 0 explain layout.pp=4 layout.schedule=zb-h1 train.global_batch=8 --equal --lists "$dir/h1.txt"
grep '^  pp ' "$dir/out" >"$dir/drawn"
code "and read again" 0 explain layout.pp=4 layout.schedule="$dir/h1.txt" train.global_batch=8 --equal
same "as they were" "$(cat "$dir/drawn")" "$(grep '^  pp ' "$dir/out")"
printf 'F0.0 F0.1 B0.0 B0.1\nF0.0 B0.0 F0.1 B0.1\n' >"$dir/good.txt"
printf 'F0.0 B0.0 F0.1 B0.1\nF0.0 F0.1 B0.0 B0.1\n' >"$dir/circle.txt"
code "a schedule from a file" 0 explain layout.pp=2 layout.schedule="$dir/good.txt" train.global_batch=2
says "is drawn" out '^pipeline +.*good\.txt: 2 micro-batches'
code "one that waits for itself" 3 explain layout.pp=2 layout.schedule="$dir/circle.txt" train.global_batch=2
says "by line and rank" err 'circle\.txt:1: rank 0, action 2, B0\.0 waits for the gradient of 0\.0 from rank 1'
code "one that is not there" 3 explain layout.pp=2 layout.schedule="$dir/none.txt"
code "what a schedule cannot do" 3 explain layout.pp=4 layout.schedule=dualpipe train.global_batch=6
says "with the nearest that it can" err 'the nearest is 8'

# --- wide and long, in 80 columns and as a picture ---
for layout in "layout.dp=1" "layout.dp=4 layout.pp=8 layout.schedule=zb-h1" "layout.pp=2 layout.schedule=interleaved layout.vpp=4" \
    "layout.dp=64 layout.pp=8 layout.schedule=zb-v model.layers=16" "layout.dp=2 layout.tp=2 layout.pp=4 layout.schedule=dualpipe"; do
    code "explain $layout" 0 explain $layout train.global_batch=1024 --svg "$dir/picture.svg"
    fits "in 80 columns"
    if python3 - "$dir/picture.svg" >"$dir/err" 2>&1 <<'END'; then passed "the picture is whole"; else failed "the picture is whole"; fi
import sys
import xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
width, height = map(float, root.get("viewBox").split()[2:])
kind = lambda name: [e for e in root.iter() if e.tag.endswith("}" + name)]
boxes = [[float(b.get(k)) for k in ("x", "y", "width", "height")] for b in kind("rect") if b.get("x")]
assert len(boxes) > 10, len(boxes)
for x, y, w, h in boxes:
    assert w >= 0 and h > 0 and x >= 0 and y >= 0 and x + w <= width and y + h <= height, (x, y, w, h)
words = kind("text")
assert all(0 <= float(t.get("x")) <= width and 0 <= float(t.get("y")) <= height for t in words)
assert any(t.text == "Pipeline" for t in words)
END
done
code "dry run" 0 "$trireme" train "$dir/demo/config.yaml" $small --dry-run run.dir="$dir/dry"
planned=$(sed -n 's/^memory *\(.*\) planned.*/\1/p' "$dir/out")
code "explain of the same" 0 explain
same "together is what train plans" "$planned" "$(sed -n 's/^  0  .*  \([0-9.]* [KMG]iB\)$/\1/p' "$dir/out")"

# --- one rank's card ---
code "a card" 0 explain layout.dp=2 layout.pp=4 train.global_batch=16 layout.zero=1 --rank 5
says "where it is" out '^rank +5 of 8: pp 2, dp 1, cp 0, tp 0$'
says "its sequences" out '8 micro-batches of 1 x 32 tokens; sequences 8-15 of 16$'
says "whom it sends to" out '^  pp 2>3 +2 ranks: \[5\] 7; activations$'
says "how much" out '^  send +pp 2>3 +8 x +4\.00 KiB  micro-b\. 0-7 +activations$'
says "what it is summed with" out '^  dp +2 ranks: 4 \[5\];'
says "rows of its state" out '^  m\.layers\.4-5\.mlp\.gate_up +2 x fp32 +64 x 32 '
code "no such rank" 2 explain layout.dp=2 --rank 2
says "which there are" err 'ranks 0 to 1'
code "of 65,536" 0 "$trireme" explain "$dir/demo/config.yaml" model.preset=llama3.1-405b model.dropout=0 data.tokenizer=bytes \
    train.seq=8192 train.micro_batch=1 train.global_batch=65536 layout.pp=16 layout.dp=4096 --rank 41,237
says "its place" out '^rank +41,237 of 65,536: pp 10, dp 277, cp 0, tp 0$'
says "its neighbours" out '^  pp 10>11 +2 ranks: \[41,237\] 45,333;'

# --- a wide mesh stands beside the bytes, not under them ---
code "tp 8, dp 2" 0 explain model.heads=8 model.dim=64 layout.tp=8 layout.dp=2 layout.pp=4 train.global_batch=16 --svg "$dir/wide.svg"
if python3 - "$dir/wide.svg" 2>"$dir/err" <<'END'; then passed "its ranks"; else failed "its ranks"; fi
import sys, xml.etree.ElementTree as tree
boxes = [[float(b.get(k)) for k in ("x", "width")] for b in tree.parse(sys.argv[1]).getroot().iter() if b.tag.endswith("}rect") and b.get("rx") == "4.0"]
assert len(boxes) == 8 and all(x + w <= 700 for x, w in boxes), boxes
END

# --- claims: src/cli/claims_test.c checks each of them ---
code "claims" 0 env COLUMNS=80 "$trireme" explain claims
fits "80 columns of them"
says "a wrong one with the right figure" out '33\.6 years'
says "how many of each" out '^[0-9]* claims: [0-9]* match · [0-9]* only_if · [0-9]* wrong · [0-9]* no_public_basis$'
printf 'claim: It is free.\ncomputed: "${price} a year"\nlet: [price = 2 * 8760]\nmatch: price == 0\n' >"$dir/own.yaml"
code "one's own" 0 "$trireme" explain claims --json --more "$dir/own.yaml"
says "as JSON" out '"claim": "It is free\.", .*"computed": "\$17,520 a year", "verdict": "wrong"'
if python3 -m json.tool <"$dir/out" >/dev/null; then passed "that is JSON"; else failed "that is JSON"; fi
printf 'claim: a\ncomputed: "{1 / 0}"\nmatch: 1 == 1\n' >"$dir/own.yaml"
code "a formula without a value" 3 "$trireme" explain claims --more "$dir/own.yaml"
says "its place" err 'own\.yaml:1:8'
code "flags of the other" 2 "$trireme" explain claims --rank 1

# --- the catalogue ---
code "the catalogue" 0 env COLUMNS=80 "$trireme" explain catalog
fits "80 columns of it"
says "a cluster" out '^  llama3-24k +Meta'
says "a device" out '^  mi300x +AMD'
says "a run" out '^  llama3\.1-405b +Llama 3\.1 405B'
code "one cluster" 0 env COLUMNS=80 "$trireme" explain catalog h100
fits "80 columns of one"
says "dense and sparse" out '^ +fp8 +1978\.9 +3957\.8$'
says "one way and both, in bytes and bits" out '^  nvlink +8 nvlink4 +450\.0 +900\.0 +3600 +2\.0 +1$'
says "as sold and usable" out '80 GB as sold, 79\.1 GiB'
says "a source" out 'H100 data sheet'
says "what is assumed" out '^  assumed '
code "one that is held to less power" 0 env COLUMNS=80 "$trireme" explain catalog h100-96
says "less, and as sold" out '^power +limited to 500 W of 700$'
code "one without a switch" 0 env COLUMNS=80 "$trireme" explain catalog juwels-booster
says "what two devices have of the links" out '^ +no switch: 100\.0 GB/s from one to another$'
code "one run" 0 "$trireme" explain catalog gpt-4
says "what was only told of it" out '^reported +cluster\.devices=24960'
code "the profiles" 0 env COLUMNS=80 "$trireme" catalog profiles
fits "80 columns of them"
says "one of them" out '^  torchtitan +torchtitan on H100'
code "one profile" 0 env COLUMNS=80 "$trireme" catalog profiles torchtitan
fits "80 columns of its page"
says "a key with its meaning" out '^  launch: 8 +time to launch a kernel'
says "what it was fitted on" out '^fitted on torchtitan_2024_12_compiled'
code "one link" 0 "$trireme" catalog link nvlink4
says "in the units of its file" out '^  gbit_s: 200 '
code "one model" 0 "$trireme" catalog models deepseek-v3
says "what differs" out '^differs +the layer that predicts the token after the next'
code "no such profile" 3 "$trireme" catalog profiles megatrn
says "the nearest profile" err 'did you mean megatron'
code "every entry has a page" 0 bash -c '
    for kind in models runs devices links clusters profiles; do
        "$1" catalog $kind | sed -n "s/^  \([a-z0-9][^ ]*\) .*/\1/p" | while read -r name; do
            "$1" catalog $kind $name >"$2/page" || exit 1
            [ "$(wc -l <"$2/page")" -ge 3 ] || { echo "$kind $name is short"; exit 1; }
        done || exit 1
    done' pages "$trireme" "$dir"

# --- a run on a cluster ---
code "a cluster that is not here" 0 explain --cluster h100 layout.tp=2 layout.pp=4 layout.dp=2 --svg "$dir/cluster.svg"
says "what a step takes there" out '^step +.*tok/s.*MFU'
says "the picture is named" out '^picture .*cluster\.svg'
says "the assumption is named" out "^assumes +Trireme was never measured on this device"
code "it is whole" 0 python3 -c 'import sys, xml.dom.minidom as m
words = [t.firstChild.data for t in m.parse(sys.argv[1]).getElementsByTagName("text")]
missing = [w for w in ("Step", "Memory", "Communication", "pp 3", "tp", "nvlink, 450 GB/s", "gradients of weights") if w not in words]
sys.exit("missing: " + ", ".join(missing) if missing else 0)' "$dir/cluster.svg"
code "a run of the catalogue" 0 "$trireme" explain deepseek-v3 --svg "$dir/v3.svg"
says "has its cluster" out '^cluster +deepseek-h800, 2,048 devices'
code "no card there" 2 explain --cluster h100 --rank 0
says "why" err 'without --cluster'
code "no such cluster" 3 explain --cluster h1000

code "no such entry" 3 "$trireme" explain catalog h1000
says "the nearest" err 'did you mean h100'
[ $failures = 0 ]

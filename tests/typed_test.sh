#!/bin/bash
# What people type: files of Windows editors (byte order mark, CR LF, UTF-16), ~ and $NAME in paths, and names
# that a printed command must quote.
set -u
. tests/support/named.sh
cd "$dir" || exit 1
{ small_run; echo "run: {dir: r}"; } >c.yaml
code "train" 0 "$trireme" train c.yaml --quiet
mark() { printf '\xef\xbb\xbf'; sed 's/$/\r/'; }
wide() { printf '\xff\xfe'; iconv -f utf-8 -t utf-16le; }

# ---- files of Windows editors
files() { # WHAT
    printf 'layout.dp=8 layout.tp=1\nlayout.dp=4 layout.tp=2\n' | "$1" >layouts
    printf '0.1 kill 1\n' | "$1" >schedule
    printf '{{ messages[0].content }}{%% generation %%}{{ messages[1].content }}{%% endgeneration %%}' | "$1" >template.jinja
    printf 'about: mine\nbase: h100\n' | "$1" >cluster.yaml
}
files mark
code "plan --layouts, marked" 0 "$trireme" plan llama3-8b --cluster cluster.yaml cluster.devices=8 --layouts layouts
code "chaos --schedule, marked" 0 "$trireme" chaos c.yaml --schedule schedule run.dir=f layout.dp=2 train.steps=60
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n' >chat.jsonl
code "data.template, marked" 0 "$trireme" data show c.yaml run.dir=s train.objective=sft data.train=chat.jsonl data.template=template.jinja
if grep -q $'\xef\xbb\xbf' out; then failed "its mark is no token"; else passed "its mark is no token"; fi
printf 'hello' | mark >input
same "tokenizer encode, marked" "$("$trireme" tokenizer encode -t bytes <input)" "104 101 108 108 111 13"
printf '{"text":"a"}\n' | mark >input
code "tokenizer encode --jsonl, marked" 0 bash -c '"$1" tokenizer encode -t bytes --jsonl <input' . "$trireme"
files wide
refuses 3 'layouts: UTF-16 text; convert it: iconv' "$trireme" plan llama3-8b --cluster h100 cluster.devices=8 --layouts layouts
refuses 3 'schedule: UTF-16 text' "$trireme" chaos c.yaml --schedule schedule run.dir=g layout.dp=2
refuses 3 'cluster.yaml: UTF-16 text' "$trireme" plan llama3-8b --cluster ./cluster.yaml cluster.devices=8

# ---- ~ and variables
mkdir home && export HOME=$dir/home
printf 'about: mine\nbase: h100\n' >home/base.yaml
printf 'about: mine\nbase: ~/base.yaml\n' >cluster.yaml
code "base: ~/base.yaml" 0 "$trireme" catalog ./cluster.yaml
printf '{"context": "a", "choices": ["b", "c"], "gold": 0}\n' >home/items.jsonl
printf 'name: x\nkind: multiple_choice\ndata: ~/items.jsonl\n' >home/task.yaml
code "--task=~/task.yaml" 0 "$trireme" eval r --task='~/task.yaml'
refuses 4 'home/none' "$trireme" serve r --port 0 --adapters 'a=~/none'
refuses 3 'run.dir = .HOME/x: variables of the environment' "$trireme" train c.yaml 'run.dir=$HOME/x'
refuses 3 'variables of the environment are not expanded' "$trireme" train c.yaml 'data.train=a.txt,/x/${USER}/b.txt'
code "a tier's folder, ~" 0 "$trireme" train c.yaml run.dir=t checkpoint.tiers='disk:1,durable:1:~/store' --quiet
code "is in the home folder" 0 ls home/store/step-0000002/manifest.json
refuses 3 'checkpoint.tiers: .HOME/store: variables' "$trireme" train c.yaml run.dir=t checkpoint.tiers='disk:1,durable:1:$HOME/store'
refuses 2 'variables of the environment' "$trireme" init '$HOME/demo'
refuses 2 'variables of the environment' "$trireme" data pack text.txt --tokenizer bytes --out '/x/run-$SLURM_JOB_ID'
code "a dollar that names no variable" 0 "$trireme" data pack text.txt --tokenizer bytes --out 'do$lar'

# ---- flags together, and lines of Python
refuses 4 'resume missing: no checkpoint' "$trireme" train c.yaml --dry-run --resume missing
refuses 2 'join takes the running job' "$trireme" train r --join --dry-run
code "--dry-run --quiet" 0 "$trireme" train c.yaml run.dir=z --dry-run --quiet
same "prints nothing" "lines $(wc -l <out)" "lines 0"
printf '{"context": "a", "choices": ["b", "c"], "gold": 0}\n{"x": NaN, "m": {"a": 1, "a": 2}, "context": "a", "choices": ["b", "c"], "gold": 0}\n' >home/items.jsonl
code "members that no template reads" 0 "$trireme" eval r --task home/task.yaml
printf '{"context": "a", "choices": ["b", "c"], "gold": 0}\n{"x": NaN, "context": "a", "choices": ["b", "\\ud83d"], "gold": 0}\n' >home/items.jsonl
refuses 5 'items.jsonl:2:[0-9]+: ' "$trireme" eval r --task home/task.yaml

# ---- printed commands
mkdir 'a,b [c]'
code "data pack" 0 "$trireme" data pack text.txt --tokenizer bytes --out 'a,b [c]/o=1'
line=$(sed -n 's/^next *trireme train CONFIG/"$trireme" train c.yaml run.dir=p --quiet/p' out)
code "its next command" 0 eval "$line"
same "it reads what was packed" "$("$trireme" digest p)" "$("$trireme" digest r)"
[ $failures = 0 ]

#!/usr/bin/env bash
# What people meet at the command line around checkpoints and a second start: files that changed, runs that are done.
set -u
. tests/support/check.sh

for i in $(seq 300); do echo "the oar and the ship went out by night $i and the crew sang of salt and wind"; done >text.txt
cat >c.yaml <<END
run: {dir: r}
train: {steps: 2, seq: 16, global_batch: 2}
model: {layers: 1, dim: 8, heads: 1, ffn_dim: 8}
data: {train: text.txt, tokenizer: bytes, valid: 0}
eval: {every: 0}
kernels: {threads: 1}
END

# ---- a run that is done says so
check 0 -- train c.yaml
grep -q 'loss nan' out && { echo "a loss of nan"; failures=$((failures + 1)); }
check 0 'this run has all its 2 steps; nothing was trained' 'train.steps=4' -- train c.yaml optimizer.lr=1e-3
grep -q 'loss nan' out && { echo "a loss of nan"; failures=$((failures + 1)); }
check 0 '"event": "done"' -- train c.yaml log.format=json
check 0 'continued after step 2' 'has all its 2 steps' -- train c.yaml --dry-run
check 0 'the remaining 3 steps' -- train c.yaml --dry-run train.steps=5
check 0 '(new)' 'the whole run of 2 steps' -- train c.yaml --dry-run --fresh

# ---- settings that are rarely meant, each with its key; a dry run tells the length of the run
long=(train.steps=20000 train.global_batch=64 schedule.warmup=30000)
check 0 'schedule.warmup = 30000 is longer' '(epochs)' 'the whole run of 20000 steps' -- train c.yaml run.dir=dry "${long[@]}" --dry-run
check 0 'kernels.threads = 9 is more threads' 'optimizer.lr than 10' -- train c.yaml run.dir=high train.steps=12 optimizer.lr=10 kernels.threads=9
same "the first line" "$(head -1 out | cut -d' ' -f1)" trireme
check 3 'train.steps and train.tokens' -- train c.yaml run.dir=tokens train.steps=3 train.tokens=100
check 0 'target   4 steps' -- train c.yaml run.dir=tokens train.tokens=100
check 0 'target   8 steps' -- train c.yaml run.dir=epochs train.epochs=0.01

# ---- anew, in a folder of its own; the earlier run is kept
check 0 'kept in' '(new)' -- train c.yaml run.dir=high train.steps=2 --fresh
check 0 '(new)' -- train high --fresh train.steps=3
same "both earlier runs" "$(cat high.before-1/STATUS high.before-2/STATUS)" "done 0
done 0"
same "the given text" "$(cat high/config.yaml)" "$(cat c.yaml)"
check 2 '--resume none' -- train high --fresh --resume none
mkdir -p mine && cp text.txt mine
check 2 'holds no run' -- train c.yaml run.dir=mine --fresh

# ---- nothing of a checkpoint is used before its checksum is compared
last=r/checkpoints/step-0000002
for file in config.json config.resolved.yaml; do
    cp "$last/$file" kept && sed -i 's/1/2/' "$last/$file"
    check 5 "$file" checksum -- eval r --data text.txt
    check 5 "$file" checksum -- generate r --prompt a --max-tokens 1
    check 5 "$file" checksum -- export r exported
    check 5 "$file" checksum -- train c.yaml run.dir=other model.layers=0 model.dim=0 model.heads=0 model.ffn_dim=0 model.from=$last
    cp kept "$last/$file"
done

# ---- a tokenizer that changed since is not the model's
check 0 -- export r exported
check 0 -- train c.yaml run.dir=bpe data.tokenizer=exported/tokenizer.json
check 0 -- eval bpe --data text.txt --limit 100
sed -i 's/"a": 97/"a": 98/; s/"b": 98/"b": 97/' exported/tokenizer.json
check 5 'tokenizer.json has changed' -- eval bpe --data text.txt
check 5 'tokenizer.json has changed' -- generate bpe --prompt a --max-tokens 1
check 5 'tokenizer.json has changed' -- export bpe exported2
check 0 -- eval bpe --data text.txt --limit 100 --tokenizer bytes

# ---- a manifest that is lost
rm "$last/manifest.json"
check 5 'lost its manifest.json' 'state-00000-of-00001.safetensors can be read' '--resume none' -- train c.yaml
check 5 'lost its manifest.json' -- eval r --data text.txt
check 5 'lost its manifest.json' -- generate "$last" --prompt a
[ -e "$last/state-00000-of-00001.safetensors" ] || { echo "its state is gone"; failures=$((failures + 1)); }

[ $failures = 0 ]

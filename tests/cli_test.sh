#!/bin/bash
# The program as people use it: init, train, stop, continue, digest, generate, check, mistakes.
set -u -o pipefail
. tests/support/named.sh
shared=${TRIREME_SHARED:-../shared}

small="model.layers=2 model.dim=32 model.heads=2 model.ffn_dim=64 model.context=64 train.seq=32
    train.global_batch=4 train.micro_batch=2 schedule.name=constant schedule.min_ratio=0 schedule.warmup=0
    eval.every=0 checkpoint.every=0 kernels.threads=1 determinism=strict log.every=5"
train() { "$trireme" train "$dir/demo/config.yaml" $small "$@"; }

code "init" 0 "$trireme" init "$dir/demo"
says "init names the next command" out "trireme train $dir/demo/config.yaml"

# --- training, and the same in two parts ---
code "train" 0 train train.steps=20 run.dir="$dir/straight"
says "train: last step" out "^step +20/20 "
says "train: next command" out "trireme generate"
if tr -d '\n' <"$dir/out" | grep -q $'\r'; then failed "no carriage return in a log"; else passed "no carriage return in a log"; fi
same "metrics of every step" "$(sed -n 's/^{"step": \([0-9]*\),.*/\1/p' "$dir/straight/metrics.jsonl" | tr '\n' ' ')" "$(seq -s' ' 1 20) "
same "STATUS" "$(cat "$dir/straight/STATUS")" "done 0"
says "log.txt" straight/log.txt "^step +20/20 "
says "logs/rank-00000.log has times" straight/logs/rank-00000.log "^20..-.*Z step +20/20 "
code "train, first part" 0 train train.steps=9 run.dir="$dir/parts" train.micro_batch=1
code "train, second part" 0 "$trireme" train "$dir/parts" train.steps=20 train.micro_batch=4
says "it was continued" out "continued after step 9"
code "digest" 0 "$trireme" digest "$dir/straight"
straight=$(cat "$dir/out")
says "digest is 32 digits" out '^[0-9a-f]{32}$'
same "one digest, straight or in parts" "$straight" "$("$trireme" digest "$dir/parts")"
same "of a checkpoint too" "$straight" "$("$trireme" digest "$dir/parts/checkpoints/step-0000020")"
code "train again: nothing left to do" 0 train train.steps=20 run.dir="$dir/straight"
same "which changes nothing" "$straight" "$("$trireme" digest "$dir/straight")"
code "dry run" 0 train --dry-run train.steps=20 run.dir="$dir/dry"
if [ -e "$dir/dry/run.json" ]; then failed "a dry run leaves no run"; else passed "a dry run leaves no run"; fi
code "quiet" 0 train --quiet train.steps=2 run.dir="$dir/quiet"
same "quiet prints nothing" "[$(cat "$dir/out" "$dir/err")]" "[]"
code "log as JSON" 0 train train.steps=5 run.dir="$dir/json" log.format=json
if python3 -S -c 'import json,sys; [json.loads(l) for l in open(sys.argv[1])]' "$dir/out"; then passed "each line is JSON"; else failed "each line is JSON"; fi

# --- a terminal has one line more, which is written again and again ---
terminal() { # terminal TERM: the output of a short run on a terminal of this kind
    TERM=$1 COLUMNS=70 python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$trireme" train \
        "$dir/demo/config.yaml" $small train.steps=30 run.dir="$dir/terminal-$1" </dev/null
}
terminal xterm >"$dir/out" 2>"$dir/err"
if grep -q $'\r\\[[#-]' "$dir/out"; then passed "a live line"; else failed "a live line"; fi
same "none of it in log.txt" "$(grep -c $'\r' "$dir/terminal-xterm/log.txt")" 0
terminal dumb >"$dir/out" 2>"$dir/err"
if grep -q $'\r\\[[#-]' "$dir/out"; then failed "no live line with TERM=dumb"; else passed "no live line with TERM=dumb"; fi

# --- signals ---
# stopped NAME SIGNALS: starts a long run, sends the signals when it has taken a step
stopped() {
    # Not through train(): the signal is for the program, not for a shell between.
    "$trireme" train "$dir/demo/config.yaml" $small train.steps=100000 run.dir="$dir/$1" \
        >"$dir/out" 2>"$dir/err" &
    local pid=$! got=0
    soon $pid grep -q '"step": 2' "$dir/$1/metrics.jsonl"
    shift
    for signal; do kill -s "$signal" "$pid" 2>/dev/null; done
    wait "$pid" || got=$?
    echo $got
}
for signal in INT TERM USR1; do
    same "$signal stops with 75" "$(stopped "$signal" $signal)" 75
    says "$signal: STATUS" "$signal/STATUS" "^stopped 75"
    same "$signal: last line of the log is JSON" \
        "$(tail -1 "$dir/$signal/log.txt" | python3 -S -c 'import json,sys; print(json.load(sys.stdin)["code"])')" T001
done
steps=$("$trireme" digest "$dir/INT" >/dev/null && sed -n 's/.*after step \([0-9]*\)).*/\1/p' <("$trireme" train "$dir/INT" train.steps=100000 train.max_time=1s 2>/dev/null | head -2))
if [ -n "$steps" ] && [ "$steps" -ge 2 ]; then passed "continues after a signal"; else failed "continues after a signal"; fi

# --- one writer ---
"$trireme" train "$dir/demo/config.yaml" $small train.steps=100000 run.dir="$dir/held" >/dev/null 2>&1 &
holder=$!
soon $holder test -s "$dir/held/metrics.jsonl"
code "a second writer is refused" 4 train train.steps=100000 run.dir="$dir/held"
says "and told who holds it" err "$holder"
kill -KILL $holder
wait $holder 2>/dev/null
code "a dead one's lock is taken over" 75 train train.steps=100000 run.dir="$dir/held" train.max_time=1s

# --- what was learned ---
code "generate" 0 "$trireme" generate "$dir/straight" --prompt "In the" --max-tokens 20 --seed 3
says "generate begins with the prompt" out "^In the"
code "generate as JSON" 0 "$trireme" generate "$dir/straight" --prompt ab --max-tokens 5 --seed 3 --json
same "five ids" "$(python3 -S -c 'import json,sys; print(len(json.load(open(sys.argv[1]))["tokens"]))' "$dir/out")" 5
same "same seed, same text" "$("$trireme" generate "$dir/straight" --prompt a --seed 5 | cksum)" "$("$trireme" generate "$dir/straight" --prompt a --seed 5 | cksum)"
code "no room" 2 "$trireme" generate "$dir/straight" --prompt a --max-tokens 1000
says "says how much there is" err "context is 64"

# --- mistakes ---
code "unknown command" 2 "$trireme" tarin
code "unknown flag" 2 "$trireme" train --stpes 3 x
says "did you mean" err "did you mean train.steps"
code "no argument" 2 "$trireme" train
code "no such file" 4 "$trireme" train "$dir/none.yaml"
printf 'train: {stpes: 3}\noptimiser: {lr: 1}\n' >"$dir/wrong.yaml"
code "wrong configuration" 3 "$trireme" train "$dir/wrong.yaml"
says "first error" err 'wrong.yaml:1:9 .*train.steps'
says "second error" err 'wrong.yaml:2:13 .*optimizer.lr'
code "no such schedule" 3 train layout.pp=2 layout.schedule=zb-h9 run.dir="$dir/none"
says "those that are there" err 'is none of gpipe, 1f1b'
code "stale weights" 3 train layout.pp=2 layout.schedule=pipedream run.dir="$dir/none"
says "why not" err 'updates weights while'
code "a fixed key" 3 train train.steps=20 run.dir="$dir/straight" train.seed=7
code "does not fit" 3 train train.steps=20 run.dir="$dir/large" memory.limit=100KiB
says "where the bytes go" err "activations"
printf '{"format": "trireme-checkpoint-1"}' >"$dir/parts/checkpoints/step-0000020/manifest.json"
code "a damaged checkpoint" 5 "$trireme" digest "$dir/parts"

# --- the rest ---
code "bench" 0 "$trireme" bench step --model tiny --batch 1 --seq 16 --steps 1 --json
same "its first fields" "$(python3 -S -c 'import json,sys; print(*list(json.load(open(sys.argv[1])))[:7])' "$dir/out")" \
    "tokens_per_s step_s flops peak_flops mfu peak_bytes rss_bytes"
"$trireme" help --completion bash >"$dir/out"
if bash -n "$dir/out"; then passed "the completion is a script"; else failed "the completion is a script"; fi
if [ -d "$shared/golden/models" ]; then
    code "check" 0 "$trireme" check "$shared/golden/models/gpt2" --json
    says "its fields" out '^\{"ok": true, "worst": \{"logits": [^,]*, "loss": [^,]*, "grad": [^,]*, "losses": [^,]*, "grad_norm": [^,]*, "final": [^,]*\}, "generation_equal": true\}$'
    cp -r "$shared/golden/models/gpt2" "$dir/off"
    sed -i 's/"loss": [0-9.]*/"loss": 6.4/' "$dir/off/golden.json"
    code "check: no" 8 "$trireme" check "$dir/off"
else
    echo "skipped: check, no $shared/golden"
fi
[ $failures = 0 ]

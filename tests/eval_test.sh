#!/bin/bash
# `eval` as people use it: the loss that training printed, the same bits for any batch, every form of
# data, choosing endings, mistakes.
set -u -o pipefail
. tests/support/named.sh
get() { python3 -S -c 'import json, sys; r = json.load(open(sys.argv[1])); print(*[repr(r[k]) for k in sys.argv[2:]])' "$dir/out" "$@"; }
ask() { # ask NAME EXPRESSION: of the JSON in $dir/out, as `r`
    if python3 -S -c 'import json, math, sys
r = json.load(open(sys.argv[1]))
assert eval("(" + sys.argv[2] + ")"), r' "$dir/out" "$2" 2>>"$dir/err"; then passed "$1"; else failed "$1"; fi
}

# --- a run, and the loss it printed ---
code "init" 0 "$trireme" init "$dir/demo"
head -c 20000 "$dir/demo/text.txt" >"$dir/some.txt"
head -c 2100 "$dir/some.txt" >"$dir/valid.txt" # 2,101 tokens with the end: 65 sequences of 32, and a rest
train() {
    "$trireme" train "$dir/demo/config.yaml" model.layers=2 model.dim=32 model.heads=2 model.ffn_dim=64 \
        model.context=64 train.seq=32 train.global_batch=5 train.micro_batch=5 train.steps=8 \
        data.tokenizer=bytes data.train="$dir/some.txt" data.valid="$dir/valid.txt" eval.every=8 eval.batches=13 \
        kernels.threads=1 determinism=strict "$@"
}
for packing in masked plain; do
    code "train, $packing" 0 train run.dir="$dir/$packing" data.packing=$packing
    printed=$(python3 -S -c 'import json, sys
print(repr([r["val_loss"] for r in map(json.loads, open(sys.argv[1])) if r.get("val_loss") is not None][-1]))' \
        "$dir/$packing/metrics.jsonl")
    code "eval, $packing" 0 "$trireme" eval "$dir/$packing" --data "$dir/valid.txt" --limit 2080 --json
    ask "the loss that training printed: $printed" "'%.9g' % r['loss'] == '%.9g' % $printed"
    ask "its other names" 'r["perplexity"] == math.exp(r["loss"]) and r["tokens"] == 2080 and r["bytes"] == 2080 and
        abs(r["bits_per_byte"] - r["loss"] / math.log(2)) < 1e-12 and r["documents"] == 1 and r["seq"] == 32'
done
run=$dir/masked

# --- the same bits, whatever is at once ---
code "all of it" 0 "$trireme" eval "$run" --data "$dir/valid.txt" --json
ask "every token but the first" 'r["tokens"] == 2100 and r["bytes"] == 2099' # and the end-of-text token
all=$(get loss bits_per_byte)
for batch in 1 3 7 100; do
    code "batch of $batch" 0 "$trireme" eval "$run" --data "$dir/valid.txt" --json --batch $batch --threads 2
    same "batch of $batch, same bits" "$(get loss bits_per_byte)" "$all"
done
code "overlap" 0 "$trireme" eval "$run" --data "$dir/valid.txt" --json --seq 32 --stride 8
ask "overlap, as many tokens" 'r["tokens"] == 2100 and r["stride"] == 8'
code "longer windows" 0 "$trireme" eval "$run" --data "$dir/valid.txt" --json --seq 64

# --- forms of data ---
gzip -k "$dir/valid.txt"
code "gzip" 0 "$trireme" eval "$run" --data "$dir/valid.txt.gz" --json
same "gzip, same bits" "$(get loss bits_per_byte)" "$all"
python3 -S -c 'import json, sys; print(json.dumps({"text": open(sys.argv[1]).read()}))' "$dir/valid.txt" >"$dir/valid.jsonl"
code "JSON lines" 0 "$trireme" eval "$run" --data "$dir/valid.jsonl" --json
same "JSON lines, same bits" "$(get loss bits_per_byte)" "$all"
code "pack" 0 "$trireme" data pack "$dir/valid.txt" --tokenizer bytes --out "$dir/packed"
code "tokens" 0 "$trireme" eval "$run" --data "$(ls "$dir"/packed/*.tok)" --json
same "tokens, same bits" "$(get loss bits_per_byte)" "$all"
code "two files" 0 "$trireme" eval "$run" --data "$dir/valid.txt" "$dir/valid.jsonl" --json
ask "two files, two documents" 'r["documents"] == 2 and r["tokens"] == 4200'
code "two files, each with its flag" 0 "$trireme" eval "$run" --data "$dir/valid.txt" --data "$dir/valid.jsonl" --json
ask "the same" 'r["documents"] == 2 and r["tokens"] == 4200'
code "as lines" 0 "$trireme" eval "$run" --data "$dir/valid.txt"
says "loss" out "^loss +[0-9.]+ nats"
says "perplexity" out "^perplexity +[0-9.]+"

# --- endings ---
cat >"$dir/h.jsonl" <<'H'
{"ctx": "And the", "endings": ["king said", "qzx", "@@@@", "1 2 3 4"], "label": 0}
{"ctx": "They went to", "endings": ["\u0001\u0002", "the house", "XXXXXXXX", "%%"], "label": "1"}
H
code "hellaswag" 0 "$trireme" eval "$run" --task hellaswag --data "$dir/h.jsonl" --json
ask "its fields" '0 <= r["accuracy"] <= 1 and 0 <= r["accuracy_norm"] <= 1 and r["count"] == 2 and "stderr" in r'
code "hellaswag, as lines" 0 "$trireme" eval "$run" --task hellaswag --data "$dir/h.jsonl" --batch 3
says "accuracy" out "^accuracy +[01]"

# --- an interrupt ---
for i in $(seq 200); do cat "$dir/some.txt"; done >"$dir/long.txt"
"$trireme" eval "$run" --data "$dir/long.txt" --batch 1 --json >"$dir/out" 2>"$dir/err" &
pid=$!
soon $pid signal_in SigCgt $pid 15
kill -TERM $pid
wait $pid
same "a signal ends it as it does others" $? 143
says "and says so" err "^stopped +after [0-9]+ tokens"
same "no result" "[$(cat "$dir/out")]" "[]"

# --- mistakes ---
code "no data" 2 "$trireme" eval "$run"
code "no such file" 4 "$trireme" eval "$run" --data "$dir/none.txt"
printf '\x04\x22\x4d\x18' >"$dir/none.txt.lz4"
code "not a kind of data" 3 "$trireme" eval "$run" --data "$dir/none.txt.lz4"
code "a stride that leaves out tokens" 2 "$trireme" eval "$run" --data "$dir/valid.txt" --seq 8 --stride 9
code "beyond the context" 3 "$trireme" eval "$run" --data "$dir/valid.txt" --seq 65
printf x >"$dir/x.txt"
code "one token, its end" 0 "$trireme" eval "$run" --data "$dir/x.txt" --json
: >"$dir/empty.txt"
code "nothing to predict" 5 "$trireme" eval "$run" --data "$dir/empty.txt"
printf '{"text": "salt and wind"}\n{"text": 5}\n' >"$dir/bad.jsonl"
code "a line without a text" 5 "$trireme" eval "$run" --data "$dir/bad.jsonl"
code "is left out" 0 "$trireme" eval "$run" --data "$dir/bad.jsonl" --on-error skip
says "and told" out '^skipped +1 line without a text$'
code "no such task" 2 "$trireme" eval "$run" --task mmlu --data "$dir/x.txt"
code "not the task's form" 5 "$trireme" eval "$run" --task hellaswag --data "$dir/valid.txt"
exit $((failures > 0))

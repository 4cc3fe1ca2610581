#!/bin/bash
# `generate` as people use it: many prompts, stop texts, ends, JSON, characters torn between tokens,
# interrupts, mistakes. On the reference models, whose tokens are bytes here.
set -u -o pipefail
. tests/support/named.sh
shared=${TRIREME_SHARED:-../shared}
models=$shared/golden/models
[ -d "$models" ] || { echo "skipped: $models is not there"; exit 77; }
# ask NAME EXPRESSION: of the JSON lines in $dir/out, as `r`
ask() {
    if python3 -S -c 'import json, sys
r = [json.loads(l) for l in open(sys.argv[1], encoding="utf-8")]
assert eval(sys.argv[2]), r' "$dir/out" "$2" 2>>"$dir/err"; then passed "$1"; else failed "$1"; fi
}
gpt2=$models/gpt2
llama=$models/llama_gqa
generate() { "$trireme" generate "$@" --tokenizer bytes --threads 1; }

# --- one prompt ---
code "one prompt" 0 generate "$llama" --prompt hello --max-tokens 12 --seed 1 --json
if python3 -m json.tool <"$dir/out" >/dev/null; then passed "valid JSON"; else failed "valid JSON"; fi
ask "what it says" 'set(r[0]) >= {"prompt", "text", "tokens", "finish", "tokens_per_s"} and r[0]["prompt"] == "hello"'
ask "twelve tokens" 'len(r[0]["tokens"]) == 12 and r[0]["finish"] == "length"'
alone=$(python3 -S -c 'import json,sys; print(json.load(open(sys.argv[1]))["tokens"])' "$dir/out")
code "as text" 0 generate "$llama" --prompt hello --max-tokens 12 --seed 1
same "begins with the prompt" "$(head -c 5 "$dir/out")" hello

# --- many ---
for i in $(seq 11); do echo "prompt number $i"; done >"$dir/prompts.txt"
sed -i '4s/.*/hello/; 6s/$/\r/; 9s/.*//' "$dir/prompts.txt" # one known, a carriage return, an empty line
many() { generate "$llama" --prompts "$dir/prompts.txt" --max-tokens 12 --seed 1 --json --strict "$@"; }
tokens() { python3 -S -c 'import json,sys; [print(r["prompt"], r["tokens"]) for r in map(json.loads, open(sys.argv[1]))]' "$dir/out"; }
code "a file of prompts" 0 many --batch 1
ask "ten prompts" 'len(r) == 10 and r[5]["prompt"] == "prompt number 6"'
single=$(tokens)
same "the draws that it has alone" "$(grep ^hello <<<"$single")" "hello $alone"
for batch in 2 3 5 16; do
    code "batch of $batch" 0 many --batch $batch
    same "batch of $batch, same tokens" "$(tokens)" "$single"
done
code "a cache in pages, too few for all" 0 many --batch 5 --cache 96
same "the same tokens" "$(tokens)" "$single"
code "two threads" 0 "$trireme" generate "$llama" --tokenizer bytes --threads 2 --prompts "$dir/prompts.txt" \
    --max-tokens 12 --seed 1 --json --strict --precision fp32
same "two threads, same tokens" "$(tokens)" "$single"
tac "$dir/prompts.txt" >"$dir/turned.txt"
code "another order" 0 generate "$llama" --prompts "$dir/turned.txt" --max-tokens 12 --seed 1 --json --strict --batch 3
same "another order, same tokens" "$(tokens | tac)" "$single"
printf '{"prompt": "hello", "note": 1}\n{"prompt": "caf\\u00e9\\n"}\n' >"$dir/prompts.jsonl"
code "JSON lines" 0 generate "$llama" --prompts "$dir/prompts.jsonl" --max-tokens 3 --seed 1 --json
ask "a prompt with a line end" 'r[1]["prompt"] == "café\n" and len(r) == 2'
cp "$dir/prompts.jsonl" "$dir/prompts.other"
code "JSON lines by their first line" 0 generate "$llama" --prompts "$dir/prompts.other" --max-tokens 3 --seed 1 --json
ask "as well" 'r[1]["prompt"] == "café\n"'
"$trireme" generate "$llama" --tokenizer bytes --prompts - --max-tokens 2 --seed 1 --json <"$dir/prompts.txt" >"$dir/out" 2>"$dir/err"
ask "from standard input" 'len(r) == 10'

# --- ends ---
code "greedy" 0 generate "$gpt2" --prompt "ab" --max-tokens 30 --temperature 0 --json
ask "JSON is UTF-8 however the tokens tear" 'len(r[0]["tokens"]) > 0'
read -r stop before < <(python3 - "$dir/out" <<'P'
import json, sys
r = json.load(open(sys.argv[1]))
data = bytes(t for t in r["tokens"] if t < 256)
for n in range(4, len(data)):  # a stop text of two printable bytes, with a letter before it
    if all(0x21 <= b < 0x7f and b not in b"\\'\"" for b in data[n:n + 2]) and data.find(data[n:n + 2]) == n:
        print(data[n:n + 2].decode(), n)
        break
P
)
if [ -n "${stop:-}" ]; then
    code "a stop text" 0 generate "$gpt2" --prompt "ab" --max-tokens 30 --temperature 0 --json --stop "never, ever" --stop "$stop"
    ask "ends before it" "r[0]['finish'] == 'stop' and '$stop' not in r[0]['text'] and len(r[0]['tokens']) == $before + 2"
    code "a stop text, as text" 0 generate "$gpt2" --prompt "ab" --max-tokens 30 --temperature 0 --stop "$stop"
    if grep -qF -- "$stop" "$dir/out"; then failed "nothing of it is printed"; else passed "nothing of it is printed"; fi
else
    failed "no stop text to be found in the greedy text"
fi
mkdir "$dir/eos"
cp "$llama/model.safetensors" "$dir/eos/"
code "greedy, llama" 0 generate "$llama" --prompt hello --max-tokens 9 --temperature 0 --json --ignore-eot
fifth=$(python3 -S -c 'import json,sys; r=json.load(open(sys.argv[1])); print(r["tokens"][4], r["tokens"].index(r["tokens"][4]))' "$dir/out")
python3 - "$llama/config.json" "$dir/eos" "${fifth% *}" <<'P'
import json, sys
c = json.load(open(sys.argv[1]))
c["eos_token_id"] = [255, 1]
json.dump(c, open(sys.argv[2] + "/config.json", "w"))
json.dump({"eos_token_id": [2, int(sys.argv[3])]}, open(sys.argv[2] + "/generation_config.json", "w"))
P
code "several end-of-text ids" 0 generate "$dir/eos" --prompt hello --max-tokens 9 --temperature 0 --json
ask "ends there" "r[0]['finish'] == 'eos' and len(r[0]['tokens']) == ${fifth#* }"
code "or not" 0 generate "$dir/eos" --prompt hello --max-tokens 9 --temperature 0 --json --ignore-eot
ask "goes on" "r[0]['finish'] == 'length' and len(r[0]['tokens']) == 9"

# --- an interrupt ---
python3 - "$trireme" "$llama" >"$dir/out" 2>"$dir/err" <<'P'
import json, os, signal, subprocess, sys, time
p = subprocess.Popen([sys.argv[1], "generate", sys.argv[2], "--tokenizer", "bytes", "--threads", "1", "--prompts", "-",
                      "--batch", "2", "--max-tokens", "200", "--seed", "1", "--ignore-eot", "--json"],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
p.stdin.write(b"a prompt\n" * 20000)
p.stdin.close()
first = p.stdout.readline()  # it is at work
p.send_signal(signal.SIGINT)
rest = p.stdout.read()
lines = [json.loads(line) for line in (first + rest).splitlines()]
assert p.wait() == -signal.SIGINT, p.returncode
assert lines[-1]["finish"] in ("interrupted", "length"), lines[-1]
assert len(lines) < 20000
P
same "an interrupt ends it, with what there is" $? 0

# --- mistakes ---
code "no prompt" 2 generate "$llama"
says "says what is missing" err "--prompt TEXT or --prompts FILE"
code "two prompts" 2 generate "$llama" --prompt a --prompts "$dir/prompts.txt"
code "an empty prompt" 2 generate "$llama" --prompt ""
code "an empty stop text" 2 generate "$llama" --prompt a --stop ""
code "temperature below 0" 2 generate "$llama" --prompt a --temperature -1
code "top-p 0" 2 generate "$llama" --prompt a --top-p 0
code "top-p above 1" 2 generate "$llama" --prompt a --top-p 1.5
code "too long a prompt" 2 generate "$gpt2" --prompt "$(printf 'x%.0s' $(seq 64))"
says "with both numbers" err "64 tokens, the model's context is 64"
printf 'a\n%0100d\n' 7 >"$dir/long.txt"
code "too long a line" 2 generate "$gpt2" --prompts "$dir/long.txt"
says "names the line" err "long.txt: line 2"
code "no such file" 4 generate "$llama" --prompts "$dir/none.txt"
: >"$dir/empty.txt"
code "a file without prompts" 5 generate "$llama" --prompts "$dir/empty.txt"
echo '{"prompt": 3}' >"$dir/wrong.jsonl"
code "a line that is none" 5 generate "$llama" --prompts "$dir/wrong.jsonl"
says "names it too" err "wrong.jsonl: line 1"
code "no tokenizer" 4 "$trireme" generate "$llama" --prompt a
exit $((failures > 0))

#!/bin/bash
# `serve`: answers as OpenAI's API has them, many at once, refusals by name, clients that leave, noise.
set -u -o pipefail
. tests/support/named.sh
shared=${TRIREME_SHARED:-../shared}
model=$shared/golden/models/llama_gqa
[ -d "$model" ] || { echo "skipped: $shared/golden/models is not there"; exit 77; }
serve() { "$trireme" serve "$model" --tokenizer bytes --threads 1 --name tiny --strict "$@"; }
start() {
    : >"$dir/log"
    "$trireme" serve "$model" --tokenizer bytes --threads 1 --name tiny --strict "$@" >"$dir/log" 2>"$dir/log.err" &
    pid=$!
}
listens() { listening "$dir/log" "$pid"; }

# shellcheck disable=SC2086
start --port 0 --template chatml --batch 4 --drift-record "$dir/seen" ${SERVE_KEYS:-}
if ! listens; then
    grep -q "built without HTTP\|libmicrohttpd" "$dir/log.err" && { echo "skipped: no libmicrohttpd"; exit 77; }
    failed "it listens"
    cat "$dir/log" "$dir/log.err"
    exit 1
fi
key=$(sed -n 's/^key  *\([0-9a-f]*\) .*/\1/p' "$dir/log")
same "the key is new" "${#key}" 32
python3 tests/support/serve_client.py "$port" "$key" ${HOSTILE_REQUESTS:-} 2>"$dir/err" | tee "$dir/checks"
same "no check failed" "$(grep -c failed "$dir/checks")" 0
same "all checks ran" "$(tail -1 "$dir/checks")" "metrics: passed"

code "a port that is taken" 4 serve --port "$port" --key none
kill -TERM "$pid"
wait "$pid"
same "SIGTERM ends it" $? 0
same "what it did" "$(grep -c '^answered [0-9]* requests' "$dir/log")" 1

# --- drift: answers of another kind, which the server's own record tells from its kind ---
same "what it saw" "$(python3 -S -c 'import json,sys; j=json.load(open(sys.argv[1])); print(j["answers"] > 60)' "$dir/seen")" True
start --port 0 --key none --drift "$dir/seen" --drift-window 20
listens || failed "it listens with a reference"
python3 - "$port" <<'END' >"$dir/metrics"
import http.client, json, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
body = {"model": "tiny", "prompt": ["x" * 60] * 20, "max_tokens": 1, "temperature": 0}
c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
c.getresponse().read()
text = ""
while "trireme_drift_windows_total 1" not in text: # the window is compared after the answer is sent
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
print(text)
END
same "other answers are an alert" "$(grep -c 'drift_alerts_total{of="\(prompt_tokens\|answer_tokens\)"} 1' "$dir/metrics")" 2
same "none refuses" "$(grep -c 'drift_alerts_total{of="refusals"} 0' "$dir/metrics")" 1
kill -TERM "$pid"
wait "$pid"
same "a warning says what" "$(grep -c 'differ from .* in the length of prompts' "$dir/log.err")" 1
code "a reference that is none" 5 serve --port 0 --drift tests/serve_test.sh

# --- several ranks: the same bits; the loss of a rank and Ctrl-C end all ---
ranks_end() { for p in $1; do ! kill -0 "$p" 2>/dev/null || return 1; done; }
lora=$shared/golden/post/lora_llama_attention
tiny=$model
for tp in 1 2; do
    model=$lora
    pages=$([ $tp = 1 ] || echo "--cache 96") # with two ranks, in pages
    # shellcheck disable=SC2086
    start --port 0 --key none --batch 3 --context 64 $pages determinism.tp_shards=2 layout.tp=$tp --adapters one="$lora/adapter" --adapters two="$lora/adapter_final"
    listens || failed "it listens with $tp ranks"
    python3 tests/support/serve_texts.py "$port" tiny one two >"$dir/texts$tp" 2>"$dir/err"
    python3 - "http://127.0.0.1:$port/metrics" <<'END' >"$dir/tokens$tp"
import sys, urllib.request
print(*[l for l in urllib.request.urlopen(sys.argv[1]).read().decode().split("\n") if "tokens_total " in l or "tokens_count" in l])
END
    [ $tp = 2 ] || kill -INT "$pid"
    [ $tp = 2 ] || wait "$pid"
done
same "two ranks give the texts of one, with each adapter" "$(cat "$dir/texts2")" "$(cat "$dir/texts1")"
same "texts of all" "$(wc -l <"$dir/texts2")" 9
same "/metrics counts each token once" "$(cat "$dir/tokens2")" "$(cat "$dir/tokens1")"
ranks=$(processes "" | awk -v launcher="$pid" '$2 == launcher { print $1 }')
kill -INT "$pid"
wait "$pid"
same "Ctrl-C ends two ranks" "$? $(grep -c '^answered 19 requests' "$dir/log")" "0 1"
ranks_end "$ranks" && passed "no rank is left" || failed "no rank is left"
model=$tiny
start --port 0 --key none --batch 1 determinism.tp_shards=2 layout.tp=2
listens || failed "it listens again"
ranks=$(processes "" | awk -v launcher="$pid" '$2 == launcher { print $1 }')
kill -KILL "${ranks##*[[:space:]]}"
wait "$pid"
same "a lost rank ends the server" "$? $(grep -c 'error\[D001\] rank 1 .* died by signal 9' "$dir/log.err")" "7 1"
ranks_end "$ranks" && passed "and the other rank" || failed "and the other rank"

# --- a cache in pages, too few for all: 16 clients get the texts and probabilities of a server with space for each ---
for pages in "" "--cache 256"; do
    # shellcheck disable=SC2086
    start --port 0 --key none --batch 16 --context 128 $pages
    listens || failed "it listens with pages: $pages"
    python3 tests/support/serve_crowd.py "$port" tiny 16 60 >"$dir/crowd${pages:+.pages}" 2>"$dir/err"
    python3 - "http://127.0.0.1:$port/metrics" <<'END' >"$dir/counts"
import sys, urllib.request
print(*[int(l.split()[1]) for l in urllib.request.urlopen(sys.argv[1]).read().decode().split("\n") if l.startswith(("trireme_cache_t", "trireme_sequences_put"))])
END
    kill -INT "$pid"
    wait "$pid"
done
same "the same texts" "$(cat "$dir/crowd.pages")" "$(cat "$dir/crowd")"
same "of all clients" "$(wc -l <"$dir/crowd")" 16
read -r tokens used back <"$dir/counts"
same "/metrics has the cache" "$tokens $([ "$used" -le 256 ] && echo yes) $([ "$back" -gt 0 ] && echo yes)" "256 yes yes"

# --- without a key or a template; a key from a file ---
code "no such folder" 4 "$trireme" serve "$dir/none" --key none
echo secret >"$dir/key"
start --port 0 --key-file "$dir/key"
listens || failed "it listens with a key from a file"
ask() { # PATH [BODY]: prints the code
    python3 - "$port" "$@" <<'END'
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
body = sys.argv[3] if len(sys.argv) > 3 else None
c.request("POST" if body else "GET", sys.argv[2], body, {"Authorization": "Bearer secret", "Content-Type": "application/json"})
print(c.getresponse().status)
END
}
same "the key of the file" "$(ask /v1/models)" 200
same "chat without a template is refused" "$(ask /v1/chat/completions '{"model": "tiny", "messages": [{"role": "user", "content": "x"}]}')" 400
kill -INT "$pid"
wait "$pid"
same "Ctrl-C ends it" $? 0
code "two keys" 2 serve --key a --key-file "$dir/key"
code "no address" 2 serve --host nowhere --port 0
[ $failures = 0 ]

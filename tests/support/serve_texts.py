"""Texts and probabilities of a `trireme serve` without a key, whole and as a stream, for two servers to be compared.

serve_texts.py PORT MODEL...
"""
import http.client
import json
import sys
import threading

PORT, MODELS = int(sys.argv[1]), sys.argv[2:]


def ask(body):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return c.getresponse().read().decode()


def one(i, model):
    body = {"model": model, "prompt": [list(range(1, 9 + 8 * i))], "max_tokens": 12, "seed": i, "logprobs": 2}
    streamed = [json.loads(line[6:])["choices"][0] for line in ask({**body, "stream": True}).split("\n\n") if "{" in line]
    whole = json.loads(ask(body))["choices"][0]
    assert "".join(part["text"] for part in streamed) == whole["text"]
    got[i, model] = [whole["text"], whole["logprobs"]["token_logprobs"]]


got = {}
threads = [threading.Thread(target=one, args=(i, m)) for i in range(3) for m in MODELS]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert len(got) == len(threads)
for key in sorted(got):
    print(*key, json.dumps(got[key]))

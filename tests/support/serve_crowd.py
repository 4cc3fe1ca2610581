"""Texts of many clients at once of a `trireme serve` without a key, a line each, for two servers to be compared.

serve_crowd.py PORT MODEL CLIENTS TOKENS
"""
import http.client
import json
import sys
import threading

PORT, MODEL, CLIENTS, TOKENS = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
got = [None] * CLIENTS


def one(i):
    prompt = [(7 * i + k) % 250 + 1 for k in range(3 + 5 * i % 40)]
    body = {"model": MODEL, "prompt": [prompt], "max_tokens": TOKENS - 2 * (i % 5), "seed": i, "logprobs": 1}
    if i % 4 == 3:
        body["best_of"] = body["n"] = 3
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=300)
    c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    choices = json.loads(c.getresponse().read().decode())["choices"]
    got[i] = [[choice["text"], choice["logprobs"]["token_logprobs"]] for choice in choices]


threads = [threading.Thread(target=one, args=(i,)) for i in range(CLIENTS)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for i, texts in enumerate(got):
    print(i, json.dumps(texts))

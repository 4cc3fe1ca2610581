"""Requests to `trireme serve`, each as one named check; prints `NAME: passed` or `NAME: failed`.

serve_client.py PORT KEY [HOSTILE_COUNT]
"""
import collections
import http.client
import json
import random
import re
import socket
import sys
import threading
import time

PORT, KEY = int(sys.argv[1]), sys.argv[2]
failed = False


def ask(path, body=None, key=KEY, method=None, kind="application/json", raw=False):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = kind
        body = body if isinstance(body, (bytes, str)) else json.dumps(body)
    try:
        c.request(method or ("GET" if body is None else "POST"), path, body, headers)
    except OSError:
        pass # refused before the whole body was sent
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, text if raw else json.loads(text)


def completion(**members):
    return ask("/v1/completions", {"model": "tiny", "prompt": "hello", "seed": 1, **members})


def chat(*messages, **members):
    listed = [{"role": role, "content": content} for role, content in messages]
    return ask("/v1/chat/completions", {"model": "tiny", "messages": listed, "seed": 1, "max_tokens": 8, **members})


def events(path, body):
    _, text = ask(path, body, raw=True)
    lines = [l[6:] for l in text.decode().split("\n") if l.startswith("data: ")] # others are comments
    assert lines[-1] == "[DONE]", lines[-1]
    return [json.loads(l) for l in lines[:-1]]


def check(name, condition):
    global failed
    print(f"{name}: {'passed' if condition else 'failed'}")
    failed = failed or not condition


# --- what there is ---
check("models", ask("/v1/models")[1]["data"][0]["id"] == "tiny")
check("one model", ask("/v1/models/tiny")[1]["id"] == "tiny" and ask("/v1/models/other")[0] == 404)
check("health needs no key", ask("/health", key=None)[0] == 200)
code, one = completion(max_tokens=12)
text = one["choices"][0]["text"]
check("a completion", code == 200 and one["object"] == "text_completion" and one["choices"][0]["finish_reason"] == "length")
check("its counts", one["usage"] == {"prompt_tokens": 5, "completion_tokens": 12, "total_tokens": 17})
check("the same seed gives the same text", completion(max_tokens=12)[1]["choices"][0]["text"] == text)
check("sixteen tokens without a number", completion()[1]["usage"]["completion_tokens"] == 16)
check("tokens as a prompt", completion(prompt=list(b"hello"), max_tokens=12)[1]["choices"][0]["text"] == text)
kept = lambda: int(re.search(r"trireme_prompt_tokens_kept_total (\d+)", ask("/metrics", raw=True)[1].decode())[1])
before = kept()
completion(prompt="a prompt that nobody gave before", max_tokens=2, n=2, best_of=6)
check("a prompt of six texts is computed once", kept() - before >= 32)
several = completion(prompt=["one", "hello"], n=2, max_tokens=12)[1]["choices"]
check("two prompts, two choices each", [c["index"] for c in several] == [0, 1, 2, 3] and several[2]["text"] == text)
stop = text[3:5]
cut = completion(max_tokens=12, stop=[stop])[1]["choices"][0]
check("a stop text", cut["text"] == text[: text.index(stop)] and cut["finish_reason"] == "stop")

# --- streams ---
body = {"model": "tiny", "prompt": "hello", "seed": 1, "max_tokens": 12, "stream": True}
parts = events("/v1/completions", body)
check("a stream has the same text", "".join(p["choices"][0]["text"] for p in parts) == text)
check("a stream ends with its reason", parts[-1]["choices"][0]["finish_reason"] == "length")
parts = events("/v1/completions", {**body, "stream_options": {"include_usage": True}})
check("a stream counts when asked", parts[-1]["choices"] == [] and parts[-1]["usage"]["completion_tokens"] == 12)

# --- chat ---
code, said = chat(("system", "be kind"), ("user", "hello"))
message = said["choices"][0]["message"]
check("a chat", code == 200 and said["object"] == "chat.completion" and message["role"] == "assistant")
parted = chat(("system", "be kind"), ("user", [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]))
check("content in parts", parted[1]["choices"][0]["message"] == message)
listed = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
parts = events("/v1/chat/completions", {"model": "tiny", "messages": listed, "seed": 1, "max_tokens": 8, "stream": True})
deltas = [p["choices"][0]["delta"] for p in parts]
check("a chat as a stream", deltas[0]["role"] == "assistant" and
      "".join(d.get("content", "") for d in deltas) == message["content"])

# --- probabilities, and the best of several ---
plain = completion(max_tokens=12, logprobs=0)[1]["choices"][0]
likely = completion(max_tokens=12, logprobs=3)[1]["choices"][0]
told = likely["logprobs"]
check("probabilities change no text", plain["text"] == likely["text"] == text)
check("one for each token", all(len(told[name]) == 12 for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")))
check("they are logarithms", all(p <= 0 for p in told["token_logprobs"]) and plain["logprobs"]["token_logprobs"] == told["token_logprobs"])
check("the best first", all(list(t.values()) == sorted(t.values(), reverse=True) for t in told["top_logprobs"]))
surest = completion(max_tokens=12, temperature=0, logprobs=3)[1]["choices"][0]["logprobs"]
check("temperature 0 takes the best", all(p == max(t.values()) for p, t in zip(surest["token_logprobs"], surest["top_logprobs"])))
code, said_likely = chat(("system", "be kind"), ("user", "hello"), logprobs=True, top_logprobs=2)
content = said_likely["choices"][0]["logprobs"]["content"]
check("of a chat too", code == 200 and len(content) == 8 and len(content[0]["top_logprobs"]) == 2 and
      bytes(content[0]["bytes"]).decode(errors="replace") == content[0]["token"])


def mean(choice):
    return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])


drawn = completion(max_tokens=12, n=6, logprobs=0)[1]
best = completion(max_tokens=12, n=2, best_of=6, logprobs=0)[1]
wanted = sorted(drawn["choices"], key=mean, reverse=True)[:2]
check("the best of six", [c["text"] for c in best["choices"]] == [c["text"] for c in wanted] and
      [c["index"] for c in best["choices"]] == [0, 1])
check("all six are counted", best["usage"] == drawn["usage"])
several = completion(prompt=["one", "hello"], max_tokens=12, n=1, best_of=6)[1]["choices"]
check("each prompt's best", len(several) == 2 and several[1]["text"] == wanted[0]["text"])
agreed = completion(prompt="2 + 2 = ", max_tokens=2, n=1, best_of=40, choose="majority", top_k=2)[1]["choices"][0]["text"]
texts = [c["text"] for c in completion(prompt="2 + 2 = ", max_tokens=2, n=40, top_k=2)[1]["choices"]]


def last(said):
    numbers = re.findall(r"-?[0-9](?:[0-9.,]*[0-9])?", said)
    return numbers[-1].replace(",", "") if numbers else said.strip().split("\n")[-1].strip()


votes = collections.Counter(last(t) for t in texts)
check("the answer of most", votes[last(agreed)] == max(votes.values()))
check("best_of below n", completion(n=3, best_of=2)[1]["error"]["param"] == "best_of")
check("best_of as a stream", completion(best_of=2, stream=True)[1]["error"]["param"] == "best_of")
parts = [p["choices"][0]["logprobs"] for p in events("/v1/completions", {**body, "logprobs": 3})]
for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
    check(f"a stream tells {name}", [x for p in parts for x in p[name]] == told[name])
parts = events("/v1/chat/completions", {"model": "tiny", "messages": listed, "seed": 1, "max_tokens": 8, "stream": True,
                                        "logprobs": True, "top_logprobs": 2})
check("and of a chat", [x for p in parts for x in p["choices"][0]["logprobs"]["content"]] == content)
check("top_logprobs alone", chat(("user", "hi"), top_logprobs=1)[1]["error"]["param"] == "top_logprobs")
check("too many probabilities", ask("/v1/completions", {"model": "tiny", "prompt": [list(b"x")] * 128, "logprobs": 20,
                                                          "max_tokens": 400})[0] == 400)

# --- many at once ---
got = [None] * 24


def one_of_many(i):
    got[i] = completion(prompt="hello" if i % 3 == 0 else f"prompt {i}", max_tokens=12)[1]["choices"][0]["text"]


threads = [threading.Thread(target=one_of_many, args=(i,)) for i in range(len(got))]
for t in threads:
    t.start()
for t in threads:
    t.join()
check("many at once, each as if alone", all(got[i] == text for i in range(0, len(got), 3)))

# --- refusals ---
check("no key", ask("/v1/models", key=None)[0] == 401)
check("a wrong key", ask("/v1/models", key=KEY[:-1] + "x")[0] == 401)
check("no such path", ask("/v2")[0] == 404)
check("no such model", ask("/v1/completions", {"model": "other", "prompt": "x"})[0] == 404)
check("wrong method", ask("/v1/completions")[0] == 405)
check("wrong content type", ask("/v1/completions", "x", kind="text/plain")[0] == 415)
check("too long", ask("/v1/completions", b" " * ((4 << 20) + 1))[0] == 413)
check("no JSON", ask("/v1/completions", "{")[0] == 400)
for member, value in {"max_tokens": 0, "temperature": -1, "top_p": 2, "n": 1000, "stop": [""], "logprobs": 21, "echo": True,
                      "logit_bias": {"1": 5}, "best_of": 0, "choose": "best", "presence_penalty": 1, "seed": "one", "stream": 1,
                      "colour": "red", "prompt": [], "max_tokens ": 1}.items():
    code, error = completion(**{member: value})
    check(f"refused by name: {member}", code == 400 and error["error"]["param"] == member)
check("accepted: nothing asked for", completion(logprobs=None, echo=False, logit_bias={}, presence_penalty=0, user="me")[0] == 200)
check("longer than the context", completion(max_tokens=1 << 20)[0] == 400)
check("tools", chat(("user", "hi"), tools=[{"type": "function"}])[0] == 400)
check("a token outside the vocabulary", completion(prompt=[1 << 20])[1]["error"]["param"] == "prompt")

check("a name that goes on behind a NUL", ask("/v1/completions", {"model": "tiny\0x", "prompt": "x"})[0] == 404)
check("and a path", ask("/v1/models/tiny%00x")[0] == 404 and ask("/v1/models/%74iny")[0] == 200)
for value in (5, {"include_usage": 1}, {"other": True}):
    check(f"stream_options: {value}", completion(stream=True, stream_options=value)[0] == 400)
check("stream_options without a stream", completion(stream_options={"include_usage": True})[0] == 400)
check("response_format without a type", chat(("user", "hi"), response_format=5)[0] == 400)


# --- HTTP ---
def answered(*lines, body=b"", wait=60):
    """The first line of the answer to a request of these lines, and its headers."""
    s = socket.create_connection(("127.0.0.1", PORT), timeout=wait)
    head = f"Host: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
    try:
        s.sendall((lines[0] + "\r\n" + head + "".join(l + "\r\n" for l in lines[1:]) + "\r\n").encode() + body)
    except OSError:
        pass
    got = b""
    while b"\r\n\r\n" not in got:
        more = s.recv(4096)
        if not more:
            break
        got += more
    s.close()
    return got.decode(errors="replace")


POST = "POST /v1/completions HTTP/1.1"
check("two lengths", " 400 " in answered(POST, "Content-Length: 2", "Content-Length: 20", body=b"{}"))
check("a length and chunks", " 400 " in answered(POST, "Content-Length: 2", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"))
check("another encoding", " 501 " in answered(POST, "Transfer-Encoding: gzip", body=b"{}"))
check("chunks that are too long together", " 413 " in answered(POST, "Transfer-Encoding: chunked",
                                                           body=(b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 5 + b"0\r\n\r\n"))
check("a method says what is allowed", "Allow: POST" in answered("PUT /v1/completions HTTP/1.1"))
check("a body where none is read", " 200 " in answered("GET /v1/models HTTP/1.1", "Content-Length: 100000", body=b"x" * 100000))
check("the name of the scheme in small letters", ask("/v1/models", key=None)[0] == 401 and
      " 200 " in answered("GET /health HTTP/1.1", "authorization: bearer x"))

# --- clients that are slow, and greedy ones ---
idle = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(550)]
idle[-1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost:")
got = None
for _ in range(1200):
    try:
        got = completion(max_tokens=12)[1]["choices"][0]["text"]
        break
    except OSError:
        time.sleep(0.1) # the server has not yet closed as many as are too many
check("more connections that say nothing than there are places", got == text)
for s in idle:
    s.close()
greedy = []
for _ in range(2):
    long = json.dumps({**body, "prompt": ["x"] * 8, "n": 16, "max_tokens": 60})
    s = socket.create_connection(("127.0.0.1", PORT))
    s.sendall(f"{POST}\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(long)}\r\n\r\n{long}".encode())
    greedy.append(s)
for s in greedy:
    s.recv(1)
check("others get turns beside requests of many texts", completion(max_tokens=2)[0] == 200)
waiting = int(re.search(r"trireme_sequences_waiting (\d+)", ask("/metrics", raw=True)[1].decode())[1])
check("before those have ended", waiting > 0)
for s in greedy:
    s.close()

# --- clients that leave, and noise ---
for i in range(4):
    s = socket.create_connection(("127.0.0.1", PORT))
    long = json.dumps({**body, "max_tokens": 20, "prompt": "leaves"})
    s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
              f"Content-Type: application/json\r\nContent-Length: {len(long)}\r\n\r\n{long}".encode())
    if i % 2:
        s.recv(64)
    s.close()
rng = random.Random(1)
whole = json.dumps({"model": "tiny", "messages": listed, "prompt": "x", "max_tokens": 3, "n": 2, "stop": ["a"]})
for i in range(int(sys.argv[3]) if len(sys.argv) > 3 else 60):
    bad = bytearray(whole.encode())
    for _ in range(rng.randrange(1, 8)):
        at = rng.randrange(len(bad))
        bad[at:at + rng.randrange(0, 3)] = rng.randbytes(rng.randrange(0, 3))
    path = rng.choice(["/v1/completions", "/v1/chat/completions", "/v1/models"])
    if i % 3:
        ask(path, bytes(bad), raw=True)
        continue
    s = socket.create_connection(("127.0.0.1", PORT))
    try:
        s.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: {rng.choice([5, -1, 10 ** 30, len(bad)])}\r\n\r\n".encode() + bad)
    except OSError:
        pass # the server closed it first
    s.close()
check("still the same answer", completion(max_tokens=12)[1]["choices"][0]["text"] == text)
metrics = ask("/metrics", raw=True)[1].decode()
check("metrics", 'trireme_requests_total{path="completions",code="2xx"}' in metrics and "trireme_first_token_seconds_bucket" in metrics)
sys.exit(failed)

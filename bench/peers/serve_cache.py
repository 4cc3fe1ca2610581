#!/usr/bin/env python3
"""Serves a model with a cache in rows and in pages of the same bytes: time of a token, and how many texts run at once.

    bench/peers/serve_cache.py MODEL [--before PROGRAM] [--clients 8] [--crowd 64] [--rounds 5]

MODEL is a Hugging Face folder (llama_server.py --random writes one). The servers take turns, round by round: PROGRAM of an
earlier commit, this build with rows, and with pages. The figures are processor seconds of a server for 1,000 tokens, and
tokens a second by the clock. Then --crowd clients with short prompts ask the server of rows, which has --clients slots,
and one of pages with the same tokens in its cache and a slot for each client.
"""
import argparse
import concurrent.futures
import http.client
import os
import pathlib
import re
import signal
import statistics
import threading
import time
import urllib.parse

from shared import ask, begin_serve, prompt_of


def begin(program, options, batch, pages):
    more = ["--cache", str(options.clients * options.context)] if pages else []
    p, address = begin_serve(program, options.model, "--key", "none", "--name", "m", "--batch", str(batch), "--threads",
                             str(options.threads), "--context", str(options.context), "--template", "none", *more)
    return p, urllib.parse.urlsplit(address).port


def seconds(p):
    fields = pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def metric(port, name):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", "/metrics")
    found = re.search(rf"^trireme_{name} (\d+)", c.getresponse().read().decode(), re.M)
    return int(found[1]) if found else 0


def crowd(server, options, clients, number):
    """Processor seconds for 1,000 tokens, tokens a second, and the most texts that ran at once."""
    p, port = server
    most, over = 0, threading.Event()

    def watch():
        nonlocal most
        while not over.wait(0.02):
            most = max(most, metric(port, "sequences_running"))

    def client(k):
        words = options.words * (1 + k % 4) // 2
        body = {"model": "m", "prompt": prompt_of(k, number, words), "max_tokens": options.tokens, "temperature": 0}
        return ask(port, body)["usage"]["completion_tokens"]

    watcher = threading.Thread(target=watch)
    watcher.start()
    spent, clock = seconds(p), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        tokens = sum(pool.map(client, range(clients)))
    spent, clock = seconds(p) - spent, time.monotonic() - clock
    over.set()
    watcher.join()
    return 1000 * spent / tokens, tokens / clock, most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--trireme", default="build/trireme")
    parser.add_argument("--before")
    for name, default in ("clients", 8), ("crowd", 64), ("rounds", 5), ("threads", 1), ("context", 1024), ("words", 24), ("tokens", 48):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    kinds = {"rows": (options.trireme, False), "pages": (options.trireme, True)}
    if options.before:
        kinds = {"before": (options.before, False)} | kinds
    servers = {kind: begin(program, options, options.clients, pages) for kind, (program, pages) in kinds.items()}
    got = {kind: [] for kind in kinds}
    for number in range(options.rounds + 1):
        for kind in kinds if number % 2 else reversed(list(kinds)):
            result = crowd(servers[kind], options, options.clients, number)
            if number > 0:  # the first round warms up
                got[kind].append(result)
                print(f"round {number}: {kind} {result[0]:.2f} s for 1,000 tokens, {result[1]:.0f} tokens a second", flush=True)
    first = next(iter(kinds))
    for kind, results in got.items():
        ratio = statistics.median(a[0] / b[0] for a, b in zip(results, got[first]))
        print(f"{kind}: processor seconds, median ratio to {first} {ratio:.3f}", flush=True)
    servers["pages"][0].send_signal(signal.SIGINT)
    servers["pages"][0].wait()
    servers["pages"] = begin(options.trireme, options, options.crowd, True)
    for kind in "rows", "pages":
        crowd(servers[kind], options, options.clients, 99)
        spent, speed, most = crowd(servers[kind], options, options.crowd, 100)
        port = servers[kind][1]
        print(f"{kind}: {options.crowd} clients, {most} texts at once, {spent:.2f} s for 1,000 tokens, {speed:.0f} tokens a second, put back",
              metric(port, "sequences_put_back_total"), flush=True)
    for p, _ in servers.values():
        p.send_signal(signal.SIGINT)
        p.wait()


main()

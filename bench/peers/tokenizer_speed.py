#!/usr/bin/env python3
"""Encoding speed beside tiktoken and Hugging Face tokenizers: the same file, vocabulary and core, in turns.

  pip install tokenizers==0.23.3 tiktoken==0.14.0
  bench/peers/tokenizer_speed.py [--mb 100] [--rounds 3] TEXT...

Each TEXT is repeated to the size. For each split expression it trains a vocabulary of 32,000 tokens, then measures in
turns `trireme data pack` (reading, encoding and writing the shard, less the time of an empty text), tiktoken's
encode_ordinary and Hugging Face's encode_batch, each on one core, in seconds of the processor, so that other programs
on the machine disturb less. Prints medians in MB/s, the median of the ratios of each round, and whether the ids are
equal; then by the clock `trireme data pack` on two cores against one, and training beside Hugging Face's.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time

import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
SPELLED = {chr(b): b for b in PRINTABLE}
SPELLED.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in PRINTABLE)})


def timed(work, clock=time.monotonic):
    begin = clock()
    work()
    return clock() - begin


def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pack(a, path, text, cores, clock=time.monotonic):
    with tempfile.TemporaryDirectory(dir=a.scratch) as out:
        return timed(clock=clock, work=lambda: subprocess.run(["taskset", "-c", cores, a.trireme, "data", "pack", "--tokenizer", path,
                                             "-o", out, text], check=True, stdout=subprocess.DEVNULL))


def pieces(text, size):
    """Parts that end with a line."""
    at = 0
    while at < len(text):
        end = text.find("\n", min(at + size, len(text) - 1)) + 1 or len(text)
        yield text[at:end]
        at = end


def tiktoken_of(path):
    file = json.load(open(path))
    step = file["pre_tokenizer"]
    pattern = step["pretokenizers"][0]["pattern"]["Regex"] if step["type"] == "Sequence" else \
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    ranks = {bytes(SPELLED[c] for c in token): id for token, id in file["model"]["vocab"].items()
             if not token.startswith("<|")}
    return tiktoken.Encoding("made", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def compare(a, name, text, path, empty):
    whole = open(text, encoding="utf-8").read()
    size = os.path.getsize(text) / 1e6
    tik, peer = tiktoken_of(path), Tokenizer.from_file(path)
    parts = list(pieces(whole, 1 << 16))
    few = parts[:max(1, len(parts) // 20)]  # the slowest of the three needs no more
    few_size = sum(len(p.encode()) for p in few) / 1e6
    rates = []
    for _ in range(a.rounds):
        ours = size / max(1e-3, pack(a, path, text, "0", children) - pack(a, path, empty, "0", children))
        theirs = size / timed(lambda: [tik.encode_ordinary(p) for p in parts], time.process_time)
        others = few_size / timed(lambda: peer.encode_batch(few, add_special_tokens=False), time.process_time)
        one, both = (pack(a, path, text, cores) - pack(a, path, empty, cores) for cores in ("0", "0,1"))
        rates.append((ours, theirs, others, one / max(both, 1e-3)))
    middle = [statistics.median(r[i] for r in rates) for i in range(3)]
    ratio = [statistics.median(r[0] / r[i] for r in rates) for i in (1, 2)]
    scale = statistics.median(r[3] for r in rates)
    sample = parts[len(parts) // 2]
    done = subprocess.run([a.trireme, "tokenizer", "encode", "-t", path], input=sample.encode(), check=True,
                          stdout=subprocess.PIPE)
    ids = list(map(int, done.stdout.split()))
    equal = ids == peer.encode(sample, add_special_tokens=False).ids == tik.encode_ordinary(sample)
    print(f"{name:8} {os.path.basename(text):24} trireme {middle[0]:6.1f}  tiktoken {middle[1]:5.1f}  "
          f"hugging face {middle[2]:5.2f} MB/s  ratios {ratio[0]:5.1f} {ratio[1]:6.1f}  two cores {scale:.2f}x  "
          f"{'equal' if equal else 'DIFFERENT'}", flush=True)


def train_beside(a, text):
    out = os.path.join(a.scratch, "ours.json")
    ours = timed(clock=children, work=lambda: subprocess.run([a.trireme, "tokenizer", "train", "--lines", "--vocab", "32000", "-o", out, text],
                                        check=True, stdout=subprocess.DEVNULL))
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=32000, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    theirs = timed(lambda: t.train([text], trainer), time.process_time)
    equal = json.load(open(out))["model"]["merges"] == json.loads(t.to_str())["model"]["merges"]
    print(f"training 32,000 tokens on {os.path.getsize(text) / 1e6:.0f} MB: trireme {ours:.2f} s, hugging face "
          f"{theirs:.2f} s, ratio {theirs / ours:.1f}, merges {'equal' if equal else 'DIFFERENT'}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("texts", nargs="+")
    p.add_argument("--mb", type=int, default=100)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--trireme", default="build/trireme")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as a.scratch:
        empty = os.path.join(a.scratch, "empty.txt")
        open(empty, "w").write("a\n")
        for given in a.texts:
            plain = open(given, encoding="utf-8", errors="ignore").read()
            text = os.path.join(a.scratch, os.path.basename(given))
            with open(text, "w", encoding="utf-8") as f:
                f.write(plain * (a.mb * 1000000 // len(plain.encode()) + 1))
            for name in ("gpt2", "llama3", "o200k"):
                path = os.path.join(a.scratch, name + ".json")
                subprocess.run([a.trireme, "tokenizer", "train", "--vocab", "32000", "--split", name, "-o", path, given],
                               check=True, stdout=subprocess.DEVNULL)
                compare(a, name, text, path, empty)
            train_beside(a, text)


os.environ["RAYON_NUM_THREADS"] = "1"
main()

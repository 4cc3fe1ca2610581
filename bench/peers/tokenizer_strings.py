#!/usr/bin/env python3
"""Compares encodings and decodings of random strings with the reference libraries'.

  pip install tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3
  bench/peers/tokenizer_strings.py [--count N] [--trireme PROGRAM] FILE...
  bench/peers/tokenizer_strings.py --made TEXT

FILE is a tokenizer.json, which Hugging Face tokenizers reads too. --made trains a small byte-level vocabulary on TEXT
for each published split expression and compares those. Ends with status 1 if any id or text differs.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Split expressions of published files: the name, and a list of (expression, behaviour, invert).
SPLITS = {
    "gpt2": None,
    "llama3": [(LLAMA3, "isolated", False)],
    "qwen2": [(LLAMA3.replace("{1,3}", ""), "isolated", False)],
    "cl100k": [(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
                r"|\s+(?!\S)|\s+", "removed", True)],
    "o200k": [(O200K, "isolated", False)],
    "tekken": [(O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", ""), "isolated", False)],
    "deepseek_v3": [(r"\p{N}{1,3}", "isolated", False), (r"[一-龥぀-ゟ゠-ヿ]+", "isolated", False),
                    ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                     "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+", "isolated", False)],
    "deepseek_coder": [(r"[\r\n]", "isolated", False), (r"\s?\p{L}+", "isolated", False),
                       (r"\s?\p{P}+", "isolated", False), (r"[一-龥ࠀ-一가-퟿]+", "isolated", False),
                       (r"\p{N}", "isolated", False)],
    "bloom": [(r" ?[^(\s|[.,!?…。，、।۔،])]+", "isolated", False)],
    "clip": [(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "removed", True)],
    "kimi": [(r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}"
              r"&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+", "isolated", False)],
    "words": [(r"\b\w+\b|\d+|[[:punct:]]|\s", "isolated", False)],
    "anchors": [(r"^\w+|\w+$|\B-|\h{2}|\W", "isolated", False)],
    "counts": [(r"\p{N}{1,3}+|a{2}?|\w{2,3}?|[^\S\n]+|\P{L}|\p{^N}", "isolated", False)],
    "no_case": [(r"(?i:[sdmt]|ll)\p{L}|\x41|\u00e9|\x{1F600}|[[:alpha:]&&\p{Lu}]+", "isolated", False)],
}

PIECES = ["the", " quick", "'s", "'S", "'ll", "\u2019re", "don't", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000",
          "1", "23", "4567", "½", "²", "٣", "Ⅳ", "é", "e\u0301", "ﬁ", "ſ", "K", "İ", "ß", "ǅ", "ʰ", "ª", "你好", "世界",
          "ひらがな", "カタカナ", "한국어", "กรุงเทพ", "नमस्ते", "العربية", "\u064b", "עברית", "Ελλάς", "русский", "😀",
          "👩‍👩‍👧‍👦", "\u200d", "\u200b", "\ufeff", "\ufffd", "\u0000", "_", "-", "—", "...", "!?", "/", "//", "<|endoftext|>",
          "<s>", "▁", "a" * 40, "=" * 70, "ABC", "aBcD", "camelCase", "HTTPServer", "x_1", "\U0001d400", "\U00020000", "\ue000",
          "\U0010ffff", "\u2028", "\x85", "\x1c", "\x0b", "。", "，", "、", "।", "۔", "(", ")", "[", "]", "|", "&&", "^"]


def random_string(r):
    kind = r.random()
    parts = []
    for _ in range(r.randrange(1, 14)):
        roll = r.random()
        if kind < 0.7 and roll < 0.8:
            parts.append(r.choice(PIECES))
        elif roll < 0.5:
            parts.append("".join(r.choice("abcdefgXYZ0189 '-.\n\t") for _ in range(r.randrange(1, 12))))
        else:
            points = [r.choice((0x80, 0x300, 0x3000, 0x10000, 0x20000, 0x110000)) for _ in range(r.randrange(1, 4))]
            points = [r.randrange(p) for p in points]
            parts.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
    return "".join(parts)


def ask(program, action, path, lines, key):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([program, "tokenizer", action, "-t", path, "--jsonl"] + (["--special"] if action == "encode" else []),
                          input=text.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line)[key] for line in done.stdout.decode().split("\n")[:-1]]


def compare(program, path, strings):
    peer = Tokenizer.from_file(path)
    wanted = [e.ids for e in peer.encode_batch(strings, add_special_tokens=False)]
    got = ask(program, "encode", path, [{"text": s} for s in strings], "ids")
    bad = [i for i in range(len(strings)) if got[i] != wanted[i]]
    size = peer.get_vocab_size()
    r = random.Random(7)
    some = wanted + [[r.randrange(size) for _ in range(r.randrange(1, 12))] for _ in range(len(strings) // 10)]
    texts = peer.decode_batch(some, skip_special_tokens=False)
    back = ask(program, "decode", path, [{"ids": ids} for ids in some], "text")
    worse = [i for i in range(len(some)) if back[i] != texts[i]]
    print(f"{path}: {len(strings)} strings, {len(bad)} differ; {len(some)} decodings, {len(worse)} differ", flush=True)
    for i in bad[:2]:
        print(f"  {strings[i]!r}\n    wanted {wanted[i]}\n    got    {got[i]}")
    for i in worse[:2]:
        print(f"  {some[i]}\n    wanted {texts[i]!r}\n    got    {back[i]!r}")
    return bool(bad or worse)


def made(name, splits, text, folder):
    t = Tokenizer(models.BPE())
    steps = [pre_tokenizers.Split(Regex(e), how, invert) for e, how, invert in splits or []]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits is None))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    r = random.Random(1)
    lines = text.splitlines(keepends=True)[:4000] + [random_string(r) for _ in range(4000)]
    t.train_from_iterator(lines + PIECES * 20, trainer)
    path = os.path.join(folder, name + ".json")
    t.save(path)
    return path


def main():
    p = argparse.ArgumentParser()
    p.add_argument("files", nargs="*")
    p.add_argument("--count", type=int, default=100000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--made", metavar="TEXT")
    p.add_argument("--only", help="one of the made expressions")
    p.add_argument("--trireme", default="build/trireme")
    a = p.parse_args()
    r = random.Random(a.seed)
    strings = [random_string(r) for _ in range(a.count)]
    print(f"tokenizers {tokenizers.__version__}, {a.count} strings, seed {a.seed}")
    failed = False
    for path in a.files:
        failed |= compare(a.trireme, path, strings)
    with tempfile.TemporaryDirectory() as folder:
        for name, splits in SPLITS.items() if a.made else []:
            if a.only in (None, name):
                text = open(a.made, encoding="utf-8").read()
                failed |= compare(a.trireme, made(name, splits, text, folder), strings)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

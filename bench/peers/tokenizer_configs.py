#!/usr/bin/env python3
"""Compares made tokenizer.json files with Hugging Face tokenizers: random steps in random order.

  pip install tokenizers==0.23.3
  bench/peers/tokenizer_configs.py [--configs N] [--strings N] [--seed N] [--trireme PROGRAM]

Each file has a random model, normalizers, pre-tokenizers, post-processors, decoders, added tokens, truncation and
padding. For each it compares the ids with and without the post-processor's tokens, and the texts of ids with and
without special tokens.
Files that trireme refuses are counted by reason: a refusal is no difference. Ends with status 1 if anything differs.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tokenizer_strings import PIECES, SPLITS, random_string  # noqa: E402

REGEXES = [r"\s+", r"\d", r"\p{L}+", r"[aeiou]", r" {2,}", r"[^\w\s]+", r"\n", r"(?i:'s|'t)", r"\p{P}", r"."]
LITERALS = [" ", "a", "e", "the", "▁", "\n", "é", "  ", "世"]
BEHAVIOURS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
MARKS = ["▁", "_", "Ġ", "·"]


def pattern(r):
    return Regex(r.choice(REGEXES)) if r.random() < 0.5 else r.choice(LITERALS)


def flag(r):
    return r.random() < 0.5


NORMALIZERS = {
    "NFC": lambda r: normalizers.NFC(), "NFD": lambda r: normalizers.NFD(),
    "NFKC": lambda r: normalizers.NFKC(), "NFKD": lambda r: normalizers.NFKD(),
    "Lowercase": lambda r: normalizers.Lowercase(), "Nmt": lambda r: normalizers.Nmt(),
    "Strip": lambda r: normalizers.Strip(flag(r), flag(r)), "StripAccents": lambda r: normalizers.StripAccents(),
    "Prepend": lambda r: normalizers.Prepend(r.choice(["▁", " ", "ab"])),
    "Replace": lambda r: normalizers.Replace(pattern(r), r.choice(["", " ", "▁", "xy"])),
    "Bert": lambda r: normalizers.BertNormalizer(flag(r), flag(r), r.choice([None, True, False]), flag(r)),
    "ByteLevel": lambda r: normalizers.ByteLevel(),
}
PRE_TOKENIZERS = {
    "Whitespace": lambda r: pre_tokenizers.Whitespace(), "WhitespaceSplit": lambda r: pre_tokenizers.WhitespaceSplit(),
    "Bert": lambda r: pre_tokenizers.BertPreTokenizer(),
    "CharDelimiterSplit": lambda r: pre_tokenizers.CharDelimiterSplit(r.choice(" a_▁")),
    "Punctuation": lambda r: pre_tokenizers.Punctuation(r.choice(BEHAVIOURS)),
    "Digits": lambda r: pre_tokenizers.Digits(flag(r)),
    "Metaspace": lambda r: pre_tokenizers.Metaspace(r.choice(MARKS), r.choice(["always", "never", "first"]), flag(r)),
    "Split": lambda r: pre_tokenizers.Split(pattern(r), r.choice(BEHAVIOURS), flag(r)),
    "Known": lambda r: pre_tokenizers.Split(Regex(r.choice([s for s in SPLITS.values() if s])[0][0]), "isolated"),
    "ByteLevel": lambda r: pre_tokenizers.ByteLevel(flag(r), use_regex=flag(r)),
    "UnicodeScripts": lambda r: pre_tokenizers.UnicodeScripts(),
    "FixedLength": lambda r: pre_tokenizers.FixedLength(r.randrange(1, 9)),
}
DECODERS = {
    "ByteLevel": lambda r: decoders.ByteLevel(), "ByteFallback": lambda r: decoders.ByteFallback(),
    "Fuse": lambda r: decoders.Fuse(), "WordPiece": lambda r: decoders.WordPiece(r.choice(["##", "@@", ""]), flag(r)),
    "Metaspace": lambda r: decoders.Metaspace(r.choice(MARKS), r.choice(["always", "never", "first"]), flag(r)),
    "BPE": lambda r: decoders.BPEDecoder(r.choice(["</w>", "e", " "])),
    "CTC": lambda r: decoders.CTC(r.choice(["<pad>", "a"]), r.choice(["|", "e"]), flag(r)),
    "Replace": lambda r: decoders.Replace(pattern(r), r.choice(["", " ", "xy"])),
    "Strip": lambda r: decoders.Strip(r.choice([" ", "▁", "e"]), r.randrange(3), r.randrange(3)),
}


def sequence(r, kinds, join, weights=(3, 4, 2, 1)):
    count = r.choices(range(4), weights)[0]
    steps = [kinds[r.choice(sorted(kinds))](r) for _ in range(count)]
    if not steps:
        return None
    return steps[0] if count == 1 and flag(r) else join(steps)


def processor(r, depth=0):
    kind = r.choice(["none", "template", "bert", "roberta", "bytes", "sequence"])
    if kind == "none":
        return None
    if kind == "template":
        tokens = [("[A]", 1), ("[B]", 2), ("[C]", 3)]
        parts = [r.choice(["[A]", "[B]:1", "[C]", "$A"]) for _ in range(r.randrange(3))]
        single = " ".join(parts + ["$0"] + [r.choice(["[A]", "[C]", "[B]:2"]) for _ in range(r.randrange(3))])
        return processors.TemplateProcessing(single=single, pair="$A $B:1", special_tokens=tokens)
    if kind == "bert":
        return processors.BertProcessing(("[A]", 1), ("[B]", 2))
    if kind == "roberta":
        return processors.RobertaProcessing(("[A]", 1), ("[B]", 2), flag(r), flag(r))
    if kind == "bytes":
        return processors.ByteLevel(flag(r))
    if depth > 1:
        return None
    inner = [p for p in (processor(r, depth + 1) for _ in range(r.randrange(1, 4))) if p is not None]
    return processors.Sequence(inner) if inner else None


def bpe_of(r, words, byte_level):
    """Vocabulary and merges, from a trainer."""
    t = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>"))
    if byte_level:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=900, show_progress=False,
                                  special_tokens=[] if byte_level else ["<unk>", "<pad>", "</s>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [])
    t.train_from_iterator(words, trainer)
    model = json.loads(t.to_str())["model"]
    return model["vocab"], [tuple(m) for m in model["merges"]]


def make_models(words):
    r = random.Random(3)
    chars, merges = bpe_of(r, words, False)
    fallback = dict(chars)
    for byte in range(256):
        fallback[f"<0x{byte:02X}>"] = len(fallback)
    bytes_, bytes_merges = bpe_of(r, words, True)
    suffixed = Tokenizer(models.BPE(unk_token="<unk>"))
    suffixed.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    suffixed.train_from_iterator(words, trainers.BpeTrainer(vocab_size=900, show_progress=False, end_of_word_suffix="</w>",
                                                            special_tokens=["<unk>"]))
    prefixed = Tokenizer(models.BPE(unk_token="<unk>"))
    prefixed.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    prefixed.train_from_iterator(words, trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=["<unk>"],
                                                            continuing_subword_prefix="##"))
    piece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    piece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    piece.train_from_iterator(words, trainers.WordPieceTrainer(vocab_size=900, show_progress=False, special_tokens=["[UNK]"]))
    level = Tokenizer(models.WordLevel(unk_token="<unk>"))
    level.pre_tokenizer = pre_tokenizers.Whitespace()
    level.train_from_iterator(words, trainers.WordLevelTrainer(vocab_size=500, show_progress=False, special_tokens=["<unk>"]))
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    few = [w for w in words if len(set(w)) < 40 and w.isascii()] + PIECES * 20
    unigram.train_from_iterator(few, trainers.UnigramTrainer(vocab_size=900, show_progress=False, unk_token="<unk>",
                                                               special_tokens=["<unk>"]))
    pieces = [tuple(v) for v in json.loads(unigram.to_str())["model"]["vocab"]]
    with_bytes = pieces + [(f"<0x{b:02X}>", -20.0) for b in range(256)]
    sw, sm = (json.loads(suffixed.to_str())["model"][k] for k in ("vocab", "merges"))
    pw, pm = (json.loads(prefixed.to_str())["model"][k] for k in ("vocab", "merges"))
    wp = json.loads(piece.to_str())["model"]["vocab"]
    wl = json.loads(level.to_str())["model"]["vocab"]
    tup = lambda m: [tuple(x) for x in m]  # noqa: E731
    return {
        "bpe": lambda r: models.BPE(chars, merges, unk_token=r.choice(["<unk>", None]), fuse_unk=flag(r), ignore_merges=flag(r)),
        "bpe_fallback": lambda r: models.BPE(fallback, merges, unk_token=r.choice(["<unk>", None]), fuse_unk=flag(r),
                                             byte_fallback=True, ignore_merges=flag(r)),
        "bpe_bytes": lambda r: models.BPE(bytes_, bytes_merges, ignore_merges=flag(r)),
        "bpe_bytes2": lambda r: models.BPE(bytes_, bytes_merges),
        "bpe_suffix": lambda r: models.BPE(sw, tup(sm), unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=flag(r)),
        "bpe_prefix": lambda r: models.BPE(pw, tup(pm), unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=flag(r)),
        "wordpiece": lambda r: models.WordPiece(wp, unk_token="[UNK]", max_input_chars_per_word=r.choice([5, 100])),
        "wordlevel": lambda r: models.WordLevel(wl, unk_token="<unk>"),
        "unigram": lambda r: models.Unigram(pieces, 0, False),
        "unigram_bytes": lambda r: models.Unigram(with_bytes, 0, True),
    }


def make(r, kinds, only):
    name = r.choice(sorted(only or kinds))
    t = Tokenizer(kinds[name](r))
    t.normalizer = sequence(r, NORMALIZERS, normalizers.Sequence) or t.normalizer
    steps = dict(PRE_TOKENIZERS)
    is_bytes = name.startswith("bpe_bytes")
    if is_bytes:
        # Real files of this form end with ByteLevel.
        count = r.choices(range(3), (4, 4, 1))[0]
        list_ = [steps[r.choice(sorted(set(steps) - {"ByteLevel"}))](r) for _ in range(count)] + [steps["ByteLevel"](r)]
        t.pre_tokenizer = list_[0] if len(list_) == 1 and flag(r) else pre_tokenizers.Sequence(list_)
    else:
        p = sequence(r, {k: v for k, v in steps.items() if k != "ByteLevel" or r.random() < 0.1}, pre_tokenizers.Sequence)
        if p is not None:
            t.pre_tokenizer = p
    p = processor(r)
    if p is not None:
        t.post_processor = p
    d = decoders.ByteLevel() if is_bytes and r.random() < 0.8 else sequence(r, DECODERS, decoders.Sequence)
    if d is not None:
        t.decoder = d
    for _ in range(r.choice([0, 0, 1, 3, 6])):
        text = r.choice(["<s>", "</s>", "<|endoftext|>", "the", " the", "ab", "É", "é", "A", "x1", "world ", "\n\n", "世界", "   ",
                         "<mask>", "[UNK]", "a", "<sep> ", "ﬁ", "İ", "'s"])
        token = AddedToken(text, single_word=r.random() < 0.2, lstrip=r.random() < 0.2, rstrip=r.random() < 0.2,
                           normalized=flag(r), special=flag(r))
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    return name, t


def set_limits(r, t):
    """`truncation` and `padding`: the flags with which trireme applies them."""
    flags = []
    if r.random() < 0.4:
        t.enable_truncation(r.randrange(8, 30), stride=r.choice([0, 0, 3]), strategy=r.choice(["longest_first", "only_first"]),
                            direction=r.choice(["left", "right"]))
        flags.append("--truncate")
    if r.random() < 0.4:
        t.enable_padding(direction=r.choice(["left", "right"]), pad_id=r.randrange(5), length=r.choice([None, 1, 20, 40]),
                         pad_to_multiple_of=r.choice([None, 1, 8]))
        flags.append("--pad")
    return flags


def ask(program, action, path, lines, key, flags):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([program, "tokenizer", action, "-t", path, "--jsonl", *flags], input=text.encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        return None, done.returncode, done.stderr.decode()
    return [json.loads(line)[key] for line in done.stdout.decode().split("\n")[:-1]], 0, ""


def shown(path):
    root = json.load(open(path))
    root["model"] = {k: v for k, v in root["model"].items() if k not in ("vocab", "merges")}
    return json.dumps(root, ensure_ascii=False)


def peer_ids(t, strings, special):
    """None for a string for which the reference fails."""
    out = []
    for s in strings:
        try:
            out.append(t.encode(s, add_special_tokens=special).ids)
        except BaseException:  # noqa: BLE001  -- a panic of the reference is none of Exception
            out.append(None)
    return out


def answers_by_chance(path, strings, special):
    """Of added tokens with the same normalized text, any may win: that changes when the file is read again."""
    answers = [peer_ids(Tokenizer.from_file(path), strings, special) for _ in range(12)]
    return any(a != answers[0] for a in answers)


def peer_texts(t, lists, skip):
    out = []
    for ids in lists:
        try:
            out.append(t.decode(ids, skip_special_tokens=skip))
        except BaseException:  # noqa: BLE001
            out.append(None)
    return out


def one(a, r, kinds, number, folder, reasons):
    name, t = make(r, kinds, a.only.split(",") if a.only else None)
    limits = set_limits(r, t)
    path = os.path.join(folder, f"{number}.json")
    t.save(path)
    try:
        t = Tokenizer.from_file(path)
    except BaseException as e:  # noqa: BLE001
        reasons[f"the reference cannot read its own file: {str(e)[:60]}"] += 1
        return True
    strings = [random_string(r) for _ in range(a.strings)]
    worst = None
    for special in (False, True):
        wanted = peer_ids(t, strings, special)
        some = [i for i in range(len(strings)) if wanted[i] is not None]
        got, code, why = ask(a.trireme, "encode", path, [{"text": strings[i]} for i in some], "ids",
                             ["--special"] + limits + (["--add-special"] if special else []))
        if got is None and (code == 3 or "has no place" in why):
            reason = why.split(".json: ", 1)[-1].split("\n")[0]
            reasons[reason[:90]] += 1
            if a.show and a.show in reason:
                print(shown(path))
            return True
        if got is None:
            worst = (f"encode ends with {code}", why)
            break
        bad = [k for k in range(len(some)) if got[k] != wanted[some[k]]]
        if bad and answers_by_chance(path, [strings[some[k]] for k in bad], special):
            reasons["the reference answers by chance"] += 1
            return True
        if bad:
            k = min(bad, key=lambda k: len(strings[some[k]]))
            worst = (f"{len(bad)} of {len(some)} encodings (special {special})",
                     f"{strings[some[k]]!r}\n  wanted {wanted[some[k]]}\n  got    {got[k]}")
            break
    ids = [w for w in wanted if w is not None]
    size = t.get_vocab_size()
    ids += [[r.randrange(size) for _ in range(r.randrange(1, 12))] for _ in range(len(strings))]
    for skip in (False, True):
        if worst:
            break
        texts = peer_texts(t, ids, skip)
        ids = [i for i, text in zip(ids, texts) if text is not None]
        texts = [text for text in texts if text is not None]
        back, code, why = ask(a.trireme, "decode", path, [{"ids": i} for i in ids], "text", ["--skip-special"] if skip else [])
        if back is None:
            worst = (f"decode ends with {code}", why)
            break
        bad = [k for k in range(len(ids)) if back[k] != texts[k]]
        if bad:
            k = min(bad, key=lambda k: len(ids[k]))
            worst = (f"{len(bad)} of {len(ids)} decodings (skip {skip})",
                     f"{ids[k]} = {[t.id_to_token(i) for i in ids[k]]}\n  wanted {texts[k]!r}\n  got    {back[k]!r}")
    if worst:
        print(f"config {number} ({name}): {worst[0]}\n{shown(path)}\n  {worst[1]}", flush=True)
        if a.keep:
            t.save(os.path.join(a.keep, f"{number}.json"))
    else:
        reasons["equal"] += 1
    return worst is None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--configs", type=int, default=300)
    p.add_argument("--strings", type=int, default=60)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--first", type=int, default=0, help="number of the first file")
    p.add_argument("--only", help="models, with commas")
    p.add_argument("--keep", metavar="FOLDER", help="for the files that differ")
    p.add_argument("--show", metavar="WORDS", help="print files that are refused with these words")
    p.add_argument("--trireme", default="build/trireme")
    a = p.parse_args()
    r = random.Random(a.seed)
    words = [random_string(r) for _ in range(6000)] + PIECES * 20 + ["the quick brown fox jumps over the lazy dog"] * 50
    kinds = make_models([w.replace("\0", "") for w in words])
    reasons, different = collections.Counter(), 0
    print(f"tokenizers {tokenizers.__version__}, {a.configs} files, {a.strings} strings each, seed {a.seed}")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(a.first, a.first + a.configs):
            different += not one(a, random.Random(a.seed * 1000003 + number), kinds, number, folder, reasons)
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")
    print(f"{different:6} different")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()

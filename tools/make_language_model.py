#!/usr/bin/env python3
"""Trains the language model of the filter `language`, writes share/language/trigrams.txt and prints its accuracy.

  tools/make_language_model.py FOLDER [--out share/language/trigrams.txt]

FOLDER is filled with Debian packages (`apt-get download`, nothing is installed): the manual pages of manpages-LANGUAGE
and the pages of gnome-user-docs are trained on, with share/text/kjv.txt and, where there are no manual pages, the
messages of libreoffice-l10n-LANGUAGE; fortunes-LANGUAGE, debian-faq-LANGUAGE, installation-guide-amd64, aptitude-doc-fi
and libreoffice-help-LANGUAGE are held out. A language that has none of these keeps a tenth of its paragraphs apart. Only counts of trigrams go into the file, and the same packages give the same bytes.

The model is a distribution over trigrams of letters for each language: those that are frequent in any language
(ROWS of each) and one row for all others, in quarters of a bit. To add a language: a line in LANGUAGES and one in
`languages` of src/data/filter/language.c.
"""
import argparse
import collections
import glob
import gzip
import html
import math
import os
import random
import re
import struct
import subprocess
import sys

# The name, its packages of manual pages and its folder in gnome-user-docs.
LANGUAGES = [("en", "manpages", "C")] + [(n, f"manpages-{n}", n) for n in
             "ca cs da de es fi fr hr hu id it lv nb nl pl".split()] + [("pt", "manpages-pt-br", "pt_BR")] + \
            [(n, f"manpages-{n}", n) for n in "ro sv tr vi ru uk sr sk sl lt gl bg".split()]
HELD = ["fortunes", "fortunes-min", "debian-faq", "installation-guide-amd64", "aptitude-doc-fi"] + \
       [f"fortunes-{n}" for n in "de es it pl ru cs br bg".split()] + [f"debian-faq-{n}" for n in "de fr it nl pt ru".split()]
HELP = "libreoffice-help-{}/usr/share/libreoffice/help/{}/**/*.html"
MESSAGES = "sk sl lt gl bg".split()
NONE = {f"manpages-{n}" for n in ["ca", "hr", "lv"] + MESSAGES}  # Debian has no such package
CYRILLIC = {"ru", "uk", "sr", "bg"}
ROWS, TEXT_MAX, SHARE_OF_COUNT = 400, 700_000, 0.5
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def is_letter(o):
    return (65 <= o <= 90 or 97 <= o <= 122 or (0xc0 <= o < 0x250 and o not in (0xd7, 0xf7)) or 0x1e00 <= o < 0x1f00 or
            0x400 <= o < 0x530)


def letters(text):
    """The lower-case letters, with one blank in place of anything else: as language.c reads a text."""
    out = []
    for c in text:
        if is_letter(ord(c)):
            out.append("i" if c == "İ" else c.lower())
        elif out and out[-1] != " ":
            out.append(" ")
    return "".join(out).strip()


def trigrams(text):
    text = f" {text} "
    return [text[i:i + 3] for i in range(len(text) - 2)]


# ---- texts of the packages ----------------------------------------------------------------------

def content(path):
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as f:
        return f.read().decode("utf8", "replace")


def manual_page(path):
    paragraphs, lines = [], []
    for line in content(path).split("\n") + [""]:
        if not line.startswith((".", "'")):
            line = re.sub(r"\\f[BIPR]|\\f\(..|\\f\[[^]]*\]|\\[,/&c]", "", line).replace("\\-", "-")
            line = re.sub(r"\\\(..|\\\[[^]]*\]|\\.", " ", line).strip()
            if line:
                lines.append(line)
                continue
        paragraphs.append(" ".join(lines))
        lines = []
    return paragraphs


def tagged(path, drop, take):
    text = re.sub(rf"<({drop})\b.*?</\1>|<!--.*?-->", "", content(path), flags=re.S)
    found = re.findall(rf"<(?:{take})\b[^>]*>(.*?)</(?:{take})>", text, flags=re.S)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", "", p)).split()) for p in found]


def messages(path):
    """The translations of a catalog of messages, which lie behind one table of lengths and places."""
    with open(path, "rb") as f:
        data = f.read()
    count, at = struct.unpack("<I4xI", data[8:20])
    places = [struct.unpack_from("<II", data, at + 8 * i) for i in range(count)]
    parts = [p for n, begin in places for p in data[begin:begin + n].decode("utf8", "replace").split("\0")]
    return [" ".join(html.unescape(re.sub(r"<[^>]+>|[_~](?=\w)", "", p)).split()) for p in parts]


def prose(paragraphs, without=frozenset()):
    """Paragraphs of eight words or more that are nearly all letters, each once."""
    kept = [p for p in paragraphs if len(p.split()) >= 8 and sum(c.isalpha() or c == " " for c in p) > 0.9 * len(p)]
    return [p for p in dict.fromkeys(kept) if p not in without]


def find(folder, pattern):
    return sorted(p for p in glob.glob(os.path.join(folder, pattern), recursive=True) if os.path.isfile(p))


def trained(folder, name, manual, guide):
    out = []
    for g in [guide, "pt"] if name == "pt" else [guide]:
        for p in find(folder, f"gnome-user-docs/usr/share/help/{g}/**/*.page"):
            out += tagged(p, "credit|code|cmd|screen|license", "p|title|desc")
    for p in find(folder, f"{manual}/usr/share/man/**/*.gz"):
        if "latin" not in p:
            out += manual_page(p)
    for p in find(folder, f"libreoffice-l10n-{name}/**/*.mo") if name in MESSAGES else []:
        out += messages(p)
    if name == "en":
        out += content("share/text/kjv.txt").split("\n")
    return out


def held_out(folder, name):
    guides, quotes = [], []
    faq = "debian-faq" if name == "en" else f"debian-faq-{name}"
    for p in find(folder, f"installation-guide-amd64/usr/share/doc/*/{name}/*.html") + \
            find(folder, f"{faq}/usr/share/doc/**/*.html*") + find(folder, f"aptitude-doc-{name}/**/*.html") + \
            find(folder, HELP.format(name, name)):
        guides += tagged(p, "pre|code|script|style|head", "p|li|dd")
    package = "fortunes" if name == "en" else "fortunes-" + {"pt": "br", "sk": "cs"}.get(name, name)
    for p in find(folder, f"{package}/usr/share/games/fortunes*/**"):
        if package == "fortunes-cs" and p.endswith("-sk") != (name == "sk"):
            continue
        if not p.endswith((".dat", ".u8")) and not os.path.islink(p) and not re.search(r"/off|/sk/|asciiart|banner", p):
            quotes += [" ".join(x.split()) for x in content(p).split("\n%")]
    return {"guides": prose(guides), "quotes": prose(quotes)}


def unpack(folder):
    names = ["gnome-user-docs"] + HELD + [m for _, m, _ in LANGUAGES if m not in NONE] + \
            [f"libreoffice-l10n-{n}" for n in MESSAGES] + [f"libreoffice-help-{n}" for n in ("en-us", "sl", "gl")]
    missing = [n for n in names if not glob.glob(os.path.join(folder, n + "_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for n in names:
        to = os.path.join(folder, n)
        if not os.path.isdir(to):
            subprocess.run(["dpkg-deb", "-x", glob.glob(os.path.join(folder, n + "_*.deb"))[0], to], check=True)


def read_texts(folder):
    train, held, english = {}, {}, set()
    for name, manual, guide in LANGUAGES:
        texts = prose(trained(folder, name, manual, guide), english)
        held[name] = {k: [p for p in v if p not in english] for k, v in held_out(folder, name).items() if v}
        if name == "en":  # pages that nobody translated
            english = set(texts) | {p for v in held[name].values() for p in v}
            for p in find(folder, HELP.format("en-us", "en-US")):
                english |= set(tagged(p, "pre|code|script|style|head", "p|li|dd"))
        random.Random(1).shuffle(texts)
        if not held[name]:
            count = len(texts) // 10
            held[name], texts = {"same source": texts[:count]}, texts[count:]
        train[name], size = [], 0
        for p in texts:
            if size < TEXT_MAX:
                train[name].append(letters(p))
                size += len(p)
    return train, held


# ---- the model ----------------------------------------------------------------------------------

def fit(train):
    """The rows' trigrams, and the weight of each for each language: quarters of a bit above 2 bits."""
    counts = {n: collections.Counter(g for p in train[n] for g in trigrams(p)) for n in train}
    rows = sorted({g for c in counts.values() for g, _ in sorted(c.items(), key=lambda x: (-x[1], x[0]))[:ROWS]})
    weights = {g: [] for g in rows + ["?"]}
    for c in counts.values():
        total = sum(c.values())
        below = total + SHARE_OF_COUNT * (len(rows) + 1)
        seen = [c[g] for g in rows]
        for g, n in zip(rows + ["?"], seen + [total - sum(seen)]):
            bits = -math.log2((n + SHARE_OF_COUNT) / below)
            weights[g].append(min(max(round(4 * (bits - 2)), 0), 60))
    return weights


def answer(weights, names, text):
    """The language, as language.c finds it: among those of the script that most letters have."""
    sums = [0] * len(names)
    for g in trigrams(text):
        for i, w in enumerate(weights.get(g) or weights["?"]):
            sums[i] += w
    is_cyrillic = 2 * sum("\u0400" <= c < "\u0530" for c in text) > len(text.replace(" ", ""))
    return min((s, i) for i, s in enumerate(sums) if (names[i] in CYRILLIC) == is_cyrillic)[1]


def report(weights, names, held):
    lengths = (5, 10, 20, 50)
    print("| held out | " + " | ".join(f"{n} words" for n in lengths) + " |")
    print("| --- |" + " --- |" * len(lengths))
    for name, groups in held.items():
        for group, texts in groups.items():
            cells = []
            for length in lengths:
                words = [letters(t).split()[:length] for t in random.Random(2).sample(texts, min(len(texts), 500))]
                words = [" ".join(w) for w in words if len(w) == length]
                good = sum(names[answer(weights, names, w)] == name for w in words)
                cells.append(f"{100 * good / len(words):.1f}% of {len(words)}" if words else "")
            print(f"| {name}, {group} | " + " | ".join(cells) + " |", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--out", default="share/language/trigrams.txt")
    a = p.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    unpack(a.folder)
    train, held = read_texts(a.folder)
    names = list(train)
    weights = fit(train)
    # Paragraphs that are in another language: examples, and what a translator left.
    train = {n: [t for t in train[n] if names[answer(weights, names, t)] == n] for n in names}
    weights = fit(train)
    os.makedirs(os.path.dirname(a.out), exist_ok=True)
    with open(a.out, "w") as f:
        f.write(f"# Trigrams of letters of {len(names)} languages; made by tools/make_language_model.py, see README.md.\n")
        f.write(" ".join(names) + "\n")
        for g, row in weights.items():
            f.write((g.replace(" ", "_") if g != "?" else "?") + " " + "".join(DIGITS[w] for w in row) + "\n")
    print(f"{len(weights)} rows of {len(names)} languages", file=sys.stderr)
    report(weights, names, held)


main()

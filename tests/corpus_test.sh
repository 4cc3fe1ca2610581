#!/usr/bin/env bash
# data build from outside: every format gives its documents, the bytes depend on neither threads nor
# kills, changed inputs are refused, and train takes the folder.
set -u
. tests/support/check.sh

python3 - <<'END'
import csv, gzip, json
with open("a.jsonl", "w") as f:
    for i in range(3000):
        f.write(json.dumps({"id": i, "text": "document %d of many words, number %d" % (i % 2500, i % 2500)}) + "\n")
with open("b.csv", "w") as f:
    w = csv.writer(f)
    w.writerow(["id", "body", "n"])
    for i in range(100):
        w.writerow([i, 'row %d, with "quotes"\nand lines' % i, 3])
with gzip.open("c.warc.wet.gz", "wb") as f:
    for i in range(50):
        t = b"page %d text\nline two\n" % i
        f.write(b"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://x/%d\r\n"
                b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (i, len(t), t))
with open("d.txt", "w") as f:
    for i in range(2000):
        f.write("A paragraph of plain text with the number %d in it.\nSecond line.\n\n" % i)
END
cat >c.yaml <<'END'
out: corpus
filters: [length]
length.min_chars: 22
shard_bytes: 30000
document_bytes: 2000
sources:
  web: {paths: [a.jsonl, c.warc.wet.gz], licence: CC0-1.0}
  table: {paths: b.csv, text: body, generator: a model}
  plain: {paths: d.txt, unit: paragraph}
END
digest() { (cd "$1" && cat *.tok *.docs.jsonl.zst *-*.json dropped.jsonl | md5sum); }

check 0 'dedup.exact                             500' 'length.too-short                         10' \
    'kept                                  4,640' 'data.train=' -- data build c.yaml
check 0 'an earlier call finished' -- data build c.yaml
check 3 'another configuration' -- data build c.yaml length.min_chars=3
want=$(digest corpus)
for threads in 1 3 16; do
    check 0 'kept' -- data build c.yaml out=t threads=$threads
    same "threads $threads" "$want" "$(digest t)"
    rm -rf t
done

# Kills at growing times: what is finished stays, and the end is the same.
for i in 1 2 3 4 5 6; do
    { timeout -s KILL "0.0$((i * 2))" "$trireme" data build c.yaml out=k >/dev/null; } 2>/dev/null
done
check 0 'kept' -- data build c.yaml out=k
same 'after kills' "$want" "$(digest k)"
[ ! -e k/work ] || same 'work folder' gone there

# A build that stopped at a bad line goes on when it is repaired away, but not with other inputs.
printf '{"text": "a line that is long enough"}\n{"n": 1}\n' >bad.jsonl
check 5 'bad.jsonl:2: no key "text"' -- data build c.yaml out=e sources.web.paths=a.jsonl,bad.jsonl
echo '{"text": "one more document, added later"}' >>a.jsonl
check 5 'a.jsonl was changed since this build was begun' -- data build c.yaml out=e sources.web.paths=a.jsonl,bad.jsonl
check 0 'read.bad                                  1' -- data build c.yaml out=e2 \
    sources.web.paths=bad.jsonl on_error=skip

check 3 'did you mean "sources.web.paths"' -- data build c.yaml out=e3 sources.web.pathz=x
check 3 'there is no filter "lenght"; did you mean "length"?' -- data build c.yaml out=e3 filters=lenght
check 4 'no such file' -- data build c.yaml out=e3 sources.web.paths=missing.jsonl

cat >train.yaml <<'END'
model: {preset: tiny, layers: 1, dim: 32, heads: 2}
train: {steps: 2, seq: 32, global_batch: 4}
data: {train: corpus, valid: 0}
eval: {every: 0}
checkpoint: {every: 0}
kernels: {threads: 1}
END
check 0 '' -- train train.yaml run.dir=r
check 0 'document' -- data show train.yaml
[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

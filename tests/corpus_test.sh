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
check 0 '---- length.too-short  web  ' 'c.warc.wet.gz:0  http://x/0' -- data look corpus
check 3 'another configuration' -- data build c.yaml length.min_chars=3
want=$(digest corpus)
for threads in 1 3 16; do
    check 0 'kept' -- data build c.yaml out=t threads=$threads
    same "threads $threads" "$want" "$(digest t)"
    rm -rf t
done

# Packed files give the documents of the plain one, and are errors where they are cut.
python3 - <<'END'
import bz2, lzma
data = open("a.jsonl", "rb").read()
open("p.jsonl.bz2", "wb").write(bz2.compress(data[:50000]) + bz2.compress(data[50000:]))
open("p.jsonl.xz", "wb").write(lzma.compress(data[:50000]) + lzma.compress(data[50000:]))
for name in "p.jsonl.bz2", "p.jsonl.xz", "c.warc.wet.gz":
    open("cut." + name, "wb").write(open(name, "rb").read()[:-40])
END
one='sources.table.paths=b.csv sources.plain.paths=d.txt filters=null dedup.exact=false'
check 0 'kept' -- data build c.yaml out=p0 $one sources.web.paths=a.jsonl
for file in p.jsonl.bz2 p.jsonl.xz; do
    check 0 'kept' -- data build c.yaml out=p1 $one sources.web.paths=$file
    same "$file" "$(cat p0/*.tok | md5sum)" "$(cat p1/*.tok | md5sum)"
    rm -rf p1
    check 5 'ends too early' -- data build c.yaml out=p2 $one sources.web.paths=cut.$file
    rm -rf p2
done
check 5 'gzip data is damaged' -- data build c.yaml out=p2 $one sources.web.paths=cut.c.warc.wet.gz

# Parquet files of another program: dictionaries, nulls, pages of both versions, lengths as deltas.
base64 -d >t1.parquet <<'END'
UEFSMRUEFUAVOEwVCBUAEgAAIAQBAAkBAAIJB0AAAwAAAAAAAAAEAAAAAAAAABUAFRQVGCwVCBUQFQYVBhwAAAAKJAIAAAAIAQID5AAVBBVIFUxMFQQVABIAACSMGAAAAHRoZSBmaXJzdCByb3cgb2YgYSB0YWJsZQQAAABzaGlwFQAVEhUWLBUIFRAVBhUGHAAAAAkgAgAAAAMNAQMCFQQVHhUiTBUGFQASAAAPOAEAAABhAQAAAGIBAAAAZBUAFRQVGCwVCBUQFQYVBhwAAAAKJAIAAAADCwIDJAAVBBlMNQAYBnNjaGVtYRUGABUEJQIYAW4AFQwlAhgEdGV4dCUATBwAAAAVDCUCGAJpZCUATBwAAAAWCBkcGTwmABwVBBk1AAYQGRgBbhUCFggWlgEWkgEmXCYIKSwVBBUAFQIAFQAVEBUCADwpBhkmAAgAAAAmABwVDBk1AAYQGRgEdGV4dBUCFggWnAEWpAEmggImmgEpLBUEFQAVAgAVABUQFQIAPBZoGQYZJgIGAAAAJgAcFQwZNQAGEBkYAmlkFQIWCBZ0Fnwm/AImvgIpLBUEFQAVAgAVABUQFQIAPBYGGQYZJgIGAAAAFqYDFggmCBayAwAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGTwcAAAcAAAcAAAAJAEAAFBBUjE=
END
base64 -d >t2.parquet <<'END'
UEFSMRUEFUAVPEwVCBUAEgAAKLUv/SAgrQAAcAEAAgADAAQAAAAAAAAAA1QCAAMBFQYVDBUMXBUIFQAVCBUQFQQVABIcAAAACAECA+QAFQQVSBVaTBUEFQASAAAotS/9ICQhAQAYAAAAdGhlIGZpcnN0IHJvdyBvZiBhIHRhYmxlBAAAAHNoaXAVBhUKFQpcFQgVAhUIFRAVBBUAEhwAAAADDQEDAhUEFR4VMEwVBhUAEgAAKLUv/SAPeQAAAQAAAGEBAAAAYgEAAABkFQYVDBUMXBUIFQIVCBUQFQQVABIcAAAAAwsCAyQAFQQZTDUAGAZzY2hlbWEVBgAVBCUCGAFuABUMJQIYBHRleHQlAEwcAAAAFQwlAhgCaWQlAEwcAAAAFggZHBk8JgAcFQQZNQAGEBkYAW4VDBYIFpgBFpQBJmAmCCksFQQVABUCABUAFRAVAgA8KQYZJgAIAAAAJgAcFQwZNQAGEBkYBHRleHQVDBYIFp4BFrABJpICJpwBKSwVBBUAFQIAFQAVEBUCADwWaBkGGSYCBgAAACYAHBUMGTUABhAZGAJpZBUMFggWdhaIASaYAybMAiksFQQVABUCABUAFRAVAgA8FgYZBhkmAgYAAAAWrAMWCCYIFswDACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNi4wLjEZPBwAABwAABwAAAAlAQAAUEFSMQ==
END
base64 -d >t3.parquet <<'END'
UEFSMRUAFUwVSiwVCBUAFQYVBhwAAAAfiwgAAAAAAAIDY2JgYOBgZGSAACYozQylWaA0AJkKaxQmAAAAFQAVuAEVigEsFQgVDBUGFQYcAAAAH4sIAAAAAAACA2NiYGBg5m1gZGE2UGcDshm4GLCCkoxUhbTMouIShaL8coX8NIVEhZLEpJzU4ozMAlxyAGzYqbNcAAAAFQAVKhVGLBUIFQAVBhUGHAAAAB+LCAAAAAAAAgNjYmBgYOZmBJKJICIJRKQAAEFvYVkVAAAAFQQZTDUAGAZzY2hlbWEVBgAVBCUCGAFuABUMJQIYBHRleHQlAEwcAAAAFQwlAhgCaWQlAEwcAAAAFggZHBk8JgAcFQQZJQYAGRgBbhUEFggWchZwJghJHBUAFQAVAgA8KQYZJgAIAAAAJgAcFQwZJQYMGRgEdGV4dBUEFggW4gEWtAEmeEkcFQAVDBUCADwWaBkGGSYCBgAAACYAHBUMGSUGABkYAmlkFQQWCBZQFmwmrAJJHBUAFQAVAgA8FgYZBhkmAgYAAAAWpAMWCCYIFpADACggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNi4wLjEZPBwAABwAABwAAAABAQAAUEFSMQ==
END
printf '{"text": "the first row of a table"}\n{"text": "ship"}\n{"text": "the first row of a table"}\n' >t.jsonl
cat >t.yaml <<'END'
on_error: skip
dedup.exact: false
sources: {t: {paths: t.jsonl}}
END
check 0 'kept                                      3' -- data build t.yaml out=q0
for file in t1.parquet t2.parquet t3.parquet; do
    check 0 'read.bad                                  1' -- data build t.yaml out=q1 sources.t.paths=$file
    same "$file" "$(md5sum <q0/t-00000.tok)" "$(md5sum <q1/t-00000.tok)"
    rm -rf q1
    head -c 300 $file >cut.parquet
    check 5 'does not end with PAR1' -- data build t.yaml out=q1 sources.t.paths=cut.parquet
    rm -rf q1
done
check 5 'no column "body"' -- data build t.yaml out=q1 sources.t.paths=t1.parquet sources.t.text=body

# Pages that Hadoop packed with LZ4 (hadoop_lz4_compressed.parquet of apache/parquet-testing).
python3 -c 'import base64, sys, zlib; sys.stdout.buffer.write(zlib.decompress(base64.b64decode(sys.argv[1])))' \
    'eNqVUs1Kw0AQnk1CWWKxKs6ShSC5tFSoJWtt2kAO8VAQ6UF8AKFpUij4W22RPoAnn0H6HJ703t499ujRkycP7iYWUXtx2GGyM99887M52j8WaKCDe21pDFCyJnXjjTyNP07U9fnLImAOrQpSCaRIbYsuIhZdYBmUl3gz0aUaLtHzMt/G6ne9VamFuQp3oq4ycdL7XcyDsi7dli4hP+lMiXAxaEt8RmepPtaBQNgKZ1MCk60wG6sVStZNLGWsuXSERcSis6mSrVCN8Neb1TSlrkw0Vb2g6TGgxtsHslNAowiW1nUB8+mHADSLmqWPhABGuc2DErXR4EVqcIVDk1H2SNiclGjwj0XyitoaauoxlAEovRIb8wtikRKP2QOR/uDH0pak3uk2mrxOjRxPW02TXwh7JzIU/GM5f7nZvcEolA8vO4OrYXKzczZwRsngun9x7oiqcKvCKUfD/mnsdJp+3Gv2fL+2G3lJz/Nqtdj1XM9P6m7Xjxp+w42SKBbbPLABsgO3BOBI/rmfByR6OQ==' >hadoop.parquet
printf '{"text": "%s"}\n' abc def abc def >h.jsonl
check 0 'kept' -- data build t.yaml out=q2 sources.t.paths=h.jsonl
check 0 'kept' -- data build t.yaml out=q3 sources.t.paths=hadoop.parquet sources.t.text=c1
same hadoop.parquet "$(md5sum <q2/t-00000.tok)" "$(md5sum <q3/t-00000.tok)"

# Arrow of another program: a stream of two batches, a file packed with zstd with large texts, one with LZ4, and
# a stream with LZ4 whose columns have dictionaries, which the second batch replaces.
python3 - <<'END'
import base64, zlib
for name, data in ("stream", "eNrtVL1OAzEMdi4pl8INNyB0Q4cMDB0ZeIA+Sou4qicVWrWRYOSB+jgMPEIHHoAtOImvBKsIda1iyXHsz/Hfneycc1oA1ODpEiq4gAFovCEJhTqgpvFUdAJI5CnyPelvGAOdCx/jmmyeCuTuEWAZcBATPHbRd+B9m8TXS9u+Wn//QJ/36Ff5eCPCsUy4JfkcbCrYa8yqse4yVFtTL7Eew3J0tn2C0FOFXIaevLMhH0zrxiL24amCG5pIFaKDVKHuaR8UJ9UgomhmO4izlPBDw+QuSFJeqjXOIqXmkD/SmL2/Y+8nkDTpdfU7Xq+bxKaSOkXyzVLiuGT4VXIvEhYk5RG/PRo/ie2iNfNus7Vms3oxq7mZGTt7WLYmAxnIwNkA20W3PgaWtBO+XKThYaueto/1P/tY/LGPOWkmuV2xvQtM12x/7yV7yPa0ZibB3E7Ve5tk+zb/khnIwPkD6d708huVJAFt"), \
                  ("file", "eNrtVLFKA0EQfXt3uSR6QpAIAYOsoBIRESGFFoJ2FoIhCNoIiRhJQFCSA1NaWOkv2FhrII29hXaWKSwsLFNYpLSROLs7Sc5TIR/ghNm5mX2Zmbc3exv5/PbuMtAlyQggASUj8OAighg9kQiHfJAXo9XhFbBJC6RZ9vcoB4EtlSPJMSUWaeUQ2NT7EOu0XBhsUmFTAayyfqnuq+cmYe4Mbkxh0ryv8m3B9Eoto0b6SrgXg42EcyrMgfYdHUtQdzHiF9WsEszZ9J0O/a+oeXukUc271786r1NheCrxqKI5MU9nhe3oXCmBvniYolpOH/NGOhPq1Yir67lcbxTDyxzbTCje82fZ5thOsC2zHWd7znaebZPtGttOKH8nVF9J5Aev4X3xx77s8blf+pSyAdBLMD8j9o4FO/BeNC55M0hq8eA63/NrnDMN1EkC9XVcxIHR7+eo45knqg+0bby3olwfC4vrk6kHi3G9uMIXWu6+QNsvl+RRpVrzZfXkTJ4cyaL0iwfHJVkrV05tFMRz4+ry8fp21f2VbxQf3bi5lwG+XXO39Cx7xN7VU5Yws0gsszxrDnNbYYJ1tsE5/b/ng3ueo80N/Y38Ao63ink="), \
                  ("lz4", "eNpzDAryDzdkYPgPBAUMDAwCDCDAxcDDwMbAysABZAEBIwuQzwDkcQBJFigJFAZiEbAeEaAYGwM7WJUA1AxGVhAtA1XLAKVLUitKIGwWMB9k7wqoOSDAwyABtZkHbBoDMwvYjBkMCMADFBEAuwOiJgJqjwiSXch2MCOJSaDR2lDaA0r7IqllRDKPEY1mUfKVSHBoAnIbuBmQ3A8VB3IbQNwXQLvfQPEVdiSzYRyoejNQUHCVZKQqpGUWFZcoFOWXK+SnKSQqlCQm5aQqSILCab9/cUZmwWVmEJP/PDNjAFgKah4oHBmg8ccDdA0bOHQEIGEI9IUJkFRBircGqL4NUBo5fGkRzyDzHcFpDQBuLz5e"), \
                  ("coded", "eNq1U71qAkEQnlvXKLKEK644QciSFAnkBayChLSBlJYaVE4IKHoQS8mTpEyZMqRKmUex8B0uM7t7uk7U5CQZmJuZ3fnZb24my7JsAQAR5FQDBUdQhipqSIEEiaKHfiQFcoJM+iueoUOZYlvIDXcOzm/YA8wSIUtkgJDSwZpeTDwEGj/PqIcQo98RVPAFIcaFxsvmv0HWXn6SaX+Wkl412W0NZWyFXDE2JbC3FgeWyd48vAprWrTKxIKQeALQ8d7p5w9NTAOlXMW0HfaI4ctrlmA3nTipnbzy7gKWz77F5T69jTutJzTnZC7yGrni7s8Jci1N+nownExTPRk96tFAd3XavX/o6zr14/3O6DaO+vOx0Z/oW3/orrl6z/r/Nth7/7NP8WF9CvwY7x7N+SzH/7lvPkrSYGjvwZl4OMUWnNI7i5msO9lkeJqsD/mOCYZHsLgtOAPfz50L15+f+rei3+7R+MA9EgXn48zJCyevWQ94X9QmPuXwUZmlX2e5uU+XBP14mgzHBXaqyFy1/miuONXZ/gCzd80V7JirbfMTFJwfkl+FK328"):
    open(name + ".arrow", "wb").write(zlib.decompress(base64.b64decode(data)))
open("rows.jsonl", "w").write('{"text": "%s"}\n{"text": "ship"}\n{"text": "%s"}\n' % (("the first row of a table " * 40,) * 2))
END
check 0 'kept                                      3' -- data build t.yaml out=a0 sources.t.paths=rows.jsonl
for file in stream file coded; do
    check 0 'read.bad                                  1' -- data build t.yaml out=a1 sources.t.paths=$file.arrow
    same "$file.arrow" "$(md5sum <a0/t-00000.tok)" "$(md5sum <a1/t-00000.tok)"
    rm -rf a1
    head -c 700 $file.arrow >cut.arrow
    check 5 'ends too early' -- data build t.yaml out=a1 sources.t.paths=cut.arrow
    rm -rf a1
done
check 5 'no column "body" of texts' -- data build t.yaml out=a2 sources.t.paths=stream.arrow sources.t.text=body
rm -rf a2
check 0 'kept' -- data build t.yaml out=a2 sources.t.paths=lz4.arrow
rm -rf a2
# Folders of Hugging Face datasets: the tables of a split, and none of the descriptions next to them.
mkdir -p hub/data saved/train saved/test
cp stream.arrow saved/train/data-00000-of-00001.arrow && cp stream.arrow saved/test/data-00000-of-00001.arrow
echo '{"splits": ["train", "test"]}' >saved/dataset_dict.json && echo '{"a": 1}' | tee saved/train/state.json >saved/train/dataset_info.json
cp t1.parquet hub/data/train-00000-of-00001.parquet && cp t1.parquet hub/data/test-00000-of-00001.parquet && echo text >hub/data/README.md
check 0 'kept                                      3' 'from 1 file' -- data build t.yaml out=a3 sources.t.paths=saved
check 0 'kept                                      6' 'from 2 files' -- data build t.yaml out=a4 sources.t.paths=saved sources.t.split=all
check 0 'kept                                      3' 'from 1 file' -- data build t.yaml out=a5 sources.t.paths=hub/data sources.t.split=test

# Files that cannot be read, and folders that never end, are named.
mkdir -p loop/inner && cp t.jsonl loop && ln -s .. loop/inner/up
check 5 'loop/inner/up: a link to a folder above it' -- data build t.yaml out=u1 sources.t.paths=loop
rm loop/inner/up && ln -s nothing loop/inner/gone
check 4 'loop/inner/gone: no such file' -- data build t.yaml out=u2 sources.t.paths=loop
# The root of a file system within another may have the inode number of the other's root.
mkdir outer && unshare -rm mount -t tmpfs none outer 2>/dev/null && check_any 0 'from 1 file' -- unshare -rm bash -c '
    mount -t tmpfs none outer && mkdir outer/inner && mount -t tmpfs none outer/inner && cp t.jsonl outer/inner && exec "$@"
' - "$trireme" data build t.yaml out=a6 sources.t.paths=outer
rm loop/inner/gone && mkfifo loop/inner/pipe
check 5 'loop/inner/pipe: a file or folder expected' -- data build t.yaml out=u3 sources.t.paths=loop
rm loop/inner/pipe && chmod 000 loop/t.jsonl
[ "$(id -u)" = 0 ] || check 4 'loop/t.jsonl: open failed: Permission denied' -- data build t.yaml out=u4 sources.t.paths=loop

# Pages of a web archive: the visible text, its characters, and nothing around it.
python3 - <<'END'
def record(kind, content, body):
    http = b"HTTP/1.1 200 OK\r\nContent-Type: " + content + b"\r\n\r\n" + body
    return b"WARC/1.0\r\nWARC-Type: " + kind + b"\r\nWARC-Target-URI: http://x/1\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
page = b'''<!DOCTYPE html><html><head><title>no</title><style>p > a { x }</style></head><body>
<nav><ul><li>Menu</li></ul></nav><h1>A  title &amp; more</h1><!-- no > --><p>One <b>bold</b>
word,<br>a line &#8364; &#x20AC; &eacute; &unknown; a < b.</p><script>if (a < b) "</p>"</script>
<pre>  two
    lines</pre><table><tr><td>1</td><td>2</td></tr><tr><td a="x>y">3</td></tr></table><footer>no</footer></body></html>'''
open("pages.warc", "wb").write(record(b"request", b"text/html", b"no") + record(b"response", b"text/html; charset=utf-8", page) +
                               record(b"response", b"text/html; charset=ISO-8859-1", b"<p>caf\xe9 \x80") + record(b"response", b"image/png", b"\x89PNG"))
import json
want = ["A title & more\n\nOne bold word,\na line \u20ac \u20ac \u00e9 &unknown; a < b.\n\ntwo\n    lines\n\n1 2\n3", "caf\u00e9 \u20ac"]
open("pages.jsonl", "w").writelines(json.dumps({"text": t}) + "\n" for t in want)
END
check 0 'kept                                      2' -- data build t.yaml out=h0 sources.t.paths=pages.jsonl
check 0 'kept                                      2' -- data build t.yaml out=h1 sources.t.paths=pages.warc
same 'pages' "$(md5sum <h0/t-00000.tok)" "$(md5sum <h1/t-00000.tok)"

# Near duplicates: texts of which a few words differ.
python3 - <<'END'
import json, random
random.seed(1)
words = ["word%d" % i for i in range(2000)]
with open("n.jsonl", "w") as f:
    for i in range(200):
        text = [random.choice(words) for _ in range(150)]
        f.write(json.dumps({"id": "first %d" % i, "text": " ".join(text)}) + "\n")
        text[random.randrange(150)] = "other"
        if i < 50:
            f.write(json.dumps({"id": "again %d" % i, "text": "\n".join(text).upper() + "!"}) + "\n")
END
for memory in 1MiB 256MiB; do
    check 0 'dedup.near                               50' 'kept                                    200' -- \
        data build t.yaml out=n sources.t.paths=n.jsonl dedup.near=true memory=$memory
    rm -rf n
done

# Kills at growing times: what is finished stays, and the end is the same.
for i in 1 2 3 4 5 6; do
    "$trireme" data build c.yaml out=k >/dev/null 2>&1 &
    sleep "0.0$((i * 2))"
    { kill -9 $! && wait $!; } 2>/dev/null # it holds the lock until it is gone
done
for _ in $(seq 1200); do # a killed process holds its lock until the system has ended it
    "$trireme" data build c.yaml out=k >/dev/null 2>&1
    [ $? = 4 ] || break
    sleep 0.1
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
check 0 '.tok #' -- data trace r --step 2
"$trireme" data trace r --step 2 --json | head -1 >line
hash=$(sed 's/.*"hash": "\([0-9a-f]*\)".*/\1/' line) sequence=$(sed 's/.*"sequence": \([0-9]*\).*/\1/' line)
check 0 "step 2  sequence $sequence" -- data trace r --document "$hash"
check 4 'no document of the name or hash "none"' -- data trace r --document none
check 2 'needs --step or --document' -- data trace r


# Planted pairs of a similarity of 0.8 are found, and pairs of 0.5 are told apart from them.
python3 - <<'END'
import json, random
random.seed(2)
words = ["w%d" % i for i in range(5000)]
grams = lambda t: {tuple(t[i:i + 5]) for i in range(len(t) - 4)}
def pair(low, high, changes):
    while True:
        a = [random.choice(words) for _ in range(300)]
        b = list(a)
        for at in random.sample(range(300), changes): b[at] = random.choice(words)
        j = len(grams(a) & grams(b)) / len(grams(a) | grams(b))
        if low <= j <= high: return a, b
with open("j.jsonl", "w") as f:
    for i in range(300):
        for kind, low, high, changes in ("near", 0.8, 0.85, 6), ("far", 0.45, 0.55, 20):
            for text in pair(low, high, changes):
                f.write(json.dumps({"id": "%s %d" % (kind, i), "text": " ".join(text)}) + "\n")
END
check 0 'dedup.near' -- data build t.yaml out=j sources.t.paths=j.jsonl dedup.near=true samples=0
"$trireme" data trace train.yaml --step 1 data.train=j train.global_batch=400 train.seq=4096 --json >kept
python3 - <<'END' || failures=$((failures + 1))
import json, collections
kept = collections.Counter(i for i in {(e["n"], e["id"]) for e in map(json.loads, open("kept"))})
left = collections.Counter(i for _, i in kept)
found = sum(2 - left["near %d" % i] for i in range(300)) / 300
wrong = sum(2 - left["far %d" % i] for i in range(300))
precision = found * 300 / (found * 300 + wrong)
print("near duplicates: recall %.3f, precision %.3f" % (found, precision))
raise SystemExit(found < 0.95 or precision < 0.99)
END

# An exclusion list counts from the resume on: no later step sees the document, and the earlier ones did.
cat >excl.yaml <<'END'
model: {preset: tiny, layers: 1, dim: 32, heads: 2}
train: {steps: 4, seq: 64, global_batch: 4}
data: {train: few, valid: 0}
eval: {every: 0}
checkpoint: {every: 2}
kernels: {threads: 1}
END
for i in $(seq 12); do echo "{\"id\": \"d$i\", \"text\": \"document number $i of a few, long enough to count\"}"; done >few.jsonl
printf 'out: few\nsources: {f: {paths: few.jsonl}}\n' >few.yaml
check 0 'kept' -- data build few.yaml
for packing in masked plain best-fit; do
    check 0 '' -- train excl.yaml run.dir=x-$packing data.packing=$packing
    "$trireme" data trace x-$packing --document d7 >before
    grep -q '^step [12] ' before || same "$packing: d7 was seen" yes no
    echo d7 >list
    check 0 '1 document left out, by a list of 1' -- train x-$packing train.steps=8 data.exclude=list
    "$trireme" data trace x-$packing --document d7 >after
    same "$packing: steps before" "$(grep '^step [1-4] ' before)" "$(grep '^step [1-4] ' after)"
    same "$packing: steps after" '' "$(grep '^step [5-8] ' after)"
    "$trireme" data trace x-$packing --step 6 >six
    same "$packing: step 6" 0 "$(grep -c ' d7' six)"
    check 0 '' -- train x-$packing train.steps=10 data.exclude=null
    "$trireme" data trace x-$packing --document d7 >later
    same "$packing: shown again" 1 "$(grep -cE '^step (9|10) ' later | sed 's/[1-9][0-9]*/1/')"
done
echo nothing >list
check 4 'none of its 1 entries names a document' -- train x-masked train.steps=12 data.exclude=list

# The loss of packed documents is that of each document alone: step 1 of a rate of 0, summed over labels.
cat >sum.yaml <<'END'
model: {preset: tiny, layers: 2, dim: 32, heads: 2}
train: {steps: 1, seq: 64}
data: {valid: 0, packing: best-fit}
optimizer.lr: 0
eval: {every: 0}
checkpoint: {every: 0}
kernels: {threads: 1}
END
python3 - <<'END'
import random
random.seed(4)
for i, n in enumerate([60, 40, 22, 17, 5, 31, 12]):
    open("doc%d.txt" % i, "w").write("".join(random.choice("abcdefgh \n") for _ in range(n)))
END
loss() { sed 's/.*"loss": *\([0-9.e+-]*\).*/\1/' "$1/metrics.jsonl" | head -1; }
check 0 'sequences' -- data show sum.yaml "data.train=doc*.txt"
rows=$(sed -n 's/.* tokens, \([0-9]*\) sequences of.*/\1/p' out)
same 'rows of 194 tokens' 4 "$rows"
check 0 '' -- train sum.yaml "data.train=doc*.txt" train.global_batch="$rows" run.dir=together
alone=""
for i in 0 1 2 3 4 5 6; do
    check 0 '' -- train sum.yaml data.train=doc$i.txt train.global_batch=1 run.dir=alone$i
    alone="$alone $(loss alone$i)"
done
python3 - "$(loss together)" $alone <<'END' || failures=$((failures + 1))
import sys
together, *alone = map(float, sys.argv[1:])
labels = [60, 40, 22, 17, 5, 31, 12]  # of n letters and the end of text all but the first are labels
mean = sum(a * n for a, n in zip(alone, labels)) / sum(labels)
print("packed %.7f, alone %.7f" % (together, mean))
sys.exit(abs(together - mean) > 2e-6 * mean)
END

# Packed documents after a resume on two ranks: the same sequences, so the same losses up to rounding.
losses() { sed 's/.*"loss": *\([0-9.e+-]*\).*/\1/' "$1/metrics.jsonl"; }
check 0 "" -- train excl.yaml data.packing=best-fit schedule.min_ratio=1 run.dir=one
check 0 "" -- train excl.yaml data.packing=best-fit schedule.min_ratio=1 train.steps=2 run.dir=two
check 0 '' -- train two train.steps=4 layout.dp=2
paste <(losses one) <(losses two) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $1 || $2 == "") bad = 1; n++ } END { exit bad || n != 4 }' ||
    same 'losses on two ranks' "$(losses one)" "$(losses two)"

# A model of letters finds digits unlikely, and the same letter again and again too likely.
python3 - <<'END'
import json, random
random.seed(3)
word = lambda: "".join(random.choice("aeiou") + random.choice("bdklmnrst") for _ in range(2))
open("letters.txt", "w").write(" ".join(word() for _ in range(6000)))
with open("quality.jsonl", "w") as f:
    for i in range(20):
        for text in " ".join(word() for _ in range(20)), str(random.random()) * 4, "a" * 80:
            f.write(json.dumps({"text": text}) + "\n")
END
check 0 '' -- train sum.yaml data.packing=masked data.train=letters.txt train.steps=60 train.global_batch=8 optimizer.lr=1e-2 run.dir=letters checkpoint.every=60
for threads in 1 2; do
    check 0 'quality.too-unlikely                     20' 'kept                                     40' -- data build t.yaml out=l$threads \
        sources.t.paths=quality.jsonl filters=quality quality.model=letters quality.max_bits=5 threads=$threads
    same "quality, $threads threads" "$(md5sum <l1/t-00000.tok)" "$(md5sum <l$threads/t-00000.tok)"
done
check 3 'the filter quality needs quality.model' -- data build t.yaml out=l3 filters=quality

check 8 'a.jsonl: its bytes are not those' '1 file is not what the corpus says' -- data audit corpus
printf x | dd of=corpus/web-00000.tok bs=1 seek=200 conv=notrunc 2>/dev/null
check 8 'web-00000.tok: the checksum of bytes' '2 files are not' -- data audit corpus

# A file of a finished corpus that was removed is made again, with damaged ones beside it, if the inputs are the same.
printf 'out: mended\nsources: {t: {paths: quality.jsonl}}\nshard_bytes: 1500\n' >mended.yaml
check 0 'kept' -- data build mended.yaml
cp -r mended whole
printf XX | dd of=mended/t-00001.tok bs=1 seek=200 conv=notrunc 2>/dev/null
rm mended/t-00000.docs.jsonl.zst
check 0 'tokens/s' -- data build mended.yaml
same "the same files" '' "$(diff -r mended whole)"
rm mended/t-00000.tok && cp quality.jsonl kept.jsonl && echo '{"text": "other"}' >>quality.jsonl
check 5 't-00000.tok is missing and cannot be made again' 'quality.jsonl: its bytes are not' -- data build mended.yaml
mv kept.jsonl quality.jsonl

# Review: the queue holds what filters drop and the share of a source; the answers change the next build.
cat >review.yaml <<'END'
out: reviewed
filters: [length]
length.min_chars: 20
review: {file: decisions.jsonl, undecided: drop}
samples: 3
sources:
  web: {paths: w.jsonl}
  made: {paths: m.jsonl, generator: a model, review: 1}
END
printf '{"id": "w1", "text": "a text that is long enough"}\n{"text": "short 1"}\n{"text": "short 2"}\n{"text": "short 3"}\n{"text": "short 4"}\n' >w.jsonl
printf '{"id": "m%s", "text": "a text of a model, number %s"}\n' 1 1 2 2 3 3 >m.jsonl
check 4 '`data review` makes it' -- data build review.yaml
: >none.jsonl
check 0 'review.undecided                          3' -- data build review.yaml out=held review.file=none.jsonl
printf 'a\nr\ns\nt\na\ne\na better text\nof two lines\n.\nr\n' | check 0 '6 documents wait' \
    'dropped by length.too-short' 'written by a model' 'decided now: 2 accepted, 2 rejected, 1 edited' -- data review review.yaml
check 0 'review.rejected                           2' 'changed by a filter                       1' \
    'kept                                      4' -- data build review.yaml </dev/null
check 0 'review: edit' 'review: accept' 'written by a model' -- data trace train.yaml --step 1 data.train=reviewed train.seq=16
want=$(cat reviewed/*.tok | md5sum)
cat decisions.jsonl >again.jsonl # replayed from a copy
check 0 'kept                                      4' -- data build review.yaml out=again review.file=again.jsonl
same 'replayed' "$want" "$(cat again/*.tok | md5sum)"
check 0 '1 documents wait' -- data review review.yaml </dev/null
sed -i 's/"decision": null/"decision": "accept"/' decisions.jsonl # filled in by others
check 3 'another configuration' -- data build review.yaml
echo '{"hash": "1", "decision": "accept"}' >>again.jsonl
check 5 'again.jsonl:12: no "hash"' -- data build review.yaml out=bad review.file=again.jsonl
check 3 'sources.made.review needs review.file' -- data build review.yaml out=bad review.file=null
[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

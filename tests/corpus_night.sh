#!/usr/bin/env bash
# Attacks on data build: long lines, compression bombs, a full disk, folders in circles, files that cannot be
# read, and kills at 100 random moments. Memory stays within a bound, errors name the file, and the shards that
# come out are those of an undisturbed build.
set -u
. tests/support/check.sh
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

# peak MIB -- ARGUMENTS: data build with these arguments needs at most so much memory.
peak() {
    local most=$1
    shift 2
    python3 - "$most" "$trireme" data build "$@" <<'END' || failures=$((failures + 1))
import resource, subprocess, sys
p = subprocess.run(sys.argv[2:], capture_output=True, text=True)
mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print("exit %d, %d MiB: %s" % (p.returncode, mib, " ".join(sys.argv[4:])))
if mib > int(sys.argv[1]):
    sys.exit("more than %s MiB" % sys.argv[1])
if p.returncode not in (0, 5):
    sys.exit(p.stdout + p.stderr)
END
}

cat >a.yaml <<'END'
on_error: skip
threads: 2
memory: 16MiB
document_bytes: 4MiB
sources: {s: {paths: good.jsonl}}
END
python3 - <<'END'
import bz2, gzip, json, lzma
good = [json.dumps({"text": "a line that is good, number %d" % i}) + "\n" for i in range(1000)]
open("good.jsonl", "w").writelines(good)
with open("long.jsonl", "w") as f:  # one line of 200 MB between good ones
    f.writelines(good[:500])
    f.write('{"text": "')
    for _ in range(200): f.write("x" * 1000000)
    f.write('"}\n')
    f.writelines(good[500:])
with open("long.txt", "w") as f:
    for _ in range(200): f.write("x" * 1000000)
open("long.csv", "w").write('id,text\n1,"' + "x" * 50000000)
for name, pack in ("gz", gzip.open), ("bz2", bz2.open), ("xz", lzma.open):
    with pack("bomb.jsonl." + name, "wb") as f:
        f.writelines(g.encode() for g in good[:500])
        f.write(b'{"text": "')
        for _ in range(500): f.write(b"x" * 1000000)
        f.write(b'"}\n')
        f.writelines(g.encode() for g in good[500:])
END
peak 100 -- a.yaml out=o-long sources.s.paths=long.jsonl
peak 100 -- a.yaml out=o-text sources.s.paths=good.jsonl,long.txt
peak 100 -- a.yaml out=o-csv sources.s.paths=good.jsonl,long.csv
for name in gz bz2 xz; do
    peak 100 -- a.yaml out=o-$name sources.s.paths=bomb.jsonl.$name
    [ ! -f o-$name/corpus.json ] || same "bomb.$name" "$(cat o-long/*.tok | md5sum)" "$(cat o-$name/*.tok | md5sum)"
done

# Folders in circles, links to nothing, pipes, folders instead of files.
mkdir circle && ln -s . circle/a && ln -s . circle/b && cp good.jsonl circle
check 5 'circle/a: a link to a folder above it' -- data build a.yaml out=o-circle sources.s.paths=circle
mkdir broken && ln -s nowhere broken/x.jsonl
check 4 'no such file' -- data build a.yaml out=o-broken sources.s.paths=broken
mkdir pipes && mkfifo pipes/p.jsonl
check 5 'a file or folder expected' -- data build a.yaml out=o-pipe sources.s.paths=pipes
if [ "$(id -u)" -ne 0 ]; then
    cp good.jsonl secret.jsonl && chmod 000 secret.jsonl
    check 4 'secret.jsonl' -- data build a.yaml out=o-secret sources.s.paths=secret.jsonl
fi

# A full disk, as a limit on the size of files: an error, and the same command goes on when there is space.
python3 - <<'END'
import json, random
random.seed(6)
word = lambda: "".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 9)))
words = [word() for _ in range(3000)]
for k in range(6):
    with open("k%d.jsonl" % k, "w") as f:
        for i in range(1500):
            if i % 10 == 3: random.seed(i)  # equal documents in several files
            text = "\n".join(" ".join(random.choice(words) for _ in range(12)) for _ in range(8))
            f.write(json.dumps({"id": "%d-%d" % (k, i), "text": text}) + "\n")
END
cat >k.yaml <<'END'
filters: [length, gopher, repetition, pii]
gopher.min_stop_words: 0
dedup: {near: true, lines: true, substring: 100}
shard_bytes: 300000
memory: 2MiB
sources: {k: {paths: k*.jsonl}}
END
digest() { (cd "$1" && cat *.tok *.docs.jsonl.zst *-*.json dropped.jsonl | md5sum); }
check 0 'kept' -- data build k.yaml out=whole
want=$(digest whole)
for blocks in 20 200 500; do # of 1024 bytes
    (ulimit -f $blocks; trap '' XFSZ; exec "$trireme" data build k.yaml out=full) >out 2>&1
    [ $? -ne 0 ] || same "a limit of $blocks blocks" refused taken
    grep -qiE 'too large|no space|full' out || { cat out; failures=$((failures + 1)); }
done
check 0 'kept' -- data build k.yaml out=full
same 'after a full disk' "$want" "$(digest full)"

# Kills at random moments; each shard that exists after one is whole and stays as it is.
python3 - "$trireme" "${KILLS:-100}" <<'END' || failures=$((failures + 1))
import glob, hashlib, os, random, subprocess, sys, time
program, kills = sys.argv[1], int(sys.argv[2])
random.seed(os.environ.get("SEED", "1"))
begin = time.time()
subprocess.run([program, "data", "build", "k.yaml", "out=timed"], check=True, capture_output=True)
whole, done, rounds, seen = time.time() - begin, 0, 0, 0
wanted = {os.path.basename(f): hashlib.md5(open(f, "rb").read()).digest() for f in glob.glob("whole/*") if os.path.isfile(f)}
while done < kills:
    rounds += 1
    out = "kill%d" % rounds
    while done < kills:
        p = subprocess.Popen([program, "data", "build", "k.yaml", "out=" + out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0, whole))
        ended = p.poll() is not None
        p.kill()
        p.wait()
        for about in glob.glob(out + "/*-*.json"):  # written last: its shard is finished
            for f in about, about[:-5] + ".tok", about[:-5] + ".docs.jsonl.zst":
                seen += 1
                if hashlib.md5(open(f, "rb").read()).digest() != wanted[os.path.basename(f)]:
                    sys.exit("%s differs after kill %d" % (f, done))
        if ended: break
        done += 1
    for _ in range(1200): # a killed process holds its lock until the system has ended it
        if subprocess.run([program, "data", "build", "k.yaml", "out=" + out], capture_output=True).returncode == 0: break
        time.sleep(0.1)
    for name, digest in wanted.items():
        if hashlib.md5(open(os.path.join(out, name), "rb").read()).digest() != digest and name != "corpus.json":
            sys.exit("%s/%s differs" % (out, name))
print("%d kills in %d builds of %.2f s, %d files of finished shards compared" % (done, rounds, whole, seen))
END
[ "$failures" -eq 0 ] && echo "all right"
[ "$failures" -eq 0 ]

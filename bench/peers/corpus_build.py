"""data build and datatrove on the same documents in the same run: quality filters and MinHash. Then data build alone
on MB: the same, and with its other filters for texts, repeated lines and repeated stretches.

  pip install "datatrove[io,processing]"==0.10.1 spacy==3.8.18
  corpus_build.py TRIREME TEXTS FOLDER MB [PEER_MB]

TEXTS is a folder of .txt and .jsonl files whose paragraphs and texts are repeated with changed words until there
are MB of them; a tenth is generated. Both read JSON lines and keep documents by the rules of Gopher, C4 and FineWeb
and by MinHash with 14 bands of 8 values over runs of 5 words. datatrove gets PEER_MB, runs in one process and writes
JSON lines; data build runs on two threads and writes shards of the tokenizer bytes, so CPU seconds, which are those
of a process and its children, are the ones to compare. Peak memory is that of the largest process so far."""
import bz2, glob, gzip, json, os, random, resource, subprocess, sys, time

YAML = """
filters: [gopher, repetition, c4, fineweb]
threads: 2
dedup: {near: true, ngram: 5, bands: 14, rows: 8}
sources: {s: {paths: part-*.jsonl}}
"""


def paragraphs(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        opener = gzip.open if path.endswith(".gz") else bz2.open if path.endswith(".bz2") else open
        if ".json" in path:
            for line in opener(path, "rt", errors="replace"):
                if not line.startswith("{"):
                    break
                row = json.loads(line)
                text = " ".join(v for v in row.values() if isinstance(v, str)) if isinstance(row, dict) else ""
                if len(text) > 200:
                    yield text
        elif ".txt" in path:
            text = opener(path, "rt", errors="replace").read()
            for begin in range(0, len(text), 3000):
                yield text[begin:begin + 3000]


def make(folder, texts, mb):
    """Several files of about 16 MB, whose documents are real ones with some words changed."""
    random.seed(1)
    base = list(paragraphs(texts))
    words = [w for t in base[:2000] for w in t.split()]
    total, part = 0, 0
    while total < mb * 1e6:
        with open(os.path.join(folder, "part-%03d.jsonl" % part), "w") as f:
            part += 1
            for i in range(8000):
                if random.random() < 0.1:
                    text = ". ".join(" ".join(random.choice(words) for _ in range(14)) for _ in range(12)) + "."
                else:
                    own = random.choice(base).split(" ")
                    for _ in range(random.choice((0, 1, len(own) // 8, len(own) // 3))):
                        own[random.randrange(len(own))] = random.choice(words)
                    text = " ".join(own)
                total += f.write(json.dumps({"id": "%d-%d" % (part, i), "text": text}) + "\n")
                if total >= mb * 1e6:
                    break
    return part


def measured(call):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.time()
    call()
    wall = time.time() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 1024


ALL = ["filters=repair,language,gopher,repetition,c4,fineweb,pii", "dedup.lines=true", "dedup.substring=200"]


def trireme(program, folder, out, more):
    with open(os.path.join(folder, "c.yaml"), "w") as f:
        f.write(YAML)
    call = [program, "data", "build", os.path.join(folder, "c.yaml"), "out=" + out] + more
    print(subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout)


def datatrove(folder, out):
    """Runs in a child of its own, so that its CPU time is that of a child."""
    subprocess.run([sys.executable, __file__, "--peer", folder, out], check=True, stdout=subprocess.DEVNULL)


def peer(folder, out):
    from datatrove.executor import LocalPipelineExecutor as Run
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter
    from datatrove.pipeline.filters import GopherRepetitionFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from datatrove.utils.hashing import HashConfig
    config = MinhashConfig(hash_config=HashConfig(precision=64), num_buckets=14, hashes_per_bucket=8, n_grams=5)
    tasks = len(glob.glob(os.path.join(folder, "part-*.jsonl")))
    at = lambda name: os.path.join(out, name)
    step = lambda pipeline, n, name: Run(pipeline=pipeline, tasks=n, workers=1, logging_dir=at("logs-" + name)).run()
    step([JsonlReader(folder, glob_pattern="part-*.jsonl"), GopherQualityFilter(), GopherRepetitionFilter(),
          C4QualityFilter(filter_no_terminal_punct=True), FineWebQualityFilter(), JsonlWriter(at("kept"), compression=None)],
         tasks, "filter")
    step([JsonlReader(at("kept")), MinhashDedupSignature(output_folder=at("signatures"), config=config)], tasks, "sign")
    step([MinhashDedupBuckets(input_folder=at("signatures"), output_folder=at("buckets"), config=config)], 14, "bucket")
    step([MinhashDedupCluster(input_folder=at("buckets"), output_folder=at("remove"), config=config)], 1, "cluster")
    step([JsonlReader(at("kept")), MinhashDedupFilter(input_folder=at("remove")), JsonlWriter(at("out"), compression=None)],
         tasks, "drop")


def count(folder):
    return sum(1 for path in glob.glob(os.path.join(folder, "*.jsonl")) for _ in open(path))


def main():
    program, texts, folder, mb = sys.argv[1:4] + [float(sys.argv[4])]
    peer_mb = float(sys.argv[5]) if len(sys.argv) > 5 else mb
    small, large = os.path.join(folder, "small"), os.path.join(folder, "large")
    rows = []
    for name, size, runs in (("small", peer_mb, ("data build", "datatrove", "data build")), ("large", mb, ("data build", "all"))):
        where = os.path.join(folder, name)
        os.makedirs(where)
        make(where, texts, size)
        bytes_read = sum(os.path.getsize(p) for p in glob.glob(where + "/part-*.jsonl"))
        for k, run in enumerate(runs):
            out = os.path.join(folder, "out-%s-%d" % (name, k))
            call = lambda: datatrove(where, out) if run == "datatrove" else \
                trireme(program, where, out, ALL if run == "all" else [])
            rows.append((run, bytes_read / 1e6) + measured(call))
            print("%-10s  %7.1f MB  %8.2f s  %8.2f CPU s  %7.2f MB per CPU s  %6.0f MiB" %
                  (rows[-1][:4] + (rows[-1][1] / rows[-1][3], rows[-1][4])), flush=True)
            if run == "datatrove":
                print("datatrove keeps %d documents" % count(os.path.join(out, "out")), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer(sys.argv[2], sys.argv[3])
    else:
        main()

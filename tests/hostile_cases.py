"""Hostile files, kind by kind, and what the program must do with each: end by itself, soon, within its
memory, with exit code 3, 5 or 76 (4 where the system refuses; 0 where the file is still legal), and
a sentence that names the file. Run by hostile_test.sh.

HOSTILE=third: of each kind one file of three; HOSTILE=rest: the others, and the first of each kind. So two builds
share them by day."""
import concurrent.futures, gzip, json, os, random, resource, shutil, socket, struct, subprocess, sys, time, zlib

PROGRAM, SCRATCH = os.path.abspath(sys.argv[1]), sys.argv[2]
REFUSED = {3, 5, 76}
RSS_LIMIT = 400 << 20  # bytes; the largest good input here takes about 60 MB
SECONDS = 60
os.chdir(SCRATCH)
counts, failures = {}, []


def limits(memory):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (30, 31))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


# A sanitizer reserves terabytes of addresses: then only the resident size is looked at, and that with
# what its shadow and its quarantine take.
PLAIN = subprocess.run([PROGRAM, "--version"], capture_output=True,
                       preexec_fn=lambda: limits(8 << 30)).returncode == 0
if not PLAIN:
    RSS_LIMIT *= 5


def run(arguments, folder):
    """Exit code (negative: a signal), what it said, seconds, resident bytes."""
    begin = time.monotonic()
    with open(os.path.join(folder, "said"), "wb") as said:
        p = subprocess.Popen([PROGRAM] + arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=said,
                             stderr=said, preexec_fn=lambda: limits(8 << 30 if PLAIN else 0))
        deadline = begin + SECONDS
        while True:
            pid, state, used = os.wait4(p.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                os.kill(p.pid, 9)
                _, state, used = os.wait4(p.pid, 0)
                break
            time.sleep(0.002)
        p.returncode = 0
    code = os.waitstatus_to_exitcode(state)
    with open(os.path.join(folder, "said"), "rb") as f:
        text = f.read().decode("utf-8", "replace")
    return code, text, time.monotonic() - begin, used.ru_maxrss * 1024


class Case:
    def __init__(self, kind, name, files, arguments, words=(), exits=REFUSED, base=None):
        self.kind, self.name, self.files, self.arguments = kind, name, files, arguments
        self.words, self.exits, self.base = words, exits, base


def lay(folder, name, content):
    """A file of bytes; ("link", to), "fifo", "folder", "socket" or "closed" (no permission) otherwise."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)
    if content is None:
        return
    if isinstance(content, tuple):
        os.symlink(content[1], path)
    elif content == "fifo":
        os.mkfifo(path)
    elif content == "folder":
        os.mkdir(path)
    elif content == "socket":
        here = os.getcwd()
        s = socket.socket(socket.AF_UNIX)
        s.bind(os.path.relpath(path, here))
        s.close()
    elif content == "closed":
        with open(path, "wb") as f:
            f.write(b"x")
        os.chmod(path, 0)
    else:
        with open(path, "wb") as f:
            f.write(content.encode() if isinstance(content, str) else content)


def judge(number, case):
    folder = f"case-{number:04d}"
    if case.base:
        shutil.copytree(case.base, folder, symlinks=True)
    os.makedirs(folder, exist_ok=True)
    for name, content in case.files.items():
        lay(folder, name, content)
    code, said, seconds, bytes_held = run(case.arguments, folder)
    wrong = []
    if code < 0 or "panic" in said or "Sanitizer" in said or "runtime error" in said:
        wrong.append("crashed")
    elif code not in case.exits:
        wrong.append(f"exit {code}, {sorted(case.exits)} expected")
    if bytes_held > RSS_LIMIT:
        wrong.append(f"{bytes_held >> 20} MiB held")
    if code != 0:
        wrong += [f'"{w}" is not said' for w in case.words if w not in said]
        if "error[" not in said:
            wrong.append("no error code said")
    is_model = case.arguments[0] == "generate" and code == 0  # which may say anything
    if not is_model and any(ord(c) < 32 and c not in "\n\t" for c in said):
        wrong.append("control characters said")
    shutil.rmtree(folder, ignore_errors=True)
    return case, wrong, code, said, seconds


# ---- good files ---------------------------------------------------------------------------------

def safetensors(tensors, header=None, length=None):
    table, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        table[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = header if header is not None else json.dumps(table, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8,
         "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1,
         "num_hidden_layers": 1, "vocab_size": 260, "max_position_embeddings": 32,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True}


def tensor(*shape):
    count = 1
    for d in shape:
        count *= d
    return ("F32", list(shape), struct.pack(f"<{count}f", *[0.01 * (i % 7) for i in range(count)]))


LAYER = "model.layers.0."
WEIGHTS = {"model.embed_tokens.weight": tensor(260, 8), "model.norm.weight": tensor(8),
           LAYER + "input_layernorm.weight": tensor(8),
           LAYER + "post_attention_layernorm.weight": tensor(8),
           LAYER + "self_attn.q_proj.weight": tensor(8, 8), LAYER + "self_attn.k_proj.weight": tensor(4, 8),
           LAYER + "self_attn.v_proj.weight": tensor(4, 8), LAYER + "self_attn.o_proj.weight": tensor(8, 8),
           LAYER + "mlp.gate_proj.weight": tensor(16, 8), LAYER + "mlp.up_proj.weight": tensor(16, 8),
           LAYER + "mlp.down_proj.weight": tensor(8, 16)}
GOOD = safetensors(WEIGHTS)
NAMES = list(WEIGHTS)
HALVES = {"a.safetensors": safetensors({n: WEIGHTS[n] for n in NAMES[:5]}),
          "b.safetensors": safetensors({n: WEIGHTS[n] for n in NAMES[5:]})}
MAP = {n: "a.safetensors" if i < 5 else "b.safetensors" for i, n in enumerate(NAMES)}
CONFIG = json.dumps(MODEL)
IMPORT = ["import", "m", "out"]


def spelled():
    """The 256 bytes in the spelling of byte-level vocabularies."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    rest = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}


VOCAB = {**spelled(), "ab": 256, "abc": 257}


def tokenizer(**changes):
    whole = {"version": "1.0", "added_tokens": [{"id": 258, "content": "<|endoftext|>", "special": True}],
             "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
             "decoder": {"type": "ByteLevel"},
             "model": {"type": "BPE", "vocab": VOCAB, "merges": ["a b", "ab c"]}}
    whole.update(changes)
    return json.dumps(whole)


TEXT = "some words of a text, <|endoftext|> among them\n" * 40
RUN_YAML = """train: {steps: 2, seq: 16, global_batch: 2}
model: {preset: tiny, layers: 1}
schedule: {warmup: 0}
eval: {every: 0}
checkpoint: {every: 1}
data: {train: text.txt, tokenizer: bytes, valid: 0}
run: {dir: run}
"""

cases = []
RNG = random.Random(7)


def add(kind, name, files, arguments, words=(), **more):
    cases.append(Case(kind, name, files, arguments, words, **more))


def cuts(content, many=10):
    """The content, cut at many places."""
    n = len(content)
    for at in sorted({0, 1, 2, 7, 8, 9, n // 2, n - 1} | {RNG.randrange(n) for _ in range(many)}):
        if at < n:
            yield at, content[:at]


NO_FILES = [("folder", "folder"), ("fifo", "fifo"), ("socket", "socket"), ("device", ("link", "/dev/zero"))]
if os.geteuid() != 0:
    NO_FILES.append(("closed", "closed"))


def no_files(kind, path, others, arguments, word, exits=REFUSED):
    """What is no regular file, or may not be read, where one is expected."""
    for name, content in NO_FILES:
        also = {4} if name == "closed" else set()
        add(kind, f"is a {name}", {**others, path: content}, arguments, [word], exits=exits | also)


def nested(depth):
    return "[" * depth + "]" * depth


# Each is wrong JSON, or no JSON of the kind wanted, for any reader.
JSON_WRONG = {"empty": "", "deep": nested(100000), "deep 65": '{"a":' + nested(64) + "}", "list": "[1]",
              "twice": '{"model_type":"llama","model_type":"gpt2"}', "1e400": '{"model_type":1e400}',
              "surrogate": '{"model_type":"\\ud800"}', "nul": "{}\0", "nul key": '{"a\\u0000b":1}',
              "utf-8": b'{"a":"\xff"}', "unclosed": '{"a":"', "rest": "{} {}", "digits": "9" * 100000,
              "minus": "-", "control": '{"a\x1b[2Jb":"\x1b]0;title\x07"}', "escape": '{"\\u001b[2J":1}',
              "comma": '{"a":1,}', "bom": "\ufeff{}", "many": "[" + "1," * 2000000 + "1]"}


def json_cases(kind, path, others, arguments, word):
    for name, content in JSON_WRONG.items():
        add(kind, name, {**others, path: content}, arguments, [word])


# ---- the configuration --------------------------------------------------------------------------

def configs():
    check = ["config", "check", "run.yaml"]
    good = {"text.txt": TEXT}
    for name, content in {
            "alias": "a: &x 1\nb: *x\n", "merge": "train: {<<: {steps: 2}}\n", "tag": "train: !!map {steps: 2}\n",
            "twice": "seed: 1\nseed: 2\n", "tabs": "train:\n\tsteps: 2\n", "key": "train: {stepz: 2}\n",
            "type": "train: {steps: [2]}\n", "real": "train: {steps: 1.5}\n", "huge": "train: {steps: 99999999999999999999}\n",
            "nan": "optimizer: {lr: .nan}\n", "negative": "train: {steps: -1}\n", "nul": "train: {steps: 2\0}\n",
            "utf-8": b"train: {steps: \xff}\n", "documents": "seed: 1\n---\nseed: 2\n", "deep": "a: " + nested(5000),
            "deep maps": "".join(" " * i + "a:\n" for i in range(200)), "bomb": "\n".join(
                f"a{i}: &a{i} [" + ",".join([f"*a{i-1}" if i else "x"] * 9) + "]" for i in range(9)),
            "long": "data: {train: " + "x" * (2 << 20) + "}\n", "flow": "{" * 60000, "quote": 'a: "' + "x" * 60000,
            "question": "? " * 30000, "list": "- 1\n- 2\n", "scalar": "word", "dashes": "- " * 30000,
            "escape": "train: {\"\\e[2J\": 1}\n", "keys": "".join(f"k{i}: 1\n" for i in range(50000))}.items():
        add("config", name, {**good, "run.yaml": content}, check, ["run.yaml"], exits={3})
    for at, part in cuts(RUN_YAML.encode(), 6):
        add("config", f"cut at {at}", {**good, "run.yaml": part}, check, exits={0, 3})
    no_files("config", "run.yaml", good, check, "run.yaml", REFUSED | {4})  # a folder may be a run
    for name, value in {"size": "train.steps=9e99", "bytes": "memory.limit=99999999999999999999GiB", "share": "data.valid=-0.5",
                        "path": "data.train=" + "x" * 100000 + "=2=3"}.items():
        add("config", name, {**good, "run.yaml": RUN_YAML}, check + [value], exits={0, 3} if name == "path" else {3})


# ---- a model's folder ---------------------------------------------------------------------------

def models():
    weights = {"m/model.safetensors": GOOD}
    add("config.json", "whole", {**weights, "m/config.json": CONFIG}, IMPORT, exits={0})
    json_cases("config.json", "m/config.json", weights, IMPORT, "config.json")
    no_files("config.json", "m/config.json", weights, IMPORT, "m", REFUSED | {4})  # then it is no model
    for at, part in cuts(CONFIG.encode(), 6):
        add("config.json", f"cut at {at}", {**weights, "m/config.json": part}, IMPORT, ["config.json"])
    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "num_key_value_heads",
                "intermediate_size", "max_position_embeddings"):
        for value in (-1, 0, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 1.5, "8", None, True, [8], {}):
            if key == "num_key_value_heads" and value is None:
                continue
            changed = json.dumps({**MODEL, key: value})
            legal = {0} if key == "max_position_embeddings" else set()
            add("config.json", f"{key} {value}", {**weights, "m/config.json": changed}, IMPORT, exits=REFUSED | legal)
    for name, change in {"rope": {"rope_scaling": {"rope_type": "yarn", "factor": -1}}, "kind": {"rope_scaling": {"rope_type": "../x"}},
                         "type": {"model_type": "\x1b[31mllama"}, "eps": {"rms_norm_eps": -1}, "theta": {"rope_theta": 0},
                         "layers and context": {"num_hidden_layers": 4096, "max_position_embeddings": 1 << 24},
                         "quantized": {"quantization_config": {"bits": 4}}}.items():
        add("config.json", name, {**weights, "m/config.json": json.dumps({**MODEL, **change})}, IMPORT)


def tensor_files():
    def one(kind, name, content, **more):
        add(kind, name, {"m/config.json": CONFIG, "m/model.safetensors": content}, IMPORT, ["safetensors"], **more)

    def entry(shape=(8,), begin=0, end=32, kind="F32", name="model.norm.weight"):
        return json.dumps({name: {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}}).encode()

    for at, part in cuts(GOOD, 25):
        one("safetensors", f"cut at {at}", part)
    one("safetensors", "longer", GOOD + b"\0")
    for length in (0, 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 100000001, len(GOOD) - 7):
        one("safetensors", f"header of {length}", struct.pack("<Q", length) + GOOD[8:])
    for value in (-1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, 1e400, 1.5, "8", None):
        for name, header in {"dim": entry(shape=(value,)), "dims": entry(shape=(value, value)), "begin": entry(begin=value),
                             "end": entry(end=value), "zero": entry(shape=(0, value, value))}.items():
            one("safetensors", f"{name} {value}", safetensors({}, header) + b"\0" * 32)
    one("safetensors", "9 dims", safetensors({}, entry(shape=(1,) * 8 + (8,))) + b"\0" * 32)
    one("safetensors", "long name", safetensors({}, entry(name="n" * 1025)) + b"\0" * 32)
    one("safetensors", "escape in a name", safetensors({}, entry(name="\x1b]0;x\x07", kind="F99")) + b"\0" * 32)
    one("safetensors", "type", safetensors({}, entry(kind="../x")) + b"\0" * 32)
    one("safetensors", "hole", safetensors({}, entry(begin=4, end=36)) + b"\0" * 36)
    one("safetensors", "pickle", b"\x80\x02}q\x00.PK\x03\x04" + b"\0" * 100)
    one("safetensors", "header of digits", safetensors({}, b'{"__metadata__":{},"a":[' + b"1," * 2000000 + b"1]}"))
    for name, content in JSON_WRONG.items():
        content = content if isinstance(content, bytes) else content.encode()
        one("safetensors", f"header {name}", safetensors({}, content))
    for name, drop in {"missing": {LAYER + "mlp.up_proj.weight": None}, "shape": {"model.norm.weight": tensor(9)},
                       "type": {"model.norm.weight": ("I64", [8], b"\0" * 64)}, "unknown": {"x.weight": tensor(8)}}.items():
        changed = {n: w for n, w in {**WEIGHTS, **drop}.items() if w is not None}
        add("safetensors", f"weights {name}", {"m/config.json": CONFIG, "m/model.safetensors": safetensors(changed)}, IMPORT)
    no_files("safetensors", "m/model.safetensors", {"m/config.json": CONFIG}, IMPORT, "model.safetensors")
    for target in ("../secret", "/etc/passwd", "other.safetensors"):
        add("safetensors", f"link to {target}",
            {"m/config.json": CONFIG, "secret": GOOD, "m/other.safetensors": GOOD, "m/model.safetensors": ("link", target)},
            IMPORT, ["model.safetensors"], exits={76})
    tree = {"c/blobs/" + str(i): b for i, b in enumerate((CONFIG, GOOD))}
    links = {"c/snapshots/1/config.json": ("link", "../../blobs/0"), "c/snapshots/1/model.safetensors": ("link", "../../blobs/1")}
    add("safetensors", "a cache", {**tree, **links}, ["import", "c/snapshots/1", "out"], exits={0})
    links["c/snapshots/1/model.safetensors"] = ("link", "../../../secret")
    add("safetensors", "a cache left", {**tree, **links, "secret": GOOD}, ["import", "c/snapshots/1", "out"],
        ["model.safetensors"], exits={76})


def indexes():
    def one(name, index, exits=REFUSED, **files):
        content = index if isinstance(index, (str, bytes)) else json.dumps({"metadata": {}, "weight_map": index})
        add("index", name, {"m/config.json": CONFIG, "m/model.safetensors.index.json": content,
                            **{"m/" + n: c for n, c in {**HALVES, **files}.items()}}, IMPORT, ["m"], exits=exits)

    one("whole", MAP, exits={0})
    for path in ("../a.safetensors", "/etc/passwd", "..", ".", "", "x/../a.safetensors", ".hidden", "a\\b", "a\nb", "\x1b[2J",
                 "~/x", "$HOME", "a" * 300, "C:x"):
        one(f"names {path!r}", {**MAP, NAMES[0]: path}, exits={76})
    for value in (None, 3, [], {}, "c.safetensors", "a.safetensors\0", "b.safetensors"):
        one(f"names {value!r}", {**MAP, NAMES[0]: value})
    one("files", {f"t{i}": f"f{i}.safetensors" for i in range(5000)})
    one("no map", {})
    one("unknown tensor", {**MAP, "x": "a.safetensors"})
    for name, content in JSON_WRONG.items():
        one(name, content)
    for at, part in cuts(json.dumps({"weight_map": MAP}).encode(), 6):
        one(f"cut at {at}", part)
    for at, part in cuts(HALVES["b.safetensors"], 6):
        one(f"second file cut at {at}", MAP, **{"b.safetensors": part})
    for name, content in NO_FILES:
        one(f"second file is a {name}", MAP, exits=REFUSED | {4}, **{"b.safetensors": content})
    one("second file is a link", MAP, exits={76}, **{"b.safetensors": ("link", "a.safetensors")})


# ---- tokenizers ---------------------------------------------------------------------------------

def tokenizers():
    text = {"text.txt": TEXT}
    with_json = ["data", "pack", "text.txt", "--tokenizer", "t/tokenizer.json", "--out", "o"]
    add("tokenizer.json", "whole", {**text, "t/tokenizer.json": tokenizer()}, with_json, exits={0})
    json_cases("tokenizer.json", "t/tokenizer.json", text, with_json, "tokenizer.json")
    no_files("tokenizer.json", "t/tokenizer.json", text, with_json, "tokenizer.json", REFUSED | {4})
    add("tokenizer.json", "is a link", {**text, "x": tokenizer(), "t/tokenizer.json": ("link", "../x")}, with_json, exits={76})
    for at, part in cuts(tokenizer().encode(), 12):
        add("tokenizer.json", f"cut at {at}", {**text, "t/tokenizer.json": part}, with_json, ["tokenizer.json"])
    model = {"type": "BPE", "vocab": VOCAB, "merges": ["a b"]}
    for name, change in {
            "pattern": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$("}, "behavior": "Isolated"}},
            "normalizer": {"normalizer": {"type": "Rot13"}}, "kind": {"model": {"type": "Unigram", "vocab": []}},
            "vocab list": {"model": {**model, "vocab": ["a"]}}, "id text": {"model": {**model, "vocab": {**VOCAB, "x": "9"}}},
            "id -1": {"model": {**model, "vocab": {**VOCAB, "x": -1}}}, "id 2^31": {"model": {**model, "vocab": {**VOCAB, "x": 2**31}}},
            "id 2^63": {"model": {**model, "vocab": {**VOCAB, "x": 2**63}}}, "id far": {"model": {**model, "vocab": {**VOCAB, "x": 4000000}}},
            "id twice": {"model": {**model, "vocab": {**VOCAB, "x": 65}}}, "merge": {"model": {**model, "merges": ["q zz"]}},
            "merge form": {"model": {**model, "merges": [["a"]]}}, "merge number": {"model": {**model, "merges": [1]}},
            "added -1": {"added_tokens": [{"id": -1, "content": "x"}]}, "added empty": {"added_tokens": [{"id": 300, "content": ""}]},
            "added 2^63": {"added_tokens": [{"id": 2**63, "content": "x"}]}, "added long": {"added_tokens": [{"id": 300, "content": "x" * 70000}]},
            "no model": {"model": None}}.items():
        add("tokenizer.json", name, {**text, "t/tokenizer.json": tokenizer(**change)}, with_json, ["tokenizer.json"])
    plain = tokenizer(added_tokens=[{"id": 258, "content": "<|endoftext|>", "special": False}])
    add("tokenizer.json", "a plain end of text", {**text, "t/tokenizer.json": plain}, with_json, exits={0})
    pair = ["data", "pack", "text.txt", "--tokenizer", "t", "--out", "o"]
    merges = "#version: 0.2\na b\nab c\n"
    add("vocab, merges", "whole", {**text, "t/vocab.json": json.dumps(VOCAB), "t/merges.txt": merges}, pair, exits={0})
    json_cases("vocab, merges", "t/vocab.json", {**text, "t/merges.txt": merges}, pair, "vocab.json")
    for name, content in {"three": "a b c\n", "one": "a\n", "unknown": "q zz\n", "nul": "a\0b\n", "long": "a" * 200000 + " b\n",
                          "bytes": b"\xff \xfe\n"}.items():
        add("vocab, merges", f"merges {name}", {**text, "t/vocab.json": json.dumps(VOCAB), "t/merges.txt": content}, pair, ["t/"])
    add("vocab, merges", "merges a link", {**text, "t/vocab.json": json.dumps(VOCAB), "x": merges, "t/merges.txt": ("link", "../x")},
        pair, exits={76})


# ---- data ---------------------------------------------------------------------------------------

def token_files():
    look = ["data", "inspect", "--vocab", "100"]
    for name, content, legal in (
            ("odd", b"\1\0\2", False), ("ids", struct.pack("<4H", 1, 2, 65535, 3), False), ("empty", b"", True)):
        add("nanoGPT", name, {"t.bin": content}, look + ["t.bin"], ["t.bin"], exits={0, 5} if legal else {5})

    def llmc(count, tokens=3, magic=20240520, version=1, last=3):
        return struct.pack("<256i", magic, version, count, *[0] * 253) + struct.pack(f"<{tokens}H", *[last] * tokens)

    add("llm.c", "whole", {"t.bin": llmc(3)}, look + ["t.bin"], exits={0})
    for name, content in {"-1": llmc(-1), "2^31-1": llmc(2**31 - 1), "less": llmc(2), "more": llmc(4), "version": llmc(3, version=9),
                          "evaluation": llmc(3, magic=20240522), "id": llmc(3, last=100), "wide": llmc(3, magic=20240801, version=7)}.items():
        add("llm.c", name, {"t.bin": content}, look + ["t.bin"], ["t.bin"])
    for at, part in cuts(llmc(3), 8):
        add("llm.c", f"cut at {at}", {"t.bin": part}, look + ["t.bin"], exits={0, 5} if at < 4 else {5})

    def idx(code=8, lengths=(2, 3, 1), places=(0, 4, 10), marks=(0, 2, 3), sequences=3, documents=3, version=1):
        return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, sequences, documents) + struct.pack("<3i", *lengths)
                + struct.pack("<3q", *places) + struct.pack("<3q", *marks))

    tokens = struct.pack("<6H", 1, 2, 3, 4, 5, 6)
    add("Megatron", "whole", {"t.idx": idx(), "t.bin": tokens}, look + ["t.bin"], exits={0})
    for name, content in {"version": idx(version=2), "type": idx(code=6), "type 255": idx(code=255), "length": idx(lengths=(-1, 3, 1)),
                          "length huge": idx(lengths=(2**31 - 1,) * 3), "place": idx(places=(0, -4, 10)), "place 2^63": idx(places=(0, 2**63 - 1, 10)),
                          "order": idx(marks=(0, 3, 2)), "marks": idx(marks=(1, 2, 3)), "marks -1": idx(marks=(0, -1, 3)),
                          "sequences": idx(sequences=2**64 - 1), "documents": idx(documents=2**61), "wrap": idx(sequences=2**62, documents=2**62),
                          "magic": b"X" + idx()[1:]}.items():
        add("Megatron", name, {"t.idx": content, "t.bin": tokens}, look + ["t.bin"], ["t."])
    for at, part in cuts(idx(), 10):
        add("Megatron", f"index cut at {at}", {"t.idx": part, "t.bin": tokens}, look + ["t.bin"], ["t.idx"])
    for at, part in cuts(tokens, 3):
        add("Megatron", f"tokens cut at {at}", {"t.idx": idx(), "t.bin": part}, look + ["t.bin"], ["t.bin"])
    no_files("Megatron", "t.idx", {"t.bin": b"\1"}, look + ["t.idx"], "t.idx")
    no_files("nanoGPT", "t.bin", {}, look + ["t.bin"], "t.bin")
    shard = open([os.path.join("good/run/cache", n) for n in os.listdir("good/run/cache")][0], "rb").read()
    for at, part in cuts(shard, 15):
        add("own shard", f"cut at {at}", {"t.tok": part}, ["data", "inspect", "t.tok"], ["t.tok"], exits={0, 5} if at < 8 else {5})
    for _ in range(15):
        at = RNG.randrange(8, len(shard))
        flipped = shard[:at] + bytes([shard[at] ^ 1 << RNG.randrange(8)]) + shard[at + 1:]
        add("own shard", f"bit of byte {at}", {"t.tok": flipped}, ["data", "inspect", "t.tok"], exits={0, 5})


def texts():
    def pack(name):
        return ["data", "pack", name, "--tokenizer", "bytes", "--out", "o"]

    lines = '{"text": "some words"}\n' * 30
    for name, content in {"no object": "[1]\n", "no text": '{"txt": "a"}\n', "number": '{"text": 1}\n', "torn": lines + '{"text": "a',
                          "deep": '{"text": ' + nested(1000) + "}\n", "twice": '{"text": "a", "text": "b"}\n', "utf-8": b'{"text": "\xff"}\n',
                          "surrogate": '{"text": "\\udc00"}\n', "nul": '{"text": "a"}\0\n'}.items():
        add("jsonl", name, {"t.jsonl": content}, pack("t.jsonl"), ["t.jsonl"])
    no_files("jsonl", "t.jsonl", {}, pack("t.jsonl"), "t.jsonl")
    packed = gzip.compress(lines.encode(), mtime=0)
    for at, part in cuts(packed, 12):
        add("gz", f"cut at {at}", {"t.jsonl.gz": part}, pack("t.jsonl.gz"), ["t.jsonl.gz"])
    for _ in range(12):
        at = RNG.randrange(len(packed))
        flipped = packed[:at] + bytes([packed[at] ^ 1 << RNG.randrange(8)]) + packed[at + 1:]
        add("gz", f"bit of byte {at}", {"t.jsonl.gz": flipped}, pack("t.jsonl.gz"), exits={0, 5})
    add("gz", "not gzip", {"t.txt.gz": TEXT}, pack("t.txt.gz"), ["t.txt.gz"])
    add("gz", "zlib", {"t.txt.gz": zlib.compress(TEXT.encode())}, pack("t.txt.gz"), ["t.txt.gz"])
    bomb = gzip.compress(b"\0" * (300 << 20), 1, mtime=0)
    add("gz", "a line of 300 MB", {"t.jsonl.gz": bomb}, pack("t.jsonl.gz"), ["t.jsonl.gz"])
    add("zst", "not zstd", {"t.txt.zst": TEXT}, pack("t.txt.zst"), ["t.txt.zst"])
    add("zst", "empty", {"t.txt.zst": ""}, pack("t.txt.zst"), ["t.txt.zst"])
    for name, descriptor in {"1 GiB": 0xA0, "2 TiB": 0xF8}.items():
        frame = bytes.fromhex("28b52ffd00") + bytes([descriptor]) + b"\1\0\0"
        add("zst", f"a window of {name}", {"t.txt.zst": frame}, pack("t.txt.zst"), ["t.txt.zst"])
    # Frames of run-length blocks, 128 KiB out of 4 bytes each: 8 GiB out of 260 KB.
    block = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"a"
    frame = bytes.fromhex("28b52ffd0080") + block * 65535
    add("zst", "a bomb", {"t.txt.zst": frame}, pack("t.txt.zst"), ["t.txt.zst"])
    if shutil.which("zstd"):
        packed = subprocess.run(["zstd", "-q", "-c"], input=lines.encode(), stdout=subprocess.PIPE).stdout
        for at, part in cuts(packed, 12):
            add("zst", f"cut at {at}", {"t.jsonl.zst": part}, pack("t.jsonl.zst"), ["t.jsonl.zst"])


# ---- checkpoints and runs -----------------------------------------------------------------------

def checkpoints():
    folder = "run/checkpoints/step-0000002"
    there = os.path.join("good", folder)
    names = {n: open(os.path.join(there, n), "rb").read() for n in os.listdir(there)}
    state = [n for n in names if n.endswith(".safetensors")][0]
    digest = ["digest", folder]

    def one(name, files, words=(), exits=REFUSED, arguments=digest):
        add("checkpoint", name, {folder + "/" + n: c for n, c in files.items()}, arguments, words, exits=exits, base="good")

    one("whole", {}, exits={0})
    manifest = names["manifest.json"]
    for at, part in cuts(manifest, 15):
        one(f"manifest cut at {at}", {"manifest.json": part}, ["manifest.json"])
    for _ in range(10):
        at = RNG.randrange(len(manifest))
        one(f"manifest, bit of byte {at}", {"manifest.json": manifest[:at] + bytes([manifest[at] ^ 2]) + manifest[at + 1:]}, ["manifest.json"])
    for name, content in JSON_WRONG.items():
        one(f"manifest {name}", {"manifest.json": content}, ["manifest.json"])
    for at, part in cuts(names[state], 8):
        one(f"state cut at {at}", {state: part}, [state])
    for _ in range(8):
        at = RNG.randrange(len(names[state]))
        flipped = names[state][:at] + bytes([names[state][at] ^ 16]) + names[state][at + 1:]
        one(f"state, bit of byte {at}", {state: flipped}, [state])
    one("state longer", {state: names[state] + b"\0"}, [state])
    one("state missing", {state: None}, [state])
    one("state a link", {state: ("link", "../step-0000001/" + state)}, [state], exits={76})
    one("manifest a link", {"manifest.json": ("link", "../step-0000001/manifest.json")}, ["manifest.json"], exits={76})
    for name, content in NO_FILES:
        one(f"state is a {name}", {state: content}, [state])
    say = ["generate", folder, "--prompt", "a", "--max-tokens", "1"]
    one("generate", {}, exits={0}, arguments=say)
    for name, content in JSON_WRONG.items():
        one(f"config.json {name}", {"config.json": content}, arguments=say)
    for name, content in {"empty": "", "alias": "a: &x 1\nb: *x\n", "deep": "a: " + nested(5000), "bytes": b"\xff"}.items():
        one(f"configuration {name}", {"config.resolved.yaml": content}, arguments=say)


def runs():
    again = ["train", "run"]
    add("run", "whole", {}, again, exits={0}, base="good")
    for name in ("run.json", "config.resolved.yaml"):
        for what, content in {"empty": "", "bytes": b"\xff\xfe\0", "deep": "a: " + nested(20000)}.items():
            add("run", f"{name} {what}", {"run/" + name: content}, again, exits=REFUSED | {0}, base="good")
        for what, content in NO_FILES:
            add("run", f"{name} is a {what}", {"run/" + name: content}, again, exits=REFUSED | {0, 4}, base="good")
    for what, content in {"empty": "", "torn": '{"step": 1, "lo', "foreign": "# a note\n", "huge": '{"step": ' + "9" * 5000 + "}\n",
                          "bytes": b"\0\xff" * 1000}.items():
        add("run", f"metrics.jsonl {what}", {"run/metrics.jsonl": content}, again + ["train.steps=3"], exits={0}, base="good")
    for what, content in NO_FILES:
        add("run", f"metrics.jsonl is a {what}", {"run/metrics.jsonl": content}, again + ["train.steps=3"],
            exits=REFUSED | {0, 4}, base="good")


def looks():
    """`inspect` takes any file; nothing that a file is can make it more than say so."""
    events = [n for n in os.listdir("good/run") if n.startswith("events.")][0]
    whole = {"x.safetensors": GOOD, "metrics.jsonl": open("good/run/metrics.jsonl", "rb").read(), "tokenizer.json": tokenizer().encode(),
             "config.json": CONFIG.encode(), "plan.json": open("good/run/plan.json", "rb").read(), "x.txt.gz": gzip.compress(TEXT.encode(), mtime=0),
             events: open(os.path.join("good/run", events), "rb").read()}
    fine = REFUSED | {0, 4, 8}
    for name, content in whole.items():
        for verify in ([], ["--verify"]):
            for at, part in cuts(content, 3):
                add("inspect", f"{name} cut at {at}", {name: part}, ["inspect", name] + verify, exits=fine)
            for _ in range(3):
                at = RNG.randrange(len(content))
                flipped = content[:at] + bytes([content[at] ^ 1 << RNG.randrange(8)]) + content[at + 1:]
                add("inspect", f"{name}, bit of byte {at}", {name: flipped}, ["inspect", name] + verify, exits=fine)
    for what, content in NO_FILES:
        add("inspect", f"a {what}", {"x.safetensors": content}, ["inspect", "x.safetensors"], exits=fine)
    for what, content in JSON_WRONG.items():
        add("inspect", what, {"x.json": content}, ["inspect", "x.json"], exits=fine)


def tasks():
    """HellaSwag's lines and lists of prompts."""
    model = {"m/config.json": CONFIG, "m/model.safetensors": GOOD}
    ask = ["--tokenizer", "bytes"]
    for name, content in {"empty": "", "no object": "[1]\n", "deep": '{"ctx":' + nested(1000) + "}\n", "no endings": '{"ctx": "a", "label": 0}\n',
                          "label": '{"ctx": "a", "label": 9, "endings": ["a", "b", "c", "d"]}\n', "bytes": b"\xff\0\n",
                          "label text": '{"ctx": "a", "label": "x", "endings": ["a", "b"]}\n', "torn": '{"ctx": "a", "la'}.items():
        add("hellaswag", name, {**model, "h.jsonl": content}, ["eval", "m", "--task", "hellaswag", "--data", "h.jsonl"] + ask, ["h.jsonl"])
        add("prompts", name, {**model, "p.txt": content}, ["generate", "m", "--prompts", "p.txt", "--max-tokens", "1"] + ask, exits=REFUSED | {0, 2})
    for what, content in NO_FILES:
        add("hellaswag", f"is a {what}", {**model, "h.jsonl": content}, ["eval", "m", "--task", "hellaswag", "--data", "h.jsonl"] + ask, ["h.jsonl"])
        add("prompts", f"is a {what}", {**model, "p.txt": content}, ["generate", "m", "--prompts", "p.txt"] + ask, ["p.txt"])


def part(all_cases):
    """Those that HOSTILE asks for; every kind has some."""
    asked, number, chosen = os.environ.get("HOSTILE", ""), {}, []
    for case in all_cases:
        at = number[case.kind] = number.get(case.kind, -1) + 1
        if asked not in ("third", "rest") or (at % 3 == 0) == (asked == "third") or at == 0:
            chosen.append(case)
    return chosen


def main():
    lay("good", "text.txt", TEXT)
    lay("good", "run.yaml", RUN_YAML)
    code, said, _, _ = run(["train", "run.yaml"], "good")
    if code != 0:
        print(said)
        sys.exit("the good run failed")
    os.remove("good/said")
    for make in (configs, models, tensor_files, indexes, tokenizers, token_files, texts, checkpoints, runs, looks, tasks):
        make()
    cases[:] = part(cases)
    slowest = 0.0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for case, wrong, code, said, seconds in pool.map(judge, range(len(cases)), cases):
            kind = counts.setdefault(case.kind, {})
            kind[code] = kind.get(code, 0) + 1
            slowest = max(slowest, seconds)
            if wrong:
                failures.append(case)
                print(f"{case.kind}, {case.name}: {'; '.join(wrong)}\n  trireme {' '.join(case.arguments)[:200]}\n  {said.strip()[-400:]}")
    for kind, codes in counts.items():
        print(f"{kind:16} {sum(codes.values()):4} files:  " + "  ".join(f"exit {c}: {n}" for c, n in sorted(codes.items())))
    print(f"{len(cases)} hostile files, {len(failures)} wrong; the slowest took {slowest:.1f} s")
    sys.exit(1 if failures else 0)


main()

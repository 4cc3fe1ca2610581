"""Reads a GGUF file by the description of its format, and compares it with a Hugging Face folder.

gguf.py FILE FOLDER TYPE: every tensor of model.safetensors is in the file, of TYPE (fp32, fp16, bf16,
q8_0), with its values; rows of q and k of llama are interleaved. gguf.py FILE: prints keys and tensors."""

import json
import math
import struct
import sys

KINDS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "wte": "token_embd",
         "wpe": "position_embd", "ln_f": "output_norm", "input_layernorm": "attn_norm", "ln_1": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "ln_2": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
         "mlp.c_proj": "ffn_down"}


class Reader:
    def __init__(self, path):
        self.data = open(path, "rb").read()
        self.at = 0

    def take(self, kind):
        value, = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        count = self.take("Q")
        self.at += count
        return self.data[self.at - count:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind != 9:
            return self.take(KINDS[kind])
        kind, count = self.take("I"), self.take("Q")
        return [self.value(kind) for _ in range(count)]


def read(path):
    r = Reader(path)
    assert r.data[:4] == b"GGUF", "magic"
    r.at = 4
    assert r.take("I") == 3, "version"
    tensors, keys, found = r.take("Q"), r.take("Q"), {}
    for _ in range(keys):
        key = r.text()
        assert key not in found, key
        found[key] = r.value(r.take("I"))
    table = {}
    for _ in range(tensors):
        name = r.text()
        dims = [r.take("Q") for _ in range(r.take("I"))]
        table[name] = (r.take("I"), dims, r.take("Q"))
    start = (r.at + 31) // 32 * 32
    end = start
    for kind, dims, offset in table.values():
        count = math.prod(dims)
        size = {0: 4 * count, 1: 2 * count, 30: 2 * count, 8: count // 32 * 34}[kind]
        assert offset % 32 == 0 and start + offset == (end + 31) // 32 * 32, "tensors lie one after another"
        end = start + offset + size
    assert (end + 31) // 32 * 32 == len(r.data), "the file ends with the last tensor"
    return found, {name: (kind, dims, r.data[start + offset:]) for name, (kind, dims, offset) in table.items()}


def values(kind, count, data):
    if kind == 0:
        return struct.unpack_from(f"<{count}f", data)
    if kind == 1:
        return struct.unpack_from(f"<{count}e", data)
    if kind == 30:
        wide = b"".join(b"\0\0" + data[2 * i:2 * i + 2] for i in range(count))
        return struct.unpack_from(f"<{count}f", wide)
    out = []
    for block in range(count // 32):
        scale, *q = struct.unpack_from("<e32b", data, 34 * block)
        out += [scale * x for x in q]
    return out


def folder_tensors(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    size, = struct.unpack_from("<Q", data)
    for name, e in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, _ = e["data_offsets"]
            count = math.prod(e["shape"])
            kind = {"F32": 0, "F16": 1, "BF16": 30}[e["dtype"]]
            yield name, e["shape"], values(kind, count, data[8 + size + begin:])


def compare(path, folder, wanted):
    keys, tensors = read(path)
    config = json.load(open(folder + "/config.json"))
    family, used, worst = config["model_type"], set(), 0.0
    steps = {"fp32": 0.0, "fp16": 2.0**-11, "bf16": 2.0**-8, "q8_0": 1 / 254 + 2.0**-11}
    for name, shape, want in folder_tensors(folder):
        parts = name.split(".")
        parts = parts[1:] if parts[0] in ("model", "transformer") else parts
        layer = ""
        if parts[0] in ("layers", "h"):
            layer, parts = f"blk.{parts[1]}.", parts[2:]
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        theirs = layer + NAMES[".".join(parts[:-1])] + "." + parts[-1]
        kind, dims, data = tensors[theirs]
        used.add(theirs)
        if family == "gpt2" and len(shape) == 2 and layer:  # stored (in, out)
            rows, columns = shape
            want, shape = [want[r * columns + c] for c in range(columns) for r in range(rows)], shape[::-1]
        assert dims == shape[::-1], (theirs, dims, shape)
        count = math.prod(shape)
        is_plain = len(shape) == 1 or "position" in theirs
        assert kind == (0 if is_plain else {"fp32": 0, "fp16": 1, "bf16": 30, "q8_0": 8 if dims[0] % 32 == 0 else 1}[wanted])
        got = values(kind, count, data)
        heads = {"q_proj": config.get("num_attention_heads"), "k_proj": config.get("num_key_value_heads")}
        turned = heads.get(parts[1]) if family in ("llama", "mistral") and len(parts) > 2 else None
        columns = shape[1] if len(shape) == 2 else 1
        if turned:
            head = shape[0] // turned
            order = [h * head + i // 2 + i % 2 * (head // 2) for h in range(turned) for i in range(head)]
            want = [want[r * columns + c] for r in order for c in range(columns)]
        step = 0.0 if kind == 0 else steps["fp16"] if kind == 1 else steps[wanted]
        for i in range(count):
            block = want[i // 32 * 32:i // 32 * 32 + 32] if kind == 8 else (want[i],)
            limit = step * max(abs(x) for x in block) + (6e-8 if kind == 1 else 0)
            assert abs(got[i] - want[i]) <= limit, (theirs, i, got[i], want[i])
            worst = max(worst, abs(got[i] - want[i]))
    left = set(tensors) - used - {"rope_freqs.weight"}
    assert not left, left
    print(f"{len(used)} tensors, at most {worst:.2g} apart; {keys['general.architecture']}")


if len(sys.argv) > 2:
    compare(*sys.argv[1:4])
else:
    keys, tensors = read(sys.argv[1])
    for key, value in keys.items():
        print(key, value if not isinstance(value, list) else f"{len(value)}: {value[:12]}")
    for name, (kind, dims, _) in tensors.items():
        print(name, kind, dims)

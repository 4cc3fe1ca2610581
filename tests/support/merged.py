"""merged.py REFERENCE FILE [LIMIT]: compares the tensors "merged.NAME" of REFERENCE, or all if it has none, with
NAME of FILE: both in fp32. The largest difference may be LIMIT (1e-6)."""
import array
import json
import struct
import sys


def load(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name == "__metadata__" or t["dtype"] != "F32":
            continue
        values = array.array("f")
        values.frombytes(data[t["data_offsets"][0]:t["data_offsets"][1]])
        out[name] = values
    return out


reference, got = load(sys.argv[1]), load(sys.argv[2])
limit = float(sys.argv[3]) if len(sys.argv) > 3 else 1e-6
merged = {n[len("merged."):]: v for n, v in reference.items() if n.startswith("merged.")} or reference
worst = max(max(abs(x - y) for x, y in zip(v, got[n], strict=True)) for n, v in merged.items())
print(f"{len(merged)} tensors, largest difference {worst:.3g}")
sys.exit(0 if merged and worst <= limit else 1)

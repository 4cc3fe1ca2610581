"""One published run, and what rules of tables share: keys of a model and of a layout from the columns of a table."""
import re


def number(text):
    """The leading number of a cell, or None."""
    match = re.match(r"\s*[-+]?[0-9]*\.?[0-9]+(e[-+]?[0-9]+)?", text or "", re.I)
    return float(match.group()) if match else None


def in_bytes(text, unit):
    count = number(text)
    return count * unit if count else None


def even_stages(keys, preset_layers=None):
    """Megatron gives each virtual stage as many layers, wherever embedding and head are; what does not divide is left.

    Source: NVIDIA/Megatron-LM, megatron/core/transformer/transformer_block.py, get_num_layers_to_build:
    num_layers // pipeline ranks // chunks, where embedding and loss are not accounted for.
    """
    stages = keys["layout.pp"] * keys.get("layout.vpp", 1)
    layers = keys.get("model.layers", preset_layers)
    if keys["layout.pp"] > 1 and layers and layers % stages == 0:
        keys["layout.stages"] = ",".join([str(layers // stages)] * stages)


def in_segments(keys, cluster):
    """Racks of 18 nodes of four devices: a job has as many of each as divides its nodes.

    Source: NVIDIA/NeMo 7a8f1cc7, scripts/performance/utils.py, and NVIDIA-NeMo/Megatron-Bridge, scripts/performance/utils/executors.py: --segment.
    """
    nodes = -(-keys["cluster.devices"] // 4)
    if cluster not in ("gb200", "gb300") or nodes <= 18:
        return
    each = 4 * max(n for n in range(1, 19) if nodes % n == 0)
    keys.update({"cluster.levels.1.devices": each, "cluster.levels.2.devices": 8 * each, "cluster.levels.3.devices": 256 * each})


class Row:
    """One run: what is asked for and what was published."""

    def __init__(self, source, name, profile, cluster, keys):
        self.source, self.name, self.profile, self.cluster = source, name, profile, cluster
        self.keys = keys  # "key.path" -> value
        self.step_s = self.memory_bytes = None
        self.allocated = False  # the memory is what the allocator was asked for, without the runtime's own
        self.of_first_rank = False  # and that of rank 0, not of the fullest
        self.fits = True  # what was run fits; None: what is asked for here holds more than what was run
        self.role = "test"
        self.own = False  # of a table of our own, not of ../shared
        self.why_not = None  # a reason to leave it out, said before it is run
        self.preset = None  # a model of the catalogue, where keys cannot say all of it (experts)
        self.holds_twice = False  # gradients in the weights' type too, besides those that are summed

    def size(self):
        """Layers x micro-batches: what a simulation takes its time for."""
        keys = self.keys
        return keys.get("model.layers", 100) * keys["train.global_batch"] // (keys["layout.dp"] * keys["train.micro_batch"])

    def arguments(self, profile=None):
        words = [f"{key}={value}" for key, value in self.keys.items() if key != "model.arch"]
        if self.preset:
            return [self.preset, "--cluster", self.cluster, f"profile={profile or self.profile}", *words]
        return ["gpt2-124m" if self.keys["model.arch"] == "gpt2" else "llama-135m", "--cluster", self.cluster,
                f"profile={profile or self.profile}", *words]


def model_keys(cell, arch, tied):
    """The model of a row with columns layers, hidden, heads, kv_heads, ffn, vocab, seq."""
    dim, heads = number(cell["hidden"]), number(cell["heads"])
    seq = number(cell["seq"])
    whole = {
        "layers": number(cell["layers"]), "dim": dim, "heads": heads,
        "kv_heads": number(cell.get("kv_heads")) or heads, "head_dim": dim / heads,
        "ffn_dim": number(cell.get("ffn")) or 4 * dim, "vocab": number(cell["vocab"]) or 50304, "context": seq}
    keys = {"model.arch": arch, "model.tied": "yes" if tied else "no"}
    keys.update({f"model.{key}": int(value) for key, value in whole.items()})
    keys["train.seq"] = int(seq)
    return keys


def said_keys(cell):
    """What a row's column `keys` says of its run besides: words key=value."""
    return dict(word.split("=", 1) for word in (cell.get("keys") or "").split())


def layout_keys(cell):
    """The layout of a row with columns tp, pp, cp, vpp, gpus, global_batch, micro_batch; dp, or what the others leave of gpus."""
    axes = {axis: int(number(cell.get(axis)) or 1) for axis in ("dp", "tp", "pp", "cp")}
    if "dp" not in cell:
        axes["dp"] = int(cell["gpus"]) // (axes["tp"] * axes["pp"] * axes["cp"])
    keys = {f"layout.{axis}": size for axis, size in axes.items()}
    vpp = number(cell.get("vpp")) or 1
    if vpp > 1:
        keys.update({"layout.vpp": int(vpp), "layout.schedule": "interleaved"})
    keys["cluster.devices"] = int(number(cell["gpus"]))
    keys["train.global_batch"] = int(number(cell["global_batch"]))
    keys["train.micro_batch"] = int(number(cell["micro_batch"]) or 1)
    return keys


def megatron_core_keys(keys, layers=None):
    """What runs of Megatron-Core on Hopper and later have in common: gradients in bf16, ZeRO-1, sp with tp, even chunks."""
    keys.update({"precision.grads": "bf16", "layout.zero": 1})
    if keys["layout.tp"] > 1:
        keys["layout.sp"] = "true"
    even_stages(keys, layers)


def megatron_core_plain(keys, precision):
    """The same, of tables whose runs have nothing recomputed."""
    keys.update({"train.precision": precision, "train.recompute": "none"})
    megatron_core_keys(keys)


def lighter_ends(each, stages):
    """Stages of `each` layers, but for the two that have the embedding and the head: one fewer."""
    return ",".join(map(str, [each - 1] + [each] * (stages - 2) + [each - 1]))


def padded(vocab, tp):
    """Megatron's make_vocab_size_divisible_by, 128 for each rank of tp."""
    return -(-vocab // (128 * tp)) * 128 * tp


def seconds(keys, tokens_per_s):
    return keys["train.global_batch"] * keys["train.seq"] / tokens_per_s


def megatron_flops(keys):
    """What Megatron's printed TFLOP/s count of a step: 72 B s l h^2 (1 + s/6h + V/12hl)."""
    layers, dim, seq, vocab = (keys[f"model.{k}"] for k in ("layers", "dim", "context", "vocab"))
    each = 72 * layers * dim * dim * (1 + seq / (6 * dim) + vocab / (12 * dim * layers))
    return each * seq * keys["train.global_batch"]

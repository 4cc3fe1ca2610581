"""Rows of published step times and memory, as runs that `trireme simulate` can be asked for.

A table under ../shared/validation has a rule here: which profile (catalog/profiles) and cluster stand for its
software and machines, and what its columns leave open. Rules follow the tables' settings and their sources; some were put
right from sources after their errors had been seen (docs/validation.md names them).
"""
import csv
import pathlib
import re

OWN = pathlib.Path(__file__).resolve().parent / "published"  # tables of our own, each from one public page
PROFILES = pathlib.Path(__file__).resolve().parent.parent / "catalog" / "profiles"


def fitted():
    """The tables that some profile was fitted on, or chosen for when their rows had been seen: no row of them is a test.

    13 of the 45 sources that have step times. Those of ../shared were chosen before any row had been simulated: of FSDP the
    largest table (both generations of devices, 8 to 512 of them), of Megatron the one with published settings in every
    row; nanotron and InternEvo have one table each. Of our own, Aleph Alpha's, one of Trainium, one of TPU and two of DGX
    Cloud were chosen when their rows were put down, before any had been simulated. Four came to them later: runs before
    BLOOM, for what is told apart in `megatron-deepspeed` was looked for because of them, MLPerf 3.1, one model and layout
    on 512 to 10,752 devices, and LUMI and TPU v5e, which had been 22% too fast and 19% too slow.
    """
    names = set()
    for path in PROFILES.glob("*.yaml"):
        for line in path.read_text().splitlines():
            match = re.match(r"fitted_on: *\[(.*)\]", line)
            if match:
                names.update(word.strip() for word in match.group(1).split(","))
    return names


# Software that no profile is of: the one that is nearest stands in for it.
STANDS_IN = ("aws_nxd", "flash_attention_2022", "glm_130b", "gptneox_20b", "llama3_405b", "palm", "pythia")


def first_profile(row):
    """The profile with which a tested row was first simulated, and is judged with, whatever sources told later.

    Selective recomputation is a setting of a run that a profile says here: it stays.
    """
    changed = ("korthikanti_table3_5", "megatron_bridge_perf", "nemo_24_07", "zero_bubble_tables")
    return "megatron" if row.source in changed and row.profile != "megatron-selective" else row.profile


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


def zero_keys(sharding):
    """ZeRO's stage and group as the column "sharding" tells of them."""
    stage = 0
    if "ZeRO-1" in sharding:
        stage = 1
    if "SHARD_GRAD_OP" in sharding:
        stage = 2
    elif "ZeRO-3" in sharding or "FSDP" in sharding:
        stage = 3
    group = re.search(r"within (\d+) GPUs", sharding)
    keys = {"layout.zero": stage} if stage else {}
    if group:
        keys["layout.zero_group"] = int(group.group(1))
    elif "shard in node" in sharding:
        keys["layout.zero_group"] = 8
    return keys


def basic(path, profile, arch, tied, cluster):
    """Rows of the tables that share one set of columns."""
    for cell in csv.DictReader(path.open()):
        if number(cell["hidden"]) is None:
            continue
        keys = model_keys(cell, arch, tied)
        if number(cell["global_batch"]) is None:
            continue
        keys.update(layout_keys(cell))
        keys.update(zero_keys(cell["sharding"]))
        keys["train.precision"] = "fp16" if "fp16" in cell["precision"] else "bf16"
        keys["train.recompute"] = "full" if cell["recompute"].startswith("full") else "none"
        row = Row(path.stem, cell["row_id"], profile, cluster(cell), keys)
        row.step_s = number(cell["step_time_s"])
        row.memory_bytes = in_bytes(cell["memory_gib"], 2**30)
        if "fp8" in cell["precision"].lower():
            keys["train.precision"] = "fp8"
        if "MLA" in cell["kv_heads"] or "expert" in cell["ffn"]:
            experts_row(row, cell)
        yield row, cell


# Their models, as the catalogue has them.
EXPERTS = {"qwen3_30b_a3b": "qwen3-30b-a3b", "qwen3_235b_a22b": "qwen3-235b-a22b", "deepseekv3": "deepseek-v3",
           "gptoss120b": "gpt-oss-120b"}


# How their rows travelled, by model and container: what the recipes of that version set (scripts/performance of
# Megatron-Bridge v0.1.0rc4, v0.2.0, v0.3.0, v0.4.0). Others: each row to each expert, beside nothing.
DISPATCHERS = {("deepseek-v3", "25.09"): "megatron-deepep", ("qwen3-30b-a3b", "25.11"): "megatron-ep-overlap",
               ("qwen3-235b-a22b", "26.02"): "megatron-ep-overlap", ("qwen3-235b-a22b", "26.04"): "megatron-ep-overlap",
               ("qwen3-30b-a3b", "26.04"): "megatron-hybridep", ("qwen3-30b-a3b", "26.04.01"): "megatron-hybridep"}


def experts_row(row, cell):
    """Experts are no key of the command line: the model is the catalogue's."""
    name = re.sub(r"\(.*\)|\s", "", cell["model"]).lower()
    row.preset = EXPERTS.get(name)
    if row.preset is None:
        row.why_not = f"no model of the catalogue: {cell['model']}"
    elif "tokendrop" in cell["model"]:
        row.why_not = "tokens beyond an expert's capacity are dropped, how many is not said"
    row.keys = {key: value for key, value in row.keys.items() if not key.startswith("model.")}
    row.keys["layout.ep"] = int(number(cell["ep"]) or 1)
    row.profile = DISPATCHERS.get((row.preset, cell["notes"].split(" ")[0]), row.profile)


def fms_fsdp(path):
    # "selective" checkpoints some blocks whole; which part follows from the printed HFU over MFU: 4/3 is all of
    # them. Below 1.25 it is a part, which no key of ours says.
    cluster = {"A100": "a100-400g", "H100": "h100-800g"}
    # Its mixed precision policy keeps and reduces everything in bf16.
    for row, cell in basic(path, "fsdp", "llama", False, lambda c: cluster[c["hardware"][:4]]):
        row.keys["precision.grads"] = "bf16"
        if cell["recompute"] == "selective":
            more = number(cell["hfu_pct"]) / number(cell["mfu_pct"])
            if more >= 1.25:
                row.keys["train.recompute"] = "full"
            else:
                row.why_not = "a part of the blocks is recomputed"
        yield row


def llm_foundry_mpt(path):
    cluster = {"A100-40GB": "a100-40", "A100-80GB": "a100-80", "H100-80GB SXM": "h100"}
    for row, cell in basic(path, "fsdp", "gpt2", True, lambda c: cluster[c["hardware"]]):
        # MP mode PURE keeps and reduces everything in bf16; DEFAULT keeps fp32 and reduces in fp32.
        row.keys["precision.grads"] = "bf16" if cell["sharding"].endswith("PURE") else "fp32"
        yield row


def internevo(path):
    for row, _ in basic(path, "internevo", "llama", False, lambda c: "a100-400g"):
        yield row


def korthikanti_table3_5(path):
    # "selective" recomputes the attention core, which a fused attention does anyway.
    for row, cell in basic(path, "megatron-2022", "gpt2", True, lambda c: "selene"):
        if "sequence parallel on" in cell["sharding"]:
            row.keys["layout.sp"] = "true"
        if cell["recompute"].startswith("selective"):
            row.profile = "megatron-selective"
        even_stages(row.keys)
        yield row


def llm_c(path):
    for row, cell in basic(path, "llm.c", "gpt2", True, lambda c: "h100" if "H100" in c["hardware"] else
                           "a100-40" if "40GB" in c["hardware"] else "a100-80"):
        if "PCIe" in cell["hardware"]:
            row.why_not = "a card whose clock under load is not printed"
        row.memory_bytes = None
        yield row


def megatron(path):
    cluster = {"V100-32GB DGX-2": "v100-dgx2", "A100 DGX-A100": "a100-40", "A100 DGX-A100 cluster": "a100-40"}
    for row, cell in basic(path, "megatron", "gpt2", True, lambda c: cluster.get(c["hardware"], "selene")):
        if "DeepSpeed" in cell["sharding"]:
            row.profile = "deepspeed"
        # Gradients are kept and summed as the weights' type, unless --accumulate-allreduce-grads-in-fp32 asks for more
        # (megatron/arguments.py); ZeRO's paper counts 2 bytes of a gradient, too.
        row.keys["precision.grads"] = "fp16"
        even_stages(row.keys)
        yield row


def megatron_bridge_perf(path):
    for row, cell in basic(path, "megatron", "llama", False, lambda c: "h100"):
        if "SFT" in cell["model"] or "LoRA" in cell["model"]:
            row.why_not = "fine-tuning"
        # Its tables print the layout, not what is recomputed (megatron_bridge_recipes has today's values). Gradients
        # are in bf16: grad_reduce_in_fp32 is false in scripts/performance of v0.1.0 and in perf_recipes/_common.py.
        megatron_core_keys(row.keys, int(number(cell["layers"])))
        if cell["model"] == "LLAMA3_8B" and cell["precision"] == "FP8-CS":
            # LLAMA3_8B_H100_FP8_CS_BASE_CONFIG of v0.2.0, the version of 25.11: recompute_num_layers=5, full.
            row.keys.update({"train.recompute": "full", "train.recompute_layers": 5})
        yield row


LLAMA3 = {"8B": (32, 4096, 32, 14336), "70B": (80, 8192, 64, 28672), "405B": (126, 16384, 128, 53248)}


def llama3_keys(size, vocab):
    layers, dim, heads, ffn = LLAMA3[size]
    return model_keys({"layers": str(layers), "hidden": str(dim), "heads": str(heads), "kv_heads": "8", "ffn": str(ffn),
                       "vocab": str(vocab), "seq": "8192"}, "llama", False)


def megatron_bridge_dense(path):
    """Llama 3 and 3.1 in fp8 (FP8-CS) by Megatron-Bridge, on Blackwell, and on H100 where `shared` has no such row.

    Source: NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md at 4ab94dfad; rows on Blackwell with
    Megatron-FSDP move activations to the host and are not here. Settings as for `megatron_bridge_perf`.
    """
    for cell in csv.DictReader(path.open()):
        keys = llama3_keys(cell["model"], 128256)
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, "fp8")
        row = Row(path.stem, "-".join((cell["container"], cell["model"], cell["system"])), "megatron", cell["system"], keys)
        row.step_s = seconds(keys, number(cell["tokens_per_s_per_gpu"]) * keys["cluster.devices"])
        yield row


def nanotron_ultrascale(path):
    for row, cell in basic(path, "nanotron", "llama", False, lambda c: "h100"):
        # The MFU is printed, by the `nemo` count of FLOPs; the step follows.
        keys = row.keys
        layers, dim, seq = (keys[f"model.{k}"] for k in ("layers", "dim", "context"))
        weights = layers * (4 * dim * dim + 3 * dim * keys["model.ffn_dim"]) + keys["model.vocab"] * dim
        flops = (6 * weights + 12 * layers * dim * seq) * seq * keys["train.global_batch"]
        row.step_s = flops / (keys["cluster.devices"] * number(cell["mfu_pct"]) / 100 * 989.4e12)
        if row.keys["layout.tp"] > 1:
            row.keys["layout.sp"] = "true"
        yield row


SCHEDULES = {"1F1B": "1f1b", "1F1B-I": "interleaved", "ZB-H1": "zb-h1", "ZB-H2": "zb-h2", "ZB-1p": "zb-h1",
             "ZB-2p": "zb-h2", "ZB-2p*": "zb-h2", "ZB-V": "zb-v"}


def zero_bubble_tables(path):
    """Zero-bubble pipelines. One layer fewer on the first and the last stage; a chunk of 1F1B-I has one layer.

    No dp: no ZeRO. Memory is counted as its code does: torch.cuda.max_memory_allocated() // 1000000
    (sail-sg/zero-bubble-pipeline-parallelism, megatron/core/pipeline_parallel/schedules.py).
    """
    for cell in csv.DictReader(path.open()):
        keys = model_keys(cell, "gpt2", True)
        stages, layers = int(cell["pp"]), keys["model.layers"]
        m, b = int(cell["num_microbatches"]), int(cell["micro_batch"])
        schedule = SCHEDULES[cell["schedule"]]
        keys.update({"layout.dp": 1, "layout.tp": 1, "layout.pp": stages, "cluster.devices": stages,
                     "layout.schedule": schedule, "train.micro_batch": b, "train.global_batch": m * b,
                     "train.precision": "fp16", "train.recompute": "none",
                     "precision.grads": "fp16"})  # as megatron() has it: its script asks for no sums in fp32
        name = f"{cell['model']}-pp{stages}-{cell['schedule']}-m{m}"
        row = Row(path.stem, name, "megatron-2022", "a100-80", keys)
        row.step_s, row.memory_bytes = number(cell["step_time_s_derived"]), in_bytes(cell["memory_gb"], 10**9)
        row.allocated = True
        each, rest = divmod(layers + 2, stages)
        if rest:
            row.why_not = "its layers do not divide as the paper says"
        elif schedule == "interleaved":
            keys["layout.vpp"] = each
            row.why_not = "chunks without a layer beside the embedding and the head" if row.step_s else None
        elif schedule != "zb-v":
            keys["layout.stages"] = lighter_ends(each, stages)
        if row.step_s or row.memory_bytes:
            yield row


def does_not_fit(path):
    """The footnote of SC21's table 2: 529.6B with ZeRO-3 and micro-batch 4 does not fit 560 devices."""
    for row in megatron(path):
        if row.name.startswith("sc21-t2-ZeRO-3-529.6-640"):
            row.keys.update({"layout.dp": 560, "cluster.devices": 560, "train.global_batch": 2240})
            row.name, row.step_s, row.memory_bytes, row.fits = "sc21-t2-ZeRO-3-529.6-560", None, None, False
            yield row


def bloom(path):
    """Megatron-DeepSpeed on 48 nodes of 8 A100 before BLOOM, February 2022: each row one line of a log.

    Source: bigscience-workshop/bigscience, train/tr11-176B-ml/chronicles-prequel.md, from the section "GBS Variations" on:
    what is above it ran before the machine was mended. "ends" are stages with a layer fewer at both ends; else as
    many as divide, the last stage what is left. OOM: it did not fit. "bf16": "BF16 optimizer that was just written to
    accumulate gradients in fp32 ... The additional memory usage is 4bytes x params and it's not sharded".
    """
    for cell in csv.DictReader(path.open()):
        layers, dim, pp = int(cell["layers"]), int(cell["hidden"]), int(cell["pp"])
        keys = {"model.arch": "gpt2", "model.tied": "yes", "model.layers": layers, "model.dim": dim,
                "model.heads": int(cell["heads"]), "model.kv_heads": int(cell["heads"]),
                "model.head_dim": dim // int(cell["heads"]), "model.ffn_dim": 4 * dim, "model.vocab": 250880,
                "model.context": 2048, "train.seq": 2048, "layout.zero": 1, "cluster.devices": 384,
                "train.recompute": "full", "train.precision": "bf16" if "bf16" in cell["stages"] else "fp16",
                "train.global_batch": int(cell["global_batch"]), "train.micro_batch": int(cell["micro_batch"])}
        keys.update({f"layout.{axis}": int(cell[axis]) for axis in ("dp", "tp", "pp")})
        if "bf16" not in cell["stages"]:
            keys["precision.grads"] = "fp16"  # sixteen bits, as its fp16 optimizer adds them up
        row = Row(path.stem, cell["row"], "megatron-deepspeed", "jean-zay", keys)
        row.holds_twice = "bf16" in cell["stages"]
        if pp > 1:
            each = -(-(layers + 2) // pp) if "ends" in cell["stages"] else -(-layers // pp)
            stages = [each] * pp
            if "ends" in cell["stages"]:
                stages[0] -= 1
            stages[-1] = layers - sum(stages[:-1])
            keys["layout.stages"] = ",".join(map(str, stages))
            if stages[-1] < 1:
                row.why_not = "its layers do not divide as the source says"
        if dim % int(cell["heads"]):
            row.why_not = "a size of heads that is no whole number"
        if cell["row"] == "balanced-82-14336-71":
            row.why_not = "its own log contradicts it: 203B, 1.5% less on a device, took 67 GB in the same layout"
        row.step_s, row.fits = number(cell["step_s"]), cell["step_s"] != "OOM"
        yield row


def nemo_24_07(path):
    """NeMo 24.07 in fp8 on DGX H100.

    Sources: NVIDIA/NeMo, docs/source/performance/performance_summary.md at 070a0bb168 (throughput and layouts);
    NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/training (models; distributed_fused_adam; sequence_parallel with
    tp; a vocabulary in multiples of 128 tp; dropout of GPT-3's) and examples/training/gpt/h100/*_fp8_*.sh
    (grad_sync_dtype=bf16); conf/config.yaml of tag 24.07 (NVTE_FUSED_ATTN: 0, which leaves FlashAttention-2) and
    175b_fp8_16node.sh (1, cuDNN). Attention is fused, so that recomputing its core is nothing kept and nothing done.
    Nemotron's MLP has two matrices, as GPT-2's.
    """
    for cell in csv.DictReader(path.open()):
        arch = "llama" if cell["arch"] == "llama" else "gpt2"
        keys = model_keys(cell, arch, cell["arch"] == "gpt2")
        keys["model.vocab"] = padded(int(cell["vocab"]), int(cell["tp"]))
        keys.update(layout_keys(cell))
        if cell["arch"] == "gpt2":
            keys["model.dropout"] = "0.1"
        megatron_core_plain(keys, "fp8")
        row = Row(path.stem, cell["row"], "megatron" if "175B" in cell["row"] else "megatron-flash2", "h100", keys)
        row.step_s = seconds(keys, number(cell["tokens_per_s_per_gpu"]) * keys["cluster.devices"])
        yield row


def nemo_megatron_2022(path):
    """NeMo Megatron 22.06 and 22.08 in bf16 on a DGX SuperPOD of A100 80 GB, strong scaling.

    Source: NVIDIA/NeMo-Framework-Launcher, README.md of commits d4317ddd (July 2022) and 1f1e6be5 (September 2022), tokens a
    second by nodes; conf/training/gpt3/*.yaml of the same commits: layouts, batches, recomputation, fused_adam, and from
    September distributed_fused_adam, gradients added by the products and summed in fp32, sequence_parallel where scores are
    made again. The batch is that of the configuration on any number of nodes: only so do 5B's rows of July divide.
    """
    for cell in csv.DictReader(path.open()):
        keys = model_keys({**cell, "vocab": str(padded(50257, int(cell["tp"]))), "seq": "2048"}, "gpt2", True)
        keys.update(layout_keys(cell))
        keys.update({"train.precision": "bf16", "precision.grads": "fp32", "train.recompute": "none"})
        if cell["zero"] == "1":
            keys["layout.zero"] = 1
        selective = cell["recompute"] == "selective"
        if selective:
            keys["layout.sp"] = "true"
        even_stages(keys)
        row = Row(path.stem, cell["row"], "megatron-selective" if selective else "megatron-2022", "selene", keys)
        if cell["row"].startswith("2208-175B"):
            row.why_not = "not its configuration: the tokens are of batches of 1,536, and 1.38 times as many two months before"
        row.step_s = seconds(keys, number(cell["tokens_per_s"]))
        yield row


def mt_nlg(path):
    """MT-NLG 530B on Selene: S. Smith et al., arXiv:2201.11990, sections 2.3 and 2.4, by DeepSpeed's pipelines."""
    model = {"layers": "105", "hidden": "20480", "heads": "128", "vocab": "51200", "seq": "2048"}
    layout = {"tp": "8", "pp": "35", "global_batch": "1920", "micro_batch": "1"}
    for cell in csv.DictReader(path.open()):
        keys = model_keys(model, "gpt2", True)
        keys.update(layout_keys({**layout, **cell}))
        keys.update({"train.precision": "bf16", "train.recompute": "full"})
        even_stages(keys)
        row = Row(path.stem, cell["row"], "megatron-deepspeed", "selene", keys)
        row.step_s = number(cell["step_s"])
        yield row


def megatron_flops(keys):
    """What Megatron's printed TFLOP/s count of a step: 72 B s l h^2 (1 + s/6h + V/12hl)."""
    layers, dim, seq, vocab = (keys[f"model.{k}"] for k in ("layers", "dim", "context", "vocab"))
    each = 72 * layers * dim * dim * (1 + seq / (6 * dim) + vocab / (12 * dim * layers))
    return each * seq * keys["train.global_batch"]


def megascale(path):
    """Megatron-LM beside MegaScale on A100, 175B and 530B.

    Source: Z. Jiang et al., NSDI 2024, arXiv:2402.15627, tables 1 to 3 and figure 9, section 6.1 (sequences of 2,048, a
    vocabulary of 64,000, six and three chunks, Megatron-LM at commit 285068c8). That commit is the one that brought
    FlashAttention in, and table 3 gains 1.7 points by FlashAttention-2 and fused norms, too little for scores that had been
    kept before. Not said: the micro-batch, 1 as in SC21; how DP cuts, as Megatron's distributed optimizer (section 2 tells of
    ZeRO-2); sp and no other recomputation. Where only MFU is printed, of 312 TFLOP/s, the step follows; so it does in table 2.
    """
    for cell in csv.DictReader(path.open()):
        keys = model_keys({**cell, "vocab": "64000", "seq": "2048"}, "gpt2", True)
        keys.update(layout_keys({**cell, "tp": "8", "micro_batch": "1"}))
        keys.update({"train.precision": "bf16", "precision.grads": "fp32", "train.recompute": "none", "layout.zero": 1,
                     "layout.sp": "true"})
        even_stages(keys)
        row = Row(path.stem, cell["row"], "megatron-flash1", "megascale", keys)
        row.step_s = number(cell["step_s"]) or megatron_flops(keys) / (
            keys["cluster.devices"] * number(cell["mfu_pct"]) / 100 * 312e12)
        yield row


def megatron_core_2024(path):
    """Weak scaling of Megatron-Core on H100 in bf16, 1.7B to 462B.

    Source: NVIDIA/Megatron-LM, README.md and images/model_table.png of July 2024 (commit f2e5db402c): sequences of 4,096, a
    vocabulary of 131,072; its sizes are those with a head of its own; gradients and weights travel beside the passes, tp's and
    the pipeline's messages too, which that code has in the interleaved schedule alone (arguments.py), and 92 layers in 4 stages
    can only be interleaved one by one. Not said: the micro-batch, of which a stage has 4 sequences in all rows: 1.
    Sums of gradients in bf16 runs are in fp32 (arguments.py).
    """
    for cell in csv.DictReader(path.open()):
        keys = model_keys({**cell, "vocab": "131072", "seq": "4096"}, "gpt2", False)
        pp = int(cell["pp"])
        keys.update(layout_keys({**cell, "micro_batch": "1", "vpp": str(int(cell["layers"]) // pp if pp > 1 else 1)}))
        megatron_core_plain(keys, "bf16")
        keys["precision.grads"] = "fp32"
        row = Row(path.stem, cell["row"], "megatron", "h100", keys)
        row.step_s = megatron_flops(keys) / (keys["cluster.devices"] * number(cell["tflops_per_gpu"]) * 1e12)
        yield row


# Layers, columns, heads, heads of keys, columns of the MLP, tokens, vocabulary of those that are not Llama's.
NEMOTRON4 = {"15B": (32, 6144, 48, 8, 24576, 4096, 256000), "340B": (96, 18432, 96, 8, 73728, 4096, 256000)}


def gpt3_keys(tp):
    return model_keys({"layers": "96", "hidden": "12288", "heads": "96", "vocab": str(padded(50257, tp)), "seq": "2048"},
                      "gpt2", True)


def nvidia_keys(model, tp):
    """Keys of a model by its size: Llama 3 and 3.1, GPT-3 175B with its dropout, Nemotron-4.

    Nemotron's MLP has two matrices and its attention grouped heads: here a gated one of two thirds of its columns, as many
    weights and FLOPs.
    """
    if model in NEMOTRON4:
        layers, dim, heads, kv_heads, ffn, seq, vocab = NEMOTRON4[model]
        return model_keys({"layers": str(layers), "hidden": str(dim), "heads": str(heads), "kv_heads": str(kv_heads),
                           "ffn": str(ffn * 2 // 3), "vocab": str(padded(vocab, tp)), "seq": str(seq)}, "llama", False)
    if model != "175B":
        return llama3_keys(model, padded(128256, tp))
    return {**gpt3_keys(tp), "model.dropout": "0.1"}


def nvidia_stages(keys):
    """NeMo's stages: embedding and head count as a layer each where the layers do not divide."""
    chunks = keys["layout.pp"] * keys.get("layout.vpp", 1)
    if keys["layout.pp"] > 1 and keys["model.layers"] % chunks:
        keys["layout.stages"] = lighter_ends((keys["model.layers"] + 2) // chunks, chunks)


def mlperf_gpt3(path):
    """GPT-3 175B in fp8 as NVIDIA's code ran it for MLPerf Training 3.0 to 4.1, 64 to 10,752 devices; each round is a source.

    Source: mlcommons/training_results_v3.0, v3.1, v4.0, v4.1, results/*/gpt3/result_*.txt (train_step_timing; the median of a run's
    steps but the first, then of three runs) and config_*.sh and conf/ beside each: no dropout, nothing recomputed, gradients
    in bf16, distributed_fused_adam, a vocabulary of 50,257. Runs whose log has no time of a step are not here.
    """
    for cell in csv.DictReader(path.open()):
        keys = gpt3_keys(int(cell["tp"]))
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, "fp8")
        row = Row("mlperf_" + cell["row"][:3].replace(".", "_"), cell["row"], "megatron", cell["system"], keys)
        row.step_s = number(cell["step_s"])
        yield row


def mlperf_405b(path):
    """Llama 3.1 405B in fp8 as NVIDIA's code ran it for MLPerf Training 5.0, 256 to 8,192 devices.

    Source: mlcommons/training_results_v5.0, results/*/llama31_405b/result_*.txt (train_step_time as above; max_memory_usage, which
    the suite's other callbacks take as torch.cuda.max_memory_allocated() of the first rank in units of 2^30) and config_*.sh
    beside each: a vocabulary of 32,000, gradients in bf16; embedding and head count as a layer each of 128 in 64 chunks.
    """
    for cell in csv.DictReader(path.open()):
        keys = llama3_keys("405B", padded(32000, int(cell["tp"])))
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, "fp8")
        nvidia_stages(keys)
        row = Row("mlperf_5_0", cell["row"], "megatron", cell["system"], keys)
        row.step_s, row.memory_bytes = number(cell["step_s"]), in_bytes(cell["memory_gib"], 2**30)
        row.allocated = row.of_first_rank = True
        yield row


# Tables whose columns say every setting: of which public page each is, and what that leaves open.
SETTLED = (
    # J. Hagemann et al., arXiv:2311.05610; Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts at e13c2cb5,
    # data/*.xlsx: LLaMA 13B to 65B on 32 to 256 A100, FlashAttention-2 and a fused norm, with and without sp, layouts that
    # ran out of memory too. Batch, vocabulary and widths follow from its three columns of FLOPs; ZeRO-1 is said by summaries of
    # the paper; gradients as its authors' later code has them (Aleph-Alpha/scaling v0.1.0). Four rows that contradict each
    # other (65B, micro-batch 4, tp 8) are not here.
    "aleph_alpha_2023",
    # spyysalo/lumi-llm-scaling at 7314958505, meg-ds: logs and README of Megatron-DeepSpeed on LUMI's MI250X, bf16, masked
    # softmax, all recomputed. Its optimizer cuts its states over dp whatever the launcher says: so does the logs' memory.
    "lumi_2023",
    # foundation-model-stack/fms-fsdp, README.md of 26 and 27 February 2024: eager FSDP; rows that recompute all or nothing.
    "fms_fsdp_2024_02",
    # pytorch/torchtitan, docs/performance.md at 1ea476e9 and 395a5262: Llama on 64 A100, eager, gradients summed in fp32; which
    # network is not said; rows that keep some products and not others are left out, for there is no key.
    "torchtitan_2024_04",
    # Dao-AILab/flash-attention, training/README.md at 4a6eaa9f: GPT-3's sizes on eight A100, the first FlashAttention.
    "flash_attention_2022",
    # aws-neuron/aws-neuron-sdk, benchmarks of trn1 by release, with each release's scripts: Megatron-LM and NeMo Megatron; a
    # device is a NeuronCore. Whether the nodes were trn1 or trn1n is not said; rows whose layout does not multiply are left out.
    "aws_megatron",
    # The same pages: Llama by NeuronX Distributed, ZeRO-1, gradients in bf16 until 2.18 and in fp32 since.
    "aws_nxd",
    # AI-Hypercomputer/maxtext, README.md and configs/*.sh of one commit: v5p 76bd53b0f, v5e e47fa1b5d, v4 e286533d8 and
    # 281e04bf3. Steps follow from the printed share of the peak by that commit's own count of FLOPs. Slices talk over the
    # data center's network; gradients of a product in bf16 are bf16. Its layers have attention and MLP side by side; the MLP
    # has two matrices, here a gated one of two thirds of its columns. 16B and 32B of v5e below 32 slices may be of another
    # attention, and are left out.
    "maxtext",
    # One run each. Pythia: hours of arXiv:2304.01373, table 5, over its iterations, configurations of EleutherAI/pythia.
    # GPT-NeoX-20B: arXiv:2204.06745, 117 TFLOP/s on 96 A100, configs/20B.yml. GLM-130B: arXiv:2210.02414, log of its runs.
    # SmolLM3: 14,000 tokens a second of a device on 384 H100, its nanotron file. TinyLlama: 24,000 on 16 A100, its README.
    # Llama 3 405B: arXiv:2407.21783, table 4, FLOPs as PaLM counts them; micro-batch and chunks are not said: 1, and 64 chunks
    # of two layers, a layer fewer at both ends, as it says.
    "single_runs",
)


# The shapes of slices of TPU, as wide as they are long where they can be.
SLICES = {64: (4, 4, 4), 128: (4, 4, 8), 192: (4, 6, 8), 256: (4, 8, 8), 512: (8, 8, 8), 1024: (8, 8, 16), 2048: (8, 16, 16)}


def slice_keys(chips):
    """A slice of so many, beyond which is the data center's network."""
    keys = {"cluster.levels.1.devices": chips, "cluster.levels.2.devices": 32 * chips}
    keys.update({f"cluster.levels.1.dims.{axis}": size for axis, size in zip("xyz", SLICES[chips])})
    return keys


def settled(path):
    """Rows of a table whose columns say every setting; "OOM" for a step: it did not fit."""
    for cell in csv.DictReader(path.open()):
        keys = model_keys(cell, cell["arch"], cell["tied"] == "yes")
        keys["model.head_dim"] = int(cell["head_dim"])
        keys.update(layout_keys(cell))
        keys.update({"layout.zero": int(cell["zero"]), "train.precision": cell["precision"],
                     "train.recompute": cell["recompute"]})
        for column, key in (("zero_group", "layout.zero_group"), ("recompute_layers", "train.recompute_layers"),
                            ("dropout", "model.dropout"), ("grads", "precision.grads")):
            if cell.get(column):
                keys[key] = int(cell[column]) if cell[column].isdigit() else cell[column]
        if cell.get("sp") == "yes" and keys["layout.tp"] > 1:
            keys["layout.sp"] = "true"
        if keys["layout.dp"] == 1:
            keys["layout.zero"] = 0
        if cell["cluster"] in ("tpu-v5p", "tpu-v4-palm"):  # of v5e a pod is a slice
            keys.update(slice_keys(keys["layout.zero_group"] * keys["layout.tp"]))
        row = Row(cell["source"], cell["row"], cell["profile"], cell["cluster"], keys)
        row.step_s, row.fits = number(cell["step_s"]), cell["step_s"] != "OOM"
        if row.source == "llama3_405b":
            nvidia_stages(keys)
            row.fits = None  # more or fewer chunks hold other numbers of micro-batches
        row.memory_bytes, row.allocated = in_bytes(cell.get("memory_gib"), 2**30), True
        row.holds_twice = path.stem == "lumi_2023"  # its logs have 2 + 2 + 4 bytes a weight, and 12 over dp
        yield row


def palm(path):
    """PaLM 540B on two pods of 3,072 TPU v4: arXiv:2204.02311, section 4 and 5.

    238,300 tokens a second; three quarters of what is not attention is computed again, 4.10 TFLOP a token where 3.28 are
    the model's. Between the pods gradients travel after the backward pass. Activations are cut over both axes of a pod, for
    which there is no key where tp, 12, does not divide the sequence.
    """
    for cell in csv.DictReader(path.open()):
        keys = {"layout.dp": 512, "layout.tp": 12, "layout.zero": 3, "layout.zero_group": 256,
                "cluster.devices": 6144, "train.global_batch": 2048, "train.micro_batch": 4, "train.seq": 2048,
                "train.precision": "bf16", "train.recompute": "full", "train.recompute_layers": 118 * 3 // 4}
        row = Row(path.stem, cell["row"], "maxtext", "tpu-v4-palm", keys)
        row.preset, row.step_s, row.fits = "palm-540b", number(cell["step_s"]), None
        yield row

def dgx_cloud(path):
    """NVIDIA's recipes for DGX Cloud on H100 and GB200, in bf16 and fp8, 8 to 2,304 devices.

    Source: NVIDIA/dgxc-benchmarking, README.md of each recipe at v24.11.1, v25.04 (H100) and v25.05 (GB200; step times,
    layouts) and its files of settings: distributed_fused_adam, grad_sync_dtype bf16, nothing recomputed; 405B of 24.11 has 16
    heads of keys and GPT-2's vocabulary. Attention is cuDNN's but for GPT-3 175B and Nemotron 340B of 24.11
    (NVTE_FUSED_ATTN=0). 405B on few devices has fewer layers. One run of 25.04 has a chunk without a layer, and is not here.
    """
    for cell in csv.DictReader(path.open()):
        model, tp, early = cell["model"], int(cell["tp"]), cell["release"] == "24.11"
        keys = nvidia_keys(model, tp)
        if cell["layers"]:
            keys["model.layers"] = int(cell["layers"])
        if model == "405B" and early:
            keys.update({"model.kv_heads": 16, "model.vocab": padded(50257, tp)})
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, cell["precision"])
        nvidia_stages(keys)
        name = "-".join((cell["release"], model, cell["precision"], cell["gpus"], cell["global_batch"]))
        row = Row(path.stem, name, "megatron-flash2" if early and model in ("175B", "340B") else "megatron",
                  "gb200" if cell["release"] == "25.05" else "h100", keys)
        row.step_s = number(cell["step_s"])
        yield row


def nemo_2025(path):
    """NeMo 25.02 and 25.04 in fp8 on B200, GB200 and one on H100.

    Source: NVIDIA's NeMo user guide, performance summary of these releases (tokens a second, layouts); recipes of
    NVIDIA/NeMo v2.2 and v2.3: nothing recomputed, gradients in bf16, distributed optimizer; 70B on GB200 by its own FSDP.
    """
    for cell in csv.DictReader(path.open()):
        keys = nvidia_keys(cell["model"], int(cell["tp"]))
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, "fp8")
        keys["layout.zero"] = int(cell["zero"])
        nvidia_stages(keys)
        row = Row(path.stem, "-".join((cell["release"], cell["model"], cell["system"])), "megatron", cell["system"], keys)
        row.step_s = seconds(keys, number(cell["tokens_per_s_per_gpu"]) * keys["cluster.devices"])
        yield row


TABLES = {
    "bloom": bloom, "dgx_cloud_24_11": dgx_cloud, "dgx_cloud_25_04": dgx_cloud, "dgx_cloud_25_05": dgx_cloud,
    "fms_fsdp": fms_fsdp, "internevo": internevo, "korthikanti_table3_5": korthikanti_table3_5, "llm_c": llm_c,
    "llm_foundry_mpt": llm_foundry_mpt, "megascale": megascale, "megatron_bridge_dense": megatron_bridge_dense,
    "megatron_bridge_perf": megatron_bridge_perf, "megatron_core_2024": megatron_core_2024,
    "megatron_readme_2020": megatron, "megatron_readme_2021_01": megatron, "megatron_sc21_table1": megatron,
    "megatron_sc21_table2": megatron, "mlperf_405b": mlperf_405b, "mlperf_gpt3": mlperf_gpt3, "mt_nlg": mt_nlg,
    "nanotron_ultrascale": nanotron_ultrascale, "nemo_24_07": nemo_24_07, "nemo_2025": nemo_2025,
    "nemo_megatron_2022": nemo_megatron_2022, "palm": palm, "zero_bubble_tables": zero_bubble_tables,
    **{table: settled for table in SETTLED},
}


def rows(shared):
    """All rows of all tables that are there."""
    folder = pathlib.Path(shared) / "validation"
    out = []
    for table, rule in TABLES.items():
        path = OWN / f"{table}.csv"
        if not path.is_file():
            path = folder / f"{table}.csv"
        if path.is_file():
            out += list(rule(path))
            if table == "megatron_sc21_table2":
                out += list(does_not_fit(path))
    seen = fitted()
    for row in out:
        row.role = "fit" if row.source in seen else "test"
    return out

"""Rules of the tables in ../shared/validation: which profile and cluster stand for their software and machines, and what
their columns leave open."""
import csv
import re

from .row import Row, even_stages, in_bytes, layout_keys, lighter_ends, megatron_core_keys, model_keys, number


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
    if row.keys["layout.tp"] > 1:
        row.keys["layout.etp"] = 1  # expert_tensor_parallel_size of its recipes
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
            keys["layout.stages"] = lighter_ends(1, each * stages)
        elif schedule == "zb-v" and layers + 2 == 2 * stages:
            keys["layout.stages"] = lighter_ends(1, 2 * stages)
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


def megatron_sc21_table2(path):
    yield from megatron(path)
    yield from does_not_fit(path)


RULES = {
    "fms_fsdp": fms_fsdp, "internevo": internevo, "korthikanti_table3_5": korthikanti_table3_5, "llm_c": llm_c,
    "llm_foundry_mpt": llm_foundry_mpt, "megatron_bridge_perf": megatron_bridge_perf, "megatron_readme_2020": megatron,
    "megatron_readme_2021_01": megatron, "megatron_sc21_table1": megatron, "megatron_sc21_table2": megatron_sc21_table2,
    "nanotron_ultrascale": nanotron_ultrascale, "zero_bubble_tables": zero_bubble_tables,
}

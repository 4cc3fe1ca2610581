"""Rules of our own tables of NVIDIA's software: Megatron-LM, Megatron-Core, NeMo, and what is based on them."""
import csv

from .row import (Row, even_stages, in_bytes, layout_keys, lighter_ends, megatron_core_plain, megatron_flops, model_keys, number,
                  padded, seconds)


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
        row = Row(path.stem, cell["row"], "megatron-2023", "megascale", keys)
        row.step_s = number(cell["step_s"]) or megatron_flops(keys) / (
            keys["cluster.devices"] * number(cell["mfu_pct"]) / 100 * 312e12)
        yield row


def megatron_core_2024(path):
    """Weak scaling of Megatron-Core on H100 in bf16, 1.7B to 462B.

    Source: NVIDIA/Megatron-LM, README.md and images/model_table.png of July 2024 (commit f2e5db402c): sequences of 4,096, a
    vocabulary of 131,072; its sizes are those with a head of its own; gradients and weights travel beside the passes, tp's and
    the pipeline's messages too, which that code has in the interleaved schedule alone (arguments.py), and 92 layers in 4 stages
    can only be interleaved one by one. Not said: the micro-batch. Without a pipeline a replica has 4 sequences, which `trireme
    plan` takes at once in these layouts; with one it is 1. Sums of gradients in bf16 runs are in fp32 (arguments.py).
    """
    for cell in csv.DictReader(path.open()):
        keys = model_keys({**cell, "vocab": "131072", "seq": "4096"}, "gpt2", False)
        pp = int(cell["pp"])
        keys.update(layout_keys({**cell, "micro_batch": "1" if pp > 1 else "4", "vpp": str(int(cell["layers"]) // pp if pp > 1 else 1)}))
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


def nvidia_stages(keys, preset_layers=None):
    """NeMo's stages: embedding and head count as a layer each where the layers do not divide."""
    chunks = keys["layout.pp"] * keys.get("layout.vpp", 1)
    layers = keys.get("model.layers", preset_layers)
    if keys["layout.pp"] > 1 and layers % chunks:
        keys["layout.stages"] = lighter_ends((layers + 2) // chunks, chunks)


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


def dgx_cloud(path):
    """NVIDIA's recipes for DGX Cloud on H100 and GB200, in bf16 and fp8, 8 to 2,304 devices.

    Source: NVIDIA/dgxc-benchmarking, README.md of each recipe at v24.11.1, v25.02, v25.04 (H100), v25.05 (GB200) and v25.05.05
    (what it prints for H100; step times, layouts) and its files of settings: distributed_fused_adam, grad_sync_dtype bf16,
    nothing recomputed; 405B of 24.11 and 25.02 has 16 heads of keys and GPT-2's vocabulary, Nemotron 15B of 25.02 sums in fp32
    (its settings no longer name a type). Attention is cuDNN's but for GPT-3 175B and Nemotron 340B of 24.11
    (NVTE_FUSED_ATTN=0). 405B on few devices has fewer layers. One run of 25.04 has a chunk without a layer, and is not here;
    figures that 25.02 has from another release are not, either.
    """
    for cell in csv.DictReader(path.open()):
        model, tp, early = cell["model"], int(cell["tp"]), cell["release"] == "24.11"
        keys = nvidia_keys(model, tp)
        if cell["layers"]:
            keys["model.layers"] = int(cell["layers"])
        if model == "405B" and cell["release"] in ("24.11", "25.02"):
            keys.update({"model.kv_heads": 16, "model.vocab": padded(50257, tp)})
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, cell["precision"])
        if model == "15B" and cell["release"] == "25.02":
            keys["precision.grads"] = "fp32"
        nvidia_stages(keys)
        name = "-".join((cell["release"], model, cell["precision"], cell["gpus"], cell["global_batch"]))
        row = Row(path.stem, name, "megatron-flash2" if early and model in ("175B", "340B") else "megatron",
                  "gb200" if cell["release"] == "25.05" else "h100", keys)
        row.step_s = number(cell["step_s"])
        yield row


def nemo_2025(path):
    """NeMo 25.02, 25.04 and 25.07 in fp8 on B200, GB200 and one on H100.

    Source: NVIDIA's NeMo user guide, performance summary of these releases (tokens a second, layouts); recipes of
    NVIDIA/NeMo v2.2 and v2.3: nothing recomputed, gradients in bf16, distributed optimizer, no dropout in GPT-3 either
    (gpt/model/base.py); 70B on GB200 by its own FSDP.
    """
    for cell in csv.DictReader(path.open()):
        keys = nvidia_keys(cell["model"], int(cell["tp"]))
        keys.pop("model.dropout", None)
        keys.update(layout_keys(cell))
        megatron_core_plain(keys, "fp8")
        keys["layout.zero"] = int(cell["zero"])
        nvidia_stages(keys)
        row = Row(path.stem, "-".join((cell["release"], cell["model"], cell["system"])), "megatron", cell["system"], keys)
        row.step_s = seconds(keys, number(cell["tokens_per_s_per_gpu"]) * keys["cluster.devices"])
        yield row


RULES = {
    "bloom": bloom, "dgx_cloud_24_11": dgx_cloud, "dgx_cloud_25_02": dgx_cloud, "dgx_cloud_25_04": dgx_cloud,
    "dgx_cloud_25_05": dgx_cloud, "dgx_cloud_25_05_h100": dgx_cloud,
    "megascale": megascale, "megatron_bridge_dense": megatron_bridge_dense, "megatron_core_2024": megatron_core_2024,
    "mlperf_405b": mlperf_405b, "mlperf_gpt3": mlperf_gpt3, "mt_nlg": mt_nlg, "nemo_24_07": nemo_24_07,
    "nemo_2025": nemo_2025, "nemo_megatron_2022": nemo_megatron_2022,
}

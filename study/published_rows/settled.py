"""Tables of our own whose columns say every setting, and PaLM's: one rule for all of them."""
import csv

from .nvidia import nvidia_stages
from .row import Row, even_stages, in_bytes, in_segments, layout_keys, model_keys, number, said_keys


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
    # pytorch/torchtitan by torch.compile on H100 of 96 GB at 500 W, all recomputed, gradients summed in fp32: docs/performance.md at
    # 3faaa1a0 (405B, FSDP 16 by TP 8; train_configs/llama3_405b.toml), benchmarks/llama3_h100_202412_torchtitan.md (fp8, CP, TP 8)
    # and asyncTP_llama3_h100_2025-06_torchtitan.md at b5bcd76c (without async TP; fp8 by rows has no key), messages of commits
    # d66b72a6 and fca8ab7b. Eager: Qwen3 32B of d66b72a6 on 8 to 64 devices, with layouts that ran out of memory.
    "torchtitan_2024_08_compiled",
    "torchtitan_2024_12_compiled",
    "torchtitan_2025_06_compiled",
    "torchtitan_commits_compiled",
    "torchtitan_commits",
    # Dao-AILab/flash-attention, training/README.md at 4a6eaa9f: GPT-3's sizes on eight A100, the first FlashAttention.
    "flash_attention_2022",
    # aws-neuron/aws-neuron-sdk, benchmarks of trn1 by release, with each release's scripts: Megatron-LM and NeMo Megatron; a
    # device is a NeuronCore. Whether the nodes were trn1 or trn1n is not said; rows whose layout does not multiply are left out.
    "aws_megatron",
    # The same pages: Llama by NeuronX Distributed, ZeRO-1, gradients in bf16 until 2.18 and in fp32 since.
    "aws_nxd",
    # aws-neuron/aws-neuron-sdk, libraries/nxd-training/tutorials/hf_llama3_70B_pretraining.rst at 752349fd: a progress bar of 16
    # nodes; examples/conf/hf_llama3_70B_config.yaml of neuronx-distributed-training. aws_tutorials: a log line of NeMo Megatron
    # in aws-neuron-parallelcluster-samples, on four nodes; lines of runs that aws_megatron has are not here.
    "aws_nxdt",
    "aws_tutorials",
    # AI-Hypercomputer/maxtext, README.md and configs/*.sh of one commit: v5p 76bd53b0f, v5e e47fa1b5d, v4 e286533d8 and
    # 281e04bf3, and 8e0d343c0 and 86f442ffc (maxtext_v4_2023). Steps follow from the printed share of the peak by that commit's
    # own count of FLOPs. Slices talk over the data center's network; gradients of a product in bf16 are bf16. Its layers have attention and MLP side by side; the MLP
    # has two matrices, here a gated one of two thirds of its columns. 16B and 32B of v5e below 32 slices may be of another
    # attention, and are left out.
    "maxtext",
    # AI-Hypercomputer/tpu-recipes, training/trillium: the step that each README prints, October 2024 to July 2025, and
    # benchmarks/maxtext_trillium_model_configs.py of the commit that it names: v6e in bf16, weights and moments in fp32, FSDP in a
    # slice, of 405B over two. What most of them keep (q, k, v, layers' inputs) goes to the host, for which there is no key: all is
    # computed again here. Nine print the step in which the profiler stops. training/v5p at 7e88b6d146: Llama 3.1 405B.
    "tpu_recipes_v6e",
    "tpu_recipes_v5p",
    # NVIDIA/dgxc-benchmarking v24.11.1 (Llama 2 70B) and v25.02 (Llama 3 70B), maxtext/README_70b.md and configure.sh: MaxText on 64 to
    # 2,048 H100 in bf16 and fp8, FSDP over at most 256 devices, copies beyond. What its layers' policies make again is 77 and 88%
    # of what a full one does: so many layers here. maxtext_a3: AI-Hypercomputer/maxtext efb6d9e4a, MaxText/configs/a3, Llama 2 7B,
    # by that commit's count of FLOPs; its scripts loop over no layers and sum a GiB at once (XLA's combine thresholds). paxml_h100:
    # v24.11.1, paxml/: GPT-3 175B and 5B by google/paxml, half of a layer made again.
    "maxtext_h100_24_11",
    "maxtext_h100_25_02",
    "maxtext_a3",
    "paxml_h100",
    # NVIDIA/NeMo, docs/source/performance/performance_long_sequence.md: Llama 2 7B on H100, NeMo 24.03.01, fp8, 32k to 1,024k tokens with
    # cp; TFLOP/s by NeMo's count, attention in full, as performance_summary.md beside it counts. Micro-batch 1, FlashAttention-2,
    # gradients in bf16: its launcher's configurations of 24.03.01.
    "nemo_long_2024",
    # Nemotron-4 15B, arXiv:2402.16819, table 2: 4 sequences a replica; the micro-batch is not said: 2, as NeMo's configuration has.
    # 340B, arXiv:2406.11704, table 2, last stage, as others quote it: chunks, micro-batch and gradients of NeMo-Framework-Launcher 24.07,
    # which has its nodes and batch. The MLP has two matrices: here a gated one of two thirds of its columns.
    "nemotron_4",
    # togethercomputer/together-dgxc-benchmarking: NeMo 25.07 to Megatron-Bridge of 26.02 on B200, logs of a third party.
    "together_b200",
    # EleutherAI/gpt-neox. Llemma: hours over steps on 256 A100 (arXiv:2310.10631), configs/llemma. gpt_neox_lumi: 6.7B on one node
    # (spyysalo/lumi-llm-scaling at 7314958505), no fused kernel.
    "gpt_neox_runs",
    # NVIDIA/NeMo-Framework-Launcher, examples/README.md of 24.01 (0d09460d, cb3482d0), 24.03.01 (c3ebcc97) and 24.05 (97f45c18, c53b6c91), its
    # conf/training of these tags: FlashAttention-2 (NVTE_FUSED_ATTN=0), gradients in fp32 until 24.03 and of Nemotron in 24.05; bf16
    # rows of 24.01 from TFLOP/s by NeMo's count, in the layouts of fp8's. nemo_24_09: NeMo user guide, performance summary of 24.09,
    # configurations of tag 24.09, which no longer choose an attention: cuDNN's.
    "nemo_24_01",
    "nemo_24_03",
    "nemo_24_05",
    "nemo_24_09",
    # mlcommons/training_results_v5.1 at 441d65f4, llama31_8b and llama31_405b of eight submitters, as mlperf_405b has round 5.0: 8 to 512
    # H100, B200, GB200, GB300 in fp8. All but one ran as one CUDA graph. NVFP4 and attention in fp8 have no key. Buckets of 768M
    # gradients (config_common_8b.sh).
    "mlperf_5_1",
    # NVIDIA-NeMo/Megatron-Bridge at 067f987d, docs/performance-summary-archive.md: three rows on H100 that ../shared does not have, and
    # Blackwell's in MXFP8, containers 25.09 to 26.06, layouts that the releases' recipes have; nothing recomputed, gradients in bf16.
    "megatron_bridge_h100",
    "megatron_bridge_mxfp8",
    # NVIDIA/Megatron-LM at d98e8a64 and fa48608a, tests/functional_tests/test_cases/gpt: golden values, median of all but the first step. Nemotron-4
    # 15B's shape: the number of devices follows from the bytes allocated. 7B on eight devices. Plain MLPs are gated ones of two
    # thirds of the columns. Neither sets --tp-comm-overlap or the fused cross entropy: of ten messages of tp with sp in a layer
    # four go beside products, the gathers and scatters of column-parallel products' gradients; of four sums without it two. 7B
    # sets --no-gradient-accumulation-fusion and --deterministic-mode, for which Transformer Engine has no cuDNN attention with
    # dropout on Blackwell (fused_attn.cpp): FlashAttention-2, which reaches 403 and 335 TFLOPS on B200 where the device's entry
    # has 1,515 and 1,248 on GB200 (NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_bf16_training of June 2025).
    "megatron_tests_15b",
    "megatron_tests_7b",
    # NVIDIA-NeMo/Automodel at 36044ad3, docs/performance-summary.mdx: Llama 3.1 70B by FSDP2 and torch.compile on 64 H100.
    "automodel_70b",
    # yandex/YaFSDP, README.md at 7dae63a: PyTorch's FSDP beside YaFSDP, June 2024, Llama 2 7B to 70B and Llama 3 on 64 to 256 A100, one
    # sequence a device, from none to all layers recomputed; bf16, prefetched both ways. Its picture of a step (assets/fsdp.png) has
    # gradients summed in fp32, and a layer's weights gathered at 710 Gbit/s a node: four HDR ports. 34B is Code Llama's.
    "yafsdp_fsdp_2024",
    # KempnerInstitute/KempnerForge at 5666d0d, benchmarks/mfu_scaling and config_validation: FSDP2, tp with sp and pp without, 7B to 70B on
    # 1 to 32 H200, four a node, compiled or eager, all recomputed, sums in fp32. Weights and AdamW's states are in bf16, which has
    # no key. Its own trace (benchmarks/profiling) has cuDNN's attention, and 20 gathers and scatters of tp in a layer: queries,
    # keys, values, gate and up are gathered one by one (tensor_parallel.py), where we and torchtitan have 12; without sp 9 sums
    # for 6. Gradients are summed once in a step (train.py, maybe_no_sync; 93 GB of 70B's peak say so too), and pipelines gather
    # once (pipeline_parallel.py). With sp the head's logits are gathered over tp, without it each rank has the whole head. A run of
    # 20M parameters, printed to one digit, is not here.
    "kempnerforge_2026_04",
    # Oneflow-Inc/DLPerf, Megatron-LM/README.md: GPT by Megatron-LM at 8aa4619f on 1 to 32 V100 of 16 GB, one EDR port for eight, fp16,
    # all recomputed, no ZeRO; scripts beside it: no --DDP-impl, and arguments.py of that commit has "local", which sums after the
    # backward pass; no rank of tp sends a piece yet.
    "dlperf_megatron_2021",
    # AI-Hypercomputer/gpu-recipes, 24ba6df to 534ed01: the one step that a README logs, on A3 Mega (H100), A3 Ultra (H200) and A4 (B200),
    # configurations of the same commit. NeMo 24.07 to 25.02: GPT-3's vocabulary padded, 16 groups in 405B. MaxText: what
    # minimal_flash keeps is selective here, save_dot_except_mlp makes again as much as 62 layers of 80; half a GiB at once is summed
    # where layers are no loop (A3 Mega). Its 70B and GPT-3 of A3 have ub_tp_comm_overlap: false.
    "gpu_recipes_nemo",
    "gpu_recipes_maxtext",
    # NVIDIA/JAX-Toolbox, rosetta/projects/pax/README.md at 00056429 (24.04): GPT-3 5B and 175B by google/paxml on 256 H100 and A100, FSDP
    # over all; contrib/gpu/scripts_gpu/configs.py: of 5B products are kept, of 175B nothing.
    "jax_toolbox_pax_2024",
    # arXiv:2307.08691, table 1, by its own count, attention in full: 1.3B and 2.7B on eight A100 by FlashAttention-2; batches of
    # Dao-AILab/flash-attention, training/configs/experiment/pile at 0f7853c6, whose base.yaml has a loss that works in place of the
    # logits (inplace_backward).
    "flash_attention_2023",
    # TencentCloud/tione-tilearn-angel at 1cdd6de, benchmark/README.md: LLaMA-Factory, Llama 3 8B by DeepSpeed ZeRO-3 on eight A800 and, all
    # recomputed, eight A100 of 40 GB; single_node.sh and ds_z3_config.json beside it.
    "tilearn_llama_factory_2024",
    # M. T. Yeung et al., arXiv:2411.05288, table 5 (vocab_parallel_2024; its digits as deep-diver/ai-paper-reviewer c0032f63 has them), and
    # the authors' runs again, sail-sg/VocabularyParallelism at 6191c3bf, artifact/example-results (vocab_parallel_2025): 1F1B of Megatron-LM of
    # July 2024 on 8 to 32 A100, vocabularies of 32k to 256k, layers as they divide and moved away from the head; steps from MFU by
    # its own count, attention in full. Its memory is not said to be allocated or reserved.
    "vocab_parallel",
    # kwai/Megatron-Kwai at b2646e4d, examples/atc24: "origin", Megatron-LM 2bc6cd3 of December 2023: nothing beside products.
    "kwai_atc24",
    # alpa-projects/alpa at e0ae8bf8, osdi22_artifact: Megatron-LM of October 2021 on AWS's p3.16xlarge, sums after the backward pass.
    "alpa_osdi22",
    # FlagOpen/FlagPerf at 1b5a0303, training/nvidia: Llama 3 by Megatron-Core 0.6.0, Llama 2 70B and Aquila2 7B by FlagScale of winter
    # 2023, Llama 2 7B by Megatron-DeepSpeed and by DeepSpeed's ZeRO-3, on A800, H800, H100; no run's script sets an overlap. The last
    # logged step. seq1f1b_fork_2026: zwx119/Seq1F1B at 33bb4a1b, a log of plain 1F1B, 32k tokens.
    "flagperf",
    # NeMo Megatron 22.06 on Azure's NDm A100 v4: Azure HPC blog, 24 October 2022; configurations of NVIDIA/NeMo-Framework-Launcher d4317ddd.
    # 126M, printed to one digit, and 530B, whose configuration nobody has, are not here.
    "azure_nemo_2022",
    # bigscience-workshop/bigscience at 9e64edec: experiments/tr3m-1B3.md, 1.3B on two nodes of V100 by whole seconds; logs of tr1-13B, tr8-104B
    # and BLOOM (reshaping-log.md, chronicles.md). Its tables of GPT-2, "+/-40% correct" by their own words, are not here.
    "bigscience_1b3_2021",
    "bigscience_runs",
    # FZJ-JSC/jubench-megatron-lm at d02714db: Megatron-LM f7727433 on JUWELS Booster, best interval (175B), mean (13B); no overlap is set.
    # 192 nodes, of which ten iterations are logged, are not here.
    "jubench_megatron",
    # alibaba/Megatron-LLaMA at 25306de8, README.md: 13B on 32 to 512 A100, its own optimizer, which overlaps, and Megatron-LM's.
    "megatron_llama_2023",
    # swiss-ai/Megatron-LM, pull requests 10 and 33: 3B and 8B on 4 to 256 GH200 of Alps, whose modules were held to 624 W
    # then. 300M, printed to one digit, is not here.
    "swissai_2025",
    # Lightning-AI/litgpt, extensions/thunder/README.md at 7e412aea to HEAD: TinyLlama on eight A100 by eager FSDP, and by torch.compile.
    "litgpt_2024",
    # pytorch/torchtitan: what torchtitan_* above do not have of benchmarks/*.md and messages of 83c879f18 and 58b034444. Async TP has
    # messages beside products. Not here: fp8 by rows, graph_trainer, symmetric memory, what keeps some products and not others.
    "torchtitan_more",
    # NVIDIA/NeMo, performance_long_sequence.md, 25.04 on B200: Llama 3 8B at 16k to 1,024k tokens, TFLOP/s by NeMo's count (nemo_long_b200);
    # attention, most of their time, for seconds at once in cuDNN 9.10 of June: 1,318 and 1,028 TFLOPS of the entry's 1,518 and 1,250 (as in 7B);
    # vuiseng9/nemo-perf-nvfp4 at 13bdb29, NeMo 25.09 on B200 (nemo_b200_8b_2025); saltysoup/a3-bootcamp-ce at e9a44ff (gcp_a3mega_nemo_2024);
    # togethercomputer/together-dgxc-benchmarking at 0b86473, Qwen2.5 72B, median of six racks of GB200, and 340B on B200; peaks of output lines of
    # NVIDIA/dgxc-benchmarking v25.04 (dgx_cloud_examples); NVIDIA/Megatron-LM at d98e8a64, examples/llama/README.md, fp8
    # (megatron_llama_example); Qwen3 8B of Megatron-Bridge's cards.
    "nemo_more",
    # NVIDIA/JAX-Toolbox: rosetta/projects/pax/README.md at db437900 and 62799732, with Transformer Engine; projects/maxtext/README.md.
    "jax_toolbox_more",
    # pytorch/ao at d99785c0f, float8nocompile/README.md: Llama 3 8B by torchtitan on eight H100, Meta's (testing/training/
    # roofline_utils.py), not its own fp8 kernels. KempnerForge's benchmarks/weak_scaling_160gpu and 175b_360gpu, as kempnerforge_2026_04.
    "fsdp_more",
    # microsoft/Megatron-DeepSpeed at c08e2cc2, examples_deepspeed/rebase/README.md, by its own count; argonne-lcf/Megatron-DeepSpeed at
    # ffa3456d, ALCF/notes/deprecated.md (ZeRO-2, so without the pipeline engine and its buffers of logits);
    # LambdaLabsML/examples at d23d2e7, gpt-neox-training, one node.
    "deepspeed_more",
    # One run each. Pythia: hours of arXiv:2304.01373, table 5, over its iterations, configurations of EleutherAI/pythia.
    # GPT-NeoX-20B: arXiv:2204.06745, 117 TFLOP/s on 96 A100, configs/20B.yml. GLM-130B: arXiv:2210.02414, log of its runs.
    # SmolLM3: 14,000 tokens a second of a device on 384 H100, its nanotron file. TinyLlama: 24,000 on 16 A100, its README.
    # Llama 3 405B: arXiv:2407.21783, table 4, FLOPs as PaLM counts them; micro-batch and chunks are not said: 1, and 64 chunks
    # of two layers, a layer fewer at both ends, as it says.
    "single_runs",
)


# The shapes of slices of TPU, as wide as they are long where they can be.
V6E = {8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16)}  # only an axis of 16 wraps round
SLICES = {64: (4, 4, 4), 128: (4, 4, 8), 192: (4, 6, 8), 256: (4, 8, 8), 512: (8, 8, 8), 1024: (8, 8, 16), 2048: (8, 16, 16)}


def slice_keys(chips):
    """A slice of so many, beyond which is the data center's network."""
    keys = {"cluster.levels.1.devices": chips, "cluster.levels.2.devices": 32 * chips}
    keys.update({f"cluster.levels.1.dims.{axis}": size for axis, size in zip("xyz", SLICES[chips])})
    return keys


def v6e_keys(chips):
    x, y = V6E[chips]
    return {"cluster.levels.1.devices": chips, "cluster.levels.1.dims.x": x, "cluster.levels.1.dims.y": y,
            "cluster.levels.2.devices": 400 * chips,
            "cluster.levels.1.ports": 2 + (x == 16) + (y == 16)}


# Software that gives each chunk as many layers, wherever embedding and head are.
EVEN = ("alpa_osdi22", "azure_nemo_2022", "bigscience_1b3_2021", "bigscience_runs", "deepspeed_more",
        "dlperf_megatron_2021", "flagperf", "gpu_recipes_nemo",
        "jubench_megatron", "kempnerforge_2026_04", "kwai_atc24", "megatron_bridge_h100", "megatron_bridge_mxfp8", "megatron_tests_15b",
        "megatron_tests_7b", "mlperf_5_1", "nemo_24_01", "nemo_24_03", "nemo_24_05", "nemo_24_09", "nemo_more", "vocab_parallel")

# More than what was run is held here: chunks that are not said, a share of layers that stands for a share of each layer, what
# goes to the host.
HOLDS_OTHERS = ("gpu_recipes_maxtext", "kempnerforge_2026_04", "kempnerforge_weak", "llama3_405b", "maxtext_h100_24_11", "maxtext_h100_25_02",
                "paxml_h100", "tpu_recipes_v6e", "tpu_recipes_v5p")


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
        if keys["layout.dp"] * keys["layout.cp"] == 1:
            keys["layout.zero"] = 0
        if cell["cluster"] in ("tpu-v5p", "tpu-v4-palm"):  # of v5e a pod is a slice
            keys.update(slice_keys(keys["layout.zero_group"] * keys["layout.tp"]))
        if cell["cluster"] == "tpu-v6e" and keys["cluster.devices"] in V6E:
            keys.update(v6e_keys(keys["cluster.devices"]))
        row = Row(cell["source"], cell["row"], cell["profile"], cell["cluster"], keys)
        row.step_s, row.fits = number(cell["step_s"]), cell["step_s"] != "OOM"
        if row.source == "together_b200" and "15B" in row.name:
            row.why_not = "1.45 times NVIDIA's own in the same layout (NeMo 25.02), bf16 as fast as that in fp8 on GB200"
        if path.stem in EVEN:
            even_stages(keys)
            in_segments(keys, cell["cluster"])
        if path.stem in EVEN or row.source in ("llama3_405b", "together_b200"):
            nvidia_stages(keys)
        keys.update(said_keys(cell))
        if row.source in HOLDS_OTHERS:
            row.fits = None
        row.memory_bytes, row.allocated = in_bytes(cell.get("memory_gib"), 2**30), True
        row.of_first_rank = row.source in ("mlperf_5_1", "together_gb200_2026")
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


RULES = {"palm": palm, **{table: settled for table in SETTLED}}

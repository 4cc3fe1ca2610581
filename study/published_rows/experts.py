"""Rules of our own tables of models with experts, all by NVIDIA's software."""
import csv
import pathlib
import re

from .nvidia import nvidia_stages
from .row import Row, even_stages, in_segments, layout_keys, number, said_keys

# How rows travel -> profile: (dispatcher, beside another micro-batch's work?, is no row dropped?). What goes beyond an
# expert's capacity is dropped and what is missing padded: all experts have as many rows, and the host need not ask how many.
DISPATCHED = {("alltoall", "no", "yes"): "megatron", ("alltoall", "no", "no"): "megatron-capacity",
              ("alltoall", "yes", "yes"): "megatron-ep-overlap", ("hybridep", "no", "yes"): "megatron-hybridep",
              ("deepep", "no", "yes"): "megatron-flex", ("deepep", "yes", "yes"): "megatron-flex-overlap",
              ("hybridep", "yes", "yes"): "megatron-hybridep", ("sequential", "no", "no"): "megatron-sequential"}

# Tables whose software does something else besides: routers that have just begun, a module for each expert.
SET_APART = {"megatron_tests": "megatron-unforced", "megatron_tests_a100": "megatron-unforced", "grok1_24_11": "megatron-sequential",
             "grok1_25_02": "megatron-sequential", "grok1_25_05": "megatron-sequential",
             "together_b200_grok1": "megatron-sequential"}
MODELS = pathlib.Path(__file__).resolve().parent.parent.parent / "catalog" / "models"


def layers_of(preset):
    return int(re.search(r"^layers: *([0-9]+)", (MODELS / f"{preset}.yaml").read_text(), re.MULTILINE).group(1))


def experts(path):
    """Settings in columns; etp 1: tp cuts no expert.

    grok1_24_11, grok1_25_02, grok1_25_05: NVIDIA/dgxc-benchmarking, grok1/README.md and settings at v24.11.1, v25.02 and v25.05.02:
    capacity 1 and padded, experts one after another, no grouped product, a vocabulary of 128,512, a head of its own, fewer layers
    on few devices.
    megatron_tests: NVIDIA/Megatron-LM, tests/functional_tests/test_cases/mixtral, golden_values of core 0.9 to main of April 2026;
    the number of devices follows from the bytes that it allocates; the router is not balanced by force, norms are logged.
    megatron_tests_a100: the same case on A100, values of core 0.8 to 0.11, FlashAttention-2.
    moe_recipes: the same, branch dev at d48bd6be, examples/moe_recipes: balanced by force.
    megatron_bridge_experts: NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md (balanced by force from 25.11 on), where
    ../shared has no such row, and Llama 4 and DeepSeek-V3 of dgxc-benchmarking v25.05. A run of 26.02 is left out that took twice as
    long as the same layout three weeks later.
    moe_model_zoo: yanring/Megatron-MoE-ModelZoo at e8650517 and 8017e11, best_practice/mixtral and qwen3: 8x22B on 128 and 235B on
    256 devices; steps of Mixtral from TFLOP/s by Megatron-LM's count.
    megatron_moe_2026: arXiv:2603.07685, tables 11, 17 and 20: DeepSeek-V3 on 1,024 and 235B on 256 devices.
    llama4_25_05, deepseek_25_05 and grok1_25_05 on GB200: NVIDIA/dgxc-benchmarking v25.05.05, launch.sh of each and scripts/performance/llm
    of NVIDIA/NeMo 6f2c6fda and 7a8f1cc7: capacity 1 and padded.
    nemo_2025_experts: NeMo user guide, performance summary of 25.02 (B200), 25.04 and 25.07 (GB200), recipes of NVIDIA/NeMo v2.2 to v2.4:
    Mixtral and Llama 4 Scout, capacity 1.
    megatron_bridge_experts_2: the page of megatron_bridge_experts on Blackwell, 25.11 to 26.04.01, where the printed layout is that of
    the release's recipe; MXFP8. One that goes beside another micro-batch by HybridEP is taken to go beside nothing.
    experts_more: an output line of NVIDIA/dgxc-benchmarking v25.12, qwen3 (235B on 256 H100), and the median of six racks of GB200 of
    togethercomputer/together-dgxc-benchmarking at 0b86473 (gpt-oss 120B, forced), Qwen3 30B on its B200. together_b200_grok1: the same,
    worklog/, its days on which steps and TFLOP/s agree.
    megatron_bridge_cards: NVIDIA-NeMo/Megatron-Bridge at 067f987d, examples/model_verification_cards and skills, balanced by force.
    gpu_recipes_experts: AI-Hypercomputer/gpu-recipes at bd6c259 and fe5c13c, the step that a README logs; H200 without a grouped product.

    Norms, activations and MLA's up-projections that are made again are no key of ours, and nothing is made again here; runs that
    make whole experts again and no attention are left out. DeepSeek's second head is none either: of what predicts a second
    token there is a 62nd layer. A model that is no release, of megatron_tests, is left out.
    """
    for cell in csv.DictReader(path.open()):
        keys = layout_keys(cell)
        keys.update({"layout.ep": int(cell["ep"]), "layout.zero": int(cell.get("zero") or 1), "train.seq": int(cell["seq"]),
                     "train.precision": cell["precision"], "precision.grads": cell["grads"],
                     "train.recompute": "full" if cell["recompute"] == "full" else "none"})
        if cell.get("etp") == "1" and keys["layout.tp"] > 1:
            keys["layout.etp"] = 1
        for column in ("layers", "vocab"):
            if cell[column]:
                keys[f"model.{column}"] = int(cell[column])
        if cell["preset"] == "grok-1":
            keys["model.tied"] = "no"
        if cell.get("sp") == "yes":
            keys["layout.sp"] = "true"
        preset_layers = layers_of(cell["preset"])
        even_stages(keys, preset_layers)
        nvidia_stages(keys, preset_layers)
        if cell.get("stages"):
            keys["layout.stages"] = cell["stages"].replace(" ", ",")
        keys.update(said_keys(cell))
        profile = SET_APART.get(path.stem) or DISPATCHED[cell["dispatcher"], cell["overlap"], cell["dropless"]]
        if cell.get("balance") == "aux" and profile == "megatron":
            profile = "megatron-unforced"
        if cell["preset"] == "deepseek-v3" and cell["dispatcher"] == "deepep":
            profile = "megatron-deepep"  # its router takes at most four nodes
        row = Row(path.stem, cell["row"], profile, cell.get("cluster") or "h100", keys)
        in_segments(keys, row.cluster)
        row.preset, row.step_s = cell["preset"], number(cell["step_s"])
        row.fits = None  # routers that are not forced fill some ranks more than others
        yield row


RULES = {table: experts for table in (
    "deepseek_25_05", "experts_more", "gpu_recipes_experts", "grok1_24_11", "grok1_25_02", "grok1_25_05", "llama4_25_05",
    "megatron_bridge_cards", "megatron_bridge_experts", "megatron_bridge_experts_2", "megatron_moe_2026", "megatron_tests", "megatron_tests_a100",
    "moe_model_zoo", "moe_recipes", "nemo_2025_experts", "together_b200_grok1")}

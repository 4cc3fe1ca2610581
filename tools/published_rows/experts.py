"""Rules of our own tables of models with experts, all by NVIDIA's software on H100."""
import csv
import pathlib
import re

from .row import Row, even_stages, layout_keys, number

# How rows travel -> profile: (dispatcher, beside another micro-batch's work?, is no row dropped?). What goes beyond an
# expert's capacity is dropped and what is missing padded: all experts have as many rows, and the host need not ask how many.
DISPATCHED = {("alltoall", "no", "yes"): "megatron", ("alltoall", "no", "no"): "megatron-capacity",
              ("hybridep", "no", "yes"): "megatron-hybridep"}

# Tables whose software does something else besides: routers that have just begun, a module for each expert.
SET_APART = {"megatron_tests": "megatron-unforced", "grok1_24_11": "megatron-sequential", "grok1_25_02": "megatron-sequential"}
MODELS = pathlib.Path(__file__).resolve().parent.parent.parent / "catalog" / "models"


def layers_of(preset):
    return int(re.search(r"^layers: *([0-9]+)", (MODELS / f"{preset}.yaml").read_text(), re.MULTILINE).group(1))


def experts(path):
    """Runs whose experts are cut over tp as their layers are (a key for others there is not), settings in columns.

    grok1_24_11, grok1_25_02: NVIDIA/dgxc-benchmarking, grok1/README.md and settings at v24.11.1 and v25.02: capacity 1 and
    padded, experts one after another, no grouped product, a vocabulary of 128,512, a head of its own, fewer layers on few devices.
    megatron_tests: NVIDIA/Megatron-LM, tests/functional_tests/test_cases/mixtral, golden_values of core 0.9 to main of April 2026;
    the number of devices follows from the bytes that it allocates; the router is not balanced by force, norms are logged.
    moe_recipes: the same, branch dev at d48bd6be, examples/moe_recipes: balanced by force.
    megatron_bridge_experts: NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md (balanced by force from 25.11 on), where
    ../shared has no such row, and Llama 4 of dgxc-benchmarking v25.05. Norms and activations that are made again, of gpt-oss, are
    no key of ours. A run of 26.02 is left out that took twice as long as the same layout three weeks later.
    """
    for cell in csv.DictReader(path.open()):
        keys = layout_keys(cell)
        keys.update({"layout.ep": int(cell["ep"]), "layout.zero": 1, "train.seq": int(cell["seq"]),
                     "train.precision": cell["precision"], "precision.grads": cell["grads"], "train.recompute": "none"})
        for column in ("layers", "vocab"):
            if cell[column]:
                keys[f"model.{column}"] = int(cell[column])
        if cell["preset"] == "grok-1":
            keys["model.tied"] = "no"
        if cell["sp"] == "yes":
            keys["layout.sp"] = "true"
        even_stages(keys, layers_of(cell["preset"]))
        profile = SET_APART.get(path.stem) or DISPATCHED[cell["dispatcher"], cell["overlap"], cell["dropless"]]
        row = Row(path.stem, cell["row"], profile, "h100", keys)
        row.preset, row.step_s = cell["preset"], number(cell["step_s"])
        row.fits = None  # routers that are not forced fill some ranks more than others
        yield row


RULES = {table: experts for table in ("grok1_24_11", "grok1_25_02", "megatron_bridge_experts", "megatron_tests",
                                      "moe_recipes")}

"""Rows of published step times and memory, as runs that `trireme simulate` can be asked for.

A table has a rule: which profile (catalog/profiles) and cluster stand for its software and machines, and what its columns
leave open. Those of ../shared/validation are in shared.py, our own in nvidia.py, experts.py and settled.py. Rules follow the tables'
settings and their sources; some were put right from sources after their errors had been seen (docs/validation.md names them).
"""
import pathlib
import re

from . import experts, nvidia, settled, shared

OWN = pathlib.Path(__file__).resolve().parent.parent / "published"  # tables of our own, each from one public page
PROFILES = pathlib.Path(__file__).resolve().parent.parent.parent / "catalog" / "profiles"


def fitted():
    """The tables that some profile was fitted on, or chosen for when their rows had been seen: no row of them is a test.

    25 of the 118 sources that have step times, one or two of each software. Those of ../shared were chosen before any row had
    been simulated: of FSDP the largest table (both generations of devices, 8 to 512 of them), of Megatron the one with
    published settings in every row; nanotron and InternEvo have one table each. Of our own, twelve were chosen when their rows
    were put down, before any had been simulated. Nine came to them later: runs before BLOOM, for what is told apart in
    `megatron-deepspeed` was looked for because of them, MLPerf 3.1, one model and layout on 512 to 10,752 devices, and seven
    that were off and whose software nothing had been fitted on: LUMI, TPU v5e, NeuronX Distributed, Pythia, HybridEP's
    recipes, Paxml, MegaScale's Megatron-LM. docs/validation.md has what they had as tests.
    """
    names = set()
    for path in PROFILES.glob("*.yaml"):
        for line in path.read_text().splitlines():
            match = re.match(r"fitted_on: *\[(.*)\]", line)
            if match:
                names.update(word.strip() for word in match.group(1).split(","))
    return names


# Software that no profile is of: the one that is nearest stands in for it.
STANDS_IN = ("automodel_70b", "aws_tutorials", "flagperf_llama2_7b_deepspeed_2023", "flash_attention_2022", "flash_attention_2023",
             "glm_130b", "gpt_neox_lumi", "gptneox_20b", "jax_toolbox_pax_2023_a100", "jax_toolbox_pax_a100",
             "kempnerforge_2026_04", "kempnerforge_weak", "litgpt_compiled_2024", "llama3_405b", "megatron_tests_15b_a100", "megatron_tests_7b", "palm", "tilearn_llama_factory_2024")


def is_known(row):
    """Whether a tested row is of software that a profile is of."""
    return row.source not in STANDS_IN


def first_profile(row):
    """The profile with which a tested row was first simulated, and is judged with, whatever sources told later.

    Selective recomputation is a setting of a run that a profile says here: it stays.
    """
    changed = ("korthikanti_table3_5", "megatron_bridge_perf", "nemo_24_07", "zero_bubble_tables")
    later = ("mb-151", "mb-233")  # whose layout was refused until their source's dispatcher had been looked up
    if row.profile == "megatron-core" and row.source in STANDS_IN:
        return "megatron-2023"  # which stood in for it
    is_as_ever = row.source not in changed or row.profile == "megatron-selective" or row.name in later
    return row.profile if is_as_ever else "megatron"


def rows(folder_of_shared):
    """All rows of all tables that are there."""
    folder = pathlib.Path(folder_of_shared) / "validation"
    out = []
    for table, rule in {**shared.RULES, **nvidia.RULES, **experts.RULES, **settled.RULES}.items():
        path = OWN / f"{table}.csv"
        own = path.is_file()
        if not own:
            path = folder / f"{table}.csv"
        if path.is_file():
            for row in rule(path):
                row.own = own
                out.append(row)
    seen = fitted()
    for row in out:
        row.role = "fit" if row.source in seen else "test"
    return out

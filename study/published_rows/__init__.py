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


# Drawn by lot: a third of the sources may be fitted on, and 25 of 140 were. These are the first 21 of the other 115 in
# the order of SHA-256 of their names, as many as a third allows. The lot was drawn when all had been simulated once
# (docs/validation.md has what all were then). What is put down later is a test.
DRAWN = ("megatron_bridge_cards", "flagperf_aquila2_7b_2023", "yafsdp_fsdp_2024", "flagperf_llama3_2024", "experts_more",
         "bigscience_runs_2021_2022", "nemo_24_05", "deepseek_25_05", "torchtitan_commits", "litgpt_compiled_2024", "automodel_70b",
         "jax_toolbox_maxtext", "grok1_25_05", "aws_nxdt", "grok1_25_02", "megatron_llama_example", "mlperf_5_1",
         "torchtitan_more_compiled", "dgx_cloud_25_02", "mt_nlg", "tpu_recipes_v5p")


def fitted():
    """The tables that some profile was fitted on, chosen for, or may be: no row of them is a test. 46 of 140 sources.

    Those of ../shared were chosen before any row had been simulated: of FSDP the largest table (both generations of devices, 8 to
    512 of them), of Megatron the one with published settings in every row; nanotron and InternEvo have one table each. Of our own,
    twelve were chosen when their rows were put down, before any had been simulated, nine came to them later, and 21 were
    drawn by lot.
    """
    names = set(DRAWN)
    for path in PROFILES.glob("*.yaml"):
        for line in path.read_text().splitlines():
            match = re.match(r"fitted_on: *\[(.*)\]", line)
            if match:
                names.update(word.strip() for word in match.group(1).split(","))
    return names


# Software that no profile is of: the one that is nearest stands in for it.
STANDS_IN = ("automodel_70b", "aws_tutorials", "flagperf_llama2_7b_deepspeed_2023", "flash_attention_2022", "flash_attention_2023",
             "glm_130b", "gpt_neox_lumi", "gptneox_20b", "jax_toolbox_pax_2023_a100", "jax_toolbox_pax_a100",
             "kempnerforge_2026_04", "kempnerforge_weak", "litgpt_compiled_2024", "llama3_405b", "megatron_tests_15b_a100",
             "megatron_tests_7b", "palm", "tilearn_llama_factory_2024")


def is_known(row):
    """Whether a tested row is of software that a profile is of."""
    return row.source not in STANDS_IN


def first_profile(row):
    """The profile with which a tested row was first simulated, and is judged with, whatever sources told later.

    Selective recomputation is a setting of a run that a profile says here: it stays.
    """
    changed = ("korthikanti_table3_5", "megatron_bridge_perf", "nemo_24_07", "zero_bubble_tables")
    later = ("mb-151", "mb-233")  # whose layout was refused until their source's dispatcher had been looked up
    if row.profile == "megatron-core" and not is_known(row):
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

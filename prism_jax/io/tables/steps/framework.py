"""Which training software a row of a steps table ran on, from the words of its source, table and notes."""

from __future__ import annotations

import re

from .record import StepRecord

# First match wins: the particular before the general. The notes name the software only where they open with a name or hold a
# word that means nothing else ("Megatron TFLOPs formula" is a convention, not the software).
_BY_NAME = (
    (r"nanotron", "nanotron"),
    (r"maxtext|tpu-recipes|\bpax(ml)?\b|palm\b|\bt5x\b|alpa\b|levanter|easylm", "jax"),
    (r"megatron[\s_-]*deepspeed|bigscience|\bbloom\b|vtrain|gpt-?neox|pythia|glm-?130b|argonne|sailor", "megatron-deepspeed"),
    (r"colossal-?ai", "colossalai"),
    (r"flagscale", "flagscale"),
    (r"paddle", "paddle"),
    (r"llama 3 herd|2407\.21783|deepseek-ai|fire-?flyer|hai-?llm|megascale|veomni", "other"),
    (r"deepspeed|bloomberggpt", "deepspeed"),
    (
        r"llm-foundry|mosaicml|fms-fsdp|foundation-model-stack|torchtitan|torchtune|pytorch blog|axolotl"
        r"|\baccelerate\b|lightning|litgpt|llama-?factory|\bolmo\b|(?<!megatron )(?<!megatron-)\bfsdp\d?\b|opt-175b|metaseq",
        "fsdp",
    ),
    (r"nvidia|nemo\b|nemotron|megatron|mcore|mlcommons|simumax|primus", "megatron-core"),
)  # fmt: skip
_IN_NOTES = (
    (r"maxtext|paxml|\bjax\b", "jax"),
    (r"megatron-deepspeed|gpt-neox", "megatron-deepspeed"),
    (r"paddlenlp", "paddle"),
    (r"^libai\b", "libai"),
    (r"^megatron-lm .*\bTE \d", "megatron-core"),
    (r"torchtitan|litgpt|axolotl|\bvariant (fsdp|ddp)\b|torch\.compile", "fsdp"),
    (r"(?<!megatron \+ )deepspeed zero", "deepspeed"),
    (r"megatron-core|megatron-bridge|\bnemo\b", "megatron-core"),
)
_MEGATRON_LM = re.compile(r"^megatron-lm\b", re.IGNORECASE)
_OF_MEGATRON_2021 = re.compile(r"1909\.08053|2104\.04473|2201\.11990|2205\.05198")  # the papers of Megatron-LM itself
_ACCELERATORS_OF_JAX = re.compile(r"\btpu", re.IGNORECASE)


def framework_of_record(record: StepRecord) -> str:
    """One of `framework.catalog.FRAMEWORKS`; empty where nothing says.

    Notes:
        The notes decide first, where they name the software, then the table's path, since a repository may hold runs of
        several frameworks, then the source. Megatron-LM without Transformer Engine on A100 or V100 is taken for its
        version of 2021. A TPU without other words runs JAX.
    """
    noted = _first(_IN_NOTES, record.notes)
    if noted:
        return noted
    if _is_old_megatron(record):
        return "megatron-2021"
    named = _first(_BY_NAME, record.table) or _first(_BY_NAME, record.source)
    if named == "megatron-core" and _ACCELERATORS_OF_JAX.search(record.gpu):
        return "jax"
    return named or ("jax" if _ACCELERATORS_OF_JAX.search(record.gpu) else "")


def _is_old_megatron(record: StepRecord) -> bool:
    if _MEGATRON_LM.search(record.notes) or _OF_MEGATRON_2021.search(record.source):
        return True
    return record.source == "NVIDIA/Megatron-LM" and bool(re.search(r"[AV]100", record.gpu))


def _first(rules: tuple[tuple[str, str], ...], text: str) -> str:
    return next((name for pattern, name in rules if re.search(pattern, text, re.IGNORECASE)), "")

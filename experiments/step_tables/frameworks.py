"""Tells from what a published run says of itself which framework it ran on.

`PATTERNS` holds the regular expressions of every framework of `prism_jax.framework`; a framework of one's own is recognised once
its name stands there: `PATTERNS["mytrainer"] = (SourcePattern(source="mytrainer"),)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Ranks at which the package's patterns start; within each, more general names are asked later. The notes decide where they name
# the software, then papers and code of Megatron-LM itself, then the table's path, since a repository may hold runs of several
# frameworks, then the source.
NOTES, OWN_PAPERS, TABLE, SOURCE, NOTHING_ELSE = 100, 200, 300, 400, 500


@dataclass(frozen=True)
class SourcePattern:
    """Regular expressions over what a run says of itself, all of which must be found; case does not matter.

    Attributes:
        notes, table, source, gpu: over the notes, the table's path, the publication or repository, and the accelerator; an
            empty one is not asked.
        rank: patterns of all frameworks are asked in this order and the first that matches decides; those of the package start
            at `NOTES`, so that one of the caller's comes first.
    """

    notes: str = ""
    table: str = ""
    source: str = ""
    gpu: str = ""
    rank: int = 0

    def matches(self, *, notes: str, table: str, source: str, gpu: str) -> bool:
        """Whether all of its expressions are found."""
        asked = ((self.notes, notes), (self.table, table), (self.source, source), (self.gpu, gpu))
        return all(re.search(expression, text, re.IGNORECASE) for expression, text in asked if expression)


def in_notes(expression: str, rank: int) -> SourcePattern:
    """Notes that name the software; they must open with a name or hold a word that means nothing else, since "Megatron TFLOPs
    formula" is a convention.
    """
    return SourcePattern(notes=expression, rank=NOTES + rank)


def by_name(expression: str, rank: int, gpu: str = "") -> tuple[SourcePattern, SourcePattern]:
    """A name in the table's path, or else in the source; `gpu` restricts it to some accelerators."""
    return (
        SourcePattern(table=expression, gpu=gpu, rank=TABLE + rank),
        SourcePattern(source=expression, gpu=gpu, rank=SOURCE + rank),
    )


_NO_TPU = r"\A(?!.*\btpu)"  # on a TPU those names stand for somebody's JAX code

PATTERNS: dict[str, tuple[SourcePattern, ...]] = {
    "megatron-core": (
        in_notes(r"^megatron-lm .*\bTE \d", 50),  # Transformer Engine: a version of after 2022
        in_notes(r"megatron-core|megatron-bridge|\bnemo\b", 80),
        SourcePattern(table=r"\Amegatron-core\b", rank=TABLE + 5),  # a framework's own column, with its FSDP, too
        *by_name(r"nvidia|nemo\b|nemotron|megatron|mcore|mlcommons|simumax|primus", 90, gpu=_NO_TPU),
    ),
    "megatron-2021": (
        SourcePattern(notes=r"^megatron-lm\b", rank=OWN_PAPERS),
        SourcePattern(source=r"1909\.08053|2104\.04473|2201\.11990|2205\.05198", rank=OWN_PAPERS),
        SourcePattern(source=r"\A(?-i:NVIDIA/Megatron-LM)\Z", gpu=r"(?-i:[AV]100)", rank=OWN_PAPERS),
    ),
    "megatron-deepspeed": (
        in_notes(r"megatron-deepspeed|gpt-neox", 20),
        *by_name(
            r"megatron[\s_-]*deepspeed|deepspeed megatron|megatron-lm \(3d\) / deepspeed"
            r"|bigscience|\bbloom\b|vtrain|gpt-?neox|pythia|glm-?130b|argonne|sailor",
            30,
        ),
    ),
    "flagscale": by_name(r"flagscale", 50),
    "libai": (in_notes(r"^libai\b", 40), *by_name(r"oneflow", 50)),
    "nanotron": by_name(r"nanotron", 10),
    "deepspeed": (in_notes(r"(?<!megatron \+ )deepspeed zero", 70), *by_name(r"deepspeed|bloomberggpt", 75)),
    "fsdp": (
        by_name(r"fsdp2.*automodel|automodel.*fsdp2", -80)[0],  # a vendor's, of modules as Hugging Face has them
        in_notes(r"torchtitan|litgpt|axolotl|\bvariant (fsdp|ddp)\b|torch\.compile", 60),
        *by_name(
            r"llm-foundry|mosaicml|fms-fsdp|foundation-model-stack|torchtitan|torchtune|pytorch blog"
            r"|axolotl|hugging ?face trainer|yafsdp|ms-swift|composer|plain pytorch|open_lm"
            r"|\baccelerate\b|lightning|litgpt|llama-?factory|\bolmo\b|(?<!megatron )(?<!megatron-)\bfsdp\d?\b|opt-175b|metaseq",
            80,
        ),
    ),
    "colossalai": by_name(r"colossal-?ai", 40),
    "jax": (
        in_notes(r"maxtext|paxml|\bjax\b", 10),
        *by_name(r"neuronx|torch[_-]xla", 5),  # compiled whole, ahead of time
        *by_name(r"maxtext|tpu-recipes|\bpax(ml)?\b|palm\b|\bt5x\b|alpa\b|levanter|easylm", 20),
        SourcePattern(gpu=r"\btpu", rank=NOTHING_ELSE),  # a TPU without other words runs JAX
    ),
    "mindspore": by_name(r"mindspore|mindformers", 30),
    "paddle": (in_notes(r"paddlenlp", 30), *by_name(r"paddle", 60)),
    "other": by_name(
        r"llama 3 herd|2407\.21783|deepseek-ai|fire-?flyer|hai-?llm|megascale|veomni|internevo|internlm|xtuner", 70
    ),
}
"""Framework -> what a published run says of itself when it ran on it. megatron-2021: without Transformer Engine, on A100 or V100,
or in the papers of Megatron-LM itself."""


def recognised(*, notes: str, table: str, source: str, gpu: str) -> str:
    """Name of the framework that a published run was made with; empty where nothing says.

    Args:
        notes: remarks that stand beside its figures.
        table: path of the table it is from.
        source: publication or repository.
        gpu: accelerator.
    """
    by_rank = sorted(
        ((pattern, name) for name, patterns in PATTERNS.items() for pattern in patterns),
        key=lambda pair: pair[0].rank,
    )
    found = (name for pattern, name in by_rank if pattern.matches(notes=notes, table=table, source=source, gpu=gpu))
    return next(found, "")

"""What a row about an encoder leaves blank and the recipe of its source states.

Source: configuration files of NVIDIA/NeMo-Framework-Launcher (launcher_scripts/conf/training/bert, t5, mt5), which the tables of
throughput of the same repository refer to by size. T5-3B: the batch is that of these tables. LiBai's page of benchmarks names no
GPU; the micro-batches that it runs without recomputation (24 sequences of BERT, 6 of GPT-2) fill 32 GB by the closed form of
saved activations (arXiv 2205.05198), and rates of 20,000 tokens/s are 40 % of the peak of a V100.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from .....plan.plan import ParallelPlan
from ..assumed.assumption import Assumption
from ..record import StepRecord


class Recipe(NamedTuple):
    """What a source uses for one model.

    Attributes:
        source: pattern of the source's name.
        model: pattern of the model's name, from its beginning.
        values: fields of a `StepRecord`.
        why: on what ground.
    """

    source: str
    model: str
    values: dict[str, Any]
    why: str = "recipe of that model in the source"


def _bert(size: str, layers: int, hidden: int, heads: int, **plan: Any) -> Recipe:
    sizes = {"n_layers": layers, "hidden": hidden, "ffn": 4 * hidden, "n_heads": heads, "vocab": 30592}
    own = {"tp": 1, "pp": 1, "sequence_parallel": False, "recompute": "selective"} | plan
    return Recipe(_NEMO, rf"bert-{size}$", sizes | own | _BY_HAND)


def _t5(name: str, layers: int, hidden: int, ffn: int, heads: int, **plan: Any) -> Recipe:
    sizes = {"n_layers": layers, "hidden": hidden, "ffn": ffn, "n_heads": heads, "gated": True}
    vocab = 250112 if name.startswith("mt5") else 29184
    own = {"tp": 1, "pp": 1, "sequence_parallel": False, "recompute": "none"} | plan
    return Recipe(_NEMO, rf"{name}$", sizes | {"vocab": vocab} | own | _BY_HAND)


_NEMO = r"NeMo-Framework-Launcher"
_BY_HAND = {"attention_kernel": "fused softmax", "vpp": 1}  # `masked_softmax_fusion`; no interleaving
RECIPES = (
    _bert("110m", 12, 768, 12, micro_batch=4, global_batch=256),
    _bert("4b", 48, 2560, 32, micro_batch=8, global_batch=2048),
    _bert("20b", 48, 6144, 96, micro_batch=4, global_batch=4096, tp=4, pp=4, sequence_parallel=True),
    _bert("100b", 96, 9216, 96, micro_batch=8, global_batch=4096, tp=4, pp=16, sequence_parallel=True),
    _t5("t5-220m", 12, 768, 2048, 12, micro_batch=64, global_batch=2048),
    _t5("t5-3b", 24, 2048, 5120, 32, micro_batch=27, global_batch=2160, tp=2),
    _t5("mt5-170m", 8, 512, 1024, 6, micro_batch=64, global_batch=2048),
    _t5("mt5-390m", 12, 768, 2048, 12, micro_batch=32, global_batch=2048),
    _t5("mt5-3b", 24, 2048, 5120, 32, micro_batch=24, global_batch=1920, tp=2),
    Recipe(r"libai", "bert", {"gpu": "V100-32GB"}, "the stated micro-batches fill its memory"),
)


def with_recipe(record: StepRecord) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with what the recipe of its source says where it is blank: one assumption, however many fields it fills."""
    assumed: tuple[Assumption, ...] = ()
    for source, model, values, why in RECIPES:
        if not (re.search(source, record.source, re.IGNORECASE) and re.match(model, record.model_name, re.IGNORECASE)):
            continue
        blank = {name: value for name, value in values.items() if _is_blank(getattr(record, name))}
        if blank:
            record = replace(record, **blank)
            assumed += (Assumption("recipe", ", ".join(f"{name} {value}" for name, value in blank.items()), why),)
    return record, assumed


def with_gradients_behind(record: StepRecord, plan: ParallelPlan) -> ParallelPlan:
    """The plan with gradients reduced behind the backward pass, as the recipes say (`overlap_grad_sync: False`)."""
    if not re.search(_NEMO, record.source):
        return plan
    return replace(plan, overlap=replace(plan.overlap, dp=False))


def _is_blank(value: Any) -> bool:
    return value is None or value in ("", "unknown")

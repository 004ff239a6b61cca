"""Which part of the activations a plan computes again in the backward pass: kinds, methods and modules by name.

Megatron-LM: `full` checkpoints whole layers (`uniform`: all layers, `recompute_num_layers` of them per checkpoint, by default 1;
`block`: the first `recompute_num_layers` layers of every model chunk); `selective` computes the parts named by
`recompute_modules` again. torchtitan: its `full` is Megatron-LM's; `selective_op` saves the results of attention and of every
other matrix product (`selective_ac_option = "op"`); `selective_layer` checkpoints every `recompute_num_layers`-th layer (`"2"`).

Source: Megatron-LM, megatron/core/transformer/transformer_config.py; torchtitan, distributed/activation_checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..errors import Problem

UNIFORM, BLOCK = "uniform", "block"
METHODS = (UNIFORM, BLOCK)
CORE_ATTENTION = "core_attn"
MODULES = (CORE_ATTENTION, "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
OPTIONS = {"recompute_method": UNIFORM, "recompute_num_layers": 0, "recompute_modules": (CORE_ATTENTION,)}
"""Fields of a plan that say more about its kind of recomputation, and their defaults."""
_OF_KIND = {
    "recompute_method": ("full",),
    "recompute_num_layers": ("full", "selective_layer"),
    "recompute_modules": ("selective",),
}


class Recomputing(Protocol):
    """What of a plan says what is recomputed; fields as in `ParallelPlan`."""

    @property
    def recompute(self) -> str: ...
    @property
    def recompute_method(self) -> str: ...
    @property
    def recompute_num_layers(self) -> int: ...
    @property
    def recompute_modules(self) -> tuple[str, ...]: ...
    @property
    def n_chunk(self) -> int: ...


def recomputed_modules(plan: Recomputing) -> tuple[str, ...]:
    """Modules that run again by themselves; none unless recomputation is selective."""
    return plan.recompute_modules if plan.recompute == "selective" else ()


def layers_per_checkpoint(plan: Recomputing) -> int:
    """Layers that are brought back at once under full recomputation."""
    if plan.recompute != "full" or plan.recompute_method == BLOCK:
        return 1
    return max(plan.recompute_num_layers, 1)


def share_of_layers(plan: Recomputing, n_layers: int) -> float:
    """Share of a model's layers that recompute.

    Notes:
        `block` counts layers of a chunk; where chunks are of uneven size the share is that of the mean chunk.
    """
    if plan.recompute == "selective_layer":
        return 1.0 / max(plan.recompute_num_layers, 1)
    if plan.recompute == "full" and plan.recompute_method == BLOCK:
        return min(1.0, plan.recompute_num_layers * plan.n_chunk / n_layers)
    return 1.0


def problems(plan: Recomputing) -> Iterator[Problem]:
    """Options that contradict the kind of recomputation."""
    if plan.recompute_method not in METHODS:
        yield Problem("recompute_method", f"{plan.recompute_method!r} is unknown; known are {', '.join(METHODS)}")
    for name in plan.recompute_modules:
        if name not in MODULES:
            yield Problem("recompute_modules", f"{name!r} is unknown; known are {', '.join(MODULES)}")
    for name, kinds in _OF_KIND.items():
        if getattr(plan, name) != OPTIONS[name] and plan.recompute not in kinds:
            text = f"is given, but recompute = {plan.recompute}. It goes with recompute={' or '.join(kinds)}."
            yield Problem(name, text)
    if plan.recompute == "selective" and not plan.recompute_modules:
        yield Problem("recompute_modules", "is empty. Name a module, or use recompute=none.")
    if _needs_layers(plan) and plan.recompute_num_layers < 1:
        yield Problem("recompute_num_layers", "is missing: how many layers", is_missing=True)


def _needs_layers(plan: Recomputing) -> bool:
    is_block = plan.recompute == "full" and plan.recompute_method == BLOCK
    return is_block or plan.recompute == "selective_layer"

"""What reading HLO had to assume, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .axes import Axes
from .text.types import Module
from .walk import Walk


class Met(Protocol):
    """What was met on the way."""

    again_flops: float
    flops: float
    from_all_reduce: int
    widened: int
    unknown_calls: set[str]
    asynchronous: int
    backward: int
    expert_loops: int
    combined: int


def notes_of(module: Module, walk: Walk, met: Met, axes: Axes) -> Iterator[str]:
    """Sentences for people who read a prediction."""
    if met.again_flops:
        share = met.again_flops / met.flops
        yield f"{share:.1%} of the FLOPs repeat work of the forward pass (rematerialisation); they are counted."
    if met.flops and not met.backward:
        yield "Nothing in the text is named as a part of a backward pass: all of it is counted as forward."
    yield from _exchanges(met)
    if met.expert_loops:
        yield f"{met.expert_loops} loops choose tokens (top_k), or are the backward passes of those: layers of experts."
    if walk.untold:
        names = ", ".join(walk.untold[:3])
        yield f"{len(walk.untold)} loops whose trips the text does not tell are counted once: {names[:120]}."
    if walk.branches:
        yield f"{walk.branches} conditionals: the branch with the most FLOPs is counted."
    if met.unknown_calls:
        names = ", ".join(sorted(met.unknown_calls)[:5])
        yield f"Custom calls of unknown FLOPs are counted by their bytes: {names[:200]}."
    if axes.guessed:
        roles = ", ".join(f"{name} is {role}" for name, role in axes.guessed.items())
        yield f"The dimensions of the mesh were guessed from the groups of collectives: {roles[:200]}."
    if not module.is_scheduled:
        yield "The module is not scheduled: its order is that of the text."


def _exchanges(met: Met) -> Iterator[str]:
    """Of collectives."""
    if met.from_all_reduce:
        yield (
            f"{met.from_all_reduce} all-reduces of which every device keeps its slice are counted as reduce-scatters, "
            "which XLA makes of them on GPUs and TPUs."
        )
    if met.widened:
        yield f"{met.widened} collectives that XLA for CPUs widened are counted in the dtype of the program."
    if not met.asynchronous:
        yield "No collective is asynchronous in the text: each one blocks. XLA for GPUs and TPUs overlaps some."
    if met.combined:
        yield f"{met.combined} gatherings of parameters are parts of others, as XLA for GPUs combines them."

"""Which rows of a backward pass only make gradients of weights (phase W), so that a schedule may run them later.

A row is W if nothing that computes further back in the network reads what it made: its result ends in the gradient of a
parameter, through views, casts, sums and collectives at most. What an input of the stage needs is never W.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...workload.captured.rows import CapturedComm, CapturedOp
from .recording.recorder import Event

# Operations through which a gradient passes unchanged in kind: copies, casts, and the sums of what several uses of a weight add.
_PASSING = frozenset(
    [
        "aten::_to_copy",
        "aten::copy_",
        "aten::clone",
        "aten::add",
        "aten::add_",
        "aten::div",
        "aten::div_",
        "aten::mul",
        "aten::mul_",
        "aten::fill_",
        "aten::zero_",
        "fsdp::chunk_cat",
        "aten::split_with_sizes_copy",
        "aten::cat",
        "aten::slice_backward",
        "aten::slice_scatter",
        "aten::zeros",
        "aten::new_zeros",
    ]
)


def phases(events: Sequence[Event], needed: frozenset[int]) -> list[str]:
    """[event] F, B, W or opt.

    Args:
        needed: events that made gradients of inputs of the stage.
    """
    is_needed = _needed(events, needed)
    return [_phase(event, own) for event, own in zip(events, is_needed, strict=True)]


def _phase(event: Event, is_needed: bool) -> str:
    row = event.row
    if event.phase != "B":
        return event.phase
    if isinstance(row, CapturedOp) and row.kind == "conv" and row.name.endswith("backward"):
        return row.phase  # one operation, two products
    if isinstance(row, CapturedComm) or event.node is None or event.recomputed or is_needed:
        return "B"
    return "B" if row.kind == "none" or row.name.startswith("fsdp::") else "W"


def _needed(events: Sequence[Event], needed: frozenset[int]) -> list[bool]:
    """[event] whether the gradient of an activation depends on it; consumers come later, so one pass backwards tells."""
    found = [index in needed for index in range(len(events))]
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        for number in event.consumers:
            consumer = events[number]
            if consumer.phase != "B":
                continue
            apart = consumer.node != event.node or event.node is None
            found[index] |= found[number] or (apart and not _is_passing(consumer))
    return found


def _is_passing(event: Event) -> bool:
    return isinstance(event.row, CapturedComm) or event.row.name in _PASSING

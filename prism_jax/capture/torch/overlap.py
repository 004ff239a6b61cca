"""Which collectives run beside computation on a GPU: a policy, for a CPU shows none of it.

FSDP gathers the parameters of the next unit while this one computes: its all-gather moves to where the unit before has its
parameters. In the backward pass torch asks for it that early by itself. Gradients are reduced beside the backward pass
(FSDP, DDP) and awaited at its end. Other collectives are awaited by the first row that reads their result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...workload.captured.rows import CapturedComm
from .recording.recorder import Event

ASSUMPTION = (
    "Overlap is a policy: FSDP gathers one unit ahead, gradients are reduced beside the backward pass, other collectives are "
    "awaited where their result is first read."
)


class Waiting(NamedTuple):
    """When the result of a collective is awaited: beside what it runs, and which event waits (None: the end of its phase)."""

    asynchronous: bool
    event: Event | None


def gathered_ahead(events: Sequence[Event]) -> list[Event]:
    """The events with every forward all-gather of parameters where the one before it is awaited."""
    ordered: list[Event] = []
    before: Event | None = None
    for event in events:
        if not _is_gather(event):
            ordered.append(event)
            continue
        start = None if before is None or before.wait is None else _index(ordered, before.wait)
        copied_in = _copies_in(ordered, start)
        place = len(ordered) if start is None else start
        ordered[place:place] = [*copied_in, event]
        before = event
    return ordered


def waiting(event: Event, following: Event | None) -> Waiting:
    """How a collective is awaited; `following` is the next event of its class."""
    if event.purpose == "gradients":
        return Waiting(True, None)
    if event.wait is None or event.wait is following:
        return Waiting(False, None)
    return Waiting(True, event.wait)


def _is_gather(event: Event) -> bool:
    return event.purpose == "parameters" and event.phase == "F" and isinstance(event.row, CapturedComm)


def _index(ordered: Sequence[Event], event: Event) -> int | None:
    """Place behind an event."""
    return next((at + 1 for at in range(len(ordered) - 1, -1, -1) if ordered[at] is event), None)


def _copies_in(ordered: list[Event], start: int | None) -> list[Event]:
    """The copies right at the end that prepare an all-gather, taken out of the list."""
    taken: list[Event] = []
    floor = 0 if start is None else start
    while len(ordered) > floor and getattr(ordered[-1].row, "name", "").startswith("fsdp::all_gather_copy_in"):
        taken.insert(0, ordered.pop())
    return taken

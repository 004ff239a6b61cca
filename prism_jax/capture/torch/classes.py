"""Makes a class of ranks of recorded events: passes told apart, waits as indices, the optimizer as one kernel per operation.

Which collectives run during computation on a GPU is a policy, for a CPU shows none of it. FSDP gathers the parameters of the next
unit while this one computes: its all-gather moves to where the unit before has its parameters. In the backward pass torch asks
for it that early by itself. Gradients are reduced during the backward pass (FSDP, DDP) and awaited at its end. Other collectives
are awaited by the first row that reads their result.

Some rows of a backward pass only make gradients of weights (phase W), so that a schedule may run them later. A row is W if
nothing that computes further back in the network reads what it made: its result ends in the gradient of a parameter, through
views, casts, sums and collectives at most. What an input of the stage needs is never W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...workload.captured.chains import MINOR, ChainStep, links
from ...workload.captured.program import USUAL_ROLES, CapturedComm, CapturedOp, CapturedRow, RankClass
from .recorder import RecordedEvent, Recorder
from .repeats import folded
from .run_step import StepFacts

ASSUMPTION = (
    "Overlap is a policy: FSDP gathers one unit ahead, gradients are reduced during the backward pass, other collectives are "
    "awaited where their result is first read."
)


class Waiting(NamedTuple):
    """Time at which the result of a collective is awaited: whether it overlaps, and which event waits (None: the end of its
    phase).
    """

    asynchronous: bool
    event: RecordedEvent | None


def gathered_ahead(events: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """The events with every forward all-gather of parameters where the one before it is awaited."""
    ordered: list[RecordedEvent] = []
    before: RecordedEvent | None = None
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


def waiting(event: RecordedEvent, following: RecordedEvent | None) -> Waiting:
    """Returns when a collective is awaited; `following` is the next event of its class."""
    if event.purpose == "gradients":
        return Waiting(True, None)
    if event.wait is None or event.wait is following:
        return Waiting(False, None)
    return Waiting(True, event.wait)


def _is_gather(event: RecordedEvent) -> bool:
    return event.purpose == "parameters" and event.phase == "F" and isinstance(event.row, CapturedComm)


def _index(ordered: Sequence[RecordedEvent], event: RecordedEvent) -> int | None:
    """Returns the index behind an event; None: it is not there."""
    return next((at + 1 for at in range(len(ordered) - 1, -1, -1) if ordered[at] is event), None)


def _copies_in(ordered: list[RecordedEvent], start: int | None) -> list[RecordedEvent]:
    """The copies right at the end that prepare an all-gather, taken out of the list."""
    taken: list[RecordedEvent] = []
    floor = 0 if start is None else start
    while len(ordered) > floor and getattr(ordered[-1].row, "name", "").startswith("fsdp::all_gather_copy_in"):
        taken.insert(0, ordered.pop())
    return taken


# Operations through which a gradient passes unchanged in kind: copies, casts, and the sums of what several uses of a weight add.
_PASSING = frozenset({
    "aten::_to_copy", "aten::copy_", "aten::clone", "aten::add", "aten::add_", "aten::div", "aten::div_",
    "aten::mul", "aten::mul_", "aten::fill_", "aten::zero_", "fsdp::chunk_cat", "aten::split_with_sizes_copy",
    "aten::cat", "aten::slice_backward", "aten::slice_scatter", "aten::zeros", "aten::new_zeros",
})  # fmt: skip


def phases(events: Sequence[RecordedEvent], needed: frozenset[int]) -> list[str]:
    """Pass of every event, [event]: F, B, W or opt.

    Args:
        needed: events that made gradients of inputs of the stage.
    """
    is_needed = _needed(events, needed)
    return [_phase(event, own) for event, own in zip(events, is_needed, strict=True)]


def _phase(event: RecordedEvent, is_needed: bool) -> str:
    row = event.row
    if event.phase != "B":
        return event.phase
    if isinstance(row, CapturedOp) and row.kind == "conv" and row.name.endswith("backward"):
        return row.phase  # one operation, two products
    if isinstance(row, CapturedComm) or event.node is None or event.recomputed or is_needed:
        return "B"
    return "B" if row.kind == "none" or row.name.startswith("fsdp::") else "W"


def _needed(events: Sequence[RecordedEvent], needed: frozenset[int]) -> list[bool]:
    """Whether the gradient of an activation depends on each event, [event]; consumers come later, so one pass backwards tells."""
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


def _is_passing(event: RecordedEvent) -> bool:
    return isinstance(event.row, CapturedComm) or event.row.name in _PASSING


OPTIMIZER = "The optimizer runs one kernel per operation for all parameters (foreach), as torch does on GPUs."


def rank_class(recorder: Recorder, facts: StepFacts, model: Any, stage: int, n_ranks: int, *, fold: bool) -> RankClass:
    """Returns the class of ranks that runs the recorded events."""
    has_experts = any(USUAL_ROLES.get(axis.lower()) == "ep" and size > 1 for axis, size in recorder.axes.items())
    rows = rows_of(recorder.events, facts)
    last = max((at for at, row in enumerate(rows) if row.phase != "opt"), default=-1) + 1
    kept = folded(rows[:last]) if fold else None
    steps, repeats = (kept.rows, kept.repeats) if kept is not None else (tuple(rows[:last]), ())
    return RankClass(
        name=f"stage{stage}",
        n_ranks=n_ranks,
        stage=stage,
        rows=(*steps, *_optimizer(rows[last:])),
        repeats=repeats,
        n_parameters=float(n_parameters(model)),
        n_expert_parameters=float(n_parameters(model, "expert") if has_experts else 0),
        sends_bytes=facts.sends_bytes,
        saved_bytes=facts.saved_bytes,
    )


def rows_of(events: Sequence[RecordedEvent], facts: StepFacts) -> list[CapturedRow]:
    """Rows in the order in which they are issued."""
    names = phases(events, facts.needed)
    phase_of = dict(zip(map(id, events), names, strict=True))
    link_of = dict(zip(map(id, events), links(_steps(events, names)), strict=True))
    ordered = gathered_ahead(events)
    place = {id(event): at for at, event in enumerate(ordered)}
    rows: list[CapturedRow] = []
    for at, event in enumerate(ordered):
        phase, following = phase_of[id(event)], ordered[at + 1] if at + 1 < len(ordered) else None
        row = replace(event.row, phase=phase, module=event.module)
        if isinstance(row, CapturedComm):
            wait = waiting(event, following) if phase != "opt" else Waiting(False, None)
            end = None if wait.event is None or wait.event.phase != event.phase else place[id(wait.event)]
            row = replace(
                row,
                asynchronous=wait.asynchronous,
                wait=end,
                purpose=event.purpose or "activations" * (event.phase != "opt"),
            )
        elif phase != "opt":
            link = link_of[id(event)]
            row = replace(row, chain=place[id(events[link.end])] - at, chain_bytes=link.n_bytes)
        rows.append(row)
    return rows


def _steps(events: Sequence[RecordedEvent], names: Sequence[str]) -> list[ChainStep]:
    """The events as `chains` knows them."""
    written = [getattr(event.row, "output_bytes", 0.0) for event in events]
    readers: list[list[int]] = [[] for _ in events]
    for number, event in enumerate(events):
        for maker in event.inputs:
            read = sum(access.n_bytes for access in event.reads if maker in access.makers)
            if not event.reads or read > MINOR * written[maker]:
                readers[maker].append(number)
    return [
        ChainStep(event.role, phase, event.reads, size, tuple(own))
        for event, phase, size, own in zip(events, names, written, readers, strict=True)
    ]


def _optimizer(rows: Sequence[CapturedRow]) -> list[CapturedRow]:
    """Operations of the same name as one, which is where their first was."""
    found: dict[tuple[str, str], CapturedOp] = {}
    made: list[CapturedRow | tuple[str, str]] = []
    for row in rows:
        if isinstance(row, CapturedComm):
            made.append(row)
            continue
        key = (row.name, row.dtype)
        if key not in found:
            made.append(key)
            found[key] = replace(row, module="", shape=())
            continue
        sums = {name: getattr(found[key], name) + getattr(row, name) for name in ("flops", "n_bytes", "output_bytes")}
        found[key] = replace(found[key], **sums)
    return [found[row] if isinstance(row, tuple) else row for row in made]


def n_parameters(model: Any, word: str = "") -> int:
    """Parameters, with a word in their name, that the rank computes with: tensor-parallel parts, whole of what FSDP shards."""
    return sum(_own(one) for name, one in model.named_parameters() if word in name)


def _own(parameter: Any) -> int:
    from torch.distributed.tensor import DTensor

    if not isinstance(parameter, DTensor):
        return parameter.numel()
    n = parameter.numel()
    for dim, placement in zip(parameter.device_mesh.mesh_dim_names or (), parameter.placements, strict=False):
        if placement.is_shard() and _is_tensor_parallel(dim):
            n //= parameter.device_mesh[dim].size()
    return n


def _is_tensor_parallel(axis: str) -> bool:
    return USUAL_ROLES.get(axis.lower(), "tp") not in ("dp", "pp")

# pyright: reportMissingImports=false
"""Recorded events as a class of ranks: passes told apart, waits as indices, the optimizer as one kernel per operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...workload.captured.chains import MINOR, Link, Step, links
from ...workload.captured.program import USUAL_ROLES, RankClass
from ...workload.captured.rows import CapturedComm, CapturedOp, CapturedRow
from .overlap import Waiting, gathered_ahead, waiting
from .phases import phases
from .recording.recorder import Event, Recorder
from .repeats import folded
from .run_step import StepFacts

OPTIMIZER = "The optimizer runs one kernel per operation for all parameters (foreach), as torch does on GPUs."


def rank_class(recorder: Recorder, facts: StepFacts, model: Any, stage: int, n_ranks: int, *, fold: bool) -> RankClass:
    """The class of ranks that runs what was recorded."""
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


def rows_of(events: Sequence[Event], facts: StepFacts) -> list[CapturedRow]:
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
            row = replace(row, asynchronous=wait.asynchronous, wait=end, purpose=_purpose(event))
        elif phase != "opt":
            row = _linked(row, link_of[id(event)], lambda end: place[id(events[end])], at)
        rows.append(row)
    return rows


def _steps(events: Sequence[Event], names: Sequence[str]) -> list[Step]:
    """The events as `chains` knows them."""
    written = [getattr(event.row, "output_bytes", 0.0) for event in events]
    readers: list[list[int]] = [[] for _ in events]
    for number, event in enumerate(events):
        for maker in event.inputs:
            read = sum(access.n_bytes for access in event.reads if maker in access.makers)
            if not event.reads or read > MINOR * written[maker]:
                readers[maker].append(number)
    return [
        Step(event.role, phase, event.reads, size, tuple(own))
        for event, phase, size, own in zip(events, names, written, readers, strict=True)
    ]


def _linked(row: CapturedOp, link: Link, place: Callable[[int], int], at: int) -> CapturedOp:
    """The row with the kernel that it is part of; `place` is that of an event."""
    return replace(row, chain=place(link.end) - at, chain_bytes=link.n_bytes)


def _purpose(event: Event) -> str:
    return event.purpose or ("activations" if event.phase != "opt" else "")


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

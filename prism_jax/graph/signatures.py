"""Op signatures: the few different ops a schedule repeats, and their seconds from the cost of its chunks.

Ops of a lane that run the same kinds of work on the same chunks (and send over the same edges) are alike, whatever their
micro-batch. Their seconds are computed once, for any number of plans (leading axes of the cost), and picked by index.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Values, is_numpy, namespace
from ..kernels import PASSES
from ..schedule.order import Placement, ScheduleOrder
from .levels import LevelTable

Index = NDArray[np.intp]


class Signatures(NamedTuple):
    """Different ops of a schedule; up to three parts each.

    Attributes:
        of_op: [level, lane] signature of the op there, -1 where the lane idles.
        lane: [signature] lane that runs it.
        kind: [signature, part] index into `PASSES`, -1 for no part.
        chunk: [signature, part].
        edge: [signature, part] edge its result crosses to another stage, -1 for none.
    """

    of_op: Index
    lane: Index
    kind: Index
    chunk: Index
    edge: Index


def signatures(schedule: ScheduleOrder, table: LevelTable) -> Signatures:
    """Signatures of all ops of `schedule` at their places in `table`."""
    edges, direction = _edges(schedule.stage_of), schedule.stage_of.direction
    known: dict[tuple[int, tuple[tuple[int, int, int], ...]], int] = {}
    of_op = np.full(table.op.shape, -1, dtype=np.intp)
    for lane, order in enumerate(schedule.orders):
        ids = [
            known.setdefault(
                (
                    lane,
                    tuple(
                        [
                            (_KIND[kind], chunk, edges[kind][direction[micro_batch]][chunk])
                            for kind, micro_batch, chunk in op.parts
                        ]
                    ),
                ),
                len(known),
            )
            for op in order
        ]
        levels = np.flatnonzero(table.op[:, lane] >= 0)
        of_op[levels, lane] = np.array(ids, dtype=np.intp)[table.op[levels, lane]]
    n_part = max((len(parts) for _, parts in known), default=1)
    parts = np.full((len(known), n_part, 3), -1, dtype=np.intp)
    for row, (_, own) in enumerate(known):
        parts[row, : len(own)] = own
    return Signatures(of_op, np.array([lane for lane, _ in known]), parts[..., 0], parts[..., 1], parts[..., 2])


_KIND = {name: index for index, name in enumerate(PASSES)}


def _edges(placement: Placement) -> dict[str, list[list[int]]]:
    """[kind][direction][chunk] edge that is crossed: F of chunk q sends over edge q, B over edge q - 1, W nowhere.

    Nothing is sent within a stage or past the ends.
    """
    sent = [[q if stage != after else -1 for q, (stage, after) in enumerate(pairwise(own))] for own in placement.stages]
    return {
        "F": [[*own, -1] for own in sent],
        "B": [[-1, *own] for own in sent],
        "W": [[-1] * len(own) for own in placement.stages],
    }


def signature_seconds(sigs: Signatures, compute_s: Values, comm_s: Values, hidden_s: Values) -> tuple[Values, Values]:
    """Compute [*plan, signature, class] and exposed communication [*plan, signature, axis] seconds.

    Args:
        sigs: of the schedule.
        compute_s, comm_s, hidden_s: as in `StepCost`, [*plan, kind, chunk, class or axis]; may be traced by JAX.

    Notes:
        Where an op holds a forward and a backward part, the communication of each runs beside what compute the other has free.
    """
    used = sigs.kind >= 0
    is_forward = used & (sigs.kind == _KIND["F"])
    sides = (is_forward, used & ~is_forward)
    compute = [_total(compute_s, sigs, side) for side in sides]
    comm = [_total(comm_s, sigs, side) for side in sides]
    both = sides[0].any(axis=1) & sides[1].any(axis=1)
    if not both.any():
        return compute[0] + compute[1], comm[0] + comm[1]
    xp = namespace(compute_s, comm_s)
    free = [
        xp.maximum(own.sum(axis=-1) - _total(hidden_s, sigs, side).sum(axis=-1), 0.0)
        for own, side in zip(compute, sides, strict=True)
    ]
    exposed = [
        own * _exposed_share(own.sum(axis=-1), beside)[..., None] for own, beside in zip(comm, free[::-1], strict=True)
    ]
    return compute[0] + compute[1], xp.where(both[:, None], exposed[0] + exposed[1], comm[0] + comm[1])


def _total(values: Values, sigs: Signatures, chosen: NDArray[np.bool_]) -> Values:
    """Sum of the chosen parts [*plan, signature, class] of values [*plan, kind, chunk, class]."""
    xp = namespace(values)
    total = xp.zeros((*values.shape[:-3], len(sigs.kind), values.shape[-1]))
    for part in range(sigs.kind.shape[1]):
        rows = np.flatnonzero(chosen[:, part])
        own = values[..., sigs.kind[rows, part], sigs.chunk[rows, part], :]
        if is_numpy(xp):
            total[..., rows, :] += own
        else:
            total = total.at[..., rows, :].add(own)
    return total


def _exposed_share(comm_s: Values, beside_s: Values) -> Values:
    """Share of `comm_s` that does not fit beside `beside_s` of compute; 0 where there is no communication."""
    xp = namespace(comm_s, beside_s)
    return xp.maximum(comm_s - beside_s, 0.0) / xp.where(comm_s > 0.0, comm_s, 1.0)

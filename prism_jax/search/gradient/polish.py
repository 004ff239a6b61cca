"""Polish: the neighbours of the fastest plans, until none of these has a faster one."""

from __future__ import annotations

import numpy as np

from ..plans.plan_cache import Rows
from .knobs import CHOICES, DEGREES, Knobs
from .visited import VisitedPlans

N_FRONT = 20  # fastest plans whose neighbours are all looked at
N_ROUND = 40
_RECOMPUTE = len(DEGREES) + CHOICES.index("recompute")  # a choice that trades memory, which degrees can use


def polish(knobs: Knobs, known: VisitedPlans, n_front: int = N_FRONT) -> None:
    """Looks at neighbours of the fastest plans in `known` until the first `n_front` have none that is unknown."""
    expanded: set[bytes] = set()
    for _ in range(N_ROUND):
        front = known.best(n_front)
        new = [row for row in front if row.tobytes() not in expanded]
        if not new:
            return
        known.look_up(np.concatenate([neighbours(knobs, row) for row in new]))
        expanded |= {row.tobytes() for row in new}


def neighbours(knobs: Knobs, positions: Rows) -> Rows:
    """Positions [neighbour, knob] one move away from `positions` [knob].

    A move sets one choice, or moves one degree to the next value, or one up and another down, or one with recomputation.
    """
    sizes = knobs.sizes
    n_degree = len(DEGREES)
    single = [(knob, positions[knob] + by) for knob in range(n_degree) for by in (-1, 1)]
    single = [(knob, at) for knob, at in single if 0 <= at < sizes[knob]]
    choices = [(knob, at) for knob in range(n_degree, len(sizes)) for at in range(sizes[knob]) if at != positions[knob]]
    moves = [(move,) for move in (*single, *choices)]
    moves += [(a, b) for a in single for b in single if a[0] < b[0]]
    moves += [(a, b) for a in single for b in choices if b[0] == _RECOMPUTE]
    found = np.repeat(positions[None], len(moves), axis=0)
    for row, move in zip(found, moves, strict=True):
        for knob, at in move:
            row[knob] = at
    return found

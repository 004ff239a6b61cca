"""Tails of plans on several sets of draws, in which processes share: by plan and set, so that each has about as much work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core.arrays import Floats
from ..core.processes import Progress, silent
from ..core.together import dealt, n_processes, owners
from .evaluate import Evaluator, TailScorer
from .plan_table import Rows, distinct

FIXED_WORK, DRAW_WORK, LAYOUT_WORK, STEPS_WORK = 18.0, 30.0, 250.0, 2e5  # measured; as in `_owner_of_tails`


def tail_values(
    evaluator: Evaluator,
    numbers: Rows,
    seeds: Sequence[int],
    n_column: int,
    value: Callable[[Floats, Rows], Floats],
    shape: Sequence[int] = (),
    progress: Progress = silent,
) -> Floats:
    """Values [plan, seed, *shape] of plans by number on the draws of each seed, in which processes share.

    Args:
        n_column: as in `TailScorer.samples`.
        value: called with step times [plan, sample] of some plans and their numbers; gives [plan, *shape].
        progress: called after each seed.
    """
    every = np.divmod(np.arange(len(numbers) * len(seeds)), len(seeds))  # place and seed of each row

    def compute(rows: Rows) -> Floats:
        place, of_seed = (own[rows] for own in every)
        found = np.empty((len(rows), *shape))
        for k in np.unique(of_seed):
            at = np.flatnonzero(of_seed == k)
            some = numbers[place[at]]
            found[at] = value(TailScorer(evaluator, seeds[k]).samples(some, n_column), some)
            progress((k + 1) / len(seeds))
        return found

    found = dealt(_owner_of_tails(evaluator, numbers, len(seeds), n_column), compute, shape)
    return found.reshape(len(numbers), len(seeds), *shape)


def _owner_of_tails(evaluator: Evaluator, numbers: Rows, n_seed: int, n_column: int) -> Rows:
    """Number of the process [plan and seed] that scores each plan on each seed: rows that share draws stand together, and
    among them those that share a pipeline.

    Notes: work is counted in members that run a chunk for a column: a plan's own, `FIXED_WORK` that goes with no member, and
        `DRAW_WORK` for every member of a stage where draws are made. What goes with no column is divided by their number.
    """
    n = len(numbers) * n_seed
    if n_processes() == 1:
        return np.zeros(n, np.intp)
    own = evaluator.parts(numbers)
    parts = own._make(np.repeat(part, n_seed) for part in own)
    seed = np.tile(np.arange(n_seed), len(numbers))
    drawn, _ = distinct(parts.pp, parts.n_member, parts.n_devices, seed)
    laid_out, _ = distinct(parts.block, parts.n_micro_batch)
    work = parts.n_chunk * (FIXED_WORK + parts.n_member) + STEPS_WORK / n_column
    work[drawn] += DRAW_WORK * parts.pp[drawn] * parts.n_member[drawn]
    work[laid_out] += LAYOUT_WORK / n_column * parts.n_op[laid_out]
    order = np.lexsort([parts.n_micro_batch, parts.block, seed, parts.n_devices, parts.n_member, parts.pp])
    owner = np.empty(n, np.intp)
    owner[order] = owners(work[order])
    return owner

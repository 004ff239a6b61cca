"""Assignment, micro-batches and layers in turn, from several starts; each given the others."""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jax import Array

from ...objective import PlanObjective
from ...partition.chunks import Splits
from ...progress import Progress
from ..draws import Draws
from ..evaluator import Assignments, Problem, stored
from ..optimisers.anneal import anneal
from ..optimisers.sinkhorn import few_samples
from .layers import split_layers
from .micro_batches import split_micro_batches
from .splits import exact_problem, split_space

N_ROUND = 2
LONGER = 2  # times the proposals of the other chains, for the one from the best


@dataclass(frozen=True)
class SplitChoice:
    """An assignment with splits of its own.

    Attributes:
        problem: the job with these splits, lowered exactly.
        assignment: [seat].
        splits: layers per chunk and micro-batches per replica.
    """

    problem: Problem
    assignment: Assignments
    splits: Splits


def with_splits(
    problem: Problem,
    starts: list[Assignments],
    objective: PlanObjective,
    key: Array,
    n_step: int,
    n_kept: int,
    progress: Progress,
) -> list[SplitChoice]:
    """What every start leads to, and the best of them annealed on; the choice is left to other draws."""
    space = split_space(problem)
    kept = stored(space.problem, Draws(jax.random.fold_in(key, 1), n_kept))
    few = few_samples(kept)
    found: list[tuple[float, Assignments, Splits]] = []
    for index, start in enumerate(starts):
        assignment, splits = start, space.even
        for turn in range(N_ROUND):
            done = (N_ROUND * index + turn) / (N_ROUND * len(starts) + LONGER)
            progress(done, f"splits, start {index + 1} of {len(starts)}, round {turn + 1} of {N_ROUND}")
            splits = split_micro_batches(space, splits, space.tables(splits), kept, assignment, objective)
            splits = split_layers(space, splits, few, assignment, objective)
            own_key = jax.random.fold_in(jax.random.fold_in(key, 2 + index), turn)
            chain = anneal(
                space.tables(splits), kept, assignment, key=own_key, objective=objective, n_step=n_step, hot=1e-4
            )
            assignment = chain.assignment
        found.append((chain.value_s, assignment, splits))
    progress(N_ROUND * len(starts) / (N_ROUND * len(starts) + LONGER), "splits, annealing on from the best")
    _, assignment, splits = min(found, key=lambda one: one[0])
    own_key = jax.random.fold_in(key, 0)
    longer = anneal(
        space.tables(splits), kept, assignment, key=own_key, objective=objective, n_step=LONGER * n_step, hot=1e-4
    )
    assignment = longer.assignment
    ends = [(assignment, splits)]
    ends.append((assignment, split_micro_batches(space, splits, space.tables(splits), kept, assignment, objective)))
    ends += [(a, s) for _, a, s in found]
    distinct = {(tuple(a.tolist()), s): SplitChoice(exact_problem(problem, s), a, s) for a, s in ends}
    return list(distinct.values())

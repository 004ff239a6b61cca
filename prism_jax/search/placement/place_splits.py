"""Assignment, micro-batches and layers in turn, from several starts; each given the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jax import Array

from .anneal import anneal
from .draws import Draws
from .evaluator import Assignments, Problem, stored
from .layers import split_layers
from .micro_batches import split_micro_batches
from .sinkhorn import few_samples
from .splits import Splits, exact_problem, split_space

N_ROUND = 2


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
    objective: str,
    key: Array,
    n_step: int,
    n_kept: int,
    progress: Callable[[str], None],
) -> list[SplitChoice]:
    """What every start leads to; nothing is chosen among them here."""
    space = split_space(problem)
    kept = stored(space.problem, Draws(jax.random.fold_in(key, 1), n_kept))
    few = few_samples(kept)
    found = []
    for index, start in enumerate(starts):
        assignment, splits = start, space.even
        for turn in range(N_ROUND):
            progress(f"splits, start {index + 1} of {len(starts)}, round {turn + 1} of {N_ROUND}")
            splits = split_micro_batches(space, splits, space.tables(splits), kept, assignment, objective)
            splits = split_layers(space, splits, few, assignment, objective)
            own_key = jax.random.fold_in(jax.random.fold_in(key, 2 + index), turn)
            chain = anneal(
                space.tables(splits), kept, assignment, key=own_key, objective=objective, n_step=n_step, hot=1e-4
            )
            assignment = np.asarray(chain.assignment)
        splits = split_micro_batches(space, splits, space.tables(splits), kept, assignment, objective)
        found.append(SplitChoice(exact_problem(problem, splits), assignment, splits))
    return found

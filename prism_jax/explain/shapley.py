"""Shapley values: the seconds by which variability raises a quantile of the step time, shared out fairly among its owners.

Owners are kernel classes times {gpu, node, call, regime}, the factor of whole steps, stalls, and the work of micro-batches. v(S)
is the quantile where the owners S vary and all others do not, on the same columns, the same draws and the same weights:

    phi_i = sum over S without i of |S|! (k - |S| - 1)! / k! (v(S + i) - v(S))        sum_i phi_i = v(all) - v(none)

All 2^k removals are run, k <= 10: the owners that matter least alone and last are one owner together. Removing an owner
(`last_s`) counts what it does only together with others in full; adding it to nothing (`alone_s`) leaves that out. Neither adds
up; their difference is the interaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import factorial

import numpy as np
from jax import Array

from ..core.arrays import Floats
from ..core.kernels import COLLECTIVES
from ..simulate.batches import alike
from ..simulate.columns import column_times
from ..simulate.inputs import column_inputs, regime_factors, shared_of
from ..simulate.predict import N_RANDOMISATION, ReplicaColumns, replica_columns
from ..simulate.program import Program, by_class
from ..simulate.replica_maximum import step_samples, survival_steps
from ..variability.families import CONSTANT
from ..variability.tree import PARTS
from .owners import OF_WHOLE_STEPS, student_error, used_collectives
from .types import ShapleyFalls

STEP, STALLS = OF_WHOLE_STEPS
MOST_OWNERS = 10
OTHERS = "others"
N_COLUMN = 256
N_STEP = 4096  # of all columns, and of those of all randomisations together
SMALLEST = 1e-6  # of the rise; what does less alone and last is noise of float32


def shapley_values(value: Floats) -> Floats:
    """Shares out v(all) - v(none) among players.

    Args:
        value: [subset, ...] of players: bit i of the position says whether player i is there.

    Returns:
        [player, ...].

    Source: Shapley, A value for n-person games (1953), equation 13.
    """
    n_player = len(value).bit_length() - 1
    subset = np.arange(len(value))
    size = np.bitwise_count(subset).astype(int)
    chance = np.array([factorial(s) * factorial(n_player - s - 1) / factorial(n_player) for s in range(n_player)])
    found = []
    for player in range(n_player):
        without = subset[(subset >> player) & 1 == 0]
        gain = value[without + (1 << player)] - value[without]
        found.append(np.tensordot(chance[size[without]], gain, axes=1))
    return np.stack(found)


def owners_of(program: Program) -> list[str]:
    """Names of all owners that vary and take time: "gemm.gpu", "all_reduce.regime", "step regime"; work by its source."""
    tree, work = program.job.variability, program.work
    seconds = program.graph.compute_s.sum(axis=(0, 1))
    used = [name for name, own_s in zip(program.classes, seconds, strict=True) if own_s > 0]
    used += used_collectives(program)
    found = [f"{name}.{part}" for name in used for part in PARTS if getattr(tree.of(name), part).cv > 0]
    if tree.step.cv > 0:
        found.append(STEP)
    if any(stall.mean_fraction > 0 for stall in tree.stalls):
        found.append(STALLS)
    return [*found, *([] if work is None else work.names)]


def without_owners(program: Program, removed: Iterable[str]) -> Program:
    """Makes the program where some owners do not vary; all shapes stay.

    Args:
        program: every kernel class a factor of its own (`by_class`).
        removed: names as those of `owners_of`.
    """
    removed, tree, own = set(removed), program.job.variability, program
    if removed - set(OF_WHOLE_STEPS):
        classes = {}
        for name in dict.fromkeys([*tree.classes, *program.classes, *COLLECTIVES]):
            parts = tuple(part for part in PARTS if f"{name}.{part}" in removed)
            classes[name] = tree.of(name).without(parts)
        own = by_class(program, replace(tree, classes=classes))
        kept = {name: getattr(own, name) or getattr(program, name) for name in ("compute_residual", "comm_residual")}
        own = alike([program, replace(own, **kept)])[1]  # a residual that is gone has a standard deviation of zero
    calm = own.job.variability
    calm = replace(calm, step=CONSTANT) if STEP in removed else calm
    calm = replace(calm, stalls=()) if STALLS in removed else calm
    work = program.work
    for name in () if work is None else removed.intersection(work.names):
        assert work is not None
        work = work.without(name)
    return replace(own, job=replace(own.job, variability=calm), work=work)


@dataclass(frozen=True)
class _Removals:
    """Columns that all removals share.

    Attributes:
        program: lowered job, every kernel class a factor of its own.
        key: of the draws.
        columns: of the job as it stands, whose places and weights stay.
        p: probability of the quantile.
    """

    program: Program
    key: Array
    columns: ReplicaColumns
    p: float

    def times(self, removed: Sequence[str]) -> tuple[Program, Floats]:
        """The program without some owners, and the times of its columns [randomisation, score, column]."""
        program = without_owners(self.program, removed)
        inputs = column_inputs(program, regime_factors(program, self.columns.scores))
        chunks = self.columns.chunks
        if program.work is not None and chunks.work is not None:
            rows = np.zeros((chunks.work.shape[-2], 1), chunks.work.dtype)
            for one in program.work.sources:
                rows[one.row] = one.load.any()
            chunks = replace(chunks, work=chunks.work * rows)
        found = column_times(inputs, self.key, chunks, self.columns.width)
        return program, self.columns.by_randomisation(found)

    def quantiles(self, program: Program, time_s: Floats) -> Floats:
        """The quantile, seconds: of all columns, then of those of every randomisation [1 + randomisation]."""
        shared, columns = shared_of(program, self.columns.scores), self.columns
        n, n_each = program.n_replica, N_STEP // N_RANDOMISATION
        whole = step_samples(
            columns.pooled(time_s), columns.weight.ravel(), n, shared, N_STEP, np.random.default_rng(columns.seed)
        )
        each = [
            step_samples(own_s, weight, n, shared, n_each, np.random.default_rng([columns.seed, k]), (), survival_steps)
            for k, (own_s, weight) in enumerate(zip(time_s, columns.weight, strict=True))
        ]
        return np.array([np.quantile(own, self.p) for own in (whole, *each)])


def shapley_falls(
    program: Program, key: Array, p: float = 0.95, *, n_column: int = N_COLUMN, most_owners: int = MOST_OWNERS
) -> ShapleyFalls:
    """Shares out the seconds by which the p-quantile lies above the step without variability.

    Args:
        program: lowered job.
        key: typed PRNG key.
        p: probability of the quantile.
        n_column: replica columns.
        most_owners: those beyond are one together.
    """
    owners = owners_of(program)
    if not owners:
        return ShapleyFalls({}, {}, {}, {}, 0.0, 0.0)
    removals = _Removals(by_class(program), key, replica_columns(program, key, n_column), p)
    groups = _groups(removals, owners, most_owners)
    value = _all_removals(removals, [*groups.values()])  # [subset, 1 + randomisation]
    shares, k = shapley_values(value), np.arange(len(groups))
    errors, rise = student_error(shares[:, 1:], axis=1), value[-1] - value[0]
    alone = value[1 << k, 0] - value[0, 0]
    last = value[-1, 0] - value[len(value) - 1 - (1 << k), 0]
    names = [*groups]
    order = np.argsort(-shares[:, 0], kind="stable")

    def by_name(values: Floats) -> Mapping[str, float]:
        return {names[i]: float(values[i]) for i in order}

    return ShapleyFalls(
        value_s=by_name(shares[:, 0]),
        error_s=by_name(errors),
        alone_s=by_name(alone),
        last_s=by_name(last),
        total_s=float(rise[0]),
        total_error_s=float(student_error(rise[1:])),
        rest=tuple(groups.get(OTHERS, ())),
    )


def _groups(removals: _Removals, owners: Sequence[str], most: int) -> dict[str, list[str]]:
    """Players by name: single owners, and the others together where there are too many; owners without effect are left out."""
    whole = removals.quantiles(*removals.times(()))[0]
    none = removals.quantiles(*removals.times(owners))[0]
    effect = {}
    for name in owners:
        last = whole - removals.quantiles(*removals.times([name]))[0]
        alone = removals.quantiles(*removals.times([own for own in owners if own != name]))[0] - none
        effect[name] = max(abs(last), abs(alone))
    least = SMALLEST * abs(whole - none)
    ranked = sorted((name for name in owners if effect[name] > least), key=lambda name: -effect[name])
    if len(ranked) == len(owners) <= most:
        return {name: [name] for name in ranked}
    kept = ranked[: most - 1]
    return {name: [name] for name in kept} | {OTHERS: [name for name in owners if name not in kept]}


def _all_removals(removals: _Removals, groups: Sequence[Sequence[str]]) -> Floats:
    """Quantiles [subset, 1 + randomisation] of all subsets of the groups; columns run once where only whole steps differ."""
    found = np.empty((1 << len(groups), 1 + N_RANDOMISATION))
    columns: dict[tuple[str, ...], tuple[Program, Floats]] = {}
    for subset in range(len(found)):
        removed = [name for k, group in enumerate(groups) if not subset >> k & 1 for name in group]
        of_columns = tuple(sorted(set(removed) - set(OF_WHOLE_STEPS)))
        if of_columns not in columns:
            columns[of_columns] = removals.times(of_columns)
        program, time_s = columns[of_columns]
        calm = without_owners(program, set(removed).intersection(OF_WHOLE_STEPS))
        found[subset] = removals.quantiles(calm, time_s)
    return found

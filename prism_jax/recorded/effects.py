"""Effects that the computations of a recorded job share: of the step, of the rank, and of the micro-batch.

    log seconds = base(signature, position) + step effect + rank effect + micro-batch residual

A signature is one kind of compute in one place (op type, stage, model chunk). The residual of a micro-batch is a vector over
signatures, since a long micro-batch is long in forward and backward and on every stage; vectors are kept as recorded. Residuals
of one replica, or of one step, may be alike or balance each other; by how much is a number each (`Strata`).

Effects are means over the nested table (step x replica x micro-batch), let in by an F test, and shrunk by how much of each is
noise; ranks stay what they are, steps are redrawn and keep the spread that they were found to have.

A job without micro-batches has one unit per worker and step: the sum of its compute. Effects and residuals are those of the sum;
how it is spread over the ops stays as recorded. Single ops have no logarithm of their own there: compute between two collectives
takes no time in a step in which the second collective begins before the first has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtri

from ..core.arrays import Floats, Ints
from ..trace.pipeline import COMMUNICATION
from ..trace.trace import NONE, Trace
from .factor_shape import ShapeChoice, choose_shape, reshaped

SIGNIFICANCE = 0.01  # of the F tests that let an effect in
SHORTEST_S, TINY = 1e-9, 1e-300
EM_ROUNDS = 100
PRIOR = 10
LEAST_STRATUM = 0.05
ROUNDING = 1e-9  # durations that differ by less, relatively, do not vary
REPLICA, STEP = 1, 2  # axes of the table of means over micro-batches


class Signature(NamedTuple):
    """One kind of compute in one place; in a job without micro-batches `chunk` is the op's number among its type."""

    op_type: str
    stage: int
    chunk: int


class Strata(NamedTuple):
    """Variance of means of micro-batches over what it would be if micro-batches were independent; 1 if they are.

    More than one: they are alike (a replica that got the long sequences). Less: they balance (a fixed number of tokens).

    Attributes:
        replica: of the mean of a replica in a step.
        step: of the mean of a step, with as many replicas as were recorded.
    """

    replica: float
    step: float


@dataclass(frozen=True)
class VarianceShares:
    """Shares of the variance of log compute seconds, weighted by seconds; they sum to one.

    Attributes:
        position: place of the micro-batch in the step.
        step: shared by all compute of a step.
        rank: persistent, of a worker.
        micro_batch: shared by the signatures of one micro-batch.
        own: of a single op.
        strata: whether micro-batches of one replica, or of one step, are alike or balance.
        shape: distribution that micro-batch factors are drawn from, and how the candidates fared on held-out steps.
        step_p, rank_p: significance of the effects.
    """

    position: float
    step: float
    rank: float
    micro_batch: float
    own: float
    strata: Strata
    shape: ShapeChoice
    step_p: float
    rank_p: float


@dataclass(frozen=True)
class Effects:
    """Effects and residuals needed to draw the compute of new steps.

    Attributes:
        op: [mb, signature] index of the op in the trace.
        signatures: one per column of `op`.
        base: [mb, signature] log seconds.
        step: [signature, step] effect of every recorded step, to be redrawn.
        rank: [signature, replica] effect of every recorded worker, to stay.
        pool: [signature, entry] recorded micro-batch residuals, from the shortest micro-batch to the longest.
        pool_step: [entry] recorded step of an entry.
        strata: of the normal scores with which micro-batches are drawn.
        evidence: what was found.
    """

    op: Ints
    signatures: tuple[Signature, ...]
    base: Floats
    step: Floats
    rank: Floats
    pool: Floats
    pool_step: Ints
    strata: Strata
    evidence: VarianceShares

    def astype(self, dtype: type[np.floating]) -> Effects:
        """Returns the effects in another precision."""
        log_s = {name: getattr(self, name).astype(dtype) for name in ("base", "step", "rank", "pool")}
        return replace(self, **log_s)


def fit_effects(trace: Trace, run_s: Floats) -> Effects | None:
    """Effects of the compute ops that belong to micro-batches; None if there are none.

    Args:
        trace: the recorded steps.
        run_s: [op, replica, step] seconds of work.
    """
    signatures, op = _layout(trace)
    if op.size == 0:
        return None
    units = _units(trace, signatures)
    log_s = _log_seconds(units.sums(run_s[op]))  # [mb, unit, replica, step]
    seconds = np.exp(log_s).mean(axis=(0, 2, 3))
    weight = seconds / seconds.sum()
    table = _Table(log_s)
    step = table.effect(REPLICA, weight[None])
    rank = table.effect(STEP, _by_stage(units.stage, weight))
    effects = step.shrunk[None, :, None, :] + rank.shrunk[None, :, :, None]
    residual = log_s - table.base[:, :, None, None] - effects
    amount = np.exp(residual + table.base.mean(axis=0)[None, :, None, None]).sum(axis=1)  # [mb, replica, step] seconds
    shape = choose_shape(np.log(amount))
    base = table.base if units.single else _log_seconds(run_s[op].mean(axis=(2, 3)))
    own = _log_seconds(run_s[op]) - base[:, :, None, None] - effects[:, units.of]
    pool, order = _pool(own, amount, shape.name)
    n_mb, _, n_replica, n_step = log_s.shape
    strata = _strata(amount)
    return Effects(
        op=op,
        signatures=signatures,
        base=base,
        step=step.redrawn[units.of],
        rank=rank.shrunk[units.of],
        pool=pool,
        pool_step=np.broadcast_to(np.arange(n_step), (n_mb, n_replica, n_step)).ravel()[order].astype(np.int32),
        strata=_of_scores(strata, amount),
        evidence=_evidence(table.base, step, rank, residual, weight, strata, shape),
    )


class _Units(NamedTuple):
    """Units that have effects: a signature, or all compute of a stage.

    Attributes:
        of: [signature] unit that it belongs to.
        stage: [unit]
        single: whether every signature is a unit.
    """

    of: Ints
    stage: Ints
    single: bool

    def sums(self, run_s: Floats) -> Floats:
        """Seconds [mb, unit, replica, step] of seconds [mb, signature, replica, step]."""
        return np.stack([run_s[:, self.of == unit].sum(axis=1) for unit in range(len(self.stage))], axis=1)


def _units(trace: Trace, signatures: tuple[Signature, ...]) -> _Units:
    stage = np.array([signature.stage for signature in signatures], dtype=np.int32)
    if trace.has_micro_batches:
        return _Units(np.arange(len(stage), dtype=np.int32), stage, True)
    stages, of = np.unique(stage, return_inverse=True)
    return _Units(of.astype(np.int32), stages, False)


def _log_seconds(run_s: Floats) -> Floats:
    return np.log(np.maximum(run_s, SHORTEST_S))


def _layout(trace: Trace) -> tuple[tuple[Signature, ...], Ints]:
    """Signatures that every micro-batch has, and their ops [mb, signature].

    Where no op belongs to a micro-batch, all compute of a step counts as one, every op being a signature.
    """
    found: dict[int, dict[Signature, int]] = {}
    compute = [(i, op) for i, op in enumerate(trace.ops) if op.op_type not in COMMUNICATION and not op.group]
    numbered = trace.has_micro_batches
    for index, op in compute:
        if numbered and op.micro_batch != NONE:
            found.setdefault(op.micro_batch, {})[Signature(op.op_type, op.stage, op.chunk)] = index
        elif not numbered:
            found.setdefault(0, {})[Signature(op.op_type, op.stage, op.seq)] = index
    common = set.intersection(*(set(ops) for ops in found.values())) if found else set()
    signatures = tuple(sorted(common))
    op = np.array([[found[mb][signature] for signature in signatures] for mb in sorted(found)], dtype=np.int32)
    return signatures, op


def _pool(residual: Floats, amount: Floats, shape: str) -> tuple[Floats, NDArray[np.intp]]:
    """Residuals [signature, entry] from the shortest micro-batch to the longest, and that order of the flattened table.

    Where a family describes the factor better than the recorded values do, entries are moved to the family's quantiles.
    """
    order = np.argsort(amount, axis=None, kind="stable")
    factor = np.log(amount.ravel()[order])
    entries = np.moveaxis(residual, 1, 0).reshape(residual.shape[1], -1)[:, order]
    return entries + (reshaped(factor, shape) - factor), order


class _Effect(NamedTuple):
    """One effect per signature and level: its best guess, and one whose spread over levels is the one that was found."""

    shrunk: Floats
    redrawn: Floats
    p: float


class _Table:
    """The nested table and its means over micro-batches; `base` forgets positions where they do not matter."""

    def __init__(self, log_s: Floats) -> None:
        n_mb, _, n_replica, n_step = log_s.shape
        raw = log_s.mean(axis=(2, 3))
        self.n_mb = n_mb
        self.cell = (log_s - raw[:, :, None, None]).mean(axis=0)  # [signature, replica, step]
        centred = raw - raw.mean(axis=0)
        spread = (log_s - raw[:, :, None, None]).var(axis=(0, 2, 3))
        found = centred.var(axis=0, ddof=min(1, n_mb - 1))
        kept = np.clip(1.0 - spread / (n_replica * n_step) / np.maximum(found, TINY), 0.0, 1.0)
        self.base = raw.mean(axis=0) + kept * centred
        self.within = log_s - log_s.mean(axis=0)

    def effect(self, over: int, weight: Floats) -> _Effect:
        """Effect of the step (mean over `REPLICA`) or of the rank (mean over `STEP`).

        Whether there is one, and how much of a level's mean is one, is judged on groups of signatures that would share it.

        Args:
            over: axis of `cell` that is averaged away.
            weight: [group, signature] rows sum to one; a signature belongs to one group.
        """
        table = np.einsum("gs,srk->grk", weight, self.cell)
        mean, n_other = table.mean(axis=over), table.shape[over]
        n_level = mean.shape[1]
        rest = table - np.expand_dims(mean, over) - table.mean(axis=REPLICA + STEP - over, keepdims=True)
        free = (n_level - 1) * (n_other - 1)
        if free > 0:
            noise = (rest**2).sum(axis=(1, 2)) / free
        else:  # one replica or one step: judged against the spread between micro-batches, of which the mean is over n_mb
            free = max((self.n_mb - 1) * n_level, 1)
            square = np.einsum("gs,msrk->gmrk", weight, self.within) ** 2
            noise = square.sum(axis=(1, 2, 3)) / free / self.n_mb
        p = _significance(mean, noise / n_other, free)
        kept = kept_share(mean, noise / n_other) if p < SIGNIFICANCE else np.zeros_like(mean)
        own = (weight > 0).astype(float).T @ kept  # [signature, level]
        level_mean = self.cell.mean(axis=over)
        return _Effect(own * level_mean, np.sqrt(own) * level_mean, p)


def _significance(mean: Floats, noise: Floats, free: int) -> float:
    """F test of the strongest group, corrected for looking at all of them."""
    n_level = mean.shape[1]
    if n_level < 2:
        return 1.0
    ratio = (mean**2).sum(axis=1) / (n_level - 1) / np.maximum(noise, TINY)
    return float(min(1.0, fdtrc(n_level - 1, free, ratio).min() * len(mean)))


def kept_share(mean: Floats, noise: Floats) -> Floats:
    """Share of every level's mean that is effect and not noise, 0-1 (empirical Bayes).

    The effects may be of two sizes, so that one slow rank or two slow steps stay what they are while the others are drawn
    towards zero: mean ~ w N(0, noise + small) + (1 - w) N(0, noise + large), fitted by expectation maximisation.

    Args:
        mean: [group, level] means.
        noise: [group] their variance if there were no effect.
    """
    square, noise = mean**2, np.broadcast_to(np.maximum(noise, TINY)[:, None], mean.shape)
    found = max(float((square - noise).mean()), 0.0)
    size = np.array([0.1 * found, max(float(square.max()), found)])
    share = np.array([0.8, 0.2])
    part = np.zeros((2, *mean.shape))
    for _ in range(EM_ROUNDS):
        total = noise + size[:, None, None]
        log_density = np.log(np.maximum(share, TINY))[:, None, None] - 0.5 * (np.log(total) + square / total)
        part = np.exp(log_density - log_density.max(axis=0))
        part /= part.sum(axis=0)
        kept = size[:, None, None] / total
        effect = kept**2 * square + kept * noise  # expected square of the effect
        size = (part * effect).sum(axis=(1, 2)) / np.maximum(part.sum(axis=(1, 2)), TINY)
        share = part.mean(axis=(1, 2))
    return (part * size[:, None, None] / (noise + size[:, None, None])).sum(axis=0)


def _strata(amount: Floats) -> Strata:
    """Strata of seconds [mb, replica, step], drawn a little towards independence (as if `PRIOR` more means had said so)."""
    if amount.std() <= ROUNDING * amount.mean():
        return Strata(1.0, 1.0)
    n_mb, n_replica, n_step = amount.shape
    by_replica, by_step = amount.mean(axis=0), amount.mean(axis=(0, 1))
    within = _mean_square(amount - by_replica, n_replica * n_step * (n_mb - 1))
    between = n_mb * _mean_square(by_replica - by_step, n_step * (n_replica - 1))
    steps = n_mb * n_replica * _mean_square(by_step - by_step.mean(), n_step - 1)
    base = within if n_mb > 1 else between
    return Strata(_drawn(between, base, n_step * (n_replica - 1)) if n_mb > 1 else 1.0, _drawn(steps, base, n_step - 1))


def _mean_square(deviations: Floats, free: int) -> float:
    return float((deviations**2).sum() / max(free, 1))


def _drawn(found: float, base: float, free: int) -> float:
    return (free * found / base + PRIOR) / (free + PRIOR) if base > 0 and free > 0 else 1.0


def _of_scores(strata: Strata, amount: Floats) -> Strata:
    """Strata of normal scores that give those of seconds.

    Scores are mapped to seconds by a curve; to first order it passes on the share of a correlation that is the squared
    correlation of seconds and scores.
    """
    if strata == (1.0, 1.0):
        return strata
    passed = np.corrcoef(normal_scores(amount), amount.ravel())[0, 1] ** 2
    return Strata(*(max(LEAST_STRATUM, 1.0 + (ratio - 1.0) / passed) for ratio in strata))


def normal_scores(values: NDArray) -> Floats:
    """Normal score of every value by its rank, flat."""
    flat = values.ravel()
    rank = np.empty(flat.size)
    rank[np.argsort(flat, kind="stable")] = np.arange(flat.size)
    return ndtri((rank + 0.5) / flat.size)


def _evidence(
    base: Floats, step: _Effect, rank: _Effect, residual: Floats, weight: Floats, strata: Strata, shape: ShapeChoice
) -> VarianceShares:
    common = np.einsum("s,msrk->mrk", weight, residual)
    parts = {
        "position": (base - base.mean(axis=0)).var(axis=0) @ weight,
        "step": step.shrunk.var(axis=1) @ weight,
        "rank": rank.shrunk.var(axis=1) @ weight,
        "micro_batch": common.var(),
        "own": (residual - common[:, None]).var(axis=(0, 2, 3)) @ weight,
    }
    total = sum(parts.values()) or 1.0
    shares = {name: float(value / total) for name, value in parts.items()}
    return VarianceShares(**shares, strata=strata, shape=shape, step_p=step.p, rank_p=rank.p)


def _by_stage(stage: Ints, weight: Floats) -> Floats:
    """[stage, unit] weights within each stage, of units on `stage`: a slow worker is slow in all that its stage does."""
    rows = np.where(stage == np.unique(stage)[:, None], weight, 0.0)
    return rows / rows.sum(axis=1, keepdims=True)

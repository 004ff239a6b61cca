"""Repeats: replica columns, each drawn for several steps on the same GPUs, at network factors close to each other.

How the variance of the step time divides: between allocations of GPUs, and from step to step within one.

    H(t, u) = E[P(T <= t | allocation) P(T <= u | allocation)]        two steps of one allocation
    var E[T | allocation] = integral of H(t, u) - F(t) F(u)           Hoeffding's covariance of these two steps

A step is the maximum of n independent columns, so that given the network factors of two steps H is J^n, with J the chance that
one column is below t in the one and below u in the other: a weighted mean over columns and over pairs of repeats, without bias
whatever their number.

Quantiles of the steps of a typical allocation: one whose mean step is close to the median over allocations.

Given its GPUs, a column's steps scatter about the column's own mean with a law that all columns share (their pooled deviations).
Means of few repeats vary more than true ones: they are drawn towards each other until columns vary as much as they did.

Known GPUs are the same in every allocation. Their replicas have columns of their own, one factor more each of the products above.

The spreads of a job within and between allocations, from repeated columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jax import Array
from scipy.special import ndtr, ndtri

from ..core.arrays import Floats
from ..graph.draws import folded
from ..result.distribution import StepTimeDistribution
from ..result.spread import AllocationSpread
from .columns import column_times
from .inputs import column_inputs, regime_factors, shared_of
from .known_replicas import KnownReplicas, key_of_known
from .predict import DEFAULT_COLUMNS, ReplicaColumns, ReplicaTimes, replica_columns, replica_times
from .program import Program
from .replica_maximum import (
    AlikeReplicas,
    Shared,
    each_apart,
    finish,
    interpolation,
    latin_hypercube,
    maximum_quantile,
    step_samples,
    survival_table,
)
from .work import with_plain_work

N_REPEAT = 4  # steps of every column
N_TIME = 64  # of the grid on which distributions are integrated
N_FINER = 2  # interpolated network factors from one carried score to the next
N_STRATUM = 4096  # of the network score
LARGEST_SCORE = 4.5  # of the grid of times


@dataclass(frozen=True, eq=False)
class Repeats:
    """Steps of replica columns.

    Attributes:
        time_s: [repeat, node, randomisation, column] seconds at the nodes of the network factor.
        weight: [randomisation, column] importance weights.
        factor: [node] network factors, increasing.
        chance: [node] weight of each node in a mean over steps.
        n: replicas that are alike; the slowest of them and of the known ones is a step.
        shared: parts of a step that all replicas share.
        known_s: [replica, repeat, node, column] seconds of the replicas with known GPUs.
    """

    time_s: Floats
    weight: Floats
    factor: Floats
    chance: Floats
    n: int
    shared: Shared
    known_s: Floats

    def thresholds(self) -> Floats:
        """Increasing times [time], seconds, that span the slowest replica at every node, evenly on its normal score."""
        level = ndtr(np.linspace(-LARGEST_SCORE, LARGEST_SCORE, N_TIME))
        every = np.stack([self._slowest(node, level) for node in range(len(self.factor))])
        return np.quantile(every, np.linspace(0.0, 1.0, N_TIME))

    def _slowest(self, node: int, level: Floats) -> Floats:
        """Quantiles of the slowest replica at a node of the network factor, seconds."""
        mass = np.broadcast_to(self.weight, self.time_s[:, 0].shape).ravel()
        alike_s = self.time_s[:, node].ravel()
        if not len(self.known_s):
            return maximum_quantile(alike_s, mass, self.n, level)
        known_s = self.known_s[:, :, node].reshape(len(self.known_s), -1)
        ends_s = [np.quantile(own_s, level) for own_s in known_s]
        alike = [maximum_quantile(alike_s, mass, self.n, level)] if self.n else []
        at_s = np.unique(np.concatenate([*ends_s, *alike]))
        below = (1.0 - _above(alike_s, mass, at_s)) ** self.n
        for own_s in known_s:
            below = below * (1.0 - _above(own_s, np.ones(own_s.size), at_s))
        return np.interp(level, np.maximum.accumulate(below), at_s)

    def carried(self) -> tuple[Floats, Floats, list[AlikeReplicas]]:
        """Times [score, column] of all repeats at the carried network scores, weights [column], and the known replicas."""
        step = N_FINER if len(self.factor) > 1 else 1
        time_s = self.time_s[:, ::step].transpose(1, 0, 2, 3)
        known_s = self.known_s[:, :, ::step].transpose(0, 2, 1, 3)
        others = each_apart(known_s.reshape(*known_s.shape[:2], -1)) if len(known_s) else []
        return time_s.reshape(len(time_s), -1), np.tile(self.weight.ravel(), len(self.time_s)), others

    def without(self, i: int) -> Repeats:
        """Returns all randomisations but one."""
        n = len(self.weight)
        kept = np.arange(self.known_s.shape[-1]) % n != i
        return replace(
            self,
            time_s=np.delete(self.time_s, i, axis=2),
            weight=np.delete(self.weight, i, axis=0),
            known_s=self.known_s[..., kept],
        )

    def groups(self, n_group: int) -> list[Repeats]:
        """Independent groups of the randomisations, for Monte Carlo errors."""
        parts = np.array_split(np.arange(len(self.weight)), n_group)
        return [
            replace(self, time_s=self.time_s[:, :, own], weight=self.weight[own], known_s=self.known_s[..., k::n_group])
            for k, own in enumerate(parts)
        ]


def _above(time_s: Floats, mass: Floats, at_s: Floats) -> Floats:
    """Probability that a weighted column exceeds each of some times."""
    above, ends_s = survival_table(time_s, mass)
    return np.interp(at_s, ends_s[::-1], above[::-1], left=1.0, right=0.0)


def repeated_columns(
    program: Program, key: Array, known: KnownReplicas | None = None, times: ReplicaTimes | None = None
) -> Repeats:
    """Replica columns of two designs, every column drawn for `N_REPEAT` steps; arguments as those of `allocation_spread`."""
    other, first_s, links = folded(key, 1), None, None if known is None else known.gpus.links
    if program.work is None:
        first = replica_times(program, key, DEFAULT_COLUMNS) if times is None else times
        designs, first_s = (first.columns, replica_columns(program, other, DEFAULT_COLUMNS, links)), first.time_s
    else:  # another draw of the work with every repeat: weights are of what stays
        calm = replace(program, work=None)
        plain = (replica_columns(calm, own, DEFAULT_COLUMNS, links) for own in (key, other))
        designs = tuple(replace(own, inputs=replace(own.inputs, work=program.work.terms)) for own in plain)
    drawn = _drawn(program, designs[0], key, first_s), _drawn(program, designs[1], other)
    time_s = np.concatenate(drawn, axis=2)
    shared = shared_of(program, designs[0].scores, known and known.gpus)
    factor, chance = _nodes(shared)
    return Repeats(
        time_s=_at_nodes(time_s, shared.carried, factor),
        weight=np.concatenate([columns.weight for columns in designs]),
        factor=factor,
        chance=chance,
        n=program.n_replica - (0 if known is None else known.n_known),
        shared=shared,
        known_s=_known(program, known, key, designs[0].scores, factor),
    )


def _drawn(program: Program, columns: ReplicaColumns, key: Array, first_s: Floats | None = None) -> Floats:
    """Times [repeat, score, randomisation, column]: the persistent factors of a chunk are those of its `fleet`."""
    n_chunk, found = len(columns.chunks.index), [] if first_s is None else [first_s.transpose(1, 0, 2)]
    for repeat in range(len(found), N_REPEAT):
        chunks = with_plain_work(columns.chunks.again(repeat * n_chunk), program.work, columns.width)
        time_s = column_times(columns.inputs, key, chunks, columns.width)
        found.append(columns.by_randomisation(time_s).transpose(1, 0, 2))
    return np.stack(found)


def _known(program: Program, known: KnownReplicas | None, key: Array, scores: Floats, factor: Floats) -> Floats:
    """Times [replica, repeat, node, column] of the replicas with known GPUs."""
    if known is None or not len(known.replicas):
        return np.zeros((0, N_REPEAT, len(factor), len(scores)))
    chunks, width = known.chunks(program)
    inputs = column_inputs(program, regime_factors(program, scores), explicit=True)
    carried, n, found = shared_of(program, scores).carried, program.n_replica * known.n_column // width, []
    for repeat in range(N_REPEAT):
        own = with_plain_work(chunks.again(repeat * n), program.work, width)
        time_s = known.by_replica(column_times(inputs, key_of_known(key), own, width))
        found.append(_at_nodes(time_s, carried, factor))
    return np.stack(found, axis=1)


def _nodes(shared: Shared) -> tuple[Floats, Floats]:
    """Network factors [node], and how much each counts in a mean over network scores."""
    carried = shared.carried
    if len(carried) == 1:
        return carried, np.ones(1)
    grid = np.interp(np.arange(N_FINER * (len(carried) - 1) + 1) / N_FINER, np.arange(len(carried)), carried)
    low, share = interpolation(shared.factor(ndtri((np.arange(N_STRATUM) + 0.5) / N_STRATUM)), grid)
    total = np.bincount(low, 1.0 - share, len(grid)) + np.bincount(low + 1, share, len(grid))
    return grid, total / N_STRATUM


def _at_nodes(time_s: Floats, carried: Floats, factor: Floats) -> Floats:
    """Times [:, node, ...] of times [:, score, ...] at the carried network factors."""
    if len(factor) == 1:
        return time_s
    low, share = interpolation(factor, carried)
    share = share.reshape(-1, *[1] * (time_s.ndim - 2))
    return time_s[:, low] + share * (time_s[:, low + 1] - time_s[:, low])


N_STEP = 1 << 13


def between_share(repeats: Repeats) -> tuple[float, float]:
    """Share of the variance over allocations and steps that lies between allocations, and its Monte Carlo standard error.

    Not cut off, so that it may pass 1 by its error (jackknife over randomisations).
    """
    at_s = repeats.thresholds()
    by_column = repeats.time_s.transpose(2, 0, 3, 1)
    each = [_moments(own_s, own, at_s) for own_s, own in zip(by_column, repeats.weight, strict=True)]
    sums = [np.stack(part) for part in zip(*each, strict=True)]
    every = [part.sum(axis=0) for part in sums]
    n = len(each)
    without = np.array([
        _covariance(own, at_s, tuple(total - part[i] for total, part in zip(every, sums, strict=True))) / _variance(own)
        for i, own in enumerate(map(repeats.without, range(n)))
    ])  # fmt: skip
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return _covariance(repeats, at_s, tuple(every)) / _variance(repeats), float(error)


Chances = tuple[Floats, Floats]  # of both steps of a pair, and of one step, to be below


def _known_chances(repeats: Repeats, at_s: Floats) -> Chances:
    """Chances that the slowest of the known replicas is below: [node x time, node x time], [node x time]."""
    both, one = np.ones(1), np.ones(1)
    for time_s in repeats.known_s.transpose(0, 1, 3, 2):
        pairs, below, n = _moments(time_s, np.ones(time_s.shape[1]), at_s)
        both, one = both * np.clip(pairs / n, 0.0, 1.0), one * np.clip(below / n, 0.0, 1.0)
    return both, one


def _moments(time_s: Floats, weight: Floats, at_s: Floats) -> tuple[Floats, Floats, np.float64]:
    """Weighted sums over columns: of both steps of a pair below, of one step below, and of the weights.

    Args:
        time_s: [repeat, column, node].
        weight: [column].
        at_s: [time] thresholds.

    Returns:
        [node x time, node x time], [node x time], [].
    """
    (n, _, n_node), n_time = time_s.shape, len(at_s)
    shape = n_node, n_time + 1  # the last cell of a node holds what is above all
    place = np.searchsorted(at_s, time_s) + shape[1] * np.arange(n_node)
    one, other = np.triu_indices(n, 1)
    cell = place[one][..., None] * (n_node * shape[1]) + place[other][..., None, :]
    each = np.broadcast_to(weight[:, None, None] / (n * (n - 1)), cell.shape)
    found = np.bincount(cell.ravel(), each.ravel(), (n_node * shape[1]) ** 2).reshape(*shape, *shape)
    ordered = found.cumsum(axis=1).cumsum(axis=3)[:, :-1, :, :-1].reshape(n_node * n_time, -1)
    alone = np.bincount(place.ravel(), np.broadcast_to(weight[:, None] / n, place.shape).ravel(), n_node * shape[1])
    return ordered + ordered.T, alone.reshape(shape).cumsum(axis=1)[:, :-1].ravel(), weight.sum()


def _covariance(repeats: Repeats, at_s: Floats, sums: tuple[Floats, ...]) -> float:
    """Covariance of two steps of one allocation, seconds squared, of the sums of `_moments` and of the known replicas."""
    chance, shape, shared = repeats.chance, (len(repeats.chance), len(at_s)), repeats.shared
    both, one, mass = sums
    known = _known_chances(repeats, at_s)
    joint = (np.clip(both / mass, 0.0, 1.0) ** repeats.n * known[0]).reshape(*shape, *shape)
    alone = chance @ (np.clip(one / mass, 0.0, 1.0) ** repeats.n * known[1]).reshape(shape)
    over = np.einsum("g,gthu,h->tu", chance, joint, chance, optimize=True) - np.outer(alone, alone)
    lengthened = np.prod([1.0 + stall.prob(shared.n_devices) * stall.mean_fraction for stall in shared.stalls])
    return float(np.trapezoid(np.trapezoid(over, at_s), at_s) * lengthened**2)


def _variance(repeats: Repeats) -> float:
    """Variance over allocations and steps, seconds squared: of the same columns, so that their errors cancel in the share."""
    rng = np.random.default_rng(0)
    time_s, weight, others = repeats.carried()
    return float(np.var(step_samples(time_s, weight, repeats.n, repeats.shared, N_STEP, rng, others)))


N_ALLOCATION = 256
TYPICAL_SHARE = 0.1  # of the allocations: those in the middle
N_GROUP = 4  # of randomisations, whose scatter is the error
SMALLEST_PROB = 1e-30


def typical_quantile(repeats: Repeats, p: float, seed: int) -> tuple[float, float]:
    """Quantile p of the step time within a typical allocation, seconds, and its Monte Carlo standard error."""
    parts = [_quantile(own, p, seed + k) for k, own in enumerate(repeats.groups(N_GROUP))]
    return _quantile(repeats, p, seed), float(np.std(parts, ddof=1) / np.sqrt(N_GROUP))


def _quantile(repeats: Repeats, p: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    at_s = repeats.thresholds()
    log_below = _log_below(repeats.time_s.reshape(*repeats.time_s.shape[:2], -1), repeats.weight.ravel(), at_s)
    weight = repeats.weight.ravel() / repeats.weight.sum()
    drawn = rng.multinomial(repeats.n, weight, N_ALLOCATION) @ log_below
    for own_s in repeats.known_s:
        n = own_s.shape[-1]
        drawn = drawn + _log_below(own_s, np.ones(n), at_s)[rng.integers(n, size=N_ALLOCATION)]
    below = np.exp(drawn).reshape(N_ALLOCATION, len(repeats.chance), len(at_s))
    mean_s = at_s[-1] - np.trapezoid(below, at_s) @ repeats.chance
    n_kept = max(1, int(TYPICAL_SHARE * N_ALLOCATION))
    first = (N_ALLOCATION - n_kept) // 2
    typical = below[np.argsort(mean_s)[first : first + n_kept]].mean(axis=0)
    return float(np.quantile(_steps(repeats, at_s, typical, rng), p))


def _log_below(time_s: Floats, weight: Floats, at_s: Floats) -> Floats:
    """Log of the probability that a column's step is at most a time, given the column's GPUs, [column, node x time].

    Args:
        time_s: [repeat, node, column].
        weight: [column].
        at_s: [time] thresholds.
    """
    n, n_node = time_s.shape[:2]
    share = weight / weight.sum()
    mean_s = time_s.mean(axis=0)
    off_s = (time_s - mean_s) * np.sqrt(n / (n - 1))
    centre = mean_s @ share
    spread, noise = (mean_s - centre[:, None]) ** 2 @ share, (off_s**2).mean(axis=0) @ share / n
    kept = np.sqrt(np.maximum(1.0 - noise / np.where(spread > 0.0, spread, 1.0), 0.0))
    mean_s = centre[:, None] + kept[:, None] * (mean_s - centre[:, None])
    below = np.stack(
        [1.0 - _above(off_s[:, g].ravel(), np.tile(weight, n), at_s - mean_s[g][:, None]) for g in range(n_node)],
        axis=1,
    )
    return np.log(np.maximum(below, SMALLEST_PROB)).reshape(len(weight), -1)


def _steps(repeats: Repeats, at_s: Floats, below: Floats, rng: np.random.Generator) -> Floats:
    """Sorted step times [step] of an allocation whose slowest replica is at most `at_s` with probability `below` [node, time]."""
    u = latin_hypercube(2, N_STEP, rng)
    shared = repeats.shared
    factor = shared.factor(ndtri(u[0])) if len(repeats.factor) > 1 else np.ones(N_STEP)
    low, share = interpolation(factor, repeats.factor)
    quantiles = np.stack([np.interp(u[1], own, at_s) for own in np.maximum.accumulate(below, axis=1)])
    step = np.arange(N_STEP)
    high = np.minimum(low + 1, len(quantiles) - 1)
    core_s = quantiles[low, step] + share * (quantiles[high, step] - quantiles[low, step])
    end_s = np.interp(factor, shared.carried, np.asarray(shared.end_s, dtype=np.float64))
    return np.asarray(finish(core_s, end_s, shared, rng))


P = 0.95


def allocation_spread(
    program: Program,
    whole: StepTimeDistribution,
    key: Array,
    known: KnownReplicas | None = None,
    times: ReplicaTimes | None = None,
) -> AllocationSpread:
    """Returns the spreads of a job between and within allocations.

    Args:
        program: lowered job; with known GPUs, one factor per compute class.
        whole: distribution over allocations and steps.
        key: typed PRNG key.
        known: replicas with known GPUs, which every allocation has.
        times: columns of the program under this key, where there are some.
    """
    if whole.std_s == 0.0 or not (program.varying_links or _gpus_differ(program, known)):
        return AllocationSpread(whole.std_s, 0.0, 0.0, whole.quantile(P), whole.mc_error(P))
    repeats = repeated_columns(program, key, known, times)
    share, share_error = between_share(repeats)
    return AllocationSpread(whole.std_s, share, share_error, *typical_quantile(repeats, P, seed=0))


def _gpus_differ(program: Program, known: KnownReplicas | None) -> bool:
    """Whether another allocation brings other GPUs: some that are not known, of a class in which GPUs or nodes differ."""
    drawn = range(len(program.classes)) if known is None else np.flatnonzero(np.isnan(known.gpus.factor).any(axis=1))
    families = [program.job.variability.of(program.classes[i]) for i in drawn]
    return any(one.gpu.cv > 0 or one.node.cv > 0 for one in families)

"""Turns replica columns into steps: the maximum over replicas given the parts that they share, then these parts.

    F(t | g) = P(column <= t | network score g)        P(max <= t | g) = F(t | g)^n

Columns carry times at a few scores g; between them a column's time is interpolated in the regime's mean factor, in
which it is nearly linear. Steps are then drawn by Latin hypercubes over g, the maximum, step factor and the
end-of-step call, in float64; rare stalls are integrated exactly. Times may be traced by JAX: what is drawn stays on the host.

Step factors slow whole steps: independent between fleets, correlated from one step of a fleet to the next by the lag-1
autocorrelation r of the score (`Variability.step_ar1`), z[t] = r z[t-1] + sqrt(1 - r^2) e[t]. Every z is standard normal, so
that the distribution of a single step does not depend on r; that of a sum over the steps of a fleet does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray
from scipy.special import ndtri

from ..core.arrays import Float, Floats, Values, namespace
from ..variability.families import Family
from ..variability.score_map import NormalScoreMap
from ..variability.tree import Stall


@dataclass(frozen=True)
class StepFactor:
    """A factor of whole steps, and how it lasts.

    Attributes:
        score_map: its value at a normal score.
        sd: standard deviation.
        ar1: lag-1 autocorrelation of the score.
    """

    score_map: NormalScoreMap
    sd: float
    ar1: float


def step_regimes(step: Family | NormalScoreMap, step_ar1: float, u: Floats) -> Floats:
    """Factors [fleet, step] of the steps of fleets, in the order of time.

    Args:
        step: family or map of the factor.
        step_ar1: lag-1 autocorrelation of its normal score, between -1 and 1.
        u: [fleet, step] independent uniforms in (0, 1); the first step of a fleet has the quantile u of the family.
    """
    score = ndtri(u)
    for t in range(1, score.shape[1]):
        score[:, t] = step_ar1 * score[:, t - 1] + np.sqrt(1.0 - step_ar1**2) * score[:, t]
    return (step if isinstance(step, NormalScoreMap) else NormalScoreMap.from_family(step))(score)


Table = tuple[Floats, Floats]  # survival probabilities, increasing, and times, each [..., column]
N_FINER = 4  # interpolated regime factors from one carried score to the next
N_STALL_NODES = 144  # of the step time without stall: quantiles up to p99 within 0.03% where most steps stall
FINEST_SAMPLES = 2048  # from which on stalls are integrated at full resolution


@dataclass(frozen=True)
class Shared:
    """Parts of a step that all of its replicas share.

    Attributes:
        scores: network scores the columns carry, increasing.
        regime: families by network axis with the axis's share of exposed communication.
        step: factor of the whole step.
        stalls: rare delays.
        n_devices: for the probability of a stall.
        end_s: [score] exposed communication that ends the step, of the busiest lane.
        end_call: its call residual.
        step_ar1: lag-1 autocorrelation of the step factor's normal score.
        popularity: factor of the whole step by the experts that are popular in it; None where every micro-batch has its own.
    """

    scores: Floats
    regime: tuple[tuple[Family, float], ...]
    step: Family
    stalls: tuple[Stall, ...]
    n_devices: int
    end_s: Values
    end_call: Family
    step_ar1: float = 0.0
    popularity: StepFactor | None = None

    def factor(self, score: Floats) -> Floats:
        """Mean regime factor at network scores."""
        shares: dict[Family, float] = {}
        for family, share in self.regime:
            shares[family] = shares.get(family, 0.0) + share
        total = sum(shares.values())
        value = np.zeros_like(score) if total > 0.0 else np.ones_like(score)
        for family, share in shares.items():
            if share > 0.0:
                value += share / total * NormalScoreMap.from_family(family)(score)
        return value

    @cached_property
    def carried(self) -> Floats:
        """Mean regime factors [score] at the carried network scores."""
        return self.factor(self.scores)


class AlikeReplicas(NamedTuple):
    """Replicas of a step whose times have one law.

    Attributes:
        time_s: [score, column] of independent columns.
        weight: [column] importance weights.
        n: how many replicas.
    """

    time_s: Values
    weight: Values
    n: int


def each_apart(time_s: Sequence[Values] | Values) -> list[AlikeReplicas]:
    """Replicas [replica, score, column] of which each has a law of its own."""
    return [AlikeReplicas(own_s, np.ones(own_s.shape[-1]), 1) for own_s in time_s]


def step_samples(
    time_s: Values,
    weight: Values,
    n_replica: int,
    shared: Shared,
    n: int,
    rng: np.random.Generator,
    others: Sequence[AlikeReplicas] = (),
    table: Callable[[Floats, Floats], Table] | None = None,
) -> Values:
    """`n` equally likely step times, seconds, sorted.

    Args:
        time_s: [score, column] times of independent replica columns.
        weight: [column] importance weights.
        n_replica: columns a step takes the maximum of; may be zero if there are others.
        shared: parts of a step that all replicas share.
        n: number of samples.
        rng: of the strata.
        others: replicas that differ from these.
        table: how weighted columns [..., column] become distributions, of NumPy arrays; `survival_table` if not given.
    """
    made = table or survival_table
    factor = shared.factor(ndtri(latin_hypercube(1, n, rng)[0])) if len(shared.scores) > 1 else np.ones(n)
    maxima: Values = np.zeros(n)
    if n_replica > 0:
        maxima = _maximum_given(factor, _exceeded(stratified(n, rng), n_replica), time_s, weight, shared, made)
    wanted = [_exceeded(latin_hypercube(1, n, rng)[0], own.n) for own in others]
    if others and namespace(others[0].time_s) is not np:  # one program for all of them, which have as many columns
        every = jnp.asarray(np.stack(wanted), float), jnp.stack([own.time_s for own in others])
        slowest = lax.map(lambda own: _maximum_given(factor, own[0], own[1], others[0].weight, shared, made), every)
        return finish(jnp.maximum(maxima, slowest.max(axis=0)), _end_s(factor, shared), shared, rng)
    for prob, own in zip(wanted, others, strict=True):
        maxima = np.maximum(maxima, _maximum_given(factor, prob, own.time_s, own.weight, shared, made))
    return finish(maxima, _end_s(factor, shared), shared, rng)


def _exceeded(u: Floats, n: int) -> Floats:
    """Probabilities with which a column exceeds quantile `u` of the maximum of `n`."""
    return -np.expm1(np.log(u) / n)


def _end_s(factor: Floats, shared: Shared) -> Values:
    """Final communication of steps at mean regime factors [n], seconds."""
    return namespace(shared.end_s).interp(factor, shared.carried, shared.end_s)


def _maximum_given(
    factor: Floats,
    wanted: Values,
    time_s: Values,
    weight: Values,
    shared: Shared,
    table: Callable[[Floats, Floats], Table],
) -> Values:
    """Times that columns exceed with the wanted probabilities [n] in steps of the given mean regime factors [n].

    Between carried scores the columns' times are interpolated first, on a finer grid of factors, and quantiles
    between grid points: every step then has a factor of its own at the price of a few sorts.
    """
    share = np.arange(N_FINER) / N_FINER
    carried = shared.carried
    grid = np.append((carried[:-1, None] + np.diff(carried)[:, None] * share).ravel(), carried[-1])
    every_s = between(time_s, *interpolation(grid, carried))
    low, fraction = interpolation(factor, grid)
    if namespace(time_s) is not np:
        return _traced_quantiles(every_s, weight, wanted, low, fraction)
    probs, times_s = table(every_s, weight)
    value = np.empty(len(wanted))
    by_low = np.argsort(low, kind="stable")
    for here in np.split(by_low, np.flatnonzero(np.diff(low[by_low])) + 1):
        some = slice(low[here[0]], low[here[0]] + 2)
        ends = [np.interp(wanted[here], *own) for own in zip(probs[some], times_s[some], strict=True)]
        value[here] = ends[0] + fraction[here] * (ends[-1] - ends[0])
    return value


def _traced_quantiles(
    table_s: Float[Array, "grid column"], weight: Values, wanted: Floats, low: NDArray[np.intp], fraction: Floats
) -> Float[Array, " sample"]:
    """Times that columns exceed with the wanted probabilities [sample]; one sort and one search for all tables.

    Args:
        table_s: times of the columns, seconds, at increasing regime factors.
        weight: [column] importance weights.
        wanted: [sample] survival probabilities.
        low, fraction: [sample] table below, and how far on the way to the next.
    """
    share = jnp.asarray(weight, float) / weight.sum()

    def at(time_s: Float[Array, " column"]) -> Float[Array, " sample"]:
        order = jnp.argsort(time_s)[::-1]
        mass = share[order]
        return jnp.interp(jnp.asarray(wanted, float), jnp.cumsum(mass) - 0.5 * mass, time_s[order])

    every_s = jax.vmap(at)(table_s)  # [grid, sample]
    sample = np.arange(len(wanted))
    high = np.minimum(low + 1, len(table_s) - 1)
    return every_s[low, sample] + fraction * (every_s[high, sample] - every_s[low, sample])


def between(values: Values, low: NDArray[np.intp], fraction: Floats) -> Values:
    """Values [place, column] on straight lines from those at nodes [node, column]; places as `interpolation` finds them."""
    high = np.minimum(low + 1, len(values) - 1)
    return (1.0 - fraction)[:, None] * values[low] + fraction[:, None] * values[high]


def finish(core_s: Values, end_s: Values, shared: Shared, rng: np.random.Generator) -> Values:
    """Sorted step times from the maximum over replicas: residual of the final communication, step factor, stalls.

    Args:
        core_s: [sample] maxima over replicas.
        end_s: [sample] final communication contained in them.
        shared: families of what is drawn here.
        rng: of the strata.
    """
    total_s = before_stalls(core_s[:, None], end_s[:, None], shared, rng)[:, 0]
    return with_stalls(namespace(total_s).sort(total_s), shared)


def before_stalls(core_s: Values, end_s: Values, shared: Shared, rng: np.random.Generator) -> Values:
    """Step times [fleet, step] from the maximum over replicas, in the same places: all that is drawn but the stalls."""
    popularity, n = shared.popularity, 2 + (shared.popularity is not None)
    u = latin_hypercube(n, core_s.size, rng).reshape(n, *core_s.shape)
    total = core_s
    if shared.end_call.cv > 0:
        total = total + end_s * (NormalScoreMap.from_family(shared.end_call)(ndtri(u[0])) - 1.0)
    if shared.step.cv > 0:
        total = total * step_regimes(shared.step, shared.step_ar1, u[1])
    if popularity is not None:
        total = total * step_regimes(popularity.score_map, popularity.ar1, u[2])
    return total


def with_stalls(time_s: Values, shared: Shared) -> Values:
    """Sorted step times with rare stalls, integrated exactly; time_s [sample] is sorted."""
    for stall in shared.stalls:
        time_s = stalled(time_s, stall.prob(shared.n_devices), stall.mean_fraction)
    return time_s


def draw_stalls(time_s: Floats, shared: Shared, rng: np.random.Generator) -> Floats:
    """Step times [fleet, step] with rare stalls drawn step by step, in the same places."""
    for stall in shared.stalls:
        happens = rng.random(time_s.shape) < stall.prob(shared.n_devices)
        time_s = time_s * (1.0 + happens * stall.mean_fraction * rng.standard_exponential(time_s.shape))
    return time_s


def stalled(time_s: Values, prob: float, mean_fraction: float) -> Values:
    """Returns as many sorted samples of `time (1 + stall)`, the rare stall integrated exactly.

    P(T > t) = (1 - prob) P(X > t) + prob E[min(1, exp(-(t / X - 1) / mean_fraction))]
    """
    if prob == 0.0 or mean_fraction == 0.0:
        return time_s
    xp, n = namespace(time_s), len(time_s)
    finer = min(1.0, n / FINEST_SAMPLES)  # few samples do not need a fine integral
    middle = (np.arange(n) + 0.5) / n
    edges = fine_tail(max(96, int(N_STALL_NODES * finer)), n)
    few, mass = xp.interp(0.5 * (edges[1:] + edges[:-1]), middle, time_s)[None], np.diff(edges)
    far = np.linspace(0.0, np.log(4.0 * n * prob + 1.0) + 1.0, max(128, int(192 * finer)))
    reach = time_s[-1] * (1.0 + mean_fraction * far[1:])
    grid = xp.concatenate([xp.interp(fine_tail(max(256, int(512 * finer)), n), middle, time_s), reach])
    late = xp.maximum(grid[:, None], few)  # below in place: what is made anew takes longer than the arithmetic
    late *= -1.0 / (mean_fraction * few)
    late += 1.0 / mean_fraction
    beyond = xp.exp(late) @ mass
    above = 1.0 - xp.interp(grid, time_s, middle, left=0.0, right=1.0)
    return xp.interp(middle, 1.0 - ((1.0 - prob) * above + prob * beyond), grid)


@lru_cache(maxsize=64)
def fine_tail(n_node: int, n: int) -> Floats:
    """Increasing probabilities from 0 to 1, a third of them spread over the decades of the upper tail of `n` samples."""
    n_tail = n_node // 3
    tail = 1.0 - np.geomspace(0.02, 0.5 / n, n_tail) if n > 50 else np.linspace(0.98, 1.0, n_tail)
    found = np.concatenate([np.linspace(0.0, 0.98, n_node - n_tail, endpoint=False), tail, [1.0]])
    found.flags.writeable = False
    return found


def maximum_quantile(time_s: Floats, weight: Floats, n: int, u: Floats) -> Floats:
    """Quantile u of the maximum of n independent columns, from weighted columns."""
    return np.interp(-np.expm1(np.log(u) / n), *survival_table(time_s, weight))


def survival_table(time_s: Floats, weight: Floats) -> Table:
    """Survival probabilities, increasing, and the times that are exceeded with them; of columns [..., column].

    Summed from the slow end, where the maximum lives, at mid-weights; between columns one interpolates.
    """
    mass, slowest_s = _from_slow_end(time_s, weight)
    return np.cumsum(mass, axis=-1) - 0.5 * mass, slowest_s


def survival_steps(time_s: Floats, weight: Floats) -> Table:
    """Survival probabilities and times without interpolation: a staircase that falls at every column by the column's weight.

    Staircases of parts of the columns average to that of all, which tables of parts do not: between the few columns of a part
    they interpolate more widely than the table of all does. So the error of the whole shows in the staircases of its parts.
    """
    mass, slowest_s = _from_slow_end(time_s, weight)
    edges = np.insert(np.cumsum(mass, axis=-1), 0, 0.0, axis=-1)
    return np.repeat(edges, 2, axis=-1)[..., 1:-1], np.repeat(slowest_s, 2, axis=-1)


def _from_slow_end(time_s: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Shares in the weight, and times, of columns [..., column] from the slowest to the fastest."""
    order = np.argsort(time_s, axis=-1)[..., ::-1]
    return weight[order] / weight.sum(), np.take_along_axis(time_s, order, axis=-1)


def interpolation(x: Floats, nodes: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Segment and fraction of each x between nodes; the end segments continue."""
    if len(nodes) == 1:
        return np.zeros(len(x), dtype=np.intp), np.zeros(len(x))
    low = np.clip(np.searchsorted(nodes, x) - 1, 0, len(nodes) - 2)
    gap = nodes[low + 1] - nodes[low]
    return low, np.where(gap > 0, (x - nodes[low]) / np.where(gap > 0, gap, 1.0), 0.0)


def stratified(n: int, rng: np.random.Generator) -> Floats:
    """Uniforms [n], one per cell of width 1/n, increasing."""
    return (np.arange(n) + np.clip(rng.random(n), 1e-9, 1.0 - 1e-9)) / n


def latin_hypercube(dimension: int, n: int, rng: np.random.Generator) -> Floats:
    """Uniforms [dimension, n], each coordinate stratified into n cells and shuffled on its own."""
    cells = np.stack([rng.permutation(n) for _ in range(dimension)])
    return (cells + np.clip(rng.random((dimension, n)), 1e-9, 1.0 - 1e-9)) / n

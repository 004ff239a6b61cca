"""Durations of groups that differ: times as counts by interval, laws, likelihoods on grids, and the population of the groups.

`repairs` (times between failures and of repairs, by system) and `revocation` (spells of spot nodes, by zone) share all of it.

A time that a clock shows in whole minutes lies within half a minute. Intervals grow by a tenth, so that a log of millions of
events costs a likelihood some two hundred terms; their edges lie between the ticks of the clock. A count of an interval has an
exact probability under any law, for zeros too. Every law has two parameters, so that one population holds groups of any: the
logarithm of its median in seconds, and the logarithm of its spread, the standard deviation of log times.

    weibull      S(t) = exp(-(t / scale)^shape), spread = pi / sqrt(6) / shape, median = scale log(2)^(1/shape);
                 shape 1 is the exponential law, below 1 early failures are more frequent
    log-normal   log t ~ Normal(log median, spread)
    mixture      log t ~ share Normal(mu - (1 - share) apart sd, inner) + (1 - share) Normal(mu + share apart sd, inner),
                 inner^2 = sd^2 (1 - share (1 - share) apart^2),    mu the mean of log t (theta[0]), sd its standard deviation

A group's own parameters are integrated out of every fit by a sum over a grid of its likelihood. It spans 4.2 standard deviations
of the likelihood, times a broad law that keeps it finite where there are few events, in steps of 0.6: a Gaussian is then
integrated to 3e-5, and under a population three times narrower than the likelihood to 1%.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import gammaln, log_ndtr, ndtr

from prism_jax.cloud.spot import MIXTURES, components

MOST_DRAWS = 400

GROWTH = (
    0.1  # of the logarithm of the edges: two laws whose shapes differ by 1% are told apart by thousands of events alone
)
LONGEST_S = 1e10  # three centuries


@dataclass(frozen=True)
class Times:
    """Counts of times of one system.

    Attributes:
        low, high: edges of the intervals in seconds, [interval].
        count: times inside, [interval].
        beyond: seconds after which nothing more was seen, [censored].
        n_beyond: how many times are known to be longer, [censored].
    """

    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    beyond: np.ndarray
    n_beyond: np.ndarray

    @property
    def log_width(self) -> float:
        """Sum over times of the logarithm of their interval: a log probability less this is a log density in 1/s."""
        return float((self.count * np.log(self.high - self.low)).sum())


def times(seconds: np.ndarray, beyond: np.ndarray, tick_s: float) -> Times:
    """Counts of `seconds`, and of times known to be longer than `beyond`, of a clock that ticks every `tick_s`."""
    edges = _edges(tick_s)
    place = np.searchsorted(edges, seconds, side="right") - 1
    used, count = np.unique(np.clip(place, 0, len(edges) - 2), return_counts=True)
    censored = edges[np.clip(np.searchsorted(edges, beyond, side="right") - 1, 0, len(edges) - 1)]
    after, n_beyond = np.unique(censored[censored > 0.0], return_counts=True)
    return Times(edges[used], edges[used + 1], count.astype(float), after, n_beyond.astype(float))


def _edges(tick_s: float) -> np.ndarray:
    growing = np.exp(np.arange(np.log(tick_s), np.log(LONGEST_S), GROWTH))
    return np.concatenate([[0.0], np.unique((np.floor(growing / tick_s) + 0.5) * tick_s)])


def tick(instants: np.ndarray) -> float:
    """Seconds between the ticks of the clock that instants [event] were read from: 60, or 1."""
    return 60.0 if np.all(np.mod(instants, 60.0) == 0.0) else 1.0


LAWS = ("weibull", "log-normal")
EXPONENTIAL = float(np.log(np.pi / np.sqrt(6.0)))  # its log spread
LOG_LOG_2 = float(np.log(np.log(2.0)))
MOST_LOG = 700.0  # of a hazard: exp of more overflows
MOST_LOG_SHAPE = 3.0  # of 1 / shape: beyond it the mean is a matter of times that nobody has waited for
NEVER = -1e4  # log probability that stands for none, so that no system makes a posterior minus infinity


def log_likelihood(law: str, times: Times, theta: np.ndarray) -> np.ndarray:
    """Log probability of `times` at parameters [point, 2] of a law ("weibull", "log-normal", "mixture 1"), [point]."""
    if law.startswith("mixture"):
        return _of_mixture(int(law.split()[1]) - 1, times, theta)
    between: Callable[..., tuple[np.ndarray, np.ndarray]] = _weibull if law == "weibull" else _log_normal
    inside, _ = between(times.low, times.high, theta)
    _, after = between(times.beyond, times.beyond, theta)
    return inside @ times.count + after @ times.n_beyond


def _of_mixture(number: int, times: Times, theta: np.ndarray) -> np.ndarray:
    share, apart = MIXTURES[number]
    out = np.zeros(len(theta))
    for part in np.array_split(np.arange(len(theta)), max(len(theta) * max(len(times.low), 1) // CHUNK, 1)):
        at = theta[part]
        inside = _cdf(times.high, at, share, apart) - _cdf(times.low, at, share, apart)
        after = 1.0 - _cdf(times.beyond, at, share, apart)
        out[part] = _log(inside) @ times.count + _log(after) @ times.n_beyond
    return out


def exponential(times: Times, log_median: np.ndarray) -> np.ndarray:
    """Log probability of `times` under the exponential law, [point]."""
    return log_likelihood("weibull", times, np.stack([log_median, np.full_like(log_median, EXPONENTIAL)], axis=-1))


def mean_s(is_weibull: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Mean seconds at parameters [draw, 2] of one law or the other [draw]."""
    per_shape = np.exp(np.minimum(theta[:, 1] - EXPONENTIAL, MOST_LOG_SHAPE))  # 1 / shape
    weibull = theta[:, 0] - LOG_LOG_2 * per_shape + gammaln(1.0 + per_shape)
    log_normal = theta[:, 0] + 0.5 * np.exp(np.minimum(2.0 * theta[:, 1], MOST_LOG))
    return np.exp(np.minimum(np.where(is_weibull, weibull, log_normal), MOST_LOG))


def _weibull(low: np.ndarray, high: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log P(low < t < high) and log P(t > low), [point, interval]."""
    a, b = (_hazard(edge, theta) for edge in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = -a + np.log(-np.expm1(-(b - a)))
    return _at_least_never(inside), np.maximum(-a, NEVER)


def _hazard(edge: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Cumulated hazard (t / scale)^shape = log(2) (t / median)^shape, [point, interval]."""
    with np.errstate(divide="ignore"):
        log_time = np.log(edge)
    shape = np.exp(EXPONENTIAL - theta[:, 1:])
    return np.exp(np.minimum(LOG_LOG_2 + shape * (log_time - theta[:, :1]), MOST_LOG))


def _log_normal(low: np.ndarray, high: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore"):
        a, b = (np.exp(-theta[:, 1:]) * (np.log(edge) - theta[:, :1]) for edge in (low, high))
    flip = a > 0.0  # in the upper tail, the difference of the two upper tails is exact
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        upper, lower = log_ndtr(b), log_ndtr(a)
        inside = upper + np.log(-np.expm1(np.minimum(lower - upper, 0.0)))
        after = log_ndtr(-np.where(flip, -b, a))
    return _at_least_never(inside), np.maximum(after, NEVER)


CHUNK = 1_000_000  # numbers at once


def _cdf(edge: np.ndarray, theta: np.ndarray, share: float, apart: float) -> np.ndarray:
    """P(t < edge), [point, edge]."""
    with np.errstate(divide="ignore"):
        log_edge = np.log(edge)[None]
    low, high, inner = (part[:, None] for part in components(theta, share, apart))
    return share * ndtr((log_edge - low) / inner) + (1.0 - share) * ndtr((log_edge - high) / inner)


def _log(prob: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return _at_least_never(np.log(prob))


def _at_least_never(log_prob: np.ndarray) -> np.ndarray:
    return np.maximum(np.nan_to_num(log_prob, nan=NEVER, neginf=NEVER), NEVER)


Grid = tuple[np.ndarray, np.ndarray]
"""Points [point, dim] and log(likelihood x volume) there [point]."""
LogLikelihood = Callable[[np.ndarray], np.ndarray]
REACH, STEP = 4.2, 0.6  # standard deviations
SIDE = np.arange(-REACH, REACH + STEP / 2, STEP)
DIFFERENCE = 1e-3


def around_likelihood(log_likelihood: LogLikelihood, centre: np.ndarray, width: np.ndarray) -> Grid:
    """Points and log weights of the integral of a likelihood times any smooth density.

    Args:
        log_likelihood: of points [point, dim], [point].
        centre, width: of the broad law, [dim].
    """

    def energy(at: np.ndarray) -> np.ndarray:
        return 0.5 * (((at - centre) / width) ** 2).sum(axis=-1) - log_likelihood(at)

    found = minimize(
        lambda one: float(energy(one[None])[0]), centre, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-4}
    )
    scale = np.linalg.cholesky(np.linalg.inv(_curvature(energy, found.x, width)))
    sides = np.meshgrid(*[SIDE] * len(centre), indexing="ij")
    points = found.x + np.stack([side.ravel() for side in sides], axis=1) @ scale.T
    volume = np.log(np.diag(scale)).sum() + len(centre) * np.log(STEP)
    return points, log_likelihood(points) + volume


def _curvature(energy: Callable[[np.ndarray], np.ndarray], at: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Second derivatives; the broad law's where differences are not positive definite."""
    step = DIFFERENCE * np.eye(len(at))
    pairs = [
        energy((at + sign_i * step[i] + sign_j * step[j])[None])[0] * sign_i * sign_j
        for i in range(len(at))
        for j in range(len(at))
        for sign_i in (1, -1)
        for sign_j in (1, -1)
    ]
    matrix = np.array(pairs).reshape(len(at), len(at), 4).sum(axis=2) / (4.0 * DIFFERENCE**2)
    value = np.linalg.eigvalsh(matrix)
    return matrix if np.all(np.isfinite(value)) and value[0] > 0.0 else np.diag(1.0 / width**2)


LOG_2PI = float(np.log(2.0 * np.pi))


def of_pairs(theta: Any, log_weight: Any, mean: Any, sd: Any) -> Array:
    """Log probability by system, [..., system], of grids theta [..., system, point, 2] under Normal(mean, sd) [..., 2]."""
    apart = (theta - mean[..., None, None, :]) / sd[..., None, None, :]
    prior = -0.5 * (apart**2).sum(axis=-1) - jnp.log(sd).sum(axis=-1)[..., None, None] - LOG_2PI
    return logsumexp(log_weight + prior, axis=-1)


def of_line(at: Any, log_weight: Any, mean: Any, sd: Any) -> Array:
    """Log probability of grids of one parameter: at [..., system, place], mean and sd [...]."""
    mean, sd = jnp.asarray(mean)[..., None, None], jnp.asarray(sd)[..., None, None]
    return logsumexp(log_weight - 0.5 * ((at - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * LOG_2PI, axis=-1)


def on_grids(
    counted: Sequence[Times], law: str, centre: ArrayLike, width: ArrayLike, shift: Sequence[float] = ()
) -> Grid:
    """Points [group, point, 2] and log weights [group, point] of the times of groups under one law.

    Args:
        law: as of `log_likelihood`, or "exponential", whose only parameter is its log median: points [group, point, 1].
        centre, width: of the broad law of log medians and, but for the exponential law, log spreads.
        shift: what a group's log median lies below the parameter that it is a member of a population by, [group].
    """
    below = shift or (0.0,) * len(counted)

    def of(one: Times, apart: float) -> Grid:
        if law == "exponential":
            return around_likelihood(lambda at: exponential(one, at[:, 0] - apart), np.array(centre), np.array(width))
        off = np.array([apart, 0.0])
        return around_likelihood(lambda at: log_likelihood(law, one, at - off), np.array(centre), np.array(width))

    return stacked([of(one, apart) for one, apart in zip(counted, below, strict=True)])


def stacked(found: Sequence[Grid]) -> Grid:
    """Grids of equal size side by side."""
    return np.stack([points for points, _ in found]), np.stack([weight for _, weight in found])


def some_of(draws: Mapping[str, Any], n_draw: int) -> dict[str, np.ndarray]:
    """Draws that stand for all where each costs a sum over grids: `MOST_DRAWS` of them, evenly spaced."""
    keep = np.unique(np.linspace(0, n_draw - 1, min(n_draw, MOST_DRAWS)).round().astype(int))
    return {name: np.asarray(value)[keep] for name, value in draws.items()}


@dataclass(frozen=True)
class DrawnLaws:
    """Laws of the times of one group: numbers of laws [draw], log medians and log spreads [draw, 2]."""

    law: np.ndarray
    theta: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of log times, [draw]."""
        return np.exp(self.theta[:, 1])


def drawn(
    mean: np.ndarray, sd: np.ndarray, share: np.ndarray, grid: Grid | None, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Number of the law [draw] and parameters [draw, dim] of a group of a population.

    Args:
        mean, sd: of the population, [draw, dim].
        share: of the groups that follow each law, [draw, law].
        grid: the group's likelihood under each law: points [law, point, dim] and log weights [law, point]; None: a group that was
            not fitted.
    """
    if grid is None:
        law = (np.cumsum(share, axis=1) < rng.random((len(share), 1))).sum(axis=1).clip(max=share.shape[1] - 1)
        return law, mean + sd * rng.standard_normal(mean.shape)
    points, log_weight = grid
    n, points = points.shape[1], points.reshape(-1, points.shape[-1])
    prior = -0.5 * (((points - mean[:, None]) / sd[:, None]) ** 2).sum(axis=-1)
    place = chosen(log_weight.ravel() + prior + np.repeat(np.log(share + 1e-300), n, axis=1), rng)
    return place // n, points[place]


def chosen(log_weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One place per draw of log weights [draw, place]."""
    cumulated = np.cumsum(np.exp(log_weight - log_weight.max(axis=1, keepdims=True)), axis=1)
    return (cumulated < rng.random((len(cumulated), 1)) * cumulated[:, -1:]).sum(axis=1)

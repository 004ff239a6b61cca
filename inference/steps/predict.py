"""Runs of configurations measured or not: draws of their shape and their step times, and how such predictions err.

A configuration that was measured keeps what its runs have shown; one that was not draws its own effects from the fitted
population, and has what its labels share with others. Every draw is a new run: it differs from the configuration's typical one as
repeats do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from prism_jax.core.arrays import Floats

from ..engine.model import Draws
from ..engine.program import generator
from .data import N_SMOOTH, RUN_DOF, Configurations, StepsData, covariance, growth, log2_gpus, prior_variance
from .runs import LABELS, quantile


@dataclass(frozen=True)
class Query(Configurations):
    """Configurations to predict, and the kind of each, -1 = unknown [query]."""

    kind: NDArray[np.int64]


def conditional(data: StepsData, drawn: Mapping[str, Floats], asked: Query) -> tuple[Floats, Floats]:
    """Mean and variance given the fitted configurations, for one draw of the population; [query, component]."""
    there, here = Configurations.of(data), asked
    law = _law(data, drawn)
    inner = covariance(*law, there, there, xp=np)
    cross = covariance(*law, here, there, xp=np)
    extra = data.outlying[:, :N_SMOOTH] ** 2
    itself = asked.unit[:, None] == np.arange(len(data.units))  # an outlying configuration keeps what is its own
    outer = prior_variance(drawn["amplitude"], drawn["own"], data.slope[:N_SMOOTH], here)
    trend = np.outer(data.slope, growth(data.log2_gpus))
    mean = np.outer(growth(asked.log2_gpus), data.slope)
    variance = np.empty_like(mean)
    for c in range(N_SMOOTH):
        factor = np.linalg.cholesky(inner[c] + np.diag(data.noise[:, c] + extra[:, c]))
        shared = cross[c] + itself * extra[:, c]
        white = solve_triangular(factor, np.column_stack([data.value[:, c] - trend[c], shared.T]), lower=True)
        mean[:, c] += white[:, 1:].T @ white[:, 0]
        variance[:, c] = outer[c] + itself @ extra[:, c] - (white[:, 1:] ** 2).sum(axis=0)
    rest = _rest(data, drawn["rest"], asked)
    mean[:, N_SMOOTH:], variance[:, N_SMOOTH:] = rest
    return mean, np.maximum(variance, 0.0)


def _law(data: StepsData, drawn: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """First arguments of `covariance`."""
    return drawn["amplitude"], drawn["own"], drawn["length"], drawn["coupling"], data.slope[:N_SMOOTH]


def left_out_errors(data: StepsData, drawn: Mapping[str, Floats]) -> Floats:
    """Errors of every configuration predicted without its system, in standard deviations, median zero; [unit, component]."""
    there, system = Configurations.of(data), data.codes[:, LABELS.index("system")]
    law = _law(data, drawn)
    inner = covariance(*law, there, there, xp=np)
    apart = data.value - np.outer(growth(data.log2_gpus), data.slope)
    errors = np.empty_like(data.value)
    for c in range(N_SMOOTH):
        extra = data.outlying[:, c] ** 2
        precision = np.linalg.inv(inner[c] + np.diag(data.noise[:, c] + extra))
        weighted = precision @ apart[:, c]
        for name in np.unique(system):
            rows = np.flatnonzero(system == name)
            given = np.linalg.inv(precision[np.ix_(rows, rows)])
            errors[rows, c] = given @ weighted[rows] / np.sqrt(np.maximum(np.diag(given) - extra[rows], 1e-9))
    rest = slice(N_SMOOTH, None)
    for k in np.unique(data.kind):
        rows = data.kind == k
        centre = np.median(data.value[rows, rest], axis=0)
        errors[rows, rest] = (data.value[rows, rest] - centre) / np.sqrt(drawn["rest"] ** 2 + data.noise[rows, rest])
    return errors - np.median(errors, axis=0)


def _rest(data: StepsData, spread: Floats, asked: Query) -> tuple[Floats, Floats]:
    """The remaining coordinates: a mean for each kind, and what is a configuration's own."""
    mean, variance = np.zeros((len(asked.unit), spread.size)), np.ones((len(asked.unit), spread.size))
    value, noise, extra = (part[:, N_SMOOTH:] for part in (data.value, data.noise, data.outlying**2))
    for i, (unit, kind) in enumerate(zip(asked.unit, asked.kind, strict=True)):
        members = data.kind == kind if kind >= 0 else np.ones(len(data.kind), dtype=bool)
        weight = 1.0 / (noise[members] + extra[members] + spread**2)
        centre = (weight * value[members]).sum(axis=0) / weight.sum(axis=0)
        if unit >= 0:
            own = spread**2 + extra[unit]
            share = own / (own + noise[unit])
            mean[i] = centre + share * (value[unit] - centre)
            variance[i] = share * noise[unit] + (1.0 - share) ** 2 / weight.sum(axis=0)
        else:
            mean[i], variance[i] = centre, spread**2 + 1.0 / weight.sum(axis=0)
    return mean, variance


MIN_DONORS = 40  # configurations of a kind whose errors are resampled, two below the 5% quantile; else all kinds serve
FEW = 15  # in all; below it errors are Normal
MAX_POSTERIOR = 24  # posterior draws of the population used in one prediction; more hardly change a 90% interval


def query_of(data: StepsData, rows: list[tuple[dict[str, str], float, str]]) -> Query:
    """Query of (labels, number of GPUs, key of the configuration) rows; labels that the fit has not seen are unknown to it."""
    index = {word: i for i, word in enumerate(data.vocabulary)}
    units = {name: i for i, name in enumerate(data.units)}
    kinds = {name: i for i, name in enumerate(data.kinds)}
    return Query(
        np.array([[index.get(f"{name}={labels.get(name)}", -1) for name in LABELS] for labels, _, _ in rows]),
        np.array([log2_gpus(n) for _, n, _ in rows]),
        np.array([units.get(key, -1) for _, _, key in rows]),
        np.array([kinds.get(f"{labels.get('metric')} | {labels.get('benchmark')}", -1) for labels, _, _ in rows]),
    )


def configurations(data: StepsData, draws: Draws, asked: Query) -> tuple[Floats, Floats]:
    """Mean and variance of the coordinates of typical runs, by draw of the population; [posterior, query, component]."""
    chosen = np.unique(np.linspace(0, len(draws["length"]) - 1, MAX_POSTERIOR).astype(int))
    found = [conditional(data, {name: value[i] for name, value in draws.items()}, asked) for i in chosen]
    return np.array([mean for mean, _ in found]), np.array([variance for _, variance in found])


def coordinates(data: StepsData, draws: Draws, asked: Query, n_draw: int, key: jax.Array) -> Floats:
    """Draws of the coordinates of a new run; [draw, query, component]."""
    rng = generator(key)
    mean, variance = configurations(data, draws, asked)
    which = np.arange(n_draw) % len(mean)
    drawn = mean[which] + np.sqrt(variance[which]) * _standard_errors(data, draws, asked, n_draw, rng)
    spread, freedom = run_spread(data, asked)
    scale = np.sqrt(freedom / rng.chisquare(freedom, (n_draw, len(freedom))))
    return drawn + np.sqrt(spread) * scale[..., None] * rng.standard_normal(drawn.shape)


def _standard_errors(data: StepsData, draws: Draws, asked: Query, n_draw: int, rng: np.random.Generator) -> Floats:
    """Errors in standard deviations; [draw, query, component].

    Normal for measured configurations. Others err as measured ones do when their system is left out: systems differ with
    heavier tails than Normal, and the errors of a system's coordinates go together.
    """
    errors = rng.standard_normal((n_draw, len(asked.unit), data.value.shape[1]))
    new = np.flatnonzero(asked.unit < 0)
    if new.size and len(data.units) >= FEW:
        middle = {name: np.median(value, axis=0) for name, value in draws.items()}
        measured = left_out_errors(data, middle)
        for i in new:
            alike = np.flatnonzero(data.kind == asked.kind[i])
            errors[:, i] = measured[rng.choice(alike if alike.size >= MIN_DONORS else len(data.units), n_draw)]
    return errors


def run_spread(data: StepsData, asked: Query) -> tuple[Floats, Floats]:
    """Variance between repeats [query, component] and the degrees of freedom it is known with [query]."""
    typical = [np.median(data.run_variance[(data.kind == k) if k >= 0 else slice(None)], axis=0) for k in asked.kind]
    known = asked.unit >= 0
    spread = np.where(known[:, None], data.run_variance[asked.unit], np.array(typical))
    return spread, np.where(known, RUN_DOF + data.n_runs[asked.unit] - 1.0, RUN_DOF)


def shapes(data: StepsData, coordinate: Floats) -> Floats:
    """Shapes [..., knot] of coordinates [..., component]."""
    return data.centre + coordinate @ data.rotation.T


def level_law(data: StepsData, draws: Draws, asked: Query) -> tuple[Floats, Floats]:
    """Scale and degrees of freedom of ln(total time) of a new run around its configuration's mean; [query].

    Notes: variances of configurations are inverse-gamma around their kind's; the mean of R runs adds 1/R.
    """
    freedom = float(np.median(draws["level_dof"]))
    scale = np.median(draws["level_scale"], axis=0)
    typical = np.where(asked.kind >= 0, scale[asked.kind], np.exp(np.log(scale).mean()))
    known = asked.unit >= 0
    n = np.where(known, data.n_runs[asked.unit], 1.0)
    sum_sq = np.where(known, data.level_sum_sq[asked.unit], 0.0)
    total = freedom + n - 1.0
    return np.sqrt((freedom * typical**2 + sum_sq) / total * np.where(known, 1.0 + 1.0 / n, 1.0)), total


def new_run(data: StepsData, draws: Draws, asked: Query, *, n_steps: int, key: jax.Array, n_draw: int = 100) -> Floats:
    """Step times of new runs of the first query over the run's median; [draw, step].

    Args:
        n_steps: values of the metric: steps, or log intervals.
    """
    first, second = jax.random.split(key)
    shape = shapes(data, coordinates(data, draws, asked, n_draw, first)[:, 0])
    score = _autocorrelated(autocorrelation(data, asked), (n_draw, n_steps), second)
    return np.array([quantile(s, ndtr(z)) for s, z in zip(shape, score, strict=True)])


def autocorrelation(data: StepsData, asked: Query) -> float:
    """Lag-1 autocorrelation of the first query: its own, or the median of its kind."""
    unit, kind = int(asked.unit[0]), int(asked.kind[0])
    if unit >= 0:
        return float(data.ar1[unit])
    return float(np.median(data.ar1[data.kind == kind] if kind >= 0 else data.ar1))


def _autocorrelated(ar1: float, shape: tuple[int, int], key: jax.Array) -> Floats:
    """Normal scores with lag-k correlation `ar1^k` along the last axis."""
    rng = generator(key)
    score = rng.standard_normal(shape)
    for i in range(1, shape[1]):
        score[:, i] = ar1 * score[:, i - 1] + np.sqrt(1.0 - ar1**2) * score[:, i]
    return score

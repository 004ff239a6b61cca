"""Coordinates of configurations given the fitted ones: means, variances, and how such predictions err.

A configuration that was measured keeps what its runs have shown; one that was not has what its labels share with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from prism_jax._typing import Floats

from .data import N_SMOOTH, StepsData
from .kernel import Places, covariance, growth, variance as prior_variance
from .runs import LABELS


@dataclass(frozen=True)
class Query:
    """Configurations to predict: codes [query, label], log2 of GPUs, index of the measured one, and kind; -1 = unknown."""

    codes: NDArray[np.int64]
    log2_gpus: Floats
    unit: NDArray[np.int64]
    kind: NDArray[np.int64]

    @property
    def places(self) -> Places:
        """The configurations without their kinds, as the kernel compares them."""
        return Places(self.codes, self.log2_gpus, self.unit)


def conditional(data: StepsData, drawn: Mapping[str, Floats], asked: Query) -> tuple[Floats, Floats]:
    """Mean and variance given the fitted configurations, for one draw of the population; [query, component]."""
    there, here = Places.of(data), asked.places
    law = (drawn["amplitude"], drawn["own"], drawn["length"], drawn["coupling"], data.slope[:N_SMOOTH])
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


def left_out_errors(data: StepsData, drawn: Mapping[str, Floats]) -> Floats:
    """Errors of every configuration predicted without its system, in standard deviations, median zero; [unit, component]."""
    there, system = Places.of(data), data.codes[:, LABELS.index("system")]
    law = (drawn["amplitude"], drawn["own"], drawn["length"], drawn["coupling"], data.slope[:N_SMOOTH])
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

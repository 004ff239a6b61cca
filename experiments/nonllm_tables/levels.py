"""How far steps of some sources are from the cost model, fitted hierarchically: what another source shares is all it is told.

    ln t = ln T(network of the source, host of the source) + a + b[generation, precision] + c[source] + error

T is the outline of the step without any calibration. Of a source that had no row in the fit, c is 0 and its network and host are
the mean of all sources'. Priors are normal with the widths below, written down before any fit; errors have heavy tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.surrogate import StepSurrogate, stack, surrogate_seconds
from prism_jax.core.arrays import Floats
from prism_jax.cost.efficiency import NEUTRAL
from prism_jax.validation.costed import costed, job_of_row
from prism_jax.validation.score import MeasuredRow

SD = {
    "level": 0.5,
    "path": 0.2,
    "source": 0.2,
    "network": 0.7,
    "network_source": 0.7,
    "host": 0.5,
    "host_source": 0.5,
}
ERROR = 0.1  # scale of a row's own deviation, a logarithm
_STEP = 1e-4  # of a logarithm, for slopes
MOST = 60  # rows of a source: larger ones count as so many


@dataclass(frozen=True)
class Measured:
    """Rows with their outlines, all [row].

    Attributes:
        outline: of every step.
        log_s: logarithm of the measured seconds.
        source, path: index of the source, and of generation and precision.
        n_source, n_path: how many there are.
    """

    outline: StepSurrogate
    log_s: Floats
    source: NDArray[np.int64]
    path: NDArray[np.int64]
    n_source: int
    n_path: int


@dataclass(frozen=True)
class Levels:
    """What a fit found; logarithms of factors."""

    level: float
    network: float
    host: float
    path: Floats
    source: Floats
    network_source: Floats
    host_source: Floats


def measured(rows: Sequence[MeasuredRow], paths: Sequence[str]) -> Measured:
    """Outlines of jobs, uncalibrated.

    Args:
        paths: [row] generation and precision in a word.
    """
    outlines = [costed(job_of_row(row, uncalibrated())).outline for row in rows]
    names, source = np.unique([row.source for row in rows], return_inverse=True)
    kinds, path = np.unique(list(paths), return_inverse=True)
    log_s = np.log([row.measured_s or np.nan for row in rows])
    return Measured(stack(outlines), log_s, source, path, len(names), len(kinds))


def predicted_log_s(data: Measured, levels: Levels) -> Floats:
    """[row] logarithm of the seconds."""
    network = (levels.network + levels.network_source)[data.source]
    host = (levels.host + levels.host_source)[data.source]
    own = levels.path[data.path] + levels.source[data.source]
    return _log_step_s(data, network, host) + levels.level + own


def _log_step_s(data: Measured, network: Floats, host: Floats) -> Floats:
    """[row] under factors whose logarithms are given [row]."""
    correction = replace(NEUTRAL, network=np.exp(network), host=np.exp(host))
    return np.log(np.asarray(surrogate_seconds(data.outline, correction)))


def fitted(data: Measured, kept: NDArray[np.bool_]) -> Levels:
    """The mode over the rows that are kept."""
    count = np.bincount(data.source[kept], minlength=data.n_source)[data.source]
    weight = np.sqrt(np.minimum(1.0, MOST / np.maximum(count, 1)))
    widths = _widths(data)
    members = _members(data)

    def residuals(vector: Floats) -> Floats:
        off = (predicted_log_s(data, _levels(data, vector * widths)) - data.log_s)[kept]
        tails = np.sign(off) * np.sqrt(2.0 * np.log1p(0.5 * (off / ERROR) ** 2))
        return np.concatenate([weight[kept] * tails, vector])

    def slopes(vector: Floats) -> Floats:
        levels = _levels(data, vector * widths)
        off = predicted_log_s(data, levels) - data.log_s
        network = (levels.network + levels.network_source)[data.source]
        host = (levels.host + levels.host_source)[data.source]
        at = _log_step_s(data, network, host)
        by_network = (_log_step_s(data, network + _STEP, host) - at) / _STEP
        by_host = (_log_step_s(data, network, host + _STEP) - at) / _STEP
        of_row = np.hstack(
            [
                factor[:, None] * part
                for factor, part in zip((1.0 + 0.0 * at, by_network, by_host), members, strict=True)
            ]
        )
        u = off / ERROR
        size = np.maximum(np.sqrt(2.0 * np.log1p(0.5 * u**2)), 1e-9)
        bent = np.where(np.abs(u) < 1e-6, 1.0, np.abs(u) / ((1.0 + 0.5 * u**2) * size))
        rows = (weight * bent / ERROR)[:, None] * of_row[:, _order(data)] * widths
        return np.vstack([rows[kept], np.eye(len(widths))])

    found = least_squares(residuals, np.zeros(len(widths)), jac=slopes, max_nfev=60)  # pyright: ignore[reportArgumentType]
    return _levels(data, found.x * widths)


def _members(data: Measured) -> tuple[Floats, Floats, Floats]:
    """[row, parameter] which parameters a row's level, network and host are the sum of."""
    one = np.ones((len(data.log_s), 1))
    source = np.eye(data.n_source)[data.source]
    level = np.hstack([one, np.eye(data.n_path)[data.path], source])
    return level, np.hstack([one, source]), np.hstack([one, source])


def _order(data: Measured) -> NDArray[np.int64]:
    """Places in `_members`, side by side, of the parameters in the order of a vector."""
    n_level = 1 + data.n_path + data.n_source
    network = n_level + np.arange(1 + data.n_source)
    host = network + 1 + data.n_source
    return np.concatenate([[0], network[:1], host[:1], np.arange(1, n_level), network[1:], host[1:]]).astype(np.int64)


def _widths(data: Measured) -> Floats:
    counts = {"level": 1, "network": 1, "host": 1, "path": data.n_path}
    counts |= dict.fromkeys(("source", "network_source", "host_source"), data.n_source)
    return np.concatenate([np.full(n, SD[name]) for name, n in counts.items()])


def _levels(data: Measured, vector: Floats) -> Levels:
    level, network, host = (float(x) for x in vector[:3])
    ends = np.cumsum([data.n_path, data.n_source, data.n_source])
    return Levels(level, network, host, *np.split(vector[3:], ends))

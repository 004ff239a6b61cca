"""The law fitted by least squares of log seconds, with intervals: deterministic, and where the posterior starts.

The law's priors count as one row each, so that what a log does not tell (the network, of a log of one node) stays at its median.
Cells have their `trust` as weight. What the law leaves is alike at neighbouring sizes: of n cells only n (1 - r) / (1 + r) say
something of their own, with r the correlation of neighbours, and the intervals are as much wider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from prism_jax._typing import Floats

from . import laws as laws
from .data import CollectivesData
from .knots import Ints

ROUNDS = 3  # of the fit and the spread that it leaves
FIRST_SPREAD, SMALLEST_SPREAD = 0.1, 1e-3  # of log seconds
MOST_ALIKE = 0.9
N_DRAW = 1000  # behind the intervals
SEED = 0


@dataclass(frozen=True)
class FittedLaw:
    """The law of one fabric.

    Attributes:
        held: its parameters as `laws.from_reference` takes them, in the order of `laws.priors` [parameter].
        covariance: of these [parameter, parameter].
        spread: what the law leaves, of log seconds.
        alike: correlation of what it leaves at neighbouring sizes.
    """

    held: Floats
    covariance: Floats
    spread: float
    alike: float


def fit_laws(law: str, data: CollectivesData) -> list[FittedLaw]:
    """The law of every fabric."""
    with jax.enable_x64(True):
        return [_fit(law, data, fabric) for fabric in range(len(data.fabrics))]


def drawn(law: str, data: CollectivesData, fabric: int, found: FittedLaw) -> dict[str, Floats]:
    """Parameters of the law [draw] as unsure as the fit is; the first draw is the estimate."""
    rng = np.random.default_rng(SEED)
    apart = rng.multivariate_normal(np.zeros(len(found.held)), found.covariance, N_DRAW)
    held = found.held + np.vstack([np.zeros((1, len(found.held))), apart])
    at = laws.Reference(*(values[fabric] for values in data.reference))
    with jax.enable_x64(True):
        p = laws.from_reference(dict(zip(laws.priors(law), held.T, strict=True)), at)
        return {name: np.asarray(value) for name, value in p.items()} | {"two_node": np.zeros(len(held))}


def _fit(law: str, data: CollectivesData, fabric: int) -> FittedLaw:
    here = np.flatnonzero(data.curve_fabric[data.curve] == fabric)
    known = laws.priors(law)
    at = laws.Reference(*(values[fabric] for values in data.reference))
    where = laws.Place(*(value[here] for value in data.where))
    median = np.array([prior.median for prior in known.values()])
    width = np.array([np.hypot(prior.sd, prior.between) for prior in known.values()])
    size, log_s, root = np.exp(data.log_bytes[here]), data.log_s[here], np.sqrt(data.trust[here])

    def left(held: Any, spread: Any) -> Any:
        p = laws.from_reference(dict(zip(known, held, strict=True)), at) | {"two_node": 0.0}
        of_cells = root * (log_s - laws.log_seconds(law, p, where, size)) / spread
        of_priors = (jnp.stack([p[name] for name in known]) - median) / width
        return jnp.concatenate([of_cells, of_priors])

    value, slope = jax.jit(left), jax.jit(jax.jacfwd(left))
    held = np.array([float(one) for one in laws.to_reference(dict(zip(known, median, strict=True)), at).values()])
    spread, alike = FIRST_SPREAD, 0.0
    for _ in range(ROUNDS):
        each = spread * np.sqrt((1.0 + alike) / (1.0 - alike))
        best = _minimum(partial(value, spread=each), partial(slope, spread=each), held)
        held = best.x
        rest = best.fun[: len(here)] * each
        spread = max(float(np.sqrt(np.mean(rest**2))), SMALLEST_SPREAD)
        alike = _alike(rest, data.curve[here], data.config[here], data.log_bytes[here])
    jacobian = np.asarray(slope(held, spread * np.sqrt((1.0 + alike) / (1.0 - alike))))
    return FittedLaw(held, np.linalg.inv(jacobian.T @ jacobian), spread, alike)


def _minimum(value: Callable[..., Any], slope: Callable[..., Any], begin: Floats) -> Any:
    """What SciPy finds; the functions are compiled ones."""

    def slopes(x: Floats) -> Floats:
        return np.asarray(slope(x))

    jacobian: Any = slopes  # SciPy's type allows names alone
    return least_squares(lambda x: np.asarray(value(x)), begin, jac=jacobian, x_scale="jac")


def _alike(rest: Floats, curve: Ints, config: Ints, log_bytes: Floats) -> float:
    """Correlation of neighbours in size on one curve; no less than none."""
    order = np.lexsort((log_bytes, config, curve))
    same = (np.diff(curve[order]) == 0) & (np.diff(config[order]) == 0)
    if not same.any():
        return 0.0
    one, other = rest[order][:-1][same], rest[order][1:][same]
    found = float(one @ other / max(float(np.sqrt((one @ one) * (other @ other))), 1e-300))
    return float(np.clip(found, 0.0, MOST_ALIKE))

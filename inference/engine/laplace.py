"""The mode of the posterior, and the normal approximation around it: where `map` ends and `svi` begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from prism_jax.errors import FitError

from ..settings import Settings
from .importance import smoothed_weights
from .program import Program, constrained
from .sampled import Sampled, independent

MAX_ITERATION = 2000
PROPOSALS = 2  # per draw, where the proposal adapts
FEWEST_EFFECTIVE = 50.0  # draws; fewer would stand for the whole posterior
HALVINGS = 30
PROPOSAL_DF = 7.0
ROUNDS = 5
WIDER = 1.3  # half the data: the square root of two
EVEN = 0.25  # effective share of the proposals from which on no more rounds are made
ADAPT_UP_TO = 30  # dimensions; beyond, weighted moments are too noisy
DIFFERENCE = 1e-5
BLOCK = 400  # vectors whose density is computed in one call
SMALLEST_CURVATURE = 1e-2  # unconstrained sites are of order one; a flatter direction is held at ten


@dataclass(frozen=True)
class Mode:
    """Attributes:
    at: unconstrained mode [dim].
    scale: lower Cholesky factor of the covariance there [dim, dim].
    """

    at: np.ndarray
    scale: np.ndarray


def mode(made: Program) -> Mode:
    """The mode and the curvature there.

    Raises:
        FitError: none is found.
    """
    flat, _ = made.ravel()
    found = minimize(made.energy, flat, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATION, "maxcor": 30})
    if not np.isfinite(found.fun):
        raise FitError(f"the posterior has no mode to be found ({found.message}). Use --method nuts.")
    return Mode(found.x, _scale(_hessian(made, found.x)))


def start_widths(made: Program) -> Mode:
    """The start, with the widths [dim] of the posterior there along each coordinate, as if it were a mode."""
    flat, _ = made.ravel()
    value = np.diag(_hessian(made, flat))
    usable = np.isfinite(value) & (value > SMALLEST_CURVATURE)
    return Mode(flat, np.diag(np.where(usable, 1.0 / np.sqrt(np.where(usable, value, 1.0)), 1.0)))


def _hessian(made: Program, at: np.ndarray) -> np.ndarray:
    """Central differences of the gradient: no second compilation."""
    columns = []
    for i in range(len(at)):
        step = np.zeros_like(at)
        step[i] = DIFFERENCE * max(1.0, abs(at[i]))
        columns.append((made.energy(at + step)[1] - made.energy(at - step)[1]) / (2.0 * step[i]))
    matrix = np.array(columns)
    return 0.5 * (matrix + matrix.T)


def _scale(curvature: np.ndarray) -> np.ndarray:
    """Cholesky factor of the inverse, flat or upward-bent directions held at ten."""
    value, vector = np.linalg.eigh(curvature)
    safe = np.where(value > SMALLEST_CURVATURE, value, SMALLEST_CURVATURE)
    return np.linalg.cholesky((vector / safe) @ vector.T)


def fit_map(made: Program, settings: Settings, key: jax.Array) -> Sampled:
    """Weighted draws around the mode."""
    found = mode(made)
    return weighted(made, found, settings.n_approximate_draw, key)


def weighted(made: Program, near: Mode, n_draw: int, key: jax.Array) -> Sampled:
    """Posterior draws from a normal law: proposals of a Student-t of its place and scale, resampled by importance weights.

    The heavier tails cover what a normal law cuts off: spreads that may be zero, and shares of slow chips that may be none. In
    few dimensions the proposal then takes the place and scale of its own weighted draws, until the weights are even or get no
    more so (population Monte Carlo, Cappe et al., JCGS 13, 2004).
    """
    adapts = len(near.at) <= ADAPT_UP_TO
    n_round, n_proposal = (ROUNDS, PROPOSALS * n_draw) if adapts else (1, n_draw)
    each = log_density(made)
    best = _proposals(each, near, n_proposal, jax.random.fold_in(key, 0))
    for index in range(1, n_round):
        if best.n_effective > EVEN * len(best.z):
            break
        found = _proposals(each, _moments(best.z, best.weight), n_proposal, jax.random.fold_in(key, index))
        if found.n_effective < best.n_effective:  # a heavy tail has carried the moments away
            break
        best = found
    chosen = jax.random.choice(
        jax.random.fold_in(key, n_round), len(best.z), (n_draw,), p=jnp.asarray(_even(best.weight))
    )
    flat = best.z[np.asarray(chosen)]
    _, unravel = made.ravel()
    return independent(constrained(made, jax.vmap(unravel)(jnp.asarray(flat))), best.k_hat, flat)


def around(flat: np.ndarray) -> Mode:
    """Place and scale of the draws [draw, dim] of another fit of the same model, widened for fewer data."""
    found = _moments(flat, np.full(len(flat), 1.0 / len(flat)))
    return Mode(found.at, WIDER * found.scale)


def _even(weight: np.ndarray) -> np.ndarray:
    """The weights, or the power of them that leaves `FEWEST_EFFECTIVE` draws: a failed fit shows a range, not one point."""
    low, high = 0.0, 1.0
    if (weight > 0.0).sum() <= FEWEST_EFFECTIVE or 1.0 / (weight**2).sum() >= FEWEST_EFFECTIVE:
        return weight
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        tempered = (weight / weight.max()) ** middle
        enough = tempered.sum() ** 2 >= FEWEST_EFFECTIVE * (tempered**2).sum()
        low, high = (middle, high) if enough else (low, middle)
    tempered = np.where(weight > 0.0, (weight / weight.max()) ** low, 0.0)
    return tempered / tempered.sum()


class _Proposals(NamedTuple):
    """Draws z [n, dim], their weights, which sum to one, and the Pareto shape of these."""

    z: np.ndarray
    weight: np.ndarray
    k_hat: float

    @property
    def n_effective(self) -> float:
        return float(1.0 / (self.weight**2).sum())


def _proposals(each: Callable[[np.ndarray], np.ndarray], near: Mode, n: int, key: jax.Array) -> _Proposals:
    """Weighted draws of a Student-t at `near`."""
    normal_key, tail_key = jax.random.split(key)
    chi2 = 2.0 * np.asarray(jax.random.gamma(tail_key, PROPOSAL_DF / 2.0, (n,)))
    noise = np.asarray(jax.random.normal(normal_key, (n, len(near.at)))) / np.sqrt(chi2 / PROPOSAL_DF)[:, None]
    z = near.at + noise @ near.scale.T
    log_proposal = -0.5 * (PROPOSAL_DF + z.shape[1]) * np.log1p((noise**2).sum(axis=1) / PROPOSAL_DF)
    weight, k_hat = smoothed_weights(each(z) - log_proposal)
    return _Proposals(z, weight, k_hat)


def _moments(z: np.ndarray, weight: np.ndarray) -> Mode:
    """Mean and scale of weighted draws."""
    at = weight @ z
    apart = z - at
    return Mode(at, np.linalg.cholesky((apart.T * weight) @ apart + 1e-12 * np.eye(len(at))))


def log_density(made: Program) -> Callable[[np.ndarray], np.ndarray]:
    """Function of unconstrained vectors [draw, dim]: log joint density [draw]; minus infinity where it is not finite.

    Blocks of equal size share the cores, so that a value does not depend on how many there are.
    """
    _, unravel = made.ravel()
    each = jax.jit(lambda vectors, given: jax.lax.map(lambda v: made.potential(given, unravel(v)), vectors))

    def block(z: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):  # the setting belongs to a thread
            return -np.asarray(each(jnp.asarray(z), made.arrays))

    def call(z: np.ndarray) -> np.ndarray:
        whole = np.pad(z, ((0, -len(z) % BLOCK), (0, 0)), mode="edge")
        first, *rest = np.split(whole, len(whole) // BLOCK)
        values = [block(first)]  # compiles
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            values += pool.map(block, rest)
        value = np.concatenate(values)[: len(z)]
        return np.where(np.isfinite(value), value, -np.inf)

    return call

"""The mode of a posterior, and normal approximations around it, weighted and checked: `map` ends at the mode, `svi` begins there.

From its default start NumPyro's mean-field guide finds a wrong answer for nested scales (tau .18 instead of .015), so the
guide, a normal law of full covariance over the unconstrained sites, begins at the mode with the curvature there. How good an
approximation is, Pareto-smoothed importance weights of its draws say.

Source: Vehtari et al., Pareto smoothed importance sampling, JMLR 25 (2024); Yao et al., Yes, but did it work?, ICML 2018: with a
Pareto shape below 0.7 the weighted draws are trustworthy, and the approximation, too, is close.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from scipy.optimize import minimize
from scipy.special import logsumexp

from prism_jax.core.errors import FitError
from prism_jax.core.processes import Progress, silent

from .program import ModelProgram, PosteriorDraws, Settings, constrained, generator, independent


@jax.custom_jvp
def inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverse and log determinant of positive definite matrices [..., n, n].

    Notes:
        LAPACK through JAX is not used: its batched factorisations run on the thread pool that also runs the loops of samplers,
        and were seen to hang on two cores.
    """
    return _swept(matrix)


@jax.custom_batching.sequential_vmap
def _swept(matrix: Array) -> tuple[Array, Array]:
    """Symmetric sweeps, which need no pivots; draw after draw where there are many, so that the matrices stay in the cache."""

    def sweep(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        swept, log_determinant = state
        row = swept[..., k, :]
        pivot = row[..., k]
        scaled = row / pivot[..., None]
        swept = swept - row[..., :, None] * scaled[..., None, :]
        swept = swept.at[..., k, :].set(scaled).at[..., :, k].set(scaled).at[..., k, k].set(-1.0 / pivot)
        return swept, log_determinant + jnp.log(pivot)

    none = jnp.zeros(matrix.shape[:-2], matrix.dtype)
    swept, log_determinant = jax.lax.fori_loop(0, matrix.shape[-1], sweep, (matrix, none))
    return -swept, log_determinant


@inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    found, log_determinant = inverse(primals[0])
    product = found @ tangents[0]
    return (found, log_determinant), (-product @ found, jnp.trace(product, axis1=-2, axis2=-1))


GOOD_K = 0.7
SMALLEST_EXCESS = 1e-300  # keeps the grid of the Pareto fit finite where a quarter of the tail underflows


def smoothed_weights(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    """Normalised weights [draw] and the Pareto shape of their tail.

    Args:
        log_ratio: log joint density minus log density of the approximation, up to a constant, [draw].

    Notes:
        Infinite shape where a ratio is NaN, or none is finite; minus infinity where the tail is flat. Draws of density zero have
        weight zero.
    """
    if np.isnan(log_ratio).any() or log_ratio.max() in (np.inf, -np.inf):
        return np.full(len(log_ratio), 1.0 / len(log_ratio)), np.inf
    weight = np.exp(log_ratio - log_ratio.max())
    n_tail = int(min(0.2 * len(weight), 3.0 * np.sqrt(len(weight))))
    order = np.argsort(weight)
    if n_tail < 5 or weight[order[-n_tail - 1]] == weight[order[-1]]:
        return weight / weight.sum(), -np.inf
    tail = order[-n_tail:]
    cut = weight[order[-n_tail - 1]]
    shape, scale = pareto_fit(weight[tail] - cut)
    probability = (np.arange(n_tail) + 0.5) / n_tail
    smoothed = cut + _pareto_quantile(probability, shape, scale)
    weight[tail] = np.minimum(smoothed, weight.max())
    return weight / weight.sum(), shape


def pareto_fit(excess: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto law of sorted `excess` [tail], none negative and the last above zero.

    Source: Zhang and Stephens, Technometrics 51 (2009), with the weak prior of Vehtari et al., appendix G.
    """
    n = len(excess)
    n_grid = 30 + int(np.sqrt(n))
    quarter = max(float(excess[max(int(n / 4 + 0.5) - 1, 0)]), SMALLEST_EXCESS)
    grid = 1.0 / max(float(excess[-1]), SMALLEST_EXCESS) + (
        1.0 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    ) / (3.0 * quarter)
    grid = grid[grid != 0.0]  # an exponential law, the limit of both sides: its neighbours speak for it
    shape = np.log1p(-grid[:, None] * excess).mean(axis=1)
    log_likelihood = n * (np.log(-grid / shape) - shape - 1.0)
    weight = np.exp(log_likelihood - logsumexp(log_likelihood))
    theta = float(weight @ grid)
    k = float(np.log1p(-theta * excess).mean())
    return (k * n + 5.0) / (n + 10.0), -k / theta


def _pareto_quantile(probability: np.ndarray, shape: float, scale: float) -> np.ndarray:
    if abs(shape) < 1e-9:
        return -scale * np.log1p(-probability)
    with np.errstate(over="ignore"):  # infinite quantiles of a very heavy tail: the largest weight cuts them off
        return scale * np.expm1(-shape * np.log1p(-probability)) / shape


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


def mode(made: ModelProgram) -> Mode:
    """The mode and the curvature there.

    Raises:
        FitError: none is found.
    """
    flat, _ = made.ravel()
    found = minimize(made.energy, flat, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATION, "maxcor": 30})
    if not np.isfinite(found.fun):
        raise FitError(f"the posterior has no mode to be found ({found.message}). Use --method nuts.")
    return Mode(found.x, _scale(_hessian(made, found.x)))


def start_widths(made: ModelProgram) -> Mode:
    """The start, with the widths [dim] of the posterior there along each coordinate, as if it were a mode."""
    flat, _ = made.ravel()
    value = np.diag(_hessian(made, flat))
    usable = np.isfinite(value) & (value > SMALLEST_CURVATURE)
    return Mode(flat, np.diag(np.where(usable, 1.0 / np.sqrt(np.where(usable, value, 1.0)), 1.0)))


def _hessian(made: ModelProgram, at: np.ndarray) -> np.ndarray:
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


def fit_map(made: ModelProgram, settings: Settings, key: jax.Array) -> PosteriorDraws:
    """Weighted draws around the mode."""
    found = mode(made)
    return weighted(made, found, settings.n_approximate_draw, key)


def weighted(made: ModelProgram, near: Mode, n_draw: int, key: jax.Array) -> PosteriorDraws:
    """Posterior draws from a normal law: proposals of a Student-t of its place and scale, resampled by importance weights.

    The heavier tails cover what a normal law cuts off: spreads that may be zero, and shares of slow chips that may be none. In
    few dimensions the proposal then takes the place and scale of its own weighted draws, until the weights are even or get no
    more so (population Monte Carlo, Cappe et al., JCGS 13, 2004).
    """
    adapts = len(near.at) <= ADAPT_UP_TO
    n_round, n_proposal = (ROUNDS, PROPOSALS * n_draw) if adapts else (1, n_draw)
    each = log_density(made)
    best = _proposals(each, near, n_proposal, generator(key, 0))
    for index in range(1, n_round):
        if best.n_effective > EVEN * len(best.z):
            break
        found = _proposals(each, _moments(best.z, best.weight), n_proposal, generator(key, index))
        if found.n_effective < best.n_effective:  # a heavy tail has carried the moments away
            break
        best = found
    flat = best.z[generator(key, n_round).choice(len(best.z), n_draw, p=_even(best.weight))]
    return independent(constrained(made, made.sites(flat)), float(f"{best.k_hat:.3g}"), flat)  # more is rounding


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


def _proposals(each: Callable[[np.ndarray], np.ndarray], near: Mode, n: int, rng: np.random.Generator) -> _Proposals:
    """Weighted draws of a Student-t at `near`."""
    tail = np.sqrt(rng.chisquare(PROPOSAL_DF, n) / PROPOSAL_DF)
    noise = rng.standard_normal((n, len(near.at))) / tail[:, None]
    z = near.at + noise @ near.scale.T
    log_proposal = -0.5 * (PROPOSAL_DF + z.shape[1]) * np.log1p((noise**2).sum(axis=1) / PROPOSAL_DF)
    weight, k_hat = smoothed_weights(each(z) - log_proposal)
    return _Proposals(z, weight, k_hat)


def _moments(z: np.ndarray, weight: np.ndarray) -> Mode:
    """Mean and scale of weighted draws."""
    at = weight @ z
    apart = z - at
    return Mode(at, np.linalg.cholesky((apart.T * weight) @ apart + 1e-12 * np.eye(len(at))))


def log_density(made: ModelProgram) -> Callable[[np.ndarray], np.ndarray]:
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


N_PAIR = 2  # antithetic pairs of draws per gradient
FIRST_RATE = 0.02  # of Adam, in units of the standard deviations at the mode
REPORT = 50  # steps between two reports of progress


def fit_svi(made: ModelProgram, settings: Settings, key: jax.Array, *, progress: Progress = silent) -> PosteriorDraws:
    """Weighted draws around the best normal approximation."""
    found = mode(made)
    fit_key, draw_key = jax.random.split(key)
    guide = _optimised(made, found, settings.n_svi_step, fit_key, progress)
    return weighted(made, guide, settings.n_approximate_draw, draw_key)


def _optimised(made: ModelProgram, near: Mode, n_step: int, key: jax.Array, progress: Progress) -> Mode:
    """The guide, begun at `near` and optimised in the coordinates that its scale whitens.

    Gradients are those of the energy at a draw, by the reparametrisation z = near + scale (shift + lower noise), so that the
    search for the mode and this share one compiled function.
    """
    n_dim = len(near.at)
    optimiser = optax.adam(optax.cosine_decay_schedule(FIRST_RATE, n_step))
    rng = generator(key)
    law = {"shift": np.zeros(n_dim), "log_scale": np.zeros(n_dim), "off": np.zeros((n_dim, n_dim))}
    state = optimiser.init(law)
    update = jax.jit(lambda slope, state, law: _applied(optimiser, slope, state, law))
    for step in range(n_step):
        half = rng.standard_normal((N_PAIR, n_dim))
        law, state = update(_slope(made, near, law, np.concatenate([half, -half])), state, law)
        if step % REPORT == REPORT - 1:
            progress((step + 1) / n_step)
    best = {name: np.asarray(value) for name, value in law.items()}
    return Mode(near.at + near.scale @ best["shift"], near.scale @ _lower(best))


def _lower(law: dict[str, np.ndarray]) -> np.ndarray:
    return np.tril(law["off"], -1) + np.diag(np.exp(law["log_scale"]))


def _slope(made: ModelProgram, near: Mode, law: dict[str, np.ndarray], noise: np.ndarray) -> dict[str, np.ndarray]:
    """Gradient of the mean energy of draws, less the guide's entropy; draws without a finite gradient count as flat."""
    law = {name: np.asarray(value) for name, value in law.items()}
    white = law["shift"] + noise @ _lower(law).T
    slopes = np.array([made.energy(near.at + near.scale @ one)[1] for one in white]) @ near.scale
    slopes = np.where(np.isfinite(slopes).all(axis=1, keepdims=True), slopes, 0.0)
    outer = slopes.T @ noise / len(noise)
    return {
        "shift": slopes.mean(axis=0),
        "log_scale": np.diag(outer) * np.exp(law["log_scale"]) - 1.0,
        "off": np.tril(outer, -1),
    }


def _applied(optimiser: Any, slope: Any, state: Any, law: Any) -> tuple[Any, Any]:
    change, state = optimiser.update(slope, state)
    return optax.apply_updates(law, change), state

"""Relaxation: plans become distributions over plans, whose expected log step time has a gradient.

A log-degree is the mean of a normal distribution, a choice a mixture; both are cut to the values of the space. Plans are drawn
from every start's own distribution, and the gradient of the expectation follows from their times by the score function, each
draw held against the mean of the others. Widths shrink from step to step until one valid plan is left of every start.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from ..._typing import Floats
from ...progress import Progress, silent
from ..plans.plan_cache import Rows
from ..plans.rules import FEASIBLE, broken_rules
from .knobs import DEGREES, Knobs
from .visited import VisitedPlans

N_START = 6
N_SAMPLE = 12  # plans per start and step
N_STEP = 20
N_TRIED = 8  # positions drawn per plan, of which most break a rule
RATE = 0.4  # of Adam, in doublings of a degree and in log-odds of a choice
WIDTH = (1.2, 0.3)  # of the normal distributions, in doublings: first and last
HEAT = (1.0, 0.4)  # of the mixtures
SHORT = 2.0  # a plan that needs e^x times the memory counts as slower than the slowest that fits by e^(SHORT x)
SPREAD = 0.5  # log times further than this above the best of a start's plans count as that


class Relaxed(NamedTuple):
    """Parameters of all starts.

    Attributes:
        log_degree: [start, degree] base-two logarithms.
        log_odds: [start, choice, position].
    """

    log_degree: Array
    log_odds: Array


class Axes(NamedTuple):
    """Shape of the space.

    Attributes:
        logs: [degree, position] logarithms of the values; infinite where there is none.
        used: [choice, position] 1 where there is a value.
    """

    logs: Array
    used: Array


def descend(knobs: Knobs, known: VisitedPlans, seed: int, progress: Progress = silent) -> Rows:
    """Runs all starts; `known` keeps every plan they met. Returns the most likely positions [start, knob] at the end."""
    rng = np.random.default_rng([seed, 31])
    axes = _axes(knobs)
    relaxed = _starts(knobs, axes, rng)
    optimiser = optax.adam(RATE)
    state = optimiser.init(relaxed)
    for step in range(N_STEP):
        part = step / (N_STEP - 1)
        width, heat = (float(a * (b / a) ** part) for a, b in (WIDTH, HEAT))
        log_prob = np.asarray(_log_prob(relaxed, axes, width, heat))
        positions, used = _draw(knobs, log_prob, rng)
        advantage = _advantage(known, positions, used)
        progress((step + 1) / N_STEP, "relaxation")
        relaxed, state = _update(relaxed, state, axes, positions, advantage, width, heat)
    return np.asarray(_log_prob(relaxed, axes, width, heat)).argmax(axis=-1)


def _axes(knobs: Knobs) -> Axes:
    sizes = knobs.sizes[len(DEGREES) :]
    return Axes(jnp.asarray(knobs.logs), jnp.asarray(np.arange(sizes.max()) < sizes[:, None]))


def _starts(knobs: Knobs, axes: Axes, rng: np.random.Generator) -> Relaxed:
    """Log-degrees anywhere in the space, choices undecided."""
    logs = np.asarray(axes.logs)
    top = np.where(np.isfinite(logs), logs, -np.inf).max(axis=1)
    places = logs[:, 0] + rng.random((N_START, len(DEGREES))) * (top - logs[:, 0])
    return Relaxed(jnp.asarray(places), jnp.zeros((N_START, *axes.used.shape)))


@jax.jit
def _log_prob(
    relaxed: Relaxed, axes: Axes, width: Float[Array, ""], heat: Float[Array, ""]
) -> Float[Array, "start knob position"]:
    """Logarithm of the probability of every position of every knob; -inf where a knob has no such position."""
    there = jnp.isfinite(axes.logs)
    gap = (relaxed.log_degree[..., None] - jnp.where(there, axes.logs, 0.0)[None]) / width
    degree = jnp.where(there[None], -0.5 * gap**2, -jnp.inf)
    choice = jnp.where(axes.used[None], relaxed.log_odds / heat, -jnp.inf)
    size = max(degree.shape[-1], choice.shape[-1])
    both = [
        jnp.pad(part, ((0, 0), (0, 0), (0, size - part.shape[-1])), constant_values=-jnp.inf)
        for part in (degree, choice)
    ]
    return jax.nn.log_softmax(jnp.concatenate(both, axis=1), axis=-1)


def _draw(knobs: Knobs, log_prob: Floats, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Positions [start, sample, knob] of plans that break no rule, and which are there [start, sample]."""
    n_start, n_knob, size = log_prob.shape
    noise = rng.gumbel(size=(n_start, N_TRIED * N_SAMPLE, n_knob, size))
    tried = (log_prob[:, None] + noise).argmax(axis=-1)
    sound = np.zeros(tried.shape[:2], dtype=bool).ravel()
    for table, rows in knobs.tables(knobs.codes(tried.reshape(-1, n_knob))):
        sound[rows] = broken_rules(table, knobs.model) == FEASIBLE
    sound = sound.reshape(tried.shape[:2])
    order = np.argsort(~sound, axis=1, kind="stable")[:, :N_SAMPLE]
    return np.take_along_axis(tried, order[..., None], axis=1), np.take_along_axis(sound, order, axis=1)


def _advantage(known: VisitedPlans, positions: Rows, used: Rows) -> Floats:
    """[start, sample] log time above the start's mean, in standard deviations over the number of plans; 0 where there is none."""
    value = np.full(used.shape, np.nan)
    value[used] = log_times(*known.look_up(positions[used])) if used.any() else 0.0
    found = np.zeros(used.shape)
    for own, row in zip(value, found, strict=True):
        here = np.flatnonzero(np.isfinite(own))
        if len(here) > 1 and own[here].std() > 0:
            short = np.minimum(own[here], own[here].min() + SPREAD)
            row[here] = (short - short.mean()) / short.std() / len(here)
    return found


def log_times(time_s: Floats, fullness: Floats) -> Floats:
    """Log time [plan]; plans without enough memory come after all that fit, by how much they miss."""
    fits = np.isfinite(time_s)
    worst = np.log(time_s[fits].max()) if fits.any() else 0.0
    return np.where(fits, np.log(np.where(fits, time_s, 1.0)), worst + SHORT * fullness)


@jax.jit
def _update(
    relaxed: Relaxed,
    state: optax.OptState,
    axes: Axes,
    positions: Int[Array, "start sample knob"],
    advantage: Float[Array, "start sample"],
    width: Float[Array, ""],
    heat: Float[Array, ""],
) -> tuple[Relaxed, optax.OptState]:
    """One step of Adam down the gradient of the expectation."""

    def loss(relaxed: Relaxed) -> Array:
        log_prob = _log_prob(relaxed, axes, width, heat)
        own = jnp.take_along_axis(log_prob[:, None], positions[..., None], axis=-1)
        return (own.sum(axis=(2, 3)) * advantage).sum()

    slope = jax.grad(loss)(relaxed)
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes its step count with floats
        change, state = optax.adam(RATE).update(slope, state)
    moved = jax.tree.map(jnp.add, relaxed, change)
    return moved, state

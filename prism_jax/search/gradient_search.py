"""Searches the best plans of a space without enumerating it, by the gradient of relaxed plans and the neighbours of the fastest.

Plans become distributions over plans, whose expected log step time has a gradient. A log-degree is the mean of a normal
distribution, a choice a mixture; both are cut to the values of the space. Plans are drawn from every start's own distribution,
and the gradient of the expectation follows from their times by the score function, each draw held against the mean of the others.
Widths shrink from step to step until one valid plan is left of every start.

Plans are relaxed to log-degrees and mixtures over choices and follow the gradient of the expected log step time from many starts
(`gradient_relax`), on times made from costs alone (`gradient_time`); neighbours of the best are looked at (`gradient_polish`).
The fastest plans that this has met run as in `search`: exact times, race on tails, finalists and gain on fresh draws. Neighbours
of the best are looked at until none has a faster one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Float, Int

from ..core.arrays import Floats
from ..core.errors import PlanError
from ..core.processes import Progress, silent
from ..core.use_case import use_case
from ..job.job import Job
from .evaluate import Evaluator, ScreeningResult, TailScorer
from .exhaustive import SearchAim, study_of
from .gradient_knobs import CHOICES, DEGREES, Knobs, PlanList, VisitedPlans
from .journal import Journal
from .plan_costs import FEASIBLE, broken_rules
from .plan_table import Rows
from .racing import N_COLUMN, N_SEEDS, successive_halving
from .space import PlanSpace, default_space
from .study import Study

N_FRONT = 20  # fastest plans whose neighbours are all looked at
N_ROUND = 40
_RECOMPUTE = len(DEGREES) + CHOICES.index("recompute")  # a choice that trades memory, which degrees can use


def polish(knobs: Knobs, known: VisitedPlans, n_front: int = N_FRONT) -> None:
    """Looks at neighbours of the fastest plans in `known` until the first `n_front` have none that is unknown."""
    expanded: set[bytes] = set()
    for _ in range(N_ROUND):
        front = known.best(n_front)
        new = [row for row in front if row.tobytes() not in expanded]
        if not new:
            return
        known.look_up(np.concatenate([neighbours(knobs, row) for row in new]))
        expanded |= {row.tobytes() for row in new}


def neighbours(knobs: Knobs, positions: Rows) -> Rows:
    """Positions [neighbour, knob] one move away from `positions` [knob].

    A move sets one choice, or moves one degree to the next value, or one up and another down, or one with recomputation.
    """
    sizes = knobs.sizes
    n_degree = len(DEGREES)
    single = [(knob, positions[knob] + by) for knob in range(n_degree) for by in (-1, 1)]
    single = [(knob, at) for knob, at in single if 0 <= at < sizes[knob]]
    choices = [(knob, at) for knob in range(n_degree, len(sizes)) for at in range(sizes[knob]) if at != positions[knob]]
    moves = [(move,) for move in (*single, *choices)]
    moves += [(a, b) for a in single for b in single if a[0] < b[0]]
    moves += [(a, b) for a in single for b in choices if b[0] == _RECOMPUTE]
    found = np.repeat(positions[None], len(moves), axis=0)
    for row, move in zip(found, moves, strict=True):
        for knob, at in move:
            row[knob] = at
    return found


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


class SpaceAxes(NamedTuple):
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


def _axes(knobs: Knobs) -> SpaceAxes:
    sizes = knobs.sizes[len(DEGREES) :]
    return SpaceAxes(jnp.asarray(knobs.logs), jnp.asarray(np.arange(sizes.max()) < sizes[:, None]))


def _starts(knobs: Knobs, axes: SpaceAxes, rng: np.random.Generator) -> Relaxed:
    """Log-degrees anywhere in the space, choices undecided."""
    logs = np.asarray(axes.logs)
    top = np.where(np.isfinite(logs), logs, -np.inf).max(axis=1)
    places = logs[:, 0] + rng.random((N_START, len(DEGREES))) * (top - logs[:, 0])
    return Relaxed(jnp.asarray(places), jnp.zeros((N_START, *axes.used.shape)))


@jax.jit
def _log_prob(
    relaxed: Relaxed, axes: SpaceAxes, width: Float[Array, ""], heat: Float[Array, ""]
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
    axes: SpaceAxes,
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


N_SHORT = 40  # plans that get an exact time
WITHIN = 1.05  # of the fastest by estimate: what estimates err, and what tails differ by
GAP_SEEDS = 90_000  # away from the seeds of searches and of what they promise


@use_case()
def gradient_search(
    job: Job, space: PlanSpace | None = None, *, aim: SearchAim = SearchAim(), progress: Progress = silent
) -> Study:
    """Plans of `space` with a small objective; for spaces too large for `search`, whose arguments and result it shares.

    Args:
        job: its own plan gives what the space does not vary, and is what gains are measured against.
        space: `default_space(job)` if not given.
        aim: as in `search`.
        progress: called with the fraction done of what is being done.

    Raises:
        PlanError: no feasible plan was found.
        DataError: unknown objective, or one that needs a price without one.

    Notes:
        `screen` of the study holds the plans that were looked at, not the whole space.
    """
    started = time.perf_counter()
    wanted, seed = aim.objective_of(job), aim.seed
    space = default_space(job) if space is None else space
    knobs = Knobs(space, job.plan, job.model)
    first = Evaluator(job, space, aim.margin_of(job))
    known = VisitedPlans(knobs, first.costs)
    known.look_up(knobs.start(job.plan)[None])
    known.look_up(descend(knobs, known, seed, progress))
    polish(knobs, known)
    evaluator, screen = _looked_at(first, knobs, known)
    found = successive_halving(evaluator, screen, wanted, seed, aim.top, Journal().scores, progress)
    progress(1.0, "gain on fresh draws")
    study = study_of(evaluator, screen, found, aim, "gradient", started)
    return replace(study, notes=(*study.notes, f"{screen.n_plans:,} plans were looked at, not the whole space"))


def gap(study: Study, reference: Study) -> tuple[float, float]:
    """How much larger the objective of a study's best plan is than that of another study's, as a share, and its standard error.

    Both plans see the same draws, which neither search has seen; the objective is that of `study`.
    """
    if study.best.plan == reference.best.plan:
        return 0.0, 0.0
    evaluator = Evaluator(study.job, PlanList(()))
    ratios = []
    for k in range(N_SEEDS):
        scorer = TailScorer(evaluator, study.seed + GAP_SEEDS + k)
        own, other = (scorer.value(study.objective, s.best.plan, N_COLUMN) for s in (study, reference))
        ratios.append(own / other - 1.0)
    return float(np.mean(ratios)), float(np.std(ratios, ddof=1) / np.sqrt(len(ratios)))


def _looked_at(first: Evaluator, knobs: Knobs, known: VisitedPlans) -> tuple[Evaluator, ScreeningResult]:
    """All plans that were met, as an evaluator of these alone; only the fastest keep a bound, so that only they are run.

    Raises:
        PlanError: none of them is feasible.
    """
    codes = knobs.codes(known.positions)
    tables = [*knobs.tables(codes)]
    evaluator = Evaluator(first.job, PlanList(tuple(table for table, _ in tables)))
    evaluator.costs = first.costs
    try:
        screen = evaluator.bounds()
    except PlanError as error:
        raise PlanError(f"{error} ({len(known):,} plans were looked at)") from None
    short = {*knobs.codes(known.best(N_SHORT, WITHIN)).texts()}
    listed = codes.take(np.concatenate([rows for _, rows in tables]))
    bound = np.where([key in short for key in listed.texts()], screen.bound_s, np.nan)
    return evaluator, ScreeningResult(screen.reason, screen.memory_bytes, bound, screen.step_s, screen.n_devices)

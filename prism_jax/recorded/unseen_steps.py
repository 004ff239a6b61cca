"""Draws steps that were not recorded from what the recorded ones share, and holds what was fitted against the recorded steps.

A new step takes the regime of one recorded step: its effect on compute, and its communication, host gaps and whatever belongs to
no micro-batch, as they were recorded together. Every micro-batch of every replica draws one recorded micro-batch, whole: forward
and backward on all stages. Which one is decided by a normal score, correlated within a replica and step.

Draws are pure, jitted and batched. How sure one can be after a few recorded steps: the draws are made under several reweightings
of the recorded steps (Bayesian bootstrap; Rubin 1981), and quantiles are compared across them.

Steps drawn from what was learned should be as long as the recorded ones on average, and scatter as much. Where they do not,
something is shared that the model does not know (processes that take turns on one core, for example), and predictions are moved
and stretched. Both factors are drawn to one as far as the few recorded steps leave them open:

    factor = 1 + off max(0, 1 - (2 se / off)^2),   off = recorded / drawn - 1

with the standard error of the recorded mean or standard deviation, so that nothing within two standard errors is believed (after
the positive-part shrinkage of James and Stein 1961).

A factor outside 0.5 to 2 is no correction but a wrong model, and is refused.
"""

from __future__ import annotations

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import ndtr
from jaxtyping import Float, Int32, PRNGKeyArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..trace.pipeline import BACKWARD, FORWARD
from .effects import LEAST_STRATUM, Effects
from .prediction import MomentMatch, TracePrediction
from .recorded_job import IDENTITY, RecordedJob
from .replay import ReplayProgram, replay, replay_program, step_seconds

N_REFIT = 40


class StepSampler(eqx.Module):
    """A fitted job on the device.

    Attributes:
        program: replay of the job at the number of replicas that is asked for.
        run_s, gap_s: [op, replica, step] as recorded.
        op: [mb, signature] ops that are drawn micro-batch by micro-batch.
        base_s: [mb, signature] log seconds.
        step_effect: [signature, step]; rank_effect: [signature, replica]; log factors.
        pool: [signature, entry] log factors of recorded micro-batches, from short to long.
        pool_step: [entry] recorded step of an entry.
        spread: [within, replica, step] factors of the parts of a normal score: deviation within a replica's step, of the
            replica's mean, of the step's mean.
        same_replicas: whether the replicas are the recorded ones; others take after a recorded one each, drawn anew per step.
    """

    program: ReplayProgram
    run_s: Float[Array, "op replica step"]
    gap_s: Float[Array, "op replica step"]
    op: Int32[Array, "mb signature"]
    base_s: Float[Array, "mb signature"]
    step_effect: Float[Array, "signature step"]
    rank_effect: Float[Array, "signature replica"]
    pool: Float[Array, "signature entry"]
    pool_step: Int32[Array, " entry"]
    spread: Float[Array, "3"]
    same_replicas: bool = eqx.field(static=True)


def step_law(job: RecordedJob, n_replica: int | None = None) -> StepSampler:
    """The law of new steps of `job` with `n_replica` data-parallel replicas (those of the job by default)."""
    trace, found = job.trace, job.effects
    wanted = trace.job.dp if n_replica is None else n_replica
    empty = np.zeros((0, 0))
    n_step, n_recorded = len(trace.steps), trace.n_replica
    return StepSampler(
        program=replay_program(trace, job.waits.needs, wanted),
        run_s=jnp.asarray(job.run_s, float),
        gap_s=jnp.asarray(job.gap_s, float),
        op=jnp.asarray(found.op if found else empty, jnp.int32),
        base_s=jnp.asarray(found.base if found else empty, float),
        step_effect=jnp.asarray(found.step if found else np.zeros((0, n_step)), float),
        rank_effect=jnp.asarray(found.rank if found else np.zeros((0, n_recorded)), float),
        pool=jnp.asarray(found.pool if found else np.zeros((0, 1)), float),
        pool_step=jnp.asarray(found.pool_step if found else np.zeros(1), jnp.int32),
        spread=jnp.asarray(_spread(found, wanted / n_recorded, wanted) if found else np.ones(3), float),
        same_replicas=wanted == n_recorded,
    )


def predict_job(
    job: RecordedJob, *, key: PRNGKeyArray, n_draw: int = 4000, n_replica: int | None = None
) -> TracePrediction:
    """Distribution of the steps of a fitted job that were not recorded.

    Args:
        job: what `fit_job` learned from a trace.
        key: random key; same key, same answer.
        n_draw: steps to draw, shared by 40 refits.
        n_replica: data-parallel replicas; those of the job by default.
    """
    per_refit = max(-(-n_draw // N_REFIT), 2)
    step_s = unseen_steps(step_law(job, n_replica), key, N_REFIT, per_refit)
    return TracePrediction(job.agreement.applied(np.asarray(step_s, dtype=np.float64)))


@eqx.filter_jit
def unseen_steps(law: StepSampler, key: PRNGKeyArray, n_refit: int, n_draw: int) -> Float[Array, "refit draw"]:
    """Step times of `n_draw` new steps under each of `n_refit` reweightings of the recorded ones, seconds."""
    weight_key, draw_key = jax.random.split(key)
    n_step = law.run_s.shape[-1]
    weights = jax.random.dirichlet(weight_key, jnp.ones(n_step), (n_refit,))
    keys = jax.random.split(draw_key, n_refit)
    return lax.map(lambda x: _steps(law, x[0], x[1], n_draw), (keys, weights))


def _steps(law: StepSampler, key: PRNGKeyArray, weight: Float[Array, " step"], n_draw: int) -> Float[Array, " draw"]:
    return step_seconds(law.program, *drawn_durations(law, key, weight, n_draw))


def drawn_durations(
    law: StepSampler, key: PRNGKeyArray, weight: Float[Array, " step"], n_draw: int
) -> tuple[Float[Array, "op replica draw"], Float[Array, "op replica draw"]]:
    """Work and gaps of `n_draw` new steps, the recorded steps weighted by `weight` (sums to one)."""
    n_replica = law.program.graph.n_replica
    step_key, rank_key, score_key = jax.random.split(key, 3)
    step = jax.random.choice(step_key, law.run_s.shape[-1], (n_draw,), p=weight)
    if law.same_replicas:
        rank = jnp.broadcast_to(jnp.arange(n_replica)[:, None], (n_replica, n_draw))
    else:
        rank = jax.random.randint(rank_key, (n_replica, n_draw), 0, law.run_s.shape[1])
    run, gap = law.run_s[:, rank, step], law.gap_s[:, rank, step]
    if law.op.size == 0:
        return run, gap
    score = _scores(law.spread, jax.random.normal(score_key, (law.op.shape[0], n_replica, n_draw)))
    entry = _entry(weight[law.pool_step], ndtr(score))
    effect = law.step_effect[:, step][:, None] + law.rank_effect[:, rank]  # [signature, replica, draw]
    log_s = law.base_s[:, :, None, None] + effect[None] + jnp.moveaxis(law.pool[:, entry], 0, 1)
    return run.at[law.op].set(jnp.exp(log_s)), gap


def _scores(spread: Float[Array, "3"], own: Float[Array, "mb replica draw"]) -> Float[Array, "mb replica draw"]:
    """Standard normal scores whose means over a replica's step, and over the step, vary more or less than independent ones."""
    replica = own.mean(axis=0, keepdims=True)
    step = replica.mean(axis=1, keepdims=True)
    return spread[0] * (own - replica) + spread[1] * (replica - step) + spread[2] * step


def _spread(effects: Effects, more: float, n_replica: int) -> Floats:
    """Factors of `_scores` that keep the variance one; with `more` times as many replicas the step's stratum grows."""
    n_mb = len(effects.op)
    replica = effects.strata.replica
    step = max(LEAST_STRATUM, 1.0 + (effects.strata.step - 1.0) * more)
    share = np.array([1.0 - 1.0 / n_mb, (1.0 - 1.0 / n_replica) / n_mb, 1.0 / (n_mb * n_replica)])
    ratio = np.array([1.0, replica, step])
    return np.sqrt(ratio / (share @ ratio))


def _entry(weight: Float[Array, " entry"], u: Float[Array, "mb replica draw"]) -> Int32[Array, "mb replica draw"]:
    """Index of the pool's entry at the weighted quantile `u`."""
    below = jnp.cumsum(weight)
    found = jnp.searchsorted(below, u * below[-1])
    return jnp.clip(found, 0, len(weight) - 1).astype(jnp.int32)


SEED, N_DRAW = 0, 2000
BELIEVED = 2.0  # standard errors
MOST = 2.0  # a factor beyond this, or below its inverse, is refused
FEWEST = 5  # recorded steps; fewer tell nothing about what the model misses


def match_moments(job: RecordedJob) -> RecordedJob:
    """`job` with the factors that make drawn steps agree with recorded ones, as far as these can tell."""
    plain = replace(job, agreement=IDENTITY)
    drawn = predict_job(plain, key=jax.random.key(SEED), n_draw=N_DRAW, n_replica=job.trace.n_replica)
    return replace(job, agreement=agreement(job, drawn.step_s))


def agreement(job: RecordedJob, drawn_s: Floats) -> MomentMatch:
    """Of steps drawn from `job`, with the recorded replicas and not calibrated, with its recorded steps.

    Raises:
        DataError: drawn steps are nothing like the recorded ones.
    """
    recorded_s = _recorded(job)
    if len(recorded_s) < FEWEST or recorded_s.std() == 0 or drawn_s.std() == 0:
        return IDENTITY
    mean_error, sd_error = _relative_errors(recorded_s)
    found = MomentMatch(
        mean=_shrunk(float(recorded_s.mean() / drawn_s.mean()), mean_error),
        spread=_shrunk(float(recorded_s.std(ddof=1) / drawn_s.std()), sd_error),
    )
    _check(job, found)
    return found


def _check(job: RecordedJob, found: MomentMatch) -> None:
    off = {"on average": found.mean, "in their spread": found.spread}
    wrong = [f"{1.0 / factor:.3g} times the recorded ones {what}" for what, factor in off.items() if not _near(factor)]
    if wrong:
        raise DataError(
            f"{job.trace.source}: steps drawn from this recording are {' and '.join(wrong)}, so the model does not describe this "
            f"job (at most {MOST:g} times is corrected). Give its step times alone, as a log of steps; or annotate {FORWARD} and "
            f"{BACKWARD} in the program and record again; or leave out steps unlike the others, such as warm-up."
        )


def _near(factor: float) -> bool:
    return 1.0 / MOST <= factor <= MOST


def _recorded(job: RecordedJob) -> Floats:
    """The recorded steps; of the recorded replicas alone where the job had more, without the wait for those."""
    trace = job.trace
    if trace.n_replica == trace.job.dp:
        return trace.step_s
    return replay(replay_program(trace, job.waits.needs, trace.n_replica), job.run_s, job.gap_s)


def _relative_errors(values: Floats) -> tuple[float, float]:
    """Standard errors of mean and standard deviation over their values."""
    n, sd = len(values), float(values.std(ddof=1))
    kurtosis = float((((values - values.mean()) / sd) ** 4).mean())
    return sd / np.sqrt(n) / float(values.mean()), float(np.sqrt(max(kurtosis - 1.0, 1.0) / (4.0 * n)))


def _shrunk(ratio: float, error: float) -> float:
    off = ratio - 1.0
    return 1.0 + (off * max(0.0, 1.0 - (BELIEVED * error / off) ** 2) if off else 0.0)

"""Steps that were not recorded, drawn from what the recorded ones share. Pure, jitted, batched.

A new step takes the regime of one recorded step: its effect on compute, and its communication, host gaps and whatever belongs to
no micro-batch, as they were recorded together. Every micro-batch of every replica draws one recorded micro-batch, whole: forward
and backward on all stages. Which one is decided by a normal score, correlated within a replica and step.

How sure one can be after a few recorded steps: the draws are made under several reweightings of the recorded steps
(Bayesian bootstrap; Rubin 1981), and quantiles are compared across them.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import ndtr
from jaxtyping import Float, Int32, PRNGKeyArray

from .._typing import Floats
from .effects import LEAST_STRATUM, Effects
from .prediction import TracePrediction
from .recorded_job import RecordedJob
from .replay import ReplayProgram, replay_program, step_seconds

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

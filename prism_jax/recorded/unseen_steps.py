"""Draws steps that were not recorded from what the recorded ones share, and holds what was fitted against the recorded steps.

A new step takes the regime of one recorded step: its effect on compute, and its communication, host gaps and whatever belongs to
no micro-batch, as they were recorded together. Every micro-batch of every replica draws one recorded micro-batch, whole: forward
and backward on all stages. Which one is decided by a normal score, correlated within a replica and step.

How sure one can be after a few recorded steps: the draws are made under several reweightings of the recorded steps (Bayesian
bootstrap; Rubin 1981), and quantiles are compared across them. All of it is a second of NumPy, in single precision; to compile
it would take longer than to run it.

Steps drawn from what was learned should be as long as the recorded ones on average, and scatter as much. Where they do not,
something is shared that the model does not know (processes that take turns on one core, for example), and predictions are moved
and stretched. Both factors are drawn to one as far as the few recorded steps leave them open:

    factor = 1 + off max(0, 1 - (2 se / off)^2),   off = recorded / drawn - 1

with the standard error of the recorded mean or standard deviation, so that nothing within two standard errors is believed (after
the positive-part shrinkage of James and Stein 1961).

A factor outside 0.5 to 2 is no correction but a wrong model, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ..core.arrays import Floats
from ..core.errors import DataError
from ..trace.pipeline import BACKWARD, FORWARD
from .effects import LEAST_STRATUM, Effects
from .kernel_draws import KernelDraws
from .prediction import MomentMatch, TracePrediction
from .recorded_job import IDENTITY, RecordedJob
from .replay import ReplayProgram, replay, replay_program

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

N_REFIT = 40
MAX_DRAWN = 2**21  # durations that are drawn at a time


@dataclass(frozen=True)
class StepSampler:
    """A fitted job, ready to draw steps.

    Attributes:
        program: replay of the job at the number of replicas that is asked for.
        run_s, gap_s: [op, replica, step] as recorded.
        effects: of the compute that is drawn micro-batch by micro-batch; None if there is none.
        spread: [within, replica, step] factors of the parts of a normal score: deviation within a replica's step, of the
            replica's mean, of the step's mean.
        kernels: own parts of the kernels inside runs, drawn anew for every run; None: as they were recorded.
    """

    program: ReplayProgram
    run_s: NDArray
    gap_s: NDArray
    effects: Effects | None
    spread: NDArray
    kernels: KernelDraws | None = None

    @property
    def same_replicas(self) -> bool:
        """Whether the replicas are the recorded ones; others take after a recorded one each, drawn anew per step."""
        return self.program.n_replica == self.run_s.shape[1]


def step_law(job: RecordedJob, n_replica: int | None = None, dtype: type[np.floating] = np.float32) -> StepSampler:
    """The law of new steps of `job` with `n_replica` data-parallel replicas (those of the job by default)."""
    trace, found = job.trace, job.effects
    wanted = trace.job.dp if n_replica is None else n_replica
    spread = np.ones(3) if found is None else _spread(found, wanted / trace.n_replica, wanted)
    return StepSampler(
        program=replay_program(trace, job.waits.needs, wanted),
        run_s=job.shared_s.astype(dtype),
        gap_s=job.gap_s.astype(dtype),
        effects=None if found is None else found.astype(dtype),
        spread=spread.astype(dtype),
        kernels=job.kernels,
    )


def predict_job(
    job: RecordedJob, *, key: PRNGKeyArray | int, n_draw: int = 4000, n_replica: int | None = None
) -> TracePrediction:
    """Distribution of the steps of a fitted job that were not recorded.

    Args:
        job: what `fit_job` learned from a trace.
        key: random key of JAX, or a whole number as the seed of one; same key, same answer.
        n_draw: steps to draw, shared by 40 refits.
        n_replica: data-parallel replicas; those of the job by default.
    """
    per_refit = max(-(-n_draw // N_REFIT), 2)
    step_s = unseen_steps(step_law(job, n_replica), key, N_REFIT, per_refit)
    return TracePrediction(job.agreement.applied(step_s))


class StepStreams:
    """Random numbers of new steps, a stream for each purpose: another number of one kind leaves the others as they are."""

    def __init__(self, key: PRNGKeyArray | int) -> None:
        words = _words(key)
        self.weight, self.step, self.rank, self.score, self.kernel = (
            np.random.default_rng([*words, crc32(name.encode())])
            for name in ("weight", "step", "rank", "score", "kernel")
        )


def _words(key: PRNGKeyArray | int) -> list[int]:
    """The two words of a key; those of a seed without JAX."""
    if isinstance(key, (int, np.integer)):
        return [int(key) >> 32, int(key) & 0xFFFFFFFF]
    import jax

    return np.asarray(jax.random.key_data(key)).tolist()


def unseen_steps(law: StepSampler, key: PRNGKeyArray | int, n_refit: int, n_draw: int) -> Floats:
    """Step times [refit, draw] of `n_draw` new steps under each of `n_refit` reweightings of the recorded ones, seconds."""
    streams = StepStreams(key)
    weights = streams.weight.standard_exponential((n_refit, law.run_s.shape[-1]))  # normalised: Dirichlet, all ones
    return np.stack([drawn_steps(law, streams, weight / weight.sum(), n_draw) for weight in weights])


def drawn_steps(law: StepSampler, streams: StepStreams, weight: Floats, n_draw: int) -> Floats:
    """Step times [draw] of new steps, the recorded steps weighted by `weight` [step] (sums to one), seconds."""
    return np.concatenate([replay(law.program, *found) for found in drawn_durations(law, streams, weight, n_draw)])


def drawn_durations(
    law: StepSampler, streams: StepStreams, weight: Floats, n_draw: int
) -> Iterator[tuple[NDArray, NDArray]]:
    """Work and gaps [op, replica, draw] of `n_draw` new steps, some at a time; each the same however many these are."""
    n_replica, effects = law.program.n_replica, law.effects
    most = max(1, MAX_DRAWN // (law.run_s.shape[0] * n_replica))
    below = None if effects is None else np.cumsum(weight[effects.pool_step])
    for first in range(0, n_draw, most):
        n = min(most, n_draw - first)
        step = _entry(np.cumsum(weight), streams.step.random(n))
        rank = np.arange(n_replica)[:, None]
        if not law.same_replicas:
            rank = streams.rank.integers(law.run_s.shape[1], size=(n, n_replica)).T
        run, gap = law.run_s[:, rank, step], law.gap_s[:, rank, step]
        if effects is not None and below is not None:
            own = streams.score.standard_normal((n, len(effects.op), n_replica), dtype=np.float32)
            score = _scores(law.spread, np.moveaxis(own, 0, -1).astype(law.spread.dtype, copy=False))
            entry = _entry(below, ndtr(score))
            effect = effects.step[:, step][:, None] + effects.rank[:, rank]  # [signature, replica, draw]
            log_s = effects.base[:, :, None, None] + effect + np.moveaxis(effects.pool[:, entry], 0, 1)
            run[effects.op] = np.exp(log_s, out=log_s)
        if law.kernels is not None:
            u = np.moveaxis(streams.kernel.random((n, len(law.kernels.op), n_replica)), 0, -1)
            run[law.kernels.op] *= law.kernels.drawn(u)
        yield run, gap


def _scores(spread: NDArray, own: NDArray) -> NDArray:
    """Normal scores [mb, replica, draw] whose means over a replica's step, and over the step, vary more or less than those of
    independent ones, which are given.
    """
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


def _entry(below: Floats, u: NDArray) -> NDArray[np.intp]:
    """Index of the entry at the quantile `u` under cumulated weights [entry]."""
    return np.minimum(np.searchsorted(below, u * below[-1]), len(below) - 1)


SEED, N_DRAW = 0, 2000
BELIEVED = 2.0  # standard errors
MOST = 2.0  # a factor beyond this, or below its inverse, is refused
FEWEST = 5  # recorded steps; fewer tell nothing about what the model misses


def match_moments(job: RecordedJob) -> RecordedJob:
    """`job` with the factors that make drawn steps agree with recorded ones, as far as these can tell."""
    plain = replace(job, agreement=IDENTITY)
    drawn = predict_job(plain, key=SEED, n_draw=N_DRAW, n_replica=job.trace.n_replica)
    return replace(job, agreement=agreement(job, drawn.step_s))


def agreement(job: RecordedJob, drawn_s: Floats) -> MomentMatch:
    """Factors by which steps drawn from `job`, with the recorded replicas and not calibrated, agree with its recorded steps.

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
    return replay(replay_program(trace, job.waits.needs), job.run_s, job.gap_s)


def _relative_errors(values: Floats) -> tuple[float, float]:
    """Standard errors of mean and standard deviation over their values."""
    n, sd = len(values), float(values.std(ddof=1))
    kurtosis = float((((values - values.mean()) / sd) ** 4).mean())
    return sd / np.sqrt(n) / float(values.mean()), float(np.sqrt(max(kurtosis - 1.0, 1.0) / (4.0 * n)))


def _shrunk(ratio: float, error: float) -> float:
    off = ratio - 1.0
    return 1.0 + (off * max(0.0, 1.0 - (BELIEVED * error / off) ** 2) if off else 0.0)

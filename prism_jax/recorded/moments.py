"""A fitted job held against its own recorded steps.

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

import jax
import numpy as np

from .._typing import Floats
from ..errors import DataError
from .recorded_job import IDENTITY, RecordedJob
from .replay import replay, replay_program
from .score import MomentMatch
from .trace.pipeline import BACKWARD, FORWARD
from .unseen_steps import predict_job

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

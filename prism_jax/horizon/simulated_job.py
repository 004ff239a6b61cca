"""The part of a training run's prediction that needs JAX: its steps, its worlds, and the report of both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..core.processes import Progress
from ..core.report import RunRecord
from ..fits.load_fits import FittedJob
from ..graph.draws import folded, typed_key
from ..prediction.facts import job_facts, level_draws
from ..prediction.predicted_step import at_log_level
from ..simulate.predict import predict
from .advice import MTBF_H, changes, response
from .checkpoint import Checkpoint, Recovery
from .outcome import RunOutcome
from .reliability import Reliability, enough_prob
from .report import (
    CauseFacts,
    CheckpointFacts,
    DeadlineFacts,
    OutcomeFacts,
    RecoveryFacts,
    ReliabilityFacts,
    RunCurve,
    RunReport,
    RunTime,
)
from .run import TrainingRun
from .simulated_run import simulated_run
from .steps import step_sum

LEVELS = np.linspace(0.005, 0.995, 67)  # of the curve of a picture
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}
NOTHING = Reliability((), name="none")


@dataclass(frozen=True)
class RunRequest:
    """Request for a run; `reliability` is None where no failure rates are stated."""

    n_steps: int
    reliability: Reliability | None
    checkpoint: Checkpoint
    recovery: Recovery
    deadline_s: float | None
    n_worlds: int
    seed: int
    assumed: tuple[str, ...]


def simulated(
    fitted: FittedJob, asked: RunRequest, record: RunRecord, progress: Progress
) -> tuple[RunReport, TrainingRun]:
    """The report of a run, and the run that it is of."""
    key, notes = typed_key(asked.seed), (*fitted.tables, *fitted.notes, *fitted.unused)
    progress(0.0, "predicting the step")
    job = fitted.job
    if fitted.level is not None:
        at_level = at_log_level(job, fitted.level, partial(predict, key=key))
        job, notes = at_level.job, (*notes, *((at_level.note,) if at_level.note else ()))
    run = TrainingRun(
        n_steps=asked.n_steps,
        steps=step_sum(job, key=key),
        n_gpus=job.plan.n_devices,
        node_size=job.cluster.node_size,
        reliability=asked.reliability or NOTHING,
        checkpoint=asked.checkpoint,
        recovery=asked.recovery,
        level=level_draws(job, asked.seed),
    )
    if asked.reliability is None and asked.deadline_s is not None:
        notes = (*notes, "no probability for the deadline: no failure rate is known; state --reliability or --mtbf")
    outcome = facts = curve = None
    if asked.reliability is not None:
        progress(0.0, "simulating worlds")
        outcome = simulated_run(run, key=folded(key, 1), n_world=asked.n_worlds)
        known = simulated_run(run.as_known(), key=folded(key, 1), n_world=asked.n_worlds)
        facts, curve = _outcome(run, outcome, known), _curve(outcome, known)
    report = RunReport(
        job=job_facts(job),
        verdict="unknown" if outcome is None else "predicted",
        n_steps=asked.n_steps,
        n_tokens=float(asked.n_steps * job.model.units_per_step(job.plan)),
        step_s=run.steps.mean_s,
        noise_free_step_s=run.steps.noise_free_s,
        reliability=None if asked.reliability is None else _reliability(run),
        checkpoint=_checkpoint(run),
        recovery=_recovery(run),
        outcome=facts,
        deadline=_deadline(outcome, asked.deadline_s),
        changes=tuple(changes(run)) if outcome else (),
        response=tuple(response(run, MTBF_H)),
        assumed=asked.assumed,
        notes=notes,
        seed=asked.seed,
        record=record,
        curve=curve,
    )
    return report, run


def _curve(outcome: RunOutcome, known: RunOutcome) -> RunCurve:
    return RunCurve(
        *(tuple(map(float, of)) for of in (LEVELS, *(np.quantile(one.time_s, LEVELS) for one in (outcome, known))))
    )


def _outcome(run: TrainingRun, outcome: RunOutcome, known: RunOutcome) -> OutcomeFacts:
    slope = run.gradient() if run.rate_s > 0.0 else {"interval_s": 0.0, "mtbf_s": 0.0}
    low, high = np.quantile(outcome.goodput, (0.05, 0.95))
    goodput, expected_s = float(np.median(outcome.goodput)), float(np.median(outcome.expected_s))
    noise_free_s = run.n_steps * run.steps.noise_free_s
    return OutcomeFacts(
        time_s=_times(outcome),
        mc_error_s=RunTime(
            mean=float(outcome.time_s.std() / np.sqrt(len(outcome.time_s))),
            **{name: outcome.mc_error(p) for name, p in QUANTILES.items()},
        ),
        chance_s=_times(known),
        expected_interval_s=outcome.band(),
        goodput=goodput,
        goodput_interval=(float(low), float(high)),
        seconds={name: float(value.mean()) for name, value in outcome.seconds.items()},
        waiting_s=float(outcome.waiting_s.mean()),
        interruptions=float(outcome.n_failure.mean()),
        expected_s=expected_s,
        extra_s=outcome.mean_s - noise_free_s,
        interval_slope=slope["interval_s"],
        mtbf_slope=slope["mtbf_s"],
        n_worlds=len(outcome.time_s),
    )


def _times(outcome: RunOutcome) -> RunTime:
    return RunTime(mean=outcome.mean_s, **{name: outcome.quantile(p) for name, p in QUANTILES.items()})


def _deadline(outcome: RunOutcome | None, deadline_s: float | None) -> DeadlineFacts | None:
    if outcome is None or deadline_s is None:
        return None
    return DeadlineFacts(deadline_s, *outcome.prob_by(deadline_s))


def _reliability(run: TrainingRun) -> ReliabilityFacts:
    found = run.reliability
    causes = (
        CauseFacts(one.cause, one.rate_h(run.n_gpus, run.node_size), one.log_sd, one.noticed_s, one.nodes_lost)
        for one in found.hazards
    )
    mttf_h = found.mttf_h(run.n_gpus, run.node_size)
    slow = tuple(one.cause for one in found.slow_phases)
    ranked = tuple(sorted(causes, key=lambda one: -one.per_hour))
    return ReliabilityFacts(found.name, found.source, mttf_h if np.isfinite(mttf_h) else None, ranked, slow)


def _checkpoint(run: TrainingRun) -> CheckpointFacts:
    made = run.checkpoint
    return CheckpointFacts(
        interval_steps=run.interval_steps,
        interval_s=run.interval_s,
        is_chosen=made.interval_s is None,
        blocking_s=made.blocking_s,
        background_s=made.background_s,
        load_s=made.load_s,
        source=made.source,
    )


def _recovery(run: TrainingRun) -> RecoveryFacts:
    enough = enough_prob(run.reliability, run.n_gpus, run.node_size, run.n_spare)
    return RecoveryFacts(run.recovery.restart_s, run.outage_s, run.recovery.policy, run.n_spare, min(enough, 1.0))

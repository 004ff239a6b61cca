"""Makes the part of a prediction that needs JAX: simulate, explain, what fits leave open, and the level of the job's own log.

At that level every second of the job is taken times measured over predicted typical step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import jax
import numpy as np

from ..calibration.key import LevelFactor
from ..core.processes import Progress, part, silent
from ..core.report import RunRecord
from ..core.units import format_s
from ..explain.explain import attribute, explain, timelines
from ..explain.perfetto import write_trace
from ..explain.types import Explanation
from ..fits.load_fits import FittedJob, LogLevel
from ..graph.draws import typed_key
from ..job.framework_notes import framework_notes
from ..job.job import Job
from ..job.rules import workload_notes
from ..result.distribution import StepTimeDistribution, step_curve
from ..simulate.batches import epistemic_band
from ..simulate.inputs import KnownGpus, known_gpus
from ..simulate.predict import DEFAULT_COLUMNS, predict
from ..simulate.program import lower
from ..slowdowns.slowdowns_file import SlowdownTable
from ..system.likeness import device_notes
from .facts import QUANTILES, prediction_report, step_time, with_tails
from .figures import Bounds, Elapsed, FitBand, LevelFacts, StepTime
from .report import PredictionReport

WITHIN = 2.0  # the factor, either way; a log further off is of another job, or in another unit


@dataclass(frozen=True)
class JobAtLevel:
    """A job with the level of its log.

    Attributes:
        job: unchanged where the log is refused.
        facts: for the report; None where the log is refused.
        note: why it is refused; empty where it is not.
    """

    job: Job
    facts: LevelFacts | None
    note: str = ""

    def with_fleet(self, fleet_sd: float) -> JobAtLevel:
        """Job with the error that the log leaves because its GPUs are one draw of the fleet.

        Args:
            fleet_sd: relative standard deviation of the mean step between allocations of GPUs.
        """
        if self.facts is None or self.job.level is None:
            return self
        level = replace(self.job.level, log_sd=float(np.hypot(self.job.level.log_sd, fleet_sd)))
        facts = replace(self.facts, factor_sd=level.factor * level.log_sd)
        return replace(self, job=replace(self.job, level=level), facts=facts)


def at_log_level(job: Job, level: LogLevel, predict: Callable[[Job], StepTimeDistribution]) -> JobAtLevel:
    """The job at the level of its log.

    Args:
        predict: the distribution of the step time of a job.

    Notes: a mean of the log is held against the predicted mean, a median against the median.
    """
    found, measured = predict(job), level.measured
    predicted_s = found.mean_s if measured.is_mean else found.quantile(0.5)
    statistic = "mean" if measured.is_mean else "median"
    factor = measured.step_s / predicted_s
    if not 1.0 / WITHIN < factor < WITHIN:
        note = (
            f"{level.file}: the level of the log is not used: its {statistic} step of {format_s(measured.step_s)} is "
            f"{factor:.3g} times the {format_s(predicted_s)} predicted for this job. Is it a log of this job, in the right unit?"
        )
        return JobAtLevel(job, None, note)
    facts = LevelFacts(
        file=level.file,
        statistic=statistic,
        measured_s=measured.step_s,
        predicted_s=predicted_s,
        factor=factor,
        factor_sd=factor * measured.log_sd,
        n_steps=measured.n_steps,
    )
    return JobAtLevel(replace(job, level=LevelFactor(factor, measured.log_sd)), facts)


DEFAULT_STEPS = 1000  # of brute force


@dataclass(frozen=True)
class Simulation:
    """Request for a simulation.

    Attributes:
        method: "symmetric" or "brute_force".
        n_samples: None for the default of the method.
        slowdowns: of GPUs that were measured, and the names of their hosts; None for none.
        explained: whether the parts of the step and the sources of its tail are asked for, which takes half of the time.
        attributed: whether the shares of the sources in the variance and in p95 are asked for.
    """

    method: str
    n_samples: int | None
    seed: int
    slowdowns: SlowdownTable | None
    explained: bool = True
    attributed: bool = False

    @property
    def count(self) -> int:
        """Replica columns or steps."""
        return self.n_samples or (DEFAULT_COLUMNS if self.method == "symmetric" else DEFAULT_STEPS)


def simulated(
    fitted: FittedJob, asked: Simulation, record: RunRecord, progress: Progress
) -> tuple[PredictionReport, StepTimeDistribution, Explanation | None]:
    """The report, and the distribution and explanation that it is made of.

    Notes: a job at the level of its log is explained in any case: how far fleets differ is a part of its interval.
    """
    job, key = fitted.job, typed_key(asked.seed)
    at_level = JobAtLevel(job, None)
    known = _known(job, asked.slowdowns)
    started, spent = time.perf_counter(), _compile_clock()
    compiled_s = -sum(spent)
    if fitted.level is not None:
        at_level = at_log_level(job, fitted.level, partial(_once, asked=asked, known=known))
        job = at_level.job
    progress(0.0, "compiling and simulating")
    distribution = _once(job, asked=asked, known=known, progress=part(progress, "simulating"))
    ran, compiled_s = time.perf_counter(), compiled_s + sum(spent)
    explanation = None
    if asked.explained or fitted.level is not None:
        progress(0.0, "explaining")
        hosts = () if asked.slowdowns is None else asked.slowdowns.hosts
        explanation = _with_hosts(explain(job, distribution, key=key, known=known), hosts)
        at_level = at_level.with_fleet(explanation.allocation.between_s / distribution.mean_s)
    elapsed = Elapsed(
        compiled_s, max(0.0, ran - started - compiled_s), 0.0 if explanation is None else time.perf_counter() - ran
    )
    attribution = None
    if asked.attributed:
        progress(0.0, "attributing")
        attribution = attribute(job, key=key)
    cost, times, band = lower(job).cost, None, None
    if fitted.draws:
        times, band = _of_draws(replace(fitted, job=job), asked, known, distribution, progress)
    report = prediction_report(
        at_level.job, distribution, explanation, cost, times=times, seed=asked.seed, elapsed=elapsed, record=record
    )
    notes = [
        *device_notes(job.cluster.device),
        *framework_notes(job),
        *workload_notes(job.model, job.plan),
        *_gains(explanation),
        *report.notes,
        *fitted.tables,
        *fitted.notes,
        *fitted.unused,
        *([at_level.note] if at_level.note else []),
    ]
    report = replace(report, level=at_level.facts, notes=tuple(notes), epistemic_s=band, attribution=attribution)
    if band is None:
        report = with_tails(report, job, distribution, asked.seed)
    report = replace(report, curve=step_curve(distribution, report.guarantee))
    return report, distribution, explanation


def _gains(explanation: Explanation | None) -> list[str]:
    """Sentence on what other work of micro-batches would bring."""
    gains = {} if explanation is None else explanation.work_gain
    listed = ", ".join(f"{name} {gain:+.0%}" for name, gain in gains.items())
    return [f"tokens per second at the median, all else alike: {listed}"] if listed else []


def _known(job: Job, slowdowns: SlowdownTable | None) -> KnownGpus | None:
    """Known slowdowns as the simulation takes them."""
    if slowdowns is None:
        return None
    return known_gpus(slowdowns.factors, job.plan.n_devices, job.model.kernel_classes)


def _with_hosts(explanation: Explanation, hosts: Sequence[str]) -> Explanation:
    """Explanation with the names of the nodes that have one."""
    if explanation.given is None:
        return explanation
    nodes = tuple(
        replace(one, name=hosts[one.node]) if one.node < len(hosts) else one for one in explanation.given.nodes
    )
    return replace(explanation, given=replace(explanation.given, nodes=nodes))


def _once(job: Job, *, asked: Simulation, known: KnownGpus | None, progress: Progress = silent) -> StepTimeDistribution:
    """The distribution as it is asked for."""
    key = typed_key(asked.seed)
    return predict(job, key=key, n_samples=asked.count, method=asked.method, known=known, progress=progress)


def write_timeline(
    path: str | Path, job: Job, distribution: StepTimeDistribution, seed: int, slowdowns: SlowdownTable | None
) -> None:
    """Writes a Perfetto timeline of a median and a p99 step."""
    hosts = () if slowdowns is None else slowdowns.hosts
    lines = timelines(lower(job), distribution, typed_key(seed), _known(job, slowdowns), hosts)
    write_trace(path, lines, job.name)


@lru_cache(maxsize=1)
def _compile_clock() -> list[float]:
    """Seconds that this process spends on making programs, or on loading those that are kept: an entry each."""
    spent: list[float] = []

    def add(event: str, duration_secs: float, **_: str | int) -> None:
        if event.startswith("/jax/core/compile/"):
            spent.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(add)
    return spent


def _of_draws(
    fitted: FittedJob,
    asked: Simulation,
    known: KnownGpus | None,
    distribution: StepTimeDistribution,
    progress: Progress,
) -> tuple[StepTime, FitBand]:
    """Quantiles of the step time as posterior draws have them: medians and 90% intervals of the same draws."""
    found = epistemic_band(
        fitted.job,
        fitted.draws,
        QUANTILES,
        key=typed_key(asked.seed),
        n_samples=distribution.n_samples,
        known=known,
        progress=part(progress, "posterior draws"),
    )
    times = replace(step_time(distribution), **{name: one.median for name, one in found.items()})
    return times, FitBand(**{name: Bounds(one.p5, one.p95) for name, one in found.items()})

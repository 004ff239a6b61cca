"""Predicting a job: the distribution of its step time, and why; what `prism-jax predict` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..cost.step import step_cost
from ..cost.step_cost import StepCost
from ..errors import DataError, SpecError
from ..io.tables.slowdowns import SlowdownTable, read_slowdowns
from ..io.write import run_record
from ..job import Job
from ..objective.money import MILLION, S_PER_HOUR
from ..progress import Progress, silent
from ..report.types.prediction import MoneyFacts, PredictionReport
from ..result import StepTimeDistribution
from ..start_jax import keep_programs
from .fitted.load_fits import FitFiles, calibrated_job, load_fits, with_variability
from .jobs import JobSource, loaded, source_of

if TYPE_CHECKING:
    from jax import Array

    from ..explain.types import Explanation
    from ..plot.figure import Figure
    from ..simulate.known import KnownGpus

FOREVER_S = 1e9  # 30 years for one operation
MOST_HOSTS = 4  # named in a note
METHODS = {"symmetric": "symmetric", "brute-force": "brute_force", "brute_force": "brute_force"}
Slowdowns: TypeAlias = str | Path | Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class PredictionRun:
    """A prediction with what its report was made of."""

    report: PredictionReport
    job: Job
    distribution: StepTimeDistribution
    explanation: Explanation | None

    def figure(self) -> Figure:
        """The distribution, and where the time goes."""
        from ..plot import plot_prediction  # here, so that predictions without a picture do not pay for it

        job, band = self.job, self.report.model_band_s
        title = f"{job.name}: {job.model.name} on {job.plan.n_devices:,} x {job.cluster.device.name}"
        interval_s = (band.p5, band.p95) if band.p5 < band.p95 else None
        return plot_prediction(self.distribution, self.explanation, title, interval_s)

    def write_timeline(self, path: str | Path) -> None:
        """Perfetto timeline of a median and a p99 step.

        Raises:
            DataError: the file cannot be written.
        """
        from .prediction_run import write_timeline

        write_timeline(path, self.job, self.distribution, self.report.seed)


def predict(
    job: JobSource,
    *,
    key: Array,
    fits: FitFiles = (),
    force: bool = False,
    use_level: bool = True,
    n_samples: int | None = None,
    method: str = "symmetric",
    known: KnownGpus | None = None,
    pad: bool = False,
    progress: Callable[[float], None] | None = None,
) -> StepTimeDistribution:
    """Distribution of the step time of `job` over fleets (which GPUs it gets) and over steps.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        key: typed PRNG key (`jax.random.key(seed)`); the same key gives the same answer on any number of devices.
        fits: files of `prism-jax fit` or `calibrate` to apply.
        force: use a fit even where its verdict is failed.
        use_level: let a fit to the log of this very job set the level of its step time.
        n_samples, method, known, pad, progress: as in `prism_jax.simulate.predict`, None for the default there.

    Raises:
        ConfigError, DataError, FitError: a job, a fit or an option is wrong.

    Example:
        >>> predict("llama3_405b_16384", key=jax.random.key(0)).quantile(0.95)  # doctest: +SKIP
    """
    keep_programs()
    from ..simulate.predict import predict as simulate  # needs JAX, which importing this module does not

    options = {"n_samples": n_samples, "known": known, "progress": progress}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    fitted = load_fits(loaded(job), fits, force=force)
    if not use_level or fitted.level is None:
        plain = simulate(fitted.job, key=key, method=method, pad=pad, **given)
        told = (*plain.notes, *fitted.tables, *fitted.unused)
        return replace(plain, notes=told) if told != plain.notes else plain
    from .fitted.log_level import at_log_level

    one = partial(simulate, key=key, method=method, pad=pad, **given)
    found = at_log_level(fitted.job, fitted.level, one)
    told = one(found.job)
    notes = (*told.notes, *fitted.tables, *fitted.unused, *((found.note,) if found.note else ()))
    return replace(told, notes=notes)


def predict_many(
    jobs: Sequence[JobSource],
    *,
    key: Array,
    fits: FitFiles = (),
    force: bool = False,
    n_samples: int | None = None,
    progress: Progress = silent,
) -> list[StepTimeDistribution]:
    """Distributions of the step times of many jobs, for sweeps: jobs that differ in variability or times alone share a program.

    Args:
        jobs, key, fits, force, n_samples: as in `predict`. All jobs see the same draws, so that their differences are known
            better than their values. Levels of logs are not used.
        progress: told what is done.

    Raises:
        ConfigError, DataError, FitError, PlanError: a job or a fit is wrong.

    Example:
        >>> jobs = [replace(job, variability=job.variability.scaled(s)) for s in (0.5, 1, 2)]  # doctest: +SKIP
        >>> [found.quantile(0.95) for found in predict_many(jobs, key=jax.random.key(0))]  # doctest: +SKIP
    """
    keep_programs()
    from ..simulate.batch.many import predict_many as simulate  # needs JAX, which importing this module does not

    given: dict[str, Any] = {} if n_samples is None else {"n_samples": n_samples}
    own = [load_fits(loaded(job), fits, force=force).job for job in jobs]
    return simulate(own, key=key, progress=progress, **given)


def explain_step(job: JobSource, **options: Any) -> PredictionReport:
    """The step time of a job, where it goes and what owns its tail; arguments as those of `run_prediction`.

    Example:
        >>> print(explain_step("llama3_405b_16384", seed=1))  # doctest: +SKIP
    """
    return run_prediction(job, **options).report


def run_prediction(
    job: JobSource,
    *,
    overrides: Sequence[str] = (),
    fits: FitFiles = (),
    force: bool = False,
    use_level: bool = True,
    slowdowns: Slowdowns | None = None,
    method: str = "symmetric",
    n_samples: int | None = None,
    explained: bool = True,
    price_per_gpu_hour: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> PredictionRun:
    """Predicts and explains a job.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        overrides: "section.field=value" texts that replace fields of a file.
        fits: files of `prism-jax fit` or `calibrate` to apply.
        force: use a fit even where its verdict is failed.
        use_level: let a fit to the log of this very job (`fit steps` of one configuration) set the level of its step time.
        slowdowns: measured slowdowns of GPUs: a CSV file, or kernel class (or "all") -> device -> factor. Hosts of a file
            are nodes in the order of their first rows; a note says which is which.
        method: "symmetric" or "brute-force".
        n_samples: replica columns (symmetric) or steps (brute force).
        explained: whether to say where the time goes and what owns the tail, which takes half of the time.
        price_per_gpu_hour: for money per step and per million tokens.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        ConfigError: the job file is wrong.
        DataError: unknown method, or a file cannot be used.
        FitError: a fit cannot be used.
        SpecError: an operation takes for ever.
    """
    keep_programs()
    if method not in METHODS:
        raise DataError(f"--method: {method!r} is unknown; known are symmetric and brute-force")
    if price_per_gpu_hour is not None and not 0.0 < price_per_gpu_hour < float("inf"):
        raise DataError(f"--price: {price_per_gpu_hour:g}, but a price must be positive and finite")
    own, rest = calibrated_job(loaded(job, overrides), fits)
    _check_finite(step_cost(own.model, own.cluster, own.plan, own.efficiency))
    known = None if slowdowns is None else _known(own, slowdowns)
    fitted = with_variability(own, rest, seed=seed, force=force, progress=progress)
    if not use_level:
        fitted = replace(fitted, level=None, notes=())
    if known is not None and known.hosts:
        fitted = replace(fitted, notes=(*fitted.notes, _which_nodes(own, known.hosts)))
    from .prediction_run import Simulation, simulated  # needs JAX, which mistakes above do not wait for

    asked = Simulation(METHODS[method], n_samples, seed, known and known.factors, explained)
    inputs = {
        "job": source_of(job),
        "set": list(overrides),
        "slowdowns": slowdowns,
        "fit": list(fits),
        "level": use_level,
        "method": METHODS[method],
        "samples": asked.count,
        "explained": explained,
        "price": price_per_gpu_hour,
    }
    report, distribution, explanation = simulated(fitted, asked, run_record(inputs, seed), progress)
    if price_per_gpu_hour is not None:
        report = replace(report, money=_money(report, price_per_gpu_hour))
    return PredictionRun(report, fitted.job, distribution, explanation)


def _money(report: PredictionReport, price_per_gpu_hour: float) -> MoneyFacts:
    """What the mean step costs."""
    per_step = report.step_time_s.mean / S_PER_HOUR * report.job.n_devices * price_per_gpu_hour
    return MoneyFacts(price_per_gpu_hour, per_step, per_step / report.job.tokens_per_step * MILLION)


def _known(job: Job, slowdowns: Slowdowns) -> SlowdownTable:
    """Slowdowns as numbers, and the hosts that a file names."""
    if isinstance(slowdowns, Mapping):
        return SlowdownTable(slowdowns)
    return read_slowdowns(slowdowns, job.plan.n_devices, job.cluster.node_size)


def _which_nodes(job: Job, hosts: Sequence[str]) -> str:
    """Which node of the job every host was taken for."""
    n_node = -(-job.plan.n_devices // job.cluster.node_size)
    named = ", ".join(f"{host} is node {node}" for node, host in enumerate(hosts[:MOST_HOSTS]))
    more = ", ..." if len(hosts) > MOST_HOSTS else ""
    rest = f"; the other {n_node - len(hosts)} of {n_node} nodes are drawn" if len(hosts) < n_node else ""
    return f"hosts are nodes in the order of the table of slowdowns: {named}{more}{rest}"


def _check_finite(cost: StepCost) -> None:
    """Before times that single precision cannot hold reach the simulation."""
    parts = (cost.compute_s, cost.comm_s, cost.p2p_s, cost.end_compute_s, cost.end_comm_s)
    longest_s = max(float(part.max(initial=0.0)) for part in parts)
    if not longest_s < FOREVER_S:  # NaN too
        raise SpecError(
            f"one operation takes {longest_s:.3g} s. Look for a bandwidth, latency or size that is out of all proportion."
        )

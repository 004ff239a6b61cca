"""Predicting a job: the distribution of its step time, and why; what `prism-jax predict` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ..core.errors import DataError, SpecError
from ..core.processes import Progress, keep_programs, silent
from ..core.together import Together, check_alike, together
from ..core.use_case import OUTPUT, THE_JOB, Message, Option, OptionGroup, noted, use_case
from ..core.write_file import check_timeline
from ..cost.step import StepCost, step_cost
from ..fits.load_fits import FitFiles, calibrated_job, load_fits, with_variability
from ..job.job import Job
from ..job.load_job import JobFile, JobSource, loaded
from ..job.write_job import stated_text
from ..result.distribution import StepTimeDistribution
from ..result.objective import MILLION, S_PER_HOUR
from ..result.parameters import SLOWDOWNS, Applied, Fits, Force, JobChanges, Seed
from ..result.prices import check_price
from ..slowdowns.node_names import read_hosts
from ..slowdowns.slowdowns_file import SlowdownTable, read_slowdowns
from .check import warn_of_memory
from .figures import MoneyFacts
from .report import IN_ORDER, PredictionReport

if TYPE_CHECKING:
    from jax import Array

    from ..explain.types import Explanation
    from ..simulate.inputs import KnownGpus

FOREVER_S = 1e9  # 30 years for one operation
FAST = "Predict the distribution alone: no breakdown of the step, no causes of the tail."
ATTRIBUTION = (
    "Share variance and p95 out among their sources (Sobol indices, Shapley values): half a minute, for large jobs one."
)
MOST_HOSTS = 4  # named in a note
METHODS = {"symmetric": "symmetric", "brute-force": "brute_force", "brute_force": "brute_force"}
Slowdowns: TypeAlias = str | Path | Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class PredictionParts:
    """Results from which the picture and the timeline of a prediction are made."""

    job: Job
    distribution: StepTimeDistribution
    explanation: Explanation | None
    slowdowns: SlowdownTable | None = None


@dataclass(frozen=True)
class Measured(OptionGroup):
    """Measurements that a prediction uses.

    Attributes:
        fits: files of `prism-jax fit` or `calibrate` to apply; may be repeated.
        force: use a fit even if its verdict says that it failed.
        use_level: let a fit to the log of this very job (`fit steps`, one configuration) set the level of its step time.
        slowdowns: measured slowdowns of GPUs, nodes or links: a CSV file, or in Python kernel class (or "all", "link", "nic") ->
            device -> factor.
        hosts: hosts of the job in the order of ranks, for slowdowns: a file with a name per line, or names with commas as
            gpu[001-004].
    """

    heading = THE_JOB
    slowdowns: Annotated[Slowdowns | None, Option(metavar="FILE", columns=SLOWDOWNS)] = None
    hosts: Annotated[str | Path | Sequence[str] | None, Option(metavar="FILE")] = None
    fits: Fits = ()
    force: Force = False
    use_level: Annotated[bool, Option("--level/--no-level", key="level")] = True


@dataclass(frozen=True)
class Sampling(OptionGroup):
    """Simulation of the step.

    Attributes:
        method: simulation of replicas: symmetric, or brute-force (every GPU of every replica).
        n_samples: replica columns (symmetric) or steps (brute-force).
        seed: random seed; the same seed gives the same result.
    """

    method: str = "symmetric"
    n_samples: Annotated[int | None, Option("--samples", "N", key="samples", least=1, most=10_000_000)] = None
    seed: Seed = 0


@dataclass(frozen=True)
class SimulatedColumns(OptionGroup):
    """Arguments of `prism_jax.simulate.predict`; None for the default there."""

    n_samples: int | None = None
    method: str = "symmetric"
    known: KnownGpus | None = None
    pad: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """Arguments that are given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


@use_case()
def predict(
    job: JobSource,
    *,
    key: Array | int,
    applied: Applied = Applied(),
    use_level: bool = True,
    columns: SimulatedColumns = SimulatedColumns(),
    progress: Callable[[float], None] | None = None,
) -> StepTimeDistribution:
    """Distribution of the step time of `job` over fleets (which GPUs it gets) and over steps.

    Args:
        job: a Job, a job file, the name of a shipped example, or a mapping of the sections of a file.
        key: typed PRNG key (`jax.random.key(seed)`) or an integer seed; the same key gives the same answer on any number of
            devices.
        applied: files of `prism-jax fit` or `calibrate`, `fits=[...]`; `force=True` uses a fit even where its verdict is failed.
        use_level: let a fit to the log of this very job set the level of its step time.
        columns, progress: `n_samples`, `method`, `known`, `pad` as in `prism_jax.simulate.predict`, None for the default there.

    Raises:
        ConfigError, DataError, FitError: a job, a fit or an option is wrong.

    Example:
        >>> predict("llama3_405b_16384", key=jax.random.key(0)).quantile(0.95)  # doctest: +SKIP
    """
    keep_programs()
    from ..simulate.predict import predict as simulate  # needs JAX, which importing this module does not

    one = partial(simulate, key=key, **columns.given, **({} if progress is None else {"progress": progress}))
    fitted = load_fits(loaded(job), applied.fits, force=applied.force)
    if not use_level or fitted.level is None:
        plain = one(fitted.job)
        told = (*plain.notes, *fitted.tables, *fitted.unused)
        return replace(plain, notes=told) if told != plain.notes else plain
    from .predicted_step import at_log_level

    found = at_log_level(fitted.job, fitted.level, one)
    told = one(found.job)
    notes = (*told.notes, *fitted.tables, *fitted.unused, *((found.note,) if found.note else ()))
    return replace(told, notes=notes)


def predict_many(
    jobs: Sequence[JobSource],
    *,
    key: Array | int,
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
    from ..simulate.batches import predict_many as simulate  # needs JAX, which importing this module does not

    given: dict[str, Any] = {} if n_samples is None else {"n_samples": n_samples}
    own = [load_fits(loaded(job), fits, force=force).job for job in jobs]
    return simulate(own, key=key, progress=progress, **given)


def write_timeline(
    report: PredictionReport,
    trace: Annotated[str | Path | None, Option("--trace", "FILE", heading=OUTPUT, check=check_timeline)] = None,
) -> Message | None:
    """Writes a Perfetto timeline of a median and a p99 step.

    Args:
        report: of `explain_step`.
        trace: write a Perfetto timeline of a median and a p99 step (.json, .json.gz).

    Raises:
        DataError: the file cannot be written.
    """
    if trace is None:
        return None
    from .predicted_step import write_timeline as write  # needs JAX

    parts = report.parts
    write(trace, parts.job, parts.distribution, report.seed, parts.slowdowns)
    return Message(f"wrote {trace}")


@use_case(then=(write_timeline, warn_of_memory))
def explain_step(
    job: JobFile,
    *,
    changes: JobChanges = JobChanges(),
    measured: Measured = Measured(),
    sampling: Sampling = Sampling(),
    explained: Annotated[bool, Option("--fast", help=FAST)] = True,
    attributed: Annotated[bool, Option("--attribution", key="attribution", help=ATTRIBUTION)] = False,
    price_per_gpu_hour: Annotated[float | None, Option("--price", "PRICE", key="price")] = None,
    shared: Together = Together(),
    progress: Progress = silent,
) -> PredictionReport:
    """Predict the distribution of the step time of a job, where it goes and what causes its tail.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        changes: fields of the file to replace.
        measured: fits, calibrations and slowdowns to apply.
        sampling: draws, seed and method of the simulation.
        explained: whether to say where the time goes and what causes the tail, which takes half of the time.
        attributed: whether to share variance and p95 out among their sources, which takes half a minute or more.
        price_per_gpu_hour: price per GPU-hour, for money per step and per million tokens.
        shared: other processes that share the steps of brute force.
        progress: told what is being done.

    Raises:
        ConfigError: the job file is wrong.
        DataError: unknown method, or a file cannot be used.
        FitError: a fit cannot be used.
        SpecError: an operation never ends.

    Example:
        >>> print(explain_step("llama3_405b_16384", seed=1))  # doctest: +SKIP
    """
    keep_programs()
    if sampling.method not in METHODS:
        raise DataError(f"--method: {sampling.method!r} is unknown; known are symmetric and brute-force")
    check_price(price_per_gpu_hour)
    if shared.processes is not None and METHODS[sampling.method] != "brute_force":
        raise DataError("--processes: shares the steps of brute force. Add --method brute-force, or leave it out.")
    with together(shared.processes):
        return _explained(job, changes, measured, sampling, explained, attributed, price_per_gpu_hour, progress)


def _explained(
    job: JobFile,
    changes: JobChanges,
    measured: Measured,
    sampling: Sampling,
    explained: bool,
    attributed: bool,
    price_per_gpu_hour: float | None,
    progress: Progress,
) -> PredictionReport:
    """Arguments as those of `explain_step`, whose processes have met."""
    own, rest = calibrated_job(loaded(job, changes.texts_for(job)), measured.fits)
    _check_finite(step_cost(own.model, own.cluster, own.plan, own.efficiency))
    if attributed and measured.slowdowns is not None:
        raise DataError("--attribution is of GPUs that are drawn, not with --slowdowns; leave out one of both")
    known = None if measured.slowdowns is None else _known(own, measured.slowdowns, measured.hosts)
    fitted = with_variability(own, rest, seed=sampling.seed, force=measured.force, progress=progress)
    if not measured.use_level:
        fitted = replace(fitted, level=None, notes=())
    if known is not None:
        which = (_which_nodes(own, known.hosts),) if known.is_order else ()
        fitted = replace(fitted, notes=(*fitted.notes, *known.notes, *which))
    from .predicted_step import Simulation, simulated  # needs JAX, which mistakes above do not wait for

    method = METHODS[sampling.method]
    asked = Simulation(method, sampling.n_samples, sampling.seed, known, explained, attributed)
    record = noted(method=method, samples=asked.count, job_file=stated_text(job, changes.texts_for(job)))
    check_alike(fitted.job, tuple(fitted.draws), asked)
    report, distribution, explanation = simulated(fitted, asked, record, progress)
    if price_per_gpu_hour is not None:
        report = replace(report, money=_money(report, price_per_gpu_hour))
    return report.made_of(PredictionParts(fitted.job, distribution, explanation, known))


def _money(report: PredictionReport, price_per_gpu_hour: float) -> MoneyFacts:
    """Cost of the mean step."""
    per_step = report.step_time_s.mean / S_PER_HOUR * report.job.n_devices * price_per_gpu_hour
    return MoneyFacts(price_per_gpu_hour, per_step, per_step / report.job.tokens_per_step * MILLION)


def _known(job: Job, slowdowns: Slowdowns, hosts: str | Path | Sequence[str] | None) -> SlowdownTable:
    """Slowdowns as numbers, and the hosts that a file names."""
    listed = () if hosts is None else read_hosts(hosts)
    if isinstance(slowdowns, Mapping):
        return SlowdownTable(slowdowns)
    return read_slowdowns(slowdowns, job.plan.n_devices, job.cluster.node_size, listed)


def _which_nodes(job: Job, hosts: Sequence[str]) -> str:
    """Note on the node of the job that every host was taken for."""
    n_node = -(-job.plan.n_devices // job.cluster.node_size)
    named = ", ".join(f"{host} is node {node}" for node, host in enumerate(hosts[:MOST_HOSTS]))
    more = ", ..." if len(hosts) > MOST_HOSTS else ""
    if len(hosts) == n_node:
        return f"{IN_ORDER}: {named}{more}"
    rest = f"the other {n_node - len(hosts)} of {n_node} nodes are drawn"
    remedy = "If ranks begin on another host, say so by --hosts, or by a column rank"
    return f"{IN_ORDER}: {named}{more}; {rest}. {remedy}"


def _check_finite(cost: StepCost) -> None:
    """Refuses times that single precision cannot hold before they reach the simulation."""
    parts = (cost.compute_s, cost.comm_s, cost.p2p_s, cost.end_compute_s, cost.end_comm_s)
    longest_s = max(float(part.max(initial=0.0)) for part in parts)
    if not longest_s < FOREVER_S:  # NaN too
        raise SpecError(
            f"one operation takes {longest_s:.3g} s. Look for a bandwidth, latency or size that is out of all proportion."
        )

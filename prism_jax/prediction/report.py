"""Reports the distribution of the step time of a job, and why, as text that a performance engineer reads in ten seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

from ..calibration.evidence import Evidence
from ..core.page import Block, Card, Facts, Note, Table
from ..core.readable import counted, percent, prob, time_to, time_with_error, times_to, with_error
from ..core.report import WHERE_KNOWN, Report, RunRecord
from ..core.units import format_s
from ..explain.types import Attribution, GivenSlowdowns
from ..result.distribution import Guarantee, StepCurve
from ..workload.transformer.routing import DroppedTokens
from .check_report import assumed, assumption_blocks, memory_block, memory_verdict
from .explained import attribution_blocks, breakdown_blocks, given_blocks, owner_bars
from .figures import (
    AllocationFacts,
    Elapsed,
    FitBand,
    JobFacts,
    LevelFacts,
    ModelBand,
    MoneyFacts,
    PublishedFigure,
    StepTime,
    StepTimeError,
    TailFacts,
    WholeMatrix,
)
from .job_facts import HostFacts, MemoryFacts, OpenFieldFacts


@dataclass(frozen=True)
class PredictionReport(Report):
    """Distribution of the step time of a job, where the time goes, and what makes the tail.

    Attributes:
        step_time_s, mc_error_s: over fleets and steps, and the Monte Carlo error.
        model_band_s: what the calibration of the cost model leaves open.
        deterministic_s: without any variability.
        gpu_active_s: of a device of the pipeline stage that works longest: kernels, and communication without other work at the
            same time.
        host_s: of its host, which starts them; none of what a CUDA graph starts.
        naive_sum_s: both, hidden communication and transfers one after another, without any overlap: the baseline.
        host_bound: whether the host takes longer to start the passes than the device to run them.
        mfu, hfu, tflops_per_gpu, tokens_per_s_per_gpu: at the median step; of causal attention half of the matrix counts, or what
            a window leaves of it.
        published: figures that the job states, with what is predicted of them; absent where it states none.
        whole_matrix: the same with the whole matrix of scores, as Megatron-LM counted until 2025; absent where both are one.
        dropped_share: of the experts that tokens choose, those that are full; absent without a capacity factor and routing.
        breakdown_s: part of the step -> seconds of the mean step, average GPU.
        criticality: op class -> share of the critical path.
        p95_owner_s: kernel class or shared factor -> seconds by which p95 falls without its variability; `given_slowdowns`: with
            other GPUs, drawn, in the place of those whose slowdowns are given; `given_links`: with other links.
        fleet_share: share of the variance that lies between allocations: which GPUs the job gets. May pass 1 by its error.
        allocation: the spreads within one allocation and between allocations. Without an explanation (`--fast`) these two are
            None, and `breakdown_s`, `criticality` and `p95_owner_s` are empty.
        guarantee: None where too little was simulated for one; `notes` says so. With `tail`, it and `prob_slower` are of a system
            that was not measured.
        prob_slower: fraction above the median, as text -> probability.
        tail_columns: effective number of samples beyond the p95.
        level: of the job by its own log; absent where none was used.
        open_fields: what the job leaves unsaid, the field that widens `model_band_s` most in front.
        evidence: measured runs near the job, which decide how wide `model_band_s` is.
        criticality_mc_error, p95_owner_mc_error_s: Monte Carlo standard errors of `criticality` and `p95_owner_s`.
        attribution: shares of the sources in the variance and in p95, and what they only do together; absent unless asked for.
        given: what given slowdowns of GPUs cost; absent where none are given.
        money: absent without a price.
        epistemic_s: what applied fits leave open; absent without fits of variability.
        tail: how far tails of systems differ from a preset of variability; absent where a fit or the job says how steps vary.
        curve: of the step time, for pictures; absent in reports of versions before 0.2.
    """

    kind: ClassVar[str] = "prediction"
    picture: ClassVar[str] = "prism_jax.prediction.picture:draw_prediction"

    job: JobFacts
    step_time_s: StepTime
    model_band_s: ModelBand
    mc_error_s: StepTimeError
    deterministic_s: float
    gpu_active_s: float
    host_s: float
    naive_sum_s: float
    host_bound: bool
    mfu: float
    hfu: float
    tflops_per_gpu: float
    tokens_per_s_per_gpu: float
    memory_bytes_per_gpu: MemoryFacts
    fits: bool
    breakdown_s: Mapping[str, float]
    criticality: Mapping[str, float]
    p95_owner_s: Mapping[str, float]
    fleet_share: float | None
    allocation: AllocationFacts | None
    guarantee: Guarantee | None
    prob_slower: Mapping[str, float]
    method: str
    n_samples: int
    tail_columns: float
    notes: tuple[str, ...]
    seed: int
    elapsed_s: Elapsed
    record: RunRecord
    level: Annotated[LevelFacts | None, WHERE_KNOWN] = None
    money: Annotated[MoneyFacts | None, WHERE_KNOWN] = None
    epistemic_s: Annotated[FitBand | None, WHERE_KNOWN] = None
    tail: Annotated[TailFacts | None, WHERE_KNOWN] = None
    open_fields: tuple[OpenFieldFacts, ...] = ()
    evidence: Annotated[Evidence | None, WHERE_KNOWN] = None
    criticality_mc_error: Mapping[str, float] = field(default_factory=dict)
    p95_owner_mc_error_s: Mapping[str, float] = field(default_factory=dict)
    attribution: Annotated[Attribution | None, WHERE_KNOWN] = None
    given: Annotated[GivenSlowdowns | None, WHERE_KNOWN] = None
    host_memory_bytes_per_node: Annotated[HostFacts | None, WHERE_KNOWN] = None
    dropped_share: Annotated[DroppedTokens | None, WHERE_KNOWN] = None
    whole_matrix: Annotated[WholeMatrix | None, WHERE_KNOWN] = None
    published: Annotated[tuple[PublishedFigure, ...] | None, WHERE_KNOWN] = None
    curve: Annotated[StepCurve | None, WHERE_KNOWN] = None

    @property
    def fullest_stage(self) -> int | None:
        """The pipeline stage that needs most memory; None where it is not told."""
        return self.memory_bytes_per_gpu.stage

    def card(self) -> Card:
        verdict, tone = memory_verdict(self.memory_bytes_per_gpu, fits=self.fits)
        memory = self.memory_bytes_per_gpu.words
        return Card(
            self.job.title,
            f"{verdict} {_median(self)}",
            tone,
            facts={"interval": _why_wide(self), "spread": _variation(self), "speed": _speed(self), "memory": memory},
            evidence=_evidence(self),
            assumptions=_order(self) + assumed(self.open_fields, is_fitted=bool(self.record.inputs.get("fit"))),
            next_step=_next(self),
        )

    def blocks(self) -> Sequence[Block]:
        error_s = None if self.given is None else self.p95_owner_mc_error_s
        return [
            Facts("Job", job_values(self.job)),
            *_quantiles(self),
            Facts("Rates at the median step", _rates(self)),
            memory_block(self.memory_bytes_per_gpu, self.host_memory_bytes_per_node),
            *breakdown_blocks(self.breakdown_s, self.criticality),
            owner_bars(self.p95_owner_s, error_s, self.step_time_s.p95),
            *attribution_blocks(self.attribution),
            *given_blocks(self.given),
            *assumption_blocks(self.evidence, self.open_fields, self.notes),
            Note(_footer(self)),
        ]


FIRST = ("mfu", "step_s", "tflops_per_gpu")  # of several published figures
ROOM = 68  # columns behind the names of a card
MEASURABLE_S = 1e-4  # shorter phases did not run
ROUNDING = 1e-7  # relative; a standard deviation below is float32 noise


def _varies(times: StepTime) -> bool:
    return times.p95 > times.p50 * (1.0 + 1e-6)


def _smallest_s(report: PredictionReport) -> float:
    """Seconds that the digits of quantiles go down to: what the model leaves open, and far enough to tell p95 from p50."""
    times, band = report.step_time_s, report.model_band_s
    widest = max(0.1 * (band.p95 - band.p5), report.mc_error_s.p50, 1e-4 * times.p50)
    return min(widest, 0.5 * (times.p95 - times.p50)) if _varies(times) else widest


def _median(report: PredictionReport) -> str:
    """The median step, and the interval in which it would be measured."""
    times, band, smallest_s = report.step_time_s, report.model_band_s, _smallest_s(report)
    width_s = band.p95 - band.p5
    name = "Step p50" if _varies(times) else "Every step takes"
    between = f" (90%: {times_to((band.p5, band.p95), 0.1 * width_s)})" if width_s > 1e-7 * times.p50 else ""
    return f"{name} {time_to(times.p50, smallest_s)}{between}."


def _why_wide(report: PredictionReport) -> str:
    """Why the interval of the median is wider than usual."""
    reasons = report.evidence.why_wide if report.evidence is not None and report.level is None else ""
    words = f"wide: {reasons}; a log of yours narrows it"
    return words if reasons and len(words) <= ROOM else f"wide: {reasons}" if reasons else ""


def _variation(report: PredictionReport) -> str:
    """Distance of upper quantiles from the median, in seconds and in per cent."""
    times, smallest_s = report.step_time_s, _smallest_s(report)
    upper = ((name, getattr(times, name)) for name in ("p95", "p99"))
    parts = (f"{n} {time_to(v, smallest_s)} ({percent(v / times.p50 - 1.0, sign=True)})" for n, v in upper)
    return f"from step to step: {', '.join(parts)}" if _varies(times) else ""


IN_ORDER = "hosts are nodes in the order of the table of slowdowns"


def _order(report: PredictionReport) -> tuple[str, ...]:
    """The assumption that a table of slowdowns lists the first hosts of the job, where it is made."""
    return (f"{IN_ORDER}; --hosts names others",) if any(note.startswith(IN_ORDER) for note in report.notes) else ()


def _speed(report: PredictionReport) -> str:
    whole = f" (causal), {percent(report.whole_matrix.mfu)} (full)" if report.whole_matrix else ""
    rate = f"{report.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU"
    return f"{rate}; MFU {percent(report.mfu)}{whole}{_published(report)}"


def _published(report: PredictionReport) -> str:
    """The first published figure that the job file states."""
    published = {one.name: one for one in report.published or ()}
    one = next((published[name] for name in (*FIRST, *published) if name in published), None)
    return "" if one is None else f"; published {one.figure}"


def _evidence(report: PredictionReport) -> str:
    if report.level is not None:
        level = report.level
        return f"the log of this job: {level.n_steps:,} steps, {percent(level.factor - 1.0, sign=True)} against the cost model"
    return "none" if report.evidence is None else report.evidence.short


def _next(report: PredictionReport) -> str:
    file = report.record.inputs.get("job")
    named = file if isinstance(file, str) and file else report.job.name
    if report.fits and report.level is None:
        return "prism-jax calibrate --log job.yaml=run.log"
    return f"prism-jax search {named} finds {'faster plans' if report.fits else 'plans that fit'}"


def job_values(job: JobFacts) -> dict[str, str]:
    """Names and values of a job."""
    pipeline = job.schedule if job.pp > 1 else "no pipeline"
    return {
        "model": job.model,
        "cluster": f"{job.n_devices:,} x {job.device} ({job.cluster})",
        "plan": f"{job.axes}, {pipeline}, {counted(job.n_micro_batch, 'micro-batch')}, {job.dtype}",
        "batch": f"{job.tokens_per_step:,} {job.sample_unit} per step",
        "framework": job.framework or "not stated: the average of frameworks",
        "variability": job.variability,
    }


def _quantiles(report: PredictionReport) -> list[Block]:
    """Quantiles with Monte Carlo error, moments, the guarantee, and chances of a slow step."""
    times, errors, fixed = report.step_time_s, report.mc_error_s, report.deterministic_s
    if times.std <= ROUNDING * times.mean:
        return [Note(f"Every step takes {format_s(times.p50, 5)}: the job has no variability.")]
    chances = (f"{float(fraction):.0%}: {prob(p)}" for fraction, p in report.prob_slower.items())
    facts = {
        "mean": f"{time_to(times.mean, times.std / 10)}, standard deviation {time_to(times.std, times.std / 10)}",
        **_spreads(report),
        "no variability": f"{time_to(fixed, times.std / 10)}; the median lies {_relative(times.p50 / fixed - 1.0)}",
        "bound": report.guarantee.sentence() if report.guarantee else "",
        "slower steps": f"chance of a step slower than the median by {', by '.join(chances)}",
        "level of the log": _level(report.level),
        "measured": _tail(report),
    }
    columns = {
        "quantile": lambda name: name,
        "step time": lambda name: time_with_error(getattr(times, name), getattr(errors, name)),
        "over p50": lambda name: "" if name == "p50" else percent(getattr(times, name) / times.p50 - 1.0, sign=True),
        "on 90% of systems": lambda name: _on_systems(report.tail, name),
        "90% interval of the fit": lambda name: _of_fit(report.epistemic_s, name),
    }
    title = "Step time if the cost model is exact (± Monte Carlo error)"
    return [Table.of(title, ("p50", "p95", "p99"), columns), Facts("", facts)]


def _on_systems(tail: TailFacts | None, name: str) -> str:
    """Distance of an upper quantile from the median on 90% of systems."""
    if tail is None or name == "p50":
        return ""
    over = getattr(tail.over_p50, name)
    return f"{percent(over.low, sign=True)} to {percent(over.high, sign=True)}"


def _of_fit(bands: FitBand | None, name: str) -> str:
    """Interval of a quantile by what the applied fits leave open."""
    if bands is None:
        return ""
    own = getattr(bands, name)
    return f"{format_s(own.low, 5)} to {format_s(own.high, 5)}"


def _spreads(report: PredictionReport) -> dict[str, str]:
    """Spread of the steps of one allocation, and spread between allocations."""
    spread, share = report.allocation, report.fleet_share
    if spread is None or share is None:
        return {}
    part = "0%" if share == 0.0 else "{} ± {}%".format(*with_error(100.0 * share, 100.0 * spread.share_mc_error))
    within = f"standard deviation {format_s(spread.within_s, 2)} from step to step"
    return {
        "one allocation": f"{within}, p95 {time_with_error(spread.p95_s, spread.p95_mc_error_s)}",
        "allocations": f"standard deviation {format_s(spread.between_s, 2)} of the mean step, {part} of the variance",
    }


def _level(level: LevelFacts | None) -> str:
    """The factor of this job's own log, and what it is from."""
    if level is None:
        return ""
    factor, error = with_error(level.factor, level.factor_sd)
    return (
        f"x {factor} ± {error} ({level.file}: {level.statistic} of {level.n_steps:,} steps {format_s(level.measured_s)}, "
        f"predicted {format_s(level.predicted_s)} without it; --no-level leaves it out)"
    )


def _relative(share: float) -> str:
    """Share in words, such as "1.4% above"; a skewed factor of mean one, such as a network regime, can put the median below."""
    return f"{percent(abs(share))} {'above' if share >= 0.0 else 'below'}"


def _tail(report: PredictionReport) -> str:
    """Upper quantiles that would be measured: the spread of systems and what the cost model leaves open together."""
    if report.tail is None:
        return ""
    own = ((name, getattr(report.tail.measured_s, name)) for name in ("p95", "p99"))
    bounds = ", ".join(f"{name} {format_s(one.low, 3)} to {format_s(one.high, 3)}" for name, one in own)
    return f"90% intervals of a measured p95 and p99, model error included: {bounds}"


def _rates(report: PredictionReport) -> dict[str, str]:
    recompute = f"; with recomputation {percent(report.hfu)} (HFU)" if report.hfu > 1.001 * report.mfu else ""
    active, host, naive = (format_s(one, 3) for one in (report.gpu_active_s, report.host_s, report.naive_sum_s))
    bound = "CPU-bound" if report.host_bound else "GPU-bound"
    return {
        "throughput": f"{report.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU",
        "MFU": f"{percent(report.mfu)}, {report.tflops_per_gpu:.0f} TFLOP/s per GPU{recompute}",
        "whole attention": _whole_matrix(report.whole_matrix),
        **{f"published {one.name}": one.sentence for one in report.published or ()},
        "GPU and CPU": f"GPU busy {active}, CPU launches {host}: {bound}; without any overlap {naive}",
        "dropped": _dropped(report.dropped_share),
        "money": _money(report.money, report.job.sample_unit),
    }


def _whole_matrix(whole: WholeMatrix | None) -> str:
    if whole is None:
        return ""
    rate = f"{percent(whole.mfu)}, {whole.tflops_per_gpu:.0f} TFLOP/s per GPU"
    return f"{rate}, by Megatron-LM's count until 2025, masked scores included"


def _dropped(drop: DroppedTokens | None) -> str:
    if drop is None:
        return ""
    upper = f"p95 {drop.p95:.1%} over layers and micro-batches"
    return f"{drop.mean:.1%} of the experts that tokens choose are full, {upper}"


def _money(own: MoneyFacts | None, unit: str) -> str:
    if own is None:
        return ""
    return f"{own.per_step:.4g} per step, {own.per_mtoken:.4g} per million {unit}, at {own.price_per_gpu_hour:g} per GPU-hour"


def _footer(report: PredictionReport) -> str:
    times = ((name, value) for name, value in asdict(report.elapsed_s).items() if value >= MEASURABLE_S)
    elapsed = ", ".join(f"{name} {format_s(value, 2)}" for name, value in times)
    return f"{report.method.replace('_', ' ')}, {report.n_samples:,} samples, seed {report.seed}; {elapsed}"

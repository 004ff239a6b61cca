"""Reports the distribution of the step time of a job, and why, as text that a performance engineer reads in ten seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Annotated, ClassVar

from ..calibration.evidence import Evidence
from ..core.report import WHERE_KNOWN, Report, RunRecord
from ..core.text_table import decimals, prob, time_to, time_with_error, uncertain_memory, unit_of_time, with_error
from ..core.units import format_bytes, format_s
from ..explain.types import GivenSlowdowns
from ..result.distribution import Guarantee
from ..workload.transformer.routing import DroppedTokens
from .check_report import TOLD, HostFacts, MemoryFacts, OpenFieldFacts
from .explained import breakdown_lines, given_lines, owner_lines


@dataclass(frozen=True)
class JobFacts:
    """Names and sizes of a job."""

    name: str
    model: str
    cluster: str
    device: str
    variability: str
    framework: str
    n_devices: int
    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    schedule: str
    virtual_stages: int
    n_micro_batch: int
    tokens_per_step: int
    sample_unit: str
    dtype: str


@dataclass(frozen=True)
class StepTime:
    """Mean, standard deviation and quantiles of the step time, in the unit of the field that holds them."""

    mean: float
    std: float
    p5: float
    p50: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True)
class StepTimeError:
    """Monte Carlo standard error of each quantile."""

    p5: float
    p50: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True)
class ModelBand:
    """Quantiles of the median step that would be measured, given all that the cost model does not know."""

    p5: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Bounds:
    """An interval."""

    low: float
    high: float


@dataclass(frozen=True)
class FitBand:
    """90 % interval of each quantile over what a fit leaves open."""

    p5: Bounds
    p50: Bounds
    p95: Bounds
    p99: Bounds
    p999: Bounds


@dataclass(frozen=True)
class TailQuantiles:
    """90 % intervals of the upper quantiles."""

    p95: Bounds
    p99: Bounds


@dataclass(frozen=True)
class TailFacts:
    """90 % intervals of quantiles of the step time on a system that was not measured, from the spread between measured ones.

    Attributes:
        over_p50: quantile over the median, minus 1.
        measured_s: quantile that would be measured, seconds: the same and the error of the cost model together.
    """

    over_p50: TailQuantiles
    measured_s: TailQuantiles


@dataclass(frozen=True)
class LevelFacts:
    """The level of a job from its own log: what was predicted without the log, times a factor, is what was measured.

    Attributes:
        file: the fit of the log.
        statistic: of the steps: median; mean where the log holds means over several steps.
        measured_s, predicted_s: that of the log, and of the prediction without it.
        factor: measured over predicted.
        factor_sd: standard deviation of the factor: steps that were sampled, another run, other GPUs.
        n_steps: logged.
    """

    file: str
    statistic: str
    measured_s: float
    predicted_s: float
    factor: float
    factor_sd: float
    n_steps: int


@dataclass(frozen=True)
class MoneyFacts:
    """What the mean step costs, in the currency of the price of a GPU-hour; `per_mtoken`: of a million tokens (samples)."""

    price_per_gpu_hour: float
    per_step: float
    per_mtoken: float


@dataclass(frozen=True)
class AllocationFacts:
    """Spread of the step time within one allocation of GPUs and between allocations.

    Attributes:
        between_s: standard deviation of an allocation's mean step over allocations.
        within_s: standard deviation from step to step within one allocation, root mean square over allocations.
        p95_s: p95 of the steps within a typical allocation.
        p95_mc_error_s: its Monte Carlo standard error.
        share_mc_error: Monte Carlo standard error of `fleet_share`.
    """

    between_s: float
    within_s: float
    p95_s: float
    p95_mc_error_s: float
    share_mc_error: float


@dataclass(frozen=True)
class Elapsed:
    """Wall-clock seconds of the parts of a prediction."""

    compile: float
    run: float
    explain: float


@dataclass(frozen=True)
class WholeMatrix:
    """Rates at the median step if every query is counted with all keys of its sequence.

    Attributes:
        mfu: of the peak, 0-1.
        tflops_per_gpu: 10^12 FLOP/s.
    """

    mfu: float
    tflops_per_gpu: float


@dataclass(frozen=True)
class PublishedFigure:
    """A figure that the job file states, and what is predicted of it.

    Attributes:
        name: field of the section `published`.
        published, predicted: in that field's unit.
        whole_matrix: predicted with the whole matrix of scores; None where that is no other number.
    """

    name: str
    published: float
    predicted: float
    whole_matrix: float | None = None

    @property
    def sentence(self) -> str:
        """Both next to each other, with the difference."""
        number, unit = _FIGURES[self.name]

        def against(value: float) -> str:
            return f"{number(value)} ({value / self.published - 1.0:+.1%})"

        whole = "" if self.whole_matrix is None else f", by Megatron-LM's count {against(self.whole_matrix)}"
        return f"published {number(self.published)}{unit}: predicted {against(self.predicted)}{whole}"


_FIGURES: dict[str, tuple[Callable[[float], str], str]] = {
    "step_s": (lambda value: format_s(value, 4), " per step"),
    "tflops_per_gpu": (lambda value: f"{value:.0f}", " TFLOP/s per GPU"),
    "mfu": (lambda value: f"{value:.1%}", " MFU"),
    "tokens_per_s_per_gpu": (lambda value: f"{value:,.0f}", " per second and GPU"),
}


@dataclass(frozen=True)
class PredictionReport(Report):
    """Distribution of the step time of a job, where the time goes, and what owns the tail.

    Attributes:
        step_time_s, mc_error_s: over fleets and steps, and the Monte Carlo error.
        model_band_s: what the calibration of the cost model leaves open.
        deterministic_s: without any variability.
        gpu_active_s: of a device of the pipeline stage that works longest: kernels, and communication that nothing runs beside.
        host_s: of its host, which starts them; none of what a CUDA graph starts.
        naive_sum_s: both, hidden communication and transfers one after another, as if nothing ran beside anything: the baseline.
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
        given: what given slowdowns of GPUs cost; absent where none are given.
        money: absent without a price.
        epistemic_s: what applied fits leave open; absent without fits of variability.
        tail: how far tails of systems differ from a preset of variability; absent where a fit or the job says how steps vary.
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
    given: Annotated[GivenSlowdowns | None, WHERE_KNOWN] = None
    host_memory_bytes_per_node: Annotated[HostFacts | None, WHERE_KNOWN] = None
    dropped_share: Annotated[DroppedTokens | None, WHERE_KNOWN] = None
    whole_matrix: Annotated[WholeMatrix | None, WHERE_KNOWN] = None
    published: Annotated[tuple[PublishedFigure, ...] | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        blocks = [
            _headline(self),
            _quantiles(self),
            [*_rates(self), *_dropped(self), _busy(self), *_money(self)],
            _memory(self),
            breakdown_lines(self.breakdown_s, self.criticality),
            owner_lines(
                self.p95_owner_s, None if self.given is None else self.p95_owner_mc_error_s, self.step_time_s.p95
            ),
            given_lines(self.given),
            _footer(self),
        ]
        lines = [line.rstrip() for block in blocks if block for line in (*block, "")]
        return lines[:-1]


LINE = 110  # characters, of sentences
MEASURABLE_S = 1e-4  # shorter phases did not run
ROUNDING = 1e-7  # relative; a standard deviation below is float32 noise
NO_FRAMEWORK = "  framework not specified, using the average; set `framework:` in the job file for a narrower interval"


def _headline(report: PredictionReport) -> list[str]:
    job = report.job
    axes = (
        " x ".join(f"{axis} {getattr(job, axis)}" for axis in ("tp", "cp", "pp", "dp") if getattr(job, axis) > 1)
        or "one device"
    )
    expert = f", ep {job.ep}" if job.ep > 1 else ""
    schedule = f", {job.schedule}" if job.pp > 1 else ""
    n = job.n_micro_batch
    return [
        f"{job.name}: {job.model} on {job.n_devices:,} x {job.device} ({job.cluster})",
        f"{axes}{expert}{schedule}, {n:,} micro-batch{'es' if n > 1 else ''}, {job.tokens_per_step:,} {job.sample_unit} per step",
    ]


def _quantiles(report: PredictionReport) -> list[str]:
    """Quantiles with Monte Carlo error, moments, the guarantee, and chances of a slow step."""
    times, errors, fixed = report.step_time_s, report.mc_error_s, report.deterministic_s
    if times.std <= ROUNDING * times.mean:
        return [f"every step takes {format_s(times.p50, 5)}: the job has no variability", *_model_band(report)]
    chances = (f"{float(fraction):.0%}: {prob(p)}" for fraction, p in report.prob_slower.items())
    return [
        "step time",
        *_model_band(report),
        *(
            f"  {name:<5} {time_with_error(getattr(times, name), getattr(errors, name)):<22}"
            f"{_over(times, name)}{_band(report, name)}"
            for name in ("p50", "p95", "p99")
        ),
        *_tail(report),
        f"  mean  {time_to(times.mean, times.std / 10)}, std {time_to(times.std, times.std / 10)}",
        *_spreads(report),
        f"  without variability {time_to(fixed, times.std / 10)}; the median lies {_beside(times.p50 / fixed - 1.0)}",
        *([f"  {report.guarantee.sentence()}"] if report.guarantee else []),
        f"  chance of a step slower than the median by {', by '.join(chances)}",
    ]


def _spreads(report: PredictionReport) -> list[str]:
    """How far steps of one allocation vary, and how far allocations differ."""
    spread, share = report.allocation, report.fleet_share
    if spread is None or share is None:
        return []
    part = (
        f"{share:.0%}"
        if share == 0.0
        else "{} ± {} %".format(*with_error(100.0 * share, 100.0 * spread.share_mc_error))
    )
    return [
        f"  within one allocation of GPUs: std {format_s(spread.within_s, 2)} from step to step, "
        f"p95 {time_with_error(spread.p95_s, spread.p95_mc_error_s)}",
        f"  between allocations: std {format_s(spread.between_s, 2)} of the mean step, {part} of the variance",
    ]


def _model_band(report: PredictionReport) -> list[str]:
    """What to expect of a measurement: the median, and what the cost model leaves open."""
    times, band = report.step_time_s, report.model_band_s
    if band.p95 - band.p5 <= ROUNDING * times.p50:
        return []
    scale, unit = unit_of_time(times.p50)
    digits = decimals(scale * (band.p95 - band.p5) / 10)
    low, high = (f"{scale * getattr(band, name):.{digits}f}" for name in ("p5", "p95"))
    middle = f"{scale * times.p50:.{decimals(scale * times.p50 / 100)}f}"
    lines = [f"  expected median {middle} {unit} (90 % model interval {low} to {high} {unit})"]
    if report.level is not None:
        lines.append(_level(report.level))
    elif not report.job.framework:
        lines.append(NO_FRAMEWORK)
    known = report.evidence.known if report.evidence is not None else ""
    sentences = [*([f"evidence: {known}"] if known else []), *(one.sentence for one in report.open_fields[:TOLD])]
    return lines + [
        line for one in sentences for line in wrap(one, LINE, initial_indent="  ", subsequent_indent="    ")
    ]


def _level(level: LevelFacts) -> str:
    factor, error = with_error(level.factor, level.factor_sd)
    return (
        f"  level from the log: x {factor} ± {error} ({level.file}: {level.statistic} of {level.n_steps:,} steps "
        f"{format_s(level.measured_s)}, predicted {format_s(level.predicted_s)} without it; --no-level leaves it out)"
    )


def _beside(share: float) -> str:
    """As "1.4% above"; a skewed factor of mean one, such as a network regime, can put the median below."""
    return f"{abs(share):.1%} {'above' if share >= 0.0 else 'below'}"


def _over(times: StepTime, name: str) -> str:
    return f"{getattr(times, name) / times.p50 - 1.0:+.1%} over p50" if name != "p50" else ""


def _band(report: PredictionReport, name: str) -> str:
    """What the fits leave open, where there are any; else what tails of systems do."""
    if report.tail is not None and name != "p50":
        over = getattr(report.tail.over_p50, name)
        return f" ({over.low:+.1%} to {over.high:+.1%} on 90 % of systems)"
    band = None if report.epistemic_s is None else getattr(report.epistemic_s, name)
    return f"   ({format_s(band.low, 5)} to {format_s(band.high, 5)}, 90 % interval of the fit)" if band else ""


def _tail(report: PredictionReport) -> list[str]:
    """Upper quantiles that would be measured: the spread of systems and what the cost model leaves open together."""
    if report.tail is None:
        return []
    own = ((name, getattr(report.tail.measured_s, name)) for name in ("p95", "p99"))
    bounds = ", ".join(f"{name} {format_s(one.low, 3)} to {format_s(one.high, 3)}" for name, one in own)
    return [f"  90 % intervals of what would be measured, with the model interval: {bounds}"]


def _rates(report: PredictionReport) -> list[str]:
    rates = f"{report.tflops_per_gpu:.0f} TFLOP/s per GPU, {report.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU"
    recompute = f" (HFU {report.hfu:.1%})" if report.hfu > 1.001 * report.mfu else ""
    lines = [f"at the median: MFU {report.mfu:.1%}{recompute}, {rates}"]
    if whole := report.whole_matrix:
        counted = f"MFU {whole.mfu:.1%}, {whole.tflops_per_gpu:.0f} TFLOP/s per GPU"
        lines.append(f"  by Megatron-LM's count until 2025, masked scores included: {counted}")
    return lines + [f"  {one.sentence}" for one in report.published or ()]


def _dropped(report: PredictionReport) -> list[str]:
    own = report.dropped_share
    over = "over layers and micro-batches"
    return (
        []
        if own is None
        else [f"experts drop {own.mean:.1%} of what tokens choose in the mean, p95 {own.p95:.1%} {over}"]
    )


def _busy(report: PredictionReport) -> str:
    """Device, host, and both in a row."""
    active, host, naive = (format_s(one, 3) for one in (report.gpu_active_s, report.host_s, report.naive_sum_s))
    decides = "the host decides" if report.host_bound else "the device decides"
    return f"GPU active {active}, host {host}: {decides}; without any overlap {naive}"


def _money(report: PredictionReport) -> list[str]:
    """What the mean step costs."""
    own = report.money
    if own is None:
        return []
    unit = report.job.sample_unit
    told = f"money {own.per_step:.4g} per step, {own.per_mtoken:.4g} per million {unit}"
    return [f"{told}, at {own.price_per_gpu_hour:g} per GPU-hour"]


def _memory(report: PredictionReport) -> list[str]:
    memory = report.memory_bytes_per_gpu
    total, capacity = format_bytes(memory.total, 3), format_bytes(memory.capacity, 3)
    left = format_bytes(abs(memory.headroom), 3)
    verdict = f"fits, {left} left" if memory.headroom >= 0.0 else f"DOES NOT FIT, {left} over"
    host = report.host_memory_bytes_per_node
    parts = sorted(((size, name) for name, size in memory.parts.items() if size > 0), reverse=True)
    listed = ", ".join(f"{name} {format_bytes(size, 3)}" for size, name in parts[:4])
    return [
        f"memory {total} of {capacity} on stage {memory.stage}, the fullest: {verdict}",
        f"  {uncertain_memory((memory.low, memory.high), memory.not_fit_prob)}",
        f"  {listed}",
        *([f"  on the host {host.sentence}"] if host else []),
    ]


def _footer(report: PredictionReport) -> list[str]:
    elapsed = ", ".join(
        f"{name} {format_s(value, 2)}" for name, value in asdict(report.elapsed_s).items() if value >= MEASURABLE_S
    )
    done = f"{report.method.replace('_', ' ')}, {report.n_samples:,} samples, seed {report.seed}; {elapsed}"
    return [*(f"note: {note}" for note in report.notes), done]

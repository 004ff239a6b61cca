"""Reports the distribution of the step time of a job, and why, as text that a performance engineer reads in ten seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

from ..calibration.evidence import Evidence
from ..core.page import Block, Card, Facts, Note, Table, more
from ..core.report import WHERE_KNOWN, Report, RunRecord
from ..core.text_table import percent, prob, time_to, time_with_error, times_to, with_error
from ..core.units import format_s
from ..explain.types import Attribution, GivenSlowdowns
from ..result.curve import StepCurve
from ..result.distribution import Guarantee
from ..workload.transformer.routing import DroppedTokens
from .check_report import HostFacts, MemoryFacts, OpenFieldFacts, assumed, assumption_blocks, memory_block
from .explained import attribution_blocks, breakdown_blocks, given_blocks, owner_blocks
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

    def card(self) -> Card:
        return prediction_card(self)

    def blocks(self) -> Sequence[Block]:
        found: list[Block] = [
            Facts("Job", job_values(self.job)),
            *_quantiles(self),
            Facts("Rates at the median step", _rates(self)),
            memory_block(self.memory_bytes_per_gpu, self.host_memory_bytes_per_node),
            *breakdown_blocks(self.breakdown_s, self.criticality),
            *owner_blocks(
                self.p95_owner_s, None if self.given is None else self.p95_owner_mc_error_s, self.step_time_s.p95
            ),
            *attribution_blocks(self.attribution),
            *given_blocks(self.given),
            *assumption_blocks(self.evidence, self.open_fields, self.notes),
            Note(_footer(self)),
        ]
        return found


FIRST = ("mfu", "step_s", "tflops_per_gpu")  # of several published figures
ROOM = 68  # columns behind the names of a card
MEASURABLE_S = 1e-4  # shorter phases did not run
ROUNDING = 1e-7  # relative; a standard deviation below is float32 noise


def prediction_card(report: PredictionReport) -> Card:
    """The first screen of `predict`."""
    job, memory = report.job, report.memory_bytes_per_gpu
    verdict, tone = memory.verdict(fits=report.fits)
    return Card(
        title=job.title,
        verdict=f"{verdict} {_median(report)}",
        tone=tone,
        facts={**_why_wide(report), **_variation(report), "speed": _speed(report), "memory": memory.words},
        evidence=_evidence(report),
        assumptions=assumed(report.open_fields),
        next_step=_next(report),
    )


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


def _why_wide(report: PredictionReport) -> dict[str, str]:
    """Why the interval of the median is wider than usual."""
    reasons = report.evidence.why_wide if report.evidence is not None and report.level is None else ""
    words = f"wide: {reasons}; a log of yours narrows it"
    return {"interval": words if len(words) <= ROOM else f"wide: {reasons}"} if reasons else {}


def _variation(report: PredictionReport) -> dict[str, str]:
    """Distance of upper quantiles from the median, in seconds and in per cent."""
    times, smallest_s = report.step_time_s, _smallest_s(report)
    if not _varies(times):
        return {}
    upper = ((name, getattr(times, name)) for name in ("p95", "p99"))
    parts = (f"{n} {time_to(v, smallest_s)} ({percent(v / times.p50 - 1.0, sign=True)})" for n, v in upper)
    return {"spread": f"from step to step: {', '.join(parts)}"}


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
    job = report.record.inputs.get("job")
    file = job if isinstance(job, str) and job else report.job.name
    if not report.fits:
        return f"prism-jax search {file} finds plans that fit; {more(report.notes)}"
    if report.level is None:
        return f"prism-jax calibrate --log job.yaml=run.log; {more(report.notes)}"
    return f"prism-jax search {file} finds faster plans; {more(report.notes)}"


def job_values(job: JobFacts) -> dict[str, str]:
    """Names and values of a job."""
    n = job.n_micro_batch
    return {
        "model": job.model,
        "cluster": f"{job.n_devices:,} x {job.device} ({job.cluster})",
        "plan": f"{job.axes}, {job.schedule if job.pp > 1 else 'no pipeline'}, {n:,} micro-batch{'es' * (n > 1)}, {job.dtype}",
        "batch": f"{job.tokens_per_step:,} {job.sample_unit} per step",
        "framework": job.framework or "not stated: the average of frameworks",
        "variability": job.variability,
    }


def _quantiles(report: PredictionReport) -> list[Block]:
    """Quantiles with Monte Carlo error, moments, the guarantee, and chances of a slow step."""
    times, errors, fixed = report.step_time_s, report.mc_error_s, report.deterministic_s
    if times.std <= ROUNDING * times.mean:
        return [Note(f"Every step takes {format_s(times.p50, 5)}: the job has no variability.")]
    columns = ["quantile", "step time", "over p50", *(["on 90% of systems"] if report.tail else [])]
    columns += ["90% interval of the fit"] if report.epistemic_s else []
    chances = (f"{float(fraction):.0%}: {prob(p)}" for fraction, p in report.prob_slower.items())
    facts = {
        "mean": f"{time_to(times.mean, times.std / 10)}, standard deviation {time_to(times.std, times.std / 10)}",
        **_spreads(report),
        "no variability": f"{time_to(fixed, times.std / 10)}; the median lies {_relative(times.p50 / fixed - 1.0)}",
        **({"bound": report.guarantee.sentence()} if report.guarantee else {}),
        "slower steps": f"chance of a step slower than the median by {', by '.join(chances)}",
        **_level(report.level),
        **_tail(report),
    }
    rows = [_row(report, name, getattr(errors, name)) for name in ("p50", "p95", "p99")]
    return [Table("Step time if the cost model is exact (± Monte Carlo error)", columns, rows), Facts("", facts)]


def _row(report: PredictionReport, name: str, error_s: float) -> list[str]:
    times = report.step_time_s
    value = getattr(times, name)
    row = [name, time_with_error(value, error_s), "" if name == "p50" else percent(value / times.p50 - 1.0, sign=True)]
    if report.tail is not None:
        over = None if name == "p50" else getattr(report.tail.over_p50, name)
        row.append("" if over is None else f"{percent(over.low, sign=True)} to {percent(over.high, sign=True)}")
    if report.epistemic_s is not None:
        band = getattr(report.epistemic_s, name)
        row.append(f"{format_s(band.low, 5)} to {format_s(band.high, 5)}")
    return row


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


def _level(level: LevelFacts | None) -> dict[str, str]:
    if level is None:
        return {}
    factor, error = with_error(level.factor, level.factor_sd)
    told = (
        f"x {factor} ± {error} ({level.file}: {level.statistic} of {level.n_steps:,} steps {format_s(level.measured_s)}, "
        f"predicted {format_s(level.predicted_s)} without it; --no-level leaves it out)"
    )
    return {"level of the log": told}


def _relative(share: float) -> str:
    """Share in words, such as "1.4% above"; a skewed factor of mean one, such as a network regime, can put the median below."""
    return f"{percent(abs(share))} {'above' if share >= 0.0 else 'below'}"


def _tail(report: PredictionReport) -> dict[str, str]:
    """Upper quantiles that would be measured: the spread of systems and what the cost model leaves open together."""
    if report.tail is None:
        return {}
    own = ((name, getattr(report.tail.measured_s, name)) for name in ("p95", "p99"))
    bounds = ", ".join(f"{name} {format_s(one.low, 3)} to {format_s(one.high, 3)}" for name, one in own)
    return {"measured": f"90% intervals of a measured p95 and p99, model error included: {bounds}"}


def _rates(report: PredictionReport) -> dict[str, str]:
    recompute = f"; with recomputation {percent(report.hfu)} (HFU)" if report.hfu > 1.001 * report.mfu else ""
    active, host, naive = (format_s(one, 3) for one in (report.gpu_active_s, report.host_s, report.naive_sum_s))
    bound = "CPU-bound" if report.host_bound else "GPU-bound"
    found = {
        "throughput": f"{report.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU",
        "MFU": f"{percent(report.mfu)}, {report.tflops_per_gpu:.0f} TFLOP/s per GPU{recompute}",
    }
    if whole := report.whole_matrix:
        counted = f"{percent(whole.mfu)}, {whole.tflops_per_gpu:.0f} TFLOP/s per GPU"
        found["whole attention"] = f"{counted}, by Megatron-LM's count until 2025, masked scores included"
    for one in report.published or ():
        found[f"published {one.name}"] = one.sentence
    found["GPU and CPU"] = f"GPU busy {active}, CPU launches {host}: {bound}; without any overlap {naive}"
    if drop := report.dropped_share:
        mean, p95 = f"{drop.mean:.1%}", f"{drop.p95:.1%}"
        found["dropped"] = f"{mean} of the experts that tokens choose are full, p95 {p95} over layers and micro-batches"
    if own := report.money:
        told = f"{own.per_step:.4g} per step, {own.per_mtoken:.4g} per million {report.job.sample_unit}"
        found["money"] = f"{told}, at {own.price_per_gpu_hour:g} per GPU-hour"
    return found


def _footer(report: PredictionReport) -> str:
    elapsed = ", ".join(
        f"{name} {format_s(value, 2)}" for name, value in asdict(report.elapsed_s).items() if value >= MEASURABLE_S
    )
    return f"{report.method.replace('_', ' ')}, {report.n_samples:,} samples, seed {report.seed}; {elapsed}"

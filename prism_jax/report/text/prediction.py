"""A prediction as lines of plain text that a performance engineer reads in ten seconds."""

from __future__ import annotations

from dataclasses import asdict

from ...explain.words import words
from ...units import format_bytes, format_s
from ..quantity import bar, decimals, prob, uncertain_memory, with_error
from ..types.open_field import TOLD
from ..types.prediction import LevelFacts, PredictionReport, StepTime

BAR_WIDTH = 24
SMALLEST_SHARE = 0.001  # of the step; smaller parts are not printed
SMALLEST_OWNER = 0.005  # of the largest; below, Monte Carlo noise
MOST_OWNERS = 5
MOST_CRITICAL = 4
MEASURABLE_S = 1e-4  # shorter phases did not run
ROUNDING = 1e-7  # relative; a standard deviation below is float32 noise
NO_FRAMEWORK = "  framework not specified, using the average; set `framework:` in the job file for a narrower interval"


def lines(report: PredictionReport) -> list[str]:
    """The report, line by line."""
    blocks = [
        _headline(report),
        _quantiles(report),
        [*_rates(report), _busy(report), *_money(report)],
        _memory(report),
        _breakdown(report),
        _owners(report),
        _footer(report),
    ]
    lines = [line.rstrip() for block in blocks if block for line in (*block, "")]
    return lines[:-1]


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
        return [f"every step takes {times.p50:.5g} s: the job has no variability", *_model_band(report)]
    digits = decimals(times.std / 10)
    chances = (f"{float(fraction):.0%}: {prob(p)}" for fraction, p in report.prob_slower.items())
    return [
        "step time",
        *_model_band(report),
        *(
            f"  {name:<5} {_estimate(getattr(times, name), getattr(errors, name)):<22}{_over(times, name)}{_band(report, name)}"
            for name in ("p50", "p95", "p99")
        ),
        f"  mean  {times.mean:.{digits}f} s, std {times.std:.{digits}f} s",
        *_spreads(report),
        f"  without variability {fixed:.{digits}f} s; the median lies {_beside(times.p50 / fixed - 1.0)}",
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
        f"p95 {_estimate(spread.p95_s, spread.p95_mc_error_s)}",
        f"  between allocations: std {format_s(spread.between_s, 2)} of the mean step, {part} of the variance",
    ]


def _model_band(report: PredictionReport) -> list[str]:
    """What to expect of a measurement: the median, and what the cost model leaves open."""
    times, band = report.step_time_s, report.model_band_s
    if band.p95 - band.p5 <= ROUNDING * times.p50:
        return []
    digits = decimals((band.p95 - band.p5) / 10)
    low, high = (f"{getattr(band, name):.{digits}f}" for name in ("p5", "p95"))
    middle = f"{times.p50:.{decimals(times.p50 / 100)}f}"
    lines = [f"  expected median {middle} s (90 % model interval {low} to {high} s)"]
    if report.level is not None:
        lines.append(_level(report.level))
    elif not report.job.framework:
        lines.append(NO_FRAMEWORK)
    return lines + [f"  {one.sentence}" for one in report.open_fields[:TOLD]]


def _level(level: LevelFacts) -> str:
    factor, error = with_error(level.factor, level.factor_sd)
    return (
        f"  level from the log: x {factor} ± {error} ({level.file}: {level.statistic} of {level.n_steps:,} steps "
        f"{level.measured_s:.4g} s, predicted {level.predicted_s:.4g} s without it; --no-level leaves it out)"
    )


def _beside(share: float) -> str:
    """As "1.4% above"; a skewed factor of mean one, such as a network regime, can put the median below."""
    return f"{abs(share):.1%} {'above' if share >= 0.0 else 'below'}"


def _estimate(value: float, error: float) -> str:
    return "{} ± {} s".format(*with_error(value, error))


def _over(times: StepTime, name: str) -> str:
    return f"{getattr(times, name) / times.p50 - 1.0:+.1%} over p50" if name != "p50" else ""


def _band(report: PredictionReport, name: str) -> str:
    """What the fits leave open, where there are any."""
    band = None if report.epistemic_s is None else getattr(report.epistemic_s, name)
    return f"   ({band.low:.5g} to {band.high:.5g} s, 90 % interval of the fit)" if band else ""


def _rates(report: PredictionReport) -> list[str]:
    rates = f"{report.tflops_per_gpu:.0f} TFLOP/s per GPU, {report.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU"
    recompute = f" (HFU {report.hfu:.1%})" if report.hfu > 1.001 * report.mfu else ""
    return [f"at the median: MFU {report.mfu:.1%}{recompute}, {rates}"]


def _busy(report: PredictionReport) -> str:
    """Device, host, and both in a row."""
    active, host, naive = (format_s(one, 3) for one in (report.gpu_active_s, report.host_s, report.naive_sum_s))
    decides = "the host decides" if report.host_bound else "the device decides"
    return f"GPU active {active}, host {host}: {decides}; with nothing beside anything {naive}"


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
    verdict = f"fits, {left} left" if report.fits else f"DOES NOT FIT, {left} over"
    parts = sorted(((size, name) for name, size in memory.parts.items() if size > 0), reverse=True)
    listed = ", ".join(f"{name} {format_bytes(size, 3)}" for size, name in parts[:4])
    return [
        f"memory {total} of {capacity} on stage {memory.stage}, the fullest: {verdict}",
        f"  {uncertain_memory((memory.low, memory.high), memory.not_fit_prob)}",
        f"  {listed}",
    ]


def _breakdown(report: PredictionReport) -> list[str]:
    """Parts of the mean step with bars, largest first."""
    if not report.breakdown_s:
        return []
    parts, whole_s = report.breakdown_s, sum(report.breakdown_s.values())
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_SHARE * whole_s]
    digits = decimals(whole_s / 1e3)
    width = max(len(words(name)) for name, _ in kept)
    rows = (f"  {words(name):<{width}}  {value:>{digits + 4}.{digits}f} s" for name, value in kept)
    shares = (value / whole_s for _, value in kept)
    drawn = (f"{row} {share:>6.1%}  {bar(share, BAR_WIDTH)}" for row, share in zip(rows, shares, strict=True))
    critical = sorted(report.criticality.items(), key=lambda item: -item[1])[:MOST_CRITICAL]
    path = ", ".join(f"{words(name)} {share:.0%}" for name, share in critical if share >= 0.005)
    return ["mean step time by component, average GPU", *drawn, *([f"  critical path: {path}"] if path else [])]


def _owners(report: PredictionReport) -> list[str]:
    """By how much p95 would fall without each owner's variability."""
    ranked = sorted(report.p95_owner_s.items(), key=lambda item: -item[1])
    largest = max((abs(value) for _, value in ranked), default=0.0)
    kept = [(name, value) for name, value in ranked if abs(value) >= SMALLEST_OWNER * largest > 0.0][:MOST_OWNERS]
    if not kept:
        return []
    width = max(len(words(name)) for name, _ in kept)
    p95 = report.step_time_s.p95
    return [
        "reduction of p95 if one source of variability is removed",
        *(f"  {words(name):<{width}}  {format_s(value, 3):>9} {value / p95:>7.2%}" for name, value in kept),
    ]


def _footer(report: PredictionReport) -> list[str]:
    elapsed = ", ".join(
        f"{name} {format_s(value, 2)}" for name, value in asdict(report.elapsed_s).items() if value >= MEASURABLE_S
    )
    done = f"{report.method.replace('_', ' ')}, {report.n_samples:,} samples, seed {report.seed}; {elapsed}"
    return [*(f"note: {note}" for note in report.notes), done]

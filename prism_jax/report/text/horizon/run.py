"""A training run as lines of plain text: when it is done, where the time goes, what to change first."""

from __future__ import annotations

from ....explain.words import words
from ...quantity import bar, prob
from ...types.horizon.run import OutcomeFacts, ReliabilityFacts, RunReport

DAY_S = 86400.0
BAR_WIDTH = 24
MOST_CHANGES = 4
MOST_CAUSES = 6
SMALLEST_SHARE = 5e-4


def lines(report: RunReport) -> list[str]:
    """The report, line by line."""
    blocks = [_headline(report), _answer(report), _where(report), _changes(report), _setting(report), _footer(report)]
    found = [line.rstrip() for block in blocks if block for line in (*block, "")]
    return found[:-1]


def duration(seconds: float, error: float | None = None) -> str:
    """Seconds as a person says them: "52.3 d", "7.4 h", "12 min"; with a standard error in the same unit.

    Example:
        >>> duration(4_518_720.0)
        '52.3 d'
    """
    unit, size = next((u, s) for u, s in (("d", DAY_S), ("h", 3600.0), ("min", 60.0), ("s", 0.0)) if seconds >= 2 * s)
    scaled = seconds / (size or 1.0)
    text = f"{scaled:.3g}" if scaled < 1000 else f"{scaled:,.0f}"
    if error is None:
        return f"{text} {unit}"
    return f"{text} ± {error / (size or 1.0):.2g} {unit}"


def _headline(report: RunReport) -> list[str]:
    job = report.job
    return [
        f"{job.name}: {job.model} on {job.n_devices:,} x {job.device} ({job.cluster})",
        f"{report.n_steps:,} steps ({report.n_tokens:.4g} {job.sample_unit}) of {report.step_s:.4g} s each: "
        f"{duration(report.n_steps * report.step_s)} without interruptions",
    ]


def _answer(report: RunReport) -> list[str]:
    if report.outcome is None:
        return _unknown(report)
    found = report.outcome
    errors = found.mc_error_s
    rows = [
        f"  {name:<4} {duration(getattr(found.time_s, name), getattr(errors, name)):<18} "
        f"chance alone {duration(getattr(found.chance_s, name))}"
        for name in ("p50", "p95", "p99")
    ]
    low, high = found.expected_interval_s
    return [
        f"done in (± Monte Carlo error of {found.n_worlds:,} worlds)",
        *rows,
        f"  expected {duration(found.expected_s)} by the exact form; {duration(low)} to {duration(high)} (90 %) by what is not "
        "known: rates, level of the step",
        *_deadline(report),
        f"  goodput {found.goodput:.3f} (90 % of worlds {found.goodput_interval[0]:.3f} to {found.goodput_interval[1]:.3f}), "
        f"{found.interruptions:,.1f} interruptions",
        f"  {duration(max(found.extra_s, 0.0))} more than the steps alone without variability",
    ]


def _unknown(report: RunReport) -> list[str]:
    """No reliability was stated: what the answer depends on."""
    return [
        "UNKNOWN when it is done: nothing is said of failures. State --reliability PRESET|FILE, or --mtbf TIME.",
        "  time between failures   checkpoint every   expected time   goodput",
        *(
            f"  {f'{row.mtbf_h:g} h':<23} {duration(row.interval_s):<18} {_expected(row.expected_s):<15} {row.goodput:.3f}"
            for row in report.response
        ),
    ]


def _expected(seconds: float) -> str:
    return duration(seconds) if seconds < 1e12 else "never"


def _deadline(report: RunReport) -> list[str]:
    found = report.deadline
    if found is None:
        return []
    error = f" ± {100 * found.mc_error:.1g} %" if 0.0 < found.prob < 1.0 else ""
    return [f"  done within {duration(found.deadline_s)} with probability {prob(found.prob)}{error}"]


def _where(report: RunReport) -> list[str]:
    """Buckets of the mean wall time."""
    found = report.outcome
    if found is None:
        return []
    whole = found.time_s.mean
    return [
        "where the time goes (mean)",
        *(
            f"  {words(name):<43} {duration(value):>9}  {value / whole:6.1%} {bar(value / whole, BAR_WIDTH)}"
            for name, value in found.seconds.items()
            if abs(value) >= SMALLEST_SHARE * whole
        ),
        *_waiting(found),
    ]


def _waiting(found: OutcomeFacts) -> list[str]:
    if found.waiting_s < SMALLEST_SHARE * found.time_s.mean:
        return []
    return [f"  of failures, {duration(found.waiting_s)} were spent waiting for nodes"]


def _changes(report: RunReport) -> list[str]:
    if not report.changes:
        return []
    return [
        "what to change first (each alone, on average)",
        *(f"  {one.what:<44} saves {duration(one.saves_s)}" for one in report.changes[:MOST_CHANGES]),
    ]


def _setting(report: RunReport) -> list[str]:
    point, after = report.checkpoint, report.recovery
    how = "best by the exact form" if point.is_chosen else "as stated"
    every = f"{point.interval_steps:,} steps" if point.interval_steps < report.n_steps else "the whole run"
    behind = f", {duration(point.background_s)} more until it can be loaded" if point.background_s else ""
    told = [] if report.reliability is None else _reliability(report.reliability)
    spares = f"; spares: {after.spares} nodes ({after.policy}), enough {prob(after.spares_enough_prob)} of the time"
    return [
        *told,
        f"checkpoint every {every} ({duration(point.interval_s)}, {how}), blocking {duration(point.blocking_s)}{behind}",
        f"restart to the first step at full pace: {duration(after.outage_s)}"
        + ("" if report.reliability is None else spares),
        *(f"assumed: {text}" for text in report.assumed),
    ]


def _reliability(found: ReliabilityFacts) -> list[str]:
    every = "no interruptions" if found.mttf_h is None else f"an interruption every {duration(3600.0 * found.mttf_h)}"
    total = sum(one.per_hour for one in found.causes) or 1.0
    shares = ", ".join(f"{one.cause} {one.per_hour / total:.0%}" for one in found.causes[:MOST_CAUSES])
    slow = f"; slow phases: {', '.join(found.slow_phases)}" if found.slow_phases else ""
    return [f"reliability {found.name}: {every} ({shares}{slow})", *([f"  {found.source}"] if found.source else [])]


def _footer(report: RunReport) -> list[str]:
    return [f"note: {note}" for note in report.notes]

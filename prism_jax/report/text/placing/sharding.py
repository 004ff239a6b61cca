"""A choice of sharding as text: what every sharder reaches, what the choice is worth, and what is on which GPU."""

from __future__ import annotations

from collections.abc import Sequence

from ....units import format_bytes
from ...quantity import bar, with_error
from ...types.placing.sharding import ReachedSteps, ShardingReport

BAR_WIDTH = 24
MOST_RANKS = 64
MOST_WIDTH = 84  # characters of the tables of a GPU
WORDS = {
    "own": "the job's own",
    "random": "random",
    "naive": "in turn",
    "chunk": "in runs",
    "lpt": "LPT on milliseconds",
}


def lines(report: ShardingReport) -> list[str]:
    """The report, line by line."""
    job = report.job
    head = f"{job.name}: {job.n_tables} embedding tables of {job.model} on {job.n_devices} GPUs ({job.device})"
    blocks = [[head], _methods(report), _worth(report), _ranks(report), _everywhere(report)]
    found = [line for block in blocks if block for line in (*block, "")]
    notes = [f"note: {note}" for note in report.notes]
    return [*found, *notes, f"seed {report.record.seed}; {report.elapsed_s:.1f} s"]


def _methods(report: ShardingReport) -> list[str]:
    """One bar per method: how far above the chosen one it stays."""
    every = {"chosen": report.best.steps, **report.baselines}
    best, worst = report.best.steps.value, max(steps.value for steps in every.values())
    words = {name: WORDS.get(name, name.replace("_", " ")) for name in every}
    width = max(map(len, words.values()))
    is_time = report.objective_unit == "s"
    unit = "ms" if is_time else report.objective_unit
    found = [f"{report.objective} of the step, its excess over the chosen assignment; p50 and p95 in ms"]
    for name, steps in sorted(every.items(), key=lambda item: item[1].value):
        scale = 1e3 if is_time else 1.0
        text = "{} ± {} {}".format(*with_error(scale * steps.value, scale * steps.value_error), unit)
        share = (steps.value - best) / max(worst - best, 1e-12)
        quantiles = f"{1e3 * steps.p50_s:8.3f} {1e3 * steps.p95_s:8.3f}"
        excess = f"{steps.value / best - 1.0:>+7.1%}"
        found.append(f"  {words[name]:<{width}}  {text:<22} {excess}  {quantiles}  {bar(share, BAR_WIDTH)}".rstrip())
    return found


def _worth(report: ShardingReport) -> list[str]:
    """Gain, lower bound, and what the cost model says."""
    scale, unit = (1e3, "ms") if report.objective_unit == "s" else (1.0, report.objective_unit)
    found = []
    pairs = [(report.gain_over, report.gain, report.gain_interval)]
    if report.best_sharder != report.gain_over:
        pairs.append((report.best_sharder, report.gain_over_best_sharder, report.gain_over_best_sharder_interval))
    for over, gain, (low, high) in pairs:
        base = _of(report, over).value
        found.append(
            f"gain over {WORDS.get(over, over)}: {scale * gain:.4g} {unit} ({gain / base:.1%}); "
            f"90 % interval on fresh draws {scale * low:.4g} to {scale * high:.4g} {unit}"
        )
    found.append(
        f"lower bound of the {report.objective}: {scale * report.lower_bound:.4g} {unit}, the chosen one is "
        f"{report.gap:.1%} above; noise-free {1e3 * report.noise_free_lower_bound_s:.4g} ms, {report.noise_free_gap:.1%}"
    )
    return found


def _of(report: ShardingReport, method: str) -> ReachedSteps:
    return report.baselines.get(method, report.best.steps)


def _ranks(report: ShardingReport) -> list[str]:
    """One line per GPU; a bar for the seconds of its tables."""
    longest = max(rank.forward_s + rank.backward_s for rank in report.ranks)
    found = ["GPU   forward  backward (ms)   sends each     holds   tables"]
    for index, rank in enumerate(report.ranks[:MOST_RANKS]):
        total = rank.forward_s + rank.backward_s
        found.append(
            f"{index:>3}  {1e3 * rank.forward_s:8.3f}  {1e3 * rank.backward_s:8.3f}  {bar(total / longest, 6)} "
            f"{format_bytes(rank.sent_bytes, 3):>10} {format_bytes(rank.held_bytes, 3):>9}   {_shortened(rank.tables)}".rstrip()
        )
    more = len(report.ranks) - MOST_RANKS
    return [*found, *([f"... {more:,} GPUs more: --json has them all"] if more > 0 else [])]


def _shortened(names: Sequence[str]) -> str:
    text = ""
    for index, name in enumerate(names):
        if len(text) + len(name) > MOST_WIDTH:
            return f"{text} and {len(names) - index} more"
        text += (" " if text else "") + name
    return text


def _everywhere(report: ShardingReport) -> list[str]:
    found = []
    for way, words in (("row", "rows spread over all GPUs"), ("dp", "a copy on every GPU")):
        names = [name for name, own in report.everywhere.items() if own == way]
        if names:
            found.append(f"{words}: {_shortened(names)}")
    return found

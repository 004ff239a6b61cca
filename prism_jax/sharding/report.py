"""Reports which embedding table goes where, and what that is worth: what every sharder reaches, and what is on which GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import bar, with_error
from ..core.units import format_bytes
from .search import RankLoad


@dataclass(frozen=True)
class ShardedJob:
    """The job whose tables were placed; `capacity_bytes` of a GPU's memory are left for tables."""

    name: str
    model: str
    device: str
    n_devices: int
    n_tables: int
    global_batch: int
    capacity_bytes: float


@dataclass(frozen=True)
class ReachedSteps:
    """Steps under one assignment, on draws that chose nothing, with Monte Carlo errors.

    Attributes:
        value, value_error: of the objective, in its unit.
        noise_free_s: step in which every table looks up as many rows as its mean.
    """

    value: float
    value_error: float
    mean_s: float
    mean_error_s: float
    p50_s: float
    p50_error_s: float
    p95_s: float
    p95_error_s: float
    noise_free_s: float


@dataclass(frozen=True)
class BestSharding:
    """The chosen assignment.

    Attributes:
        assignment: table -> how it is held, as `plan.tables` of job files has it: table@3, column:2@0,5, row, dp.
        steps: that it reaches.
        cost_model_s: noise-free step that the cost model says of the plan with these tables.
    """

    assignment: Mapping[str, str]
    steps: Annotated[ReachedSteps, INLINE]
    cost_model_s: float


@dataclass(frozen=True)
class ShardingReport(Report):
    """What every sharder reaches, what the chosen assignment is worth, and where the tables are.

    Attributes:
        objective, objective_unit: what was minimised.
        baselines: method -> steps: the job's own assignment (`own`) and the sharders; those that fit into memory.
        does_not_fit: methods that over-fill a GPU.
        lower_bound, gap: of the objective: what no assignment is below, and how far above it the chosen one is, as a share.
        noise_free_lower_bound_s, noise_free_gap: the same of the noise-free step.
        gain_over: method that the gain is over: the job's own assignment, or the best sharder if that does not fit.
        gain, gain_error, gain_interval: fall of the objective, its Monte Carlo error, and where 90 % of estimates from as many
            fresh draws fall.
        best_sharder, gain_over_best_sharder, gain_over_best_sharder_interval: the same against the best of the sharders.
        ranks: [rank].
        everywhere: tables that every GPU holds, by rows or as copies -> row or dp.
        spread: table -> standard deviation over mean of a step's look-ups, from step to step.
        spread_assumed: whether some of them are an assumption.
    """

    kind: ClassVar[str] = "sharding"
    picture: ClassVar[str] = "prism_jax.sharding.picture:draw_sharding"

    job: ShardedJob
    objective: str
    objective_unit: str
    best: BestSharding
    baselines: Mapping[str, ReachedSteps]
    does_not_fit: tuple[str, ...]
    lower_bound: float
    gap: float
    noise_free_lower_bound_s: float
    noise_free_gap: float
    gain_over: str
    gain: float
    gain_error: float
    gain_interval: tuple[float, float]
    best_sharder: str
    gain_over_best_sharder: float
    gain_over_best_sharder_interval: tuple[float, float]
    ranks: tuple[RankLoad, ...]
    everywhere: Mapping[str, str]
    spread: Mapping[str, float]
    spread_assumed: bool
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        job = self.job
        head = f"{job.name}: {job.n_tables} embedding tables of {job.model} on {job.n_devices} GPUs ({job.device})"
        blocks = [[head], _methods(self), _worth(self), _ranks(self), _everywhere(self)]
        found = [line for block in blocks if block for line in (*block, "")]
        notes = [f"note: {note}" for note in self.notes]
        return [*found, *notes, f"seed {self.record.seed}; {self.elapsed_s:.1f} s"]


MOST_RANKS = 64
MOST_WIDTH = 84  # characters of the tables of a GPU
WORDS = {
    "own": "the job's own",
    "random": "random",
    "naive": "in turn",
    "chunk": "in runs",
    "lpt": "LPT on milliseconds",
}


def words_of(method: str) -> str:
    """What people read of a method."""
    return WORDS.get(method, method.replace("_", " "))


def _methods(report: ShardingReport) -> list[str]:
    """One bar per method: how far above the chosen one it stays."""
    every = {"chosen": report.best.steps, **report.baselines}
    best, worst = report.best.steps.value, max(steps.value for steps in every.values())
    words = {name: words_of(name) for name in every}
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
        found.append(f"  {words[name]:<{width}}  {text:<22} {excess}  {quantiles}  {bar(share)}".rstrip())
    return found


def _worth(report: ShardingReport) -> list[str]:
    """Gain, lower bound, and what the cost model says."""
    scale, unit = (1e3, "ms") if report.objective_unit == "s" else (1.0, report.objective_unit)
    found = []
    pairs = [(report.gain_over, report.gain, report.gain_interval)]
    if report.best_sharder != report.gain_over:
        pairs.append((report.best_sharder, report.gain_over_best_sharder, report.gain_over_best_sharder_interval))
    for over, gain, (low, high) in pairs:
        base = report.baselines.get(over, report.best.steps).value
        found.append(
            f"gain over {words_of(over)}: {scale * gain:.4g} {unit} ({gain / base:.1%}); "
            f"90 % interval on fresh draws {scale * low:.4g} to {scale * high:.4g} {unit}"
        )
    found.append(
        f"lower bound of the {report.objective}: {scale * report.lower_bound:.4g} {unit}, the chosen one is "
        f"{report.gap:.1%} above; noise-free {1e3 * report.noise_free_lower_bound_s:.4g} ms, {report.noise_free_gap:.1%}"
    )
    return found


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

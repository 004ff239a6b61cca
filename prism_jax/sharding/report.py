"""Reports which embedding table goes where, and what that is worth: what every sharder reaches, and what is on which GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, excess_bars, left_out, notes
from ..core.readable import duration, percent, time_to, value_with_error
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord, then_or
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
    """Objective reached by every sharder, gain of the chosen assignment, and the place of every table.

    Attributes:
        objective, objective_unit: what was minimised.
        baselines: method -> steps: the job's own assignment (`own`) and the sharders; those that fit into memory.
        does_not_fit: methods that over-fill a GPU.
        lower_bound, gap: of the objective: what no assignment is below, and how far above it the chosen one is, as a share.
        noise_free_lower_bound_s, noise_free_gap: the same of the noise-free step.
        gain_over: method that the gain is over: the job's own assignment, or the best sharder if that does not fit.
        gain, gain_error, gain_interval: fall of the objective, its Monte Carlo error, and where 90% of estimates from as many
            fresh draws fall.
        best_sharder, gain_over_best_sharder, gain_over_best_sharder_interval: the same against the best of the sharders.
        ranks: [rank].
        everywhere: tables that every GPU holds, by rows or as copies -> row or dp.
        spread: table -> standard deviation over mean of a step's look-ups, from step to step.
        spread_assumed: whether some of them are an assumption.
        ranks_before: [rank] under the assignment that the gain is over, for pictures; absent in reports of versions before 0.2.
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
    ranks_before: Annotated[tuple[RankLoad, ...] | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        job, unit, over = self.job, self.objective_unit, words_of(self.gain_over)
        base = self.baselines.get(self.gain_over, self.best.steps)
        share = self.gain / base.value
        is_better = self.gain_interval[0] > 0.0 and share >= SMALLEST_GAIN
        better = f"The chosen assignment lowers the {self.objective} of the step by {percent(share)} against {over}."
        before, after = (value_with_error(one.value, one.value_error, unit) for one in (base, self.best.steps))
        bound = f"no assignment is lower; the chosen one is {percent(self.gap)} above"
        return Card(
            f"{job.name}: {job.n_tables:,} embedding tables on {job.n_devices:,} x {job.device}",
            better if is_better else f"No assignment has a clearly lower {self.objective} than {over}.",
            "good" if is_better else "plain",
            facts={
                self.objective: f"{before} ({over}), {after} chosen",
                "gain": _worth(self, self.gain_over),
                f"over {words_of(self.best_sharder)}": ""
                if self.best_sharder == self.gain_over
                else _worth(self, self.best_sharder),
                "lower bound": f"{_amount(self.lower_bound, unit)}: {bound}",
            },
            evidence=f"{len(self.baselines) + 1} assignments on the same fresh draws of look-ups",
            assumptions=("look-ups are distributed as the tables of the job file state",),
            next_step=then_or(self.record.command, "prism-jax predict {}", KEEP),
        )

    def blocks(self) -> Sequence[Block]:
        worth = {
            **{f"gain over {words_of(name)}": _worth(self, name) for name in (self.gain_over, self.best_sharder)},
            "lower bound": f"{_amount(self.lower_bound, self.objective_unit)}; {percent(self.gap)} above",
            "noise-free bound": f"{_amount(self.noise_free_lower_bound_s, 's')}; {percent(self.noise_free_gap)} above",
        }
        return (
            *_methods(self),
            Facts("What the choice is worth", worth),
            Table.named("Tables of every GPU", "GPU", self._numbered_ranks, RANKS),
            left_out(len(self.ranks), MOST_RANKS, "GPUs"),
            Facts("Tables that every GPU holds", _everywhere(self)),
            *notes(self.notes),
            Note(f"seed {self.record.seed}; {duration(self.elapsed_s)}"),
        )

    @property
    def _numbered_ranks(self) -> list[tuple[str, RankLoad]]:
        return [(str(rank), load) for rank, load in enumerate(self.ranks[:MOST_RANKS])]


SMALLEST_GAIN = 0.001  # of the objective; less is not called a gain
KEEP = "-o best.yaml: the job with these tables"
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
    """Name of a method, for people."""
    return WORDS.get(method, method.replace("_", " "))


def _amount(value: float, unit: str) -> str:
    return time_to(value, 1e-4 * value) if unit == "s" else f"{value:.4g} {unit}"


def _methods(report: ShardingReport) -> list[Block]:
    """Every method: the objective, how far above the chosen one it stays, and its step times."""
    every = {"chosen": report.best.steps, **report.baselines}
    ranked = [(words_of(name), one) for name, one in sorted(every.items(), key=lambda item: item[1].value)]
    values = {
        name: (value_with_error(one.value, one.value_error, report.objective_unit), one.value) for name, one in ranked
    }
    title = f"{report.objective} of the step, and its excess over the chosen assignment"
    best = report.best.steps.value
    return [excess_bars(title, values, best, 1), Table.named("Step times", "", ranked, STEP_TIMES)]


def _worth(report: ShardingReport, over: str) -> str:
    """The gain over a method, with the interval that holds 90% of estimates on fresh draws."""
    is_first = over == report.gain_over
    gain = report.gain if is_first else report.gain_over_best_sharder
    low, high = report.gain_interval if is_first else report.gain_over_best_sharder_interval
    if gain == low == high == 0.0:
        return "none, and nothing varies"
    base = report.baselines.get(over, report.best.steps).value
    ends = " to ".join(percent(end / base) for end in (low, high))
    amount = time_to(gain, 0.01 * abs(gain)) if report.objective_unit == "s" else f"{gain:.3g} {report.objective_unit}"
    return f"{amount}, {percent(gain / base)} (90%: {ends})"


def _shortened(names: Sequence[str]) -> str:
    text = ""
    for index, name in enumerate(names):
        if len(text) + len(name) > MOST_WIDTH:
            return f"{text} and {len(names) - index} more"
        text += (" " if text else "") + name
    return text


def _everywhere(report: ShardingReport) -> dict[str, str]:
    """Tables by the way in which every GPU holds them."""
    ways = {"row": "rows spread over all GPUs", "dp": "a copy on every GPU"}
    return {
        words: _shortened([name for name, own in report.everywhere.items() if own == way])
        for way, words in ways.items()
    }


STEP_TIMES: dict[str, Callable[[ReachedSteps], str]] = {
    "p50": lambda steps: _amount(steps.p50_s, "s"),
    "p95": lambda steps: _amount(steps.p95_s, "s"),
    "noise-free": lambda steps: _amount(steps.noise_free_s, "s"),
}
RANKS: dict[str, Callable[[RankLoad], str]] = {
    "forward": lambda rank: _amount(rank.forward_s, "s"),
    "backward": lambda rank: _amount(rank.backward_s, "s"),
    "sends each": lambda rank: format_bytes(rank.sent_bytes, 3),
    "holds": lambda rank: format_bytes(rank.held_bytes, 3),
    "tables": lambda rank: _shortened(rank.tables),
}

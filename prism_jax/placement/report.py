"""Reports which measured node sits where: what every method reaches, what the choice is worth, and where the slow nodes went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np

from ..core.arrays import Floats
from ..core.page import Block, Card, Code, Facts, Note, Table, excess_bars, left_out, notes
from ..core.readable import decimals, duration, percent, some, unit_of_time, value_with_error
from ..core.report import INLINE, Report, RunRecord
from ..core.use_case import NOT_TYPED, Option, OptionGroup
from ..cost.partition import Splits
from ..result.parameters import ObjectiveChoice


@dataclass(frozen=True)
class PlacedJob:
    """The job whose nodes were placed."""

    name: str
    n_devices: int
    node_size: int


@dataclass(frozen=True)
class PlacementGoal(OptionGroup):
    """Goal of a placement, and what it may change.

    Attributes:
        objective: quantity to minimise: a name that `prism-jax show objectives` lists, or an `Objective`.
        price_per_gpu_hour: for objectives in money.
        spares: number of nodes to leave out; the table must list that many more than the job needs.
        splits: also choose layers per stage and micro-batches per replica, uneven where that is faster.
    """

    objective: ObjectiveChoice = "p95"
    price_per_gpu_hour: Annotated[float | None, NOT_TYPED] = None
    spares: Annotated[int, Option("--spares", "N", least=0)] = 0
    splits: bool = False


@dataclass(frozen=True)
class SlotFacts:
    """[slot] lowest and highest pipeline stage and replica of the GPUs of every slot."""

    stage: tuple[int, ...]
    replica: tuple[int, ...]
    last_stage: tuple[int, ...]
    last_replica: tuple[int, ...]


@dataclass(frozen=True)
class PlacementReport(Report):
    """Objective reached by every method of placing nodes, gain of the chosen one, and the place of every node.

    Attributes:
        objective: what was minimised.
        value, value_error: method -> the objective that it reaches on draws that chose nothing, in its unit, and its Monte Carlo
            error.
        p50_s, p95_s, p99_s, cvar95_s: method -> step time on draws that chose nothing; `*_error_s` their Monte Carlo error.
        gain, gain_interval, gain_error: fall of the objective against the nodes as given, in its unit.
        gain_over_best_baseline, gain_over_best_baseline_interval: against the best method that moves nodes only.
        chosen_from: method whose assignment was chosen.
        assignment: [slot] node; `as_given` before. Slot s holds the ranks from `s * node_size` on, in the plan's axis order.
        left_out: nodes without a slot.
        hosts: [slot] name of its node, the number of the node where the table has no names.
        spare_hosts: names of the nodes without a slot.
        node_slowdown: [node] factor of its slowest GPU.
        splits: None where splits were not free.
    """

    kind: ClassVar[str] = "placement"
    picture: ClassVar[str] = "prism_jax.placement.picture:draw_placement"

    job: PlacedJob
    objective: str
    objective_unit: str
    value: Mapping[str, float]
    value_error: Mapping[str, float]
    p50_s: Mapping[str, float]
    p50_error_s: Mapping[str, float]
    p95_s: Mapping[str, float]
    p95_error_s: Mapping[str, float]
    p99_s: Mapping[str, float]
    p99_error_s: Mapping[str, float]
    cvar95_s: Mapping[str, float]
    cvar95_error_s: Mapping[str, float]
    gain: float
    gain_interval: tuple[float, float]
    gain_error: float
    best_baseline: str
    gain_over_best_baseline: float
    gain_over_best_baseline_interval: tuple[float, float]
    chosen_from: str
    assignment: tuple[int, ...]
    left_out: tuple[int, ...]
    hosts: tuple[str, ...]
    spare_hosts: tuple[str, ...]
    as_given: tuple[int, ...]
    slots: SlotFacts
    node_slowdown: tuple[float, ...]
    splits: Splits | None
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    @property
    def methods(self) -> tuple[str, ...]:
        """Methods that were tried."""
        return tuple(self.value)

    def card(self) -> Card:
        job, share = self.job, self.gain / self.value[AS_GIVEN]
        is_better = self.gain_interval[0] > 0.0 and share >= SMALLEST_GAIN
        left_out = f"; {len(self.left_out)} left out" if self.left_out else ""
        better = f"The chosen placement lowers the {self.objective} by {percent(share)} against the nodes as given."
        same = f"No placement has a clearly lower {self.objective} than the nodes as given."
        base, best = self._reached(AS_GIVEN), self._reached(OPTIMISED)
        return Card(
            f"{job.name}: {len(self.assignment):,} nodes of {job.node_size} GPUs{left_out}",
            better if is_better else same,
            "good" if is_better else "plain",
            facts={
                self.objective: f"{base} as given, {best} chosen",
                **_gain(self),
                "left out": f"node{'s' * (len(self.left_out) > 1)} {_named(self)}" if self.left_out else "",
            },
            evidence=f"{len(self.methods)} placements on the same fresh draws; slowdowns of {len(self.node_slowdown):,} nodes",
            assumptions=("nodes stay as slow as they were measured",),
            next_step="--hostfile FILE, --rankfile FILE: for your launcher",
        )

    def _reached(self, method: str) -> str:
        """The objective of a method."""
        return value_with_error(self.value[method], self.value_error[method], self.objective_unit)

    def blocks(self) -> Sequence[Block]:
        values = {WORDS[name]: (self._reached(name), self.value[name]) for name in WORDS if name in self.methods}
        title = f"{self.objective} of the step, and its excess over the chosen placement"
        return (
            excess_bars(title, values, self.value[OPTIMISED], 2),
            Facts("What the choice is worth", _gain(self)),
            Facts("Splits", {} if self.splits is None else _splits(self.splits)),
            *_map(self),
            *_assignment(self),
            Note(f"left out: node {_named(self)}" if self.left_out else ""),
            *notes(self.notes),
            Note(f"seed {self.record.seed}; {duration(self.elapsed_s)}"),
        )


SMALLEST_GAIN = 0.001  # of the objective; less is not called a gain
AS_GIVEN, OPTIMISED = "as_given", "optimised"
MOST_COLUMNS, MOST_ROWS = 32, 40  # of the map of nodes
SHADES = "·.:-=+*#%@"
ALIKE = 1e-9
MOST_LISTED = 12
MOST_HOSTS = 64  # of the assignment
WORDS = {
    AS_GIVEN: "as given",
    "random_median": "random, median",
    "random_best_of_1000": "random, best of 1,000",
    "sorted": "sorted, slow to light stages",
    "brute_force": "every assignment tried",
    "annealed": "annealed",
    "relaxed": "relaxed and rounded",
    "annealed_on": "best of these, annealed on",
    "even_splits": "best with even splits",
    OPTIMISED: "chosen",
}


def _gain(report: PlacementReport) -> dict[str, str]:
    """Falls of the objective, in one unit; intervals hold 90% of estimates on fresh draws."""
    low, high = report.gain_interval
    base = report.value[AS_GIVEN]
    name, over_best = WORDS[report.best_baseline], report.gain_over_best_baseline
    low_best, high_best = report.gain_over_best_baseline_interval
    largest = max(map(abs, (report.gain, low, high, over_best, low_best, high_best)))
    is_time = report.objective_unit == "s"
    scale, unit = unit_of_time(largest) if is_time else (1.0, report.objective_unit)
    digits = decimals(scale * max(high - low, 1e-6 if is_time else 1e-6 * base) / 10)

    def text(gain: float, share: str, ends: tuple[float, float]) -> str:
        first, last = (f"{scale * end:.{digits}f}" for end in ends)
        return f"{scale * gain:.{digits}f} {unit}{share} (90%: {first} to {last} {unit})"

    found = {"gain": text(report.gain, f", {report.gain / base:.2%}", (low, high))}
    if report.best_baseline != AS_GIVEN:
        found[f"over {name}"] = text(over_best, "", (low_best, high_best))
    return found


def _splits(splits: Splits) -> dict[str, str]:
    return {
        "layers per model chunk": _counts(splits.layers),
        "micro-batches per replica": _counts(splits.micro_batches),
    }


def _counts(values: Sequence[int]) -> str:
    """Lists counts as "8 9 9 9", long lists in runs: "14x8 2x9"."""
    if len(values) <= MOST_LISTED * 2:
        return " ".join(map(str, values))
    edges = [0, *(i for i in range(1, len(values)) if values[i] != values[i - 1]), len(values)]
    return " ".join(f"{b - a}x{values[a]}" for a, b in pairwise(edges))


def _map(report: PlacementReport) -> list[Block]:
    """Slowness of the nodes by stage and replica, before and after, as shades."""
    slowness = np.array(report.node_slowdown)
    before, after = by_place(report, slowness, report.as_given), by_place(report, slowness, report.assignment)
    if before.shape[1] > MOST_COLUMNS or before.shape[0] > MOST_ROWS:
        return []
    low, high = float(slowness.min()), float(slowness.max())
    if high - low < ALIKE:
        return [Note("all nodes are alike: every assignment is as good as any other")]
    width = max(before.shape[1], len("as given"))
    title = f"Slowest GPU of the node at each position, from '{SHADES[0]}' {low:.3f} to '{SHADES[-1]}' {high:.3f} times nominal"
    lines = [f"stage  {'as given':<{width}}   chosen   (columns: replicas)"]
    for stage, (one, other) in enumerate(zip(before, after, strict=True)):
        lines.append(f"{stage:>5}  {_shades(one, low, high):<{width}}   {_shades(other, low, high)}".rstrip())
    return [Code(title, "\n".join(lines))]


def by_place(report: PlacementReport, slowness: Floats, assignment: Sequence[int]) -> Floats:
    """Slowness of the slowest node in every place [lane, replica] that it holds GPUs of, NaN where there is none."""
    slots = report.slots
    shown = np.full((max(slots.last_stage) + 1, max(slots.last_replica) + 1), -np.inf)
    places = zip(slots.stage, slots.last_stage, slots.replica, slots.last_replica, strict=True)
    for node, (stage, last_stage, replica, last_replica) in zip(assignment, places, strict=True):
        held = shown[stage : last_stage + 1, replica : last_replica + 1]
        np.maximum(held, slowness[node], out=held)
    return np.where(np.isfinite(shown), shown, np.nan)


def _shades(row: Floats, low: float, high: float) -> str:
    steps = len(SHADES) - 1
    return "".join(" " if np.isnan(v) else SHADES[round(steps * (v - low) / (high - low))] for v in row)


def _assignment(report: PlacementReport) -> list[Block]:
    """Table of hosts with their ranks, stages and replicas, in the order of ranks."""
    slots, size = report.slots, report.job.node_size
    columns = {
        "ranks": lambda slot: _span(slot * size, slot * size + size - 1),
        "node": lambda slot: report.hosts[slot],
        "stage": lambda slot: _span(slots.stage[slot], slots.last_stage[slot]),
        "replica": lambda slot: _span(slots.replica[slot], slots.last_replica[slot]),
        "slowest GPU": lambda slot: f"{report.node_slowdown[report.assignment[slot]]:.3f}",
    }
    n = len(report.hosts)
    table = Table.of("Assignment", range(min(n, MOST_HOSTS)), columns)
    return [table, left_out(n, MOST_HOSTS, "nodes", "--hostfile FILE or --json lists them")]


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _named(report: PlacementReport) -> str:
    """Nodes that are left out, with their slowdowns."""
    pairs = zip(report.spare_hosts, report.left_out, strict=False)
    return some([f"{host} ({report.node_slowdown[node]:.3f})" for host, node in pairs], MOST_LISTED)

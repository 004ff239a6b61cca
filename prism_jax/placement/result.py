"""PlacementResult: the chosen assignment, what every method reached on fresh draws, and what the choice is worth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from ..cost.partition import Splits
from ..result.distribution import html_table
from ..result.objective import OBJECTIVES, PlanObjective
from ..result.spread import Gain as Gain, mean_and_error, paired_gain

OPTIMISED, AS_GIVEN = "optimised", "as_given"
EVEN_SPLITS, SPLITS = "even_splits", "splits"
REPORTED = ("p50", "p95", "p99", "cvar95")  # objectives that are reported whatever was minimised
BASELINES = (AS_GIVEN, "random_best_of_1000", "sorted", "annealed")


@dataclass(frozen=True)
class PlacementResult:
    """A placement of measured nodes.

    Attributes:
        assignment: node of every slot; a slot is `node_size` consecutive devices in the plan's axis order.
        left_out: nodes without a slot.
        objective: what was minimised.
        batches_s: method -> [batch, step] steps under its assignment, on draws that chose nothing; paired between methods.
        random_s: name of an objective -> its median over random assignments and the error, on the same draws.
        method: the method whose assignment was chosen.
        slowness: [node] factor of a node's slowest GPU.
        seat: [slot, 2] lowest lane and replica of every slot.
        last_seat: [slot, 2] highest lane and replica of every slot.
        assignments: method -> [seat], the nodes left out last.
        hosts: [node] names; empty where nodes are numbered.
        splits: layer split and micro-batches per replica, where they were free.
        notes: what the user should know.
    """

    assignment: tuple[int, ...]
    left_out: tuple[int, ...]
    objective: PlanObjective
    batches_s: dict[str, Float[np.ndarray, "batch step"]]
    random_s: dict[str, tuple[float, float]]
    method: str
    slowness: Float[np.ndarray, " node"]
    seat: np.ndarray
    last_seat: np.ndarray
    assignments: dict[str, tuple[int, ...]]
    hosts: tuple[str, ...] = ()
    splits: Splits | None = None
    notes: tuple[str, ...] = field(default=())

    def value(self, method: str = OPTIMISED, objective: str | None = None) -> tuple[float, float]:
        """Objective of a method and its Monte Carlo error, in the unit of the objective; by default the one minimised."""
        return mean_and_error(asked(self.objective, objective).of(self.batches_s[method]))

    def host(self, node: int) -> str:
        """Name of a node; its number where the table has no names."""
        return self.hosts[node] if self.hosts else str(node)

    @property
    def p95_s(self) -> dict[str, tuple[float, float]]:
        """p95 of every method and its Monte Carlo error, seconds."""
        return {method: self.value(method, "p95") for method in self.batches_s}

    @property
    def best_baseline(self) -> str:
        """The best of the methods that choose no splits and relax nothing."""
        return min((m for m in BASELINES if m in self.batches_s), key=lambda m: self.value(m)[0])

    def gain_over(self, method: str, chosen: str = OPTIMISED) -> Gain:
        """Gain of the choice over `method`, from paired steps."""
        return paired_gain(self.objective.of(self.batches_s[method]), self.objective.of(self.batches_s[chosen]))

    @property
    def gain(self) -> Gain:
        """Gain of the choice over the nodes as they were given."""
        return self.gain_over(AS_GIVEN)

    def _repr_html_(self) -> str:
        """A small table for notebooks: what every method reached."""
        best = self.value()[0]
        rows = []
        for method in self.batches_s:
            value, error = self.value(method)
            rows.append((method, f"{value:.5g} ± {error:.1g} {self.objective.unit}", f"{value / best - 1.0:+.2%}"))
        title = f"{len(self.assignment)} nodes placed, {len(self.left_out)} left out"
        return html_table(title, ("method", self.objective.name, "above the chosen one"), rows, self.notes)


def reported(minimised: PlanObjective) -> tuple[str, ...]:
    """Names of the objectives that a result states."""
    return (*REPORTED, *(() if minimised.name in REPORTED else (minimised.name,)))


def asked(minimised: PlanObjective, name: str | None) -> PlanObjective:
    """The objective called `name` of the same plans; the one that was minimised if there is no name."""
    if name is None or name == minimised.name:
        return minimised
    return replace(minimised, objective=OBJECTIVES.named(name))

"""ShardingResult: the chosen assignment, what every sharder reaches on fresh draws, and what the choice is worth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ...objective import OBJECTIVES, PlanObjective
from ...result.batches import Gain, mean_and_error, paired_gain
from .assignment import Assignment
from .problem import ShardingProblem

OPTIMISED, OWN = "optimised", "own"  # the chosen assignment, the job's own


@dataclass(frozen=True)
class RankLoad:
    """What one rank holds and has to do in a noise-free step.

    Attributes:
        tables: that it holds, parts as `t3[0/2]`; those that all ranks hold are not among them.
        forward_s, backward_s: seconds of its tables before the forward exchange, and after the backward one, those that all
            ranks hold included.
        sent_bytes: what it sends to every other rank in an exchange.
        held_bytes: memory of its tables.
    """

    tables: tuple[str, ...]
    forward_s: float
    backward_s: float
    sent_bytes: float
    held_bytes: float


@dataclass(frozen=True)
class ShardingResult:
    """Where tables go.

    Attributes:
        problem: tables and ranks.
        objective: what was minimised.
        assignments: method -> assignment; those that fit into memory.
        batches_s: method -> [batch, step] steps on draws that chose nothing; paired between methods.
        bound: what no assignment is below: noise-free step, and objective; memory aside.
        ranks: [rank] of the chosen assignment.
        misfits: methods whose assignment does not fit into memory.
        elapsed_s: of the search.
    """

    problem: ShardingProblem
    objective: PlanObjective
    assignments: dict[str, Assignment]
    batches_s: dict[str, Float[np.ndarray, "batch step"]]
    bound: tuple[float, float]
    ranks: tuple[RankLoad, ...]
    misfits: tuple[str, ...] = field(default=())
    elapsed_s: float = 0.0

    @property
    def best(self) -> Assignment:
        """The chosen assignment."""
        return self.assignments[OPTIMISED]

    @property
    def baseline(self) -> str:
        """What the gain is over: the job's own assignment, else the best sharder."""
        others = [name for name in self.batches_s if name != OPTIMISED]
        return OWN if OWN in others else min(others, key=lambda name: self.value(name)[0], default=OPTIMISED)

    @property
    def best_sharder(self) -> str:
        """The best of the sharders."""
        others = [name for name in self.batches_s if name not in (OPTIMISED, OWN)]
        return min(others, key=lambda name: self.value(name)[0], default=OPTIMISED)

    def value(self, method: str = OPTIMISED, objective: str | None = None) -> tuple[float, float]:
        """Objective of a method and its Monte Carlo error, in its unit; by default the one minimised."""
        own = self.objective if objective is None else PlanObjective(OBJECTIVES.named(objective), self.objective.facts)
        return mean_and_error(np.asarray(own.of(self.batches_s[method])))

    def gain_over(self, method: str) -> Gain:
        """What the choice is worth against `method`, from paired steps."""
        of = self.objective.of
        return paired_gain(np.asarray(of(self.batches_s[method])), np.asarray(of(self.batches_s[OPTIMISED])))

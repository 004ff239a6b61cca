"""Requirements of a choice of instances: work, time, money and probability; and the work that a running job has done."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf

from ..core.errors import Problem, SpecError

MOST_WORLDS = 200_000
LEAST_WORLDS = 200


@dataclass(frozen=True)
class WorkDone:
    """Work that a running job has already done, and the time and money spent."""

    steps_done: int
    elapsed_s: float
    spent_usd: float


@dataclass(frozen=True)
class CloudRequirements:
    """Work, deadline, budget and settings of a search.

    Attributes:
        n_steps: to be done.
        deadline_s, budget_usd: infinite: none. Without a deadline but with a budget the shortest p95 time is looked for, else
            the least expected cost.
        prob: with which each of both is to be kept.
        restart_s: from available nodes to the first new step, without loading the checkpoint.
        interval_s: of work between checkpoints; None: the best.
        n_worlds, seed: simulated worlds.

    Raises:
        SpecError: a figure is out of range.
    """

    n_steps: int
    deadline_s: float = inf
    budget_usd: float = inf
    prob: float = 0.95
    restart_s: float = 300.0
    interval_s: float | None = None
    n_worlds: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field, told in (("deadline_s", "deadline"), ("budget_usd", "budget")):
            if not getattr(self, field) > 0.0:
                raise SpecError.of(Problem(told, f"{getattr(self, field):g}, but it must be above 0"))
        if not 0.0 < self.prob < 1.0:
            raise SpecError.of(Problem("prob", f"{self.prob:g}, but it must lie between 0 and 1"))
        if not 0.0 <= self.restart_s < 1e7:
            raise SpecError.of(Problem("restart", f"{self.restart_s:g} s, but it must be at least 0 and below 1e7"))
        if self.interval_s is not None and not 0.0 < self.interval_s < inf:
            raise SpecError.of(Problem("checkpoint", f"{self.interval_s:g} s, but it must be finite and above 0"))
        if not LEAST_WORLDS <= self.n_worlds <= MOST_WORLDS:
            text = f"{self.n_worlds:,}, but it must be between {LEAST_WORLDS:,} and {MOST_WORLDS:,}"
            raise SpecError.of(Problem("worlds", text))

    @property
    def wants_time(self) -> bool:
        """Whether time is to be short and money bounded, not the other way round."""
        return isinf(self.deadline_s) and not isinf(self.budget_usd)

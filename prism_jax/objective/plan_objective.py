"""PlanObjective: an objective with what is known of the plans of one job, so that samples alone give its value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..errors import DataError
from ..plan.plan import ParallelPlan
from .catalog import OBJECTIVES
from .objective import Objective
from .outcome import Array, Outcome, PlanFacts


@dataclass(frozen=True)
class PlanObjective:
    """An objective asked of plans that share `facts`; hashable if its parts are, so that jitted code takes it as static.

    Attributes:
        objective: what is asked.
        facts: what is known of every plan.
    """

    objective: Objective
    facts: PlanFacts = field(default_factory=PlanFacts)

    @property
    def name(self) -> str:
        """Name of the objective."""
        return self.objective.name

    @property
    def unit(self) -> str:
        """Unit of its values."""
        return self.objective.unit

    @property
    def text(self) -> str:
        """The same text for the same question, in every process; a function is known by its objective's name and `about`."""
        return repr((self.objective.name, self.objective.about, self.facts))

    def of(self, samples_s: Array, n_devices: Array | None = None) -> Array:
        """Value [...] of equally likely samples [..., sample], seconds; `n_devices` [...] where plans differ in it."""
        return self.objective.of(Outcome(samples_s, plan=self._facts(n_devices)))

    def smoothed(self, samples_s: Array) -> Array:
        """The same of the objective's stand-in with a smooth gradient."""
        return self.objective.smoothed(Outcome(samples_s, plan=self.facts))

    def _facts(self, n_devices: Array | None) -> PlanFacts:
        return self.facts if n_devices is None else replace(self.facts, n_devices=n_devices)


def plan_objective(
    objective: str | Objective, plan: ParallelPlan, price_per_gpu_hour: float | None = None
) -> PlanObjective:
    """An objective, by name or as it is, of plans with the batch of `plan`.

    Raises:
        DataError: unknown name, a price that is not positive, or an objective that needs the price without one.
    """
    if price_per_gpu_hour is not None and not price_per_gpu_hour > 0.0:
        raise DataError(f"price_per_gpu_hour = {price_per_gpu_hour:g}, but a price must be positive")
    chosen = OBJECTIVES.named(objective) if isinstance(objective, str) else objective
    n = plan.global_batch
    facts = PlanFacts(plan.n_devices, n, n * plan.seq_len, price_per_gpu_hour)
    for fact in chosen.needs:
        if getattr(facts, fact) is None:
            raise DataError(f"objective {chosen.name!r} needs {fact}, which is not given")
    return PlanObjective(chosen, facts)

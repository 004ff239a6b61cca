"""Study: the result of a search (best plan, plans behind it, their certainty, the gain), and Pareto fronts of plans."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.units import format_bytes
from ..job.job import Job
from ..plan.fields import OPTIONS
from ..plan.plan import ParallelPlan
from ..result.distribution import html_table
from ..result.objective import PlanObjective
from .evaluate import ScreeningResult
from .figures import CandidateFacts, CandidateFigures, GainEstimate, plan_facts
from .plan_table import KNOBS, Kind, kind_of

if TYPE_CHECKING:
    import pandas as pd


def front(costs: Floats) -> NDArray[np.intp]:
    """Rows of `costs` [plan, criterion] that no other row beats: none is at most as large everywhere and smaller somewhere.

    Of equal rows the first is kept. Rows come in increasing order of the first criterion.
    """
    order = np.lexsort(costs.T[::-1])
    kept: list[int] = []
    for row in order:
        if not any((costs[k] <= costs[row]).all() for k in kept):
            kept.append(int(row))
    return np.array(kept, dtype=np.intp)


SHOWN = ("tp", "cp", "pp", "dp", "ep", "schedule", "micro_batch", "recompute")  # of a plan, in a notebook
N_SHOWN = 10
OF_ONE_CHOICE = ("dp_shard", "layer_split", *OPTIONS)  # fields of a plan
TIED_SD = 2.0  # standard errors within which a plan may as well be the best


@dataclass(frozen=True)
class Candidate(CandidateFigures):
    """A plan that reached the last round, with its numbers."""

    plan: ParallelPlan

    @property
    def numbers(self) -> dict[str, Any]:
        """All figures but the plan."""
        return {field.name: getattr(self, field.name) for field in fields(CandidateFigures)}

    @property
    def tied(self) -> bool:
        """Whether the draws cannot tell it from the best."""
        return self.behind_s <= TIED_SD * self.behind_error_s

    def beside(self, base: ParallelPlan) -> CandidateFacts:
        """The candidate as reports have it, compared with the job's own plan."""
        return CandidateFacts(
            **self.numbers, tied=self.tied, changes=tuple(changes(base, self.plan)), plan=plan_facts(self.plan)
        )


@dataclass(frozen=True)
class Study:
    """Result of a search.

    Attributes:
        job, objective, seed, method: as the search was given them.
        screen: every plan of the space, without randomness.
        candidates: finalists, best first.
        n_raced: plans scored on their tail.
        promise: gain of the best plan over the job's own, on draws the search has not seen; None if the own one cannot be run.
        elapsed_s: wall-clock seconds.
        notes: for the user.
    """

    job: Job
    objective: PlanObjective
    seed: int
    method: str
    screen: ScreeningResult
    candidates: tuple[Candidate, ...]
    n_raced: int
    promise: GainEstimate | None
    elapsed_s: float
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Candidate:
        """The plan with the least objective."""
        return self.candidates[0]

    def top(self, k: int) -> tuple[Candidate, ...]:
        """Returns the best `k` candidates."""
        return self.candidates[:k]

    def unlike(self, k: int) -> tuple[Candidate, ...]:
        """The best of each kind of plan, the best `k` of these."""
        best: dict[Kind, Candidate] = {}
        for candidate in self.candidates:
            best.setdefault(kind_of(candidate.plan), candidate)
        return tuple(best.values())[:k]

    def front(self, *criteria: str) -> tuple[Candidate, ...]:
        """Candidates that no other beats in the objective and all of `criteria`, best objective first.

        Args:
            criteria: attributes of candidates (memory_bytes) or of plans (n_devices); smaller is better.
        """
        costs = [[c.value_s, *(_criterion(c, name) for name in criteria)] for c in self.candidates]
        return tuple(self.candidates[row] for row in front(np.array(costs)))

    def to_frame(self) -> pd.DataFrame:
        """One row per candidate, best first; columns of the plan next to those of the result."""
        import pandas as pd

        return pd.DataFrame([plan_dict(c.plan) | c.numbers | {"tied": c.tied} for c in self.candidates])

    def _repr_html_(self) -> str:
        """A small table for notebooks: the best plans."""
        head = ("", self.objective.name, "behind", "P(best)", "memory", *SHOWN)
        rows = []
        for number, candidate in enumerate(self.top(N_SHOWN), start=1):
            value = f"{candidate.value_s:.4g} ± {candidate.value_error_s:.1g} {self.objective.unit}"
            behind = f"{candidate.behind_s / self.best.value_s:.2%}"
            facts = (f"{candidate.prob_best:.2f}", format_bytes(candidate.memory_bytes))
            rows.append((str(number), value, behind, *facts, *(str(getattr(candidate.plan, name)) for name in SHOWN)))
        return html_table(f"{self.job.name}: best of {self.screen.n_feasible:,} feasible plans", head, rows, self.notes)


def plan_dict(plan: ParallelPlan) -> dict[str, Any]:
    """Returns the plan as a plain object."""
    return asdict(plan_facts(plan))


def written_plan(plan: ParallelPlan) -> dict[str, Any]:
    """Returns the fields that a job file states of the plan that a search chose; the others of `plan_dict` follow."""
    derived = ("n_micro_batch", "n_devices", *([] if plan.sharding == "hsdp" else ["dp_shard"]))
    shown = plan_dict(plan)
    beside = {name: getattr(plan, name) for name in KNOBS if name not in shown and hasattr(plan, name)}
    return {name: value for name, value in shown.items() if name not in derived} | beside


def changes(base: ParallelPlan, plan: ParallelPlan) -> list[str]:
    """Overrides of a job file (`--set`) that make `base` the plan `plan`."""
    before, after = (_flat(one) for one in (base, plan))
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return [f"plan.{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in changed.items()]


def without_meaning(plan: ParallelPlan) -> tuple[str, ...]:
    """Fields that go with one choice (a kind of recomputation, hsdp, layers by hand) that `plan` does not make."""
    default = {field.name: field.default for field in fields(ParallelPlan)}
    return tuple(name for name in OF_ONE_CHOICE if getattr(plan, name) == default[name])


def _flat(plan: ParallelPlan) -> dict[str, Any]:
    plain = written_plan(plan) | {name: getattr(plan, name) for name in OF_ONE_CHOICE}
    return plain | {f"overlap.{axis}": on for axis, on in plain.pop("overlap").items()}


def _criterion(candidate: Candidate, name: str) -> float:
    return float(getattr(candidate, name) if hasattr(candidate, name) else getattr(candidate.plan, name))

"""AskTell: the evaluator for any optimiser, ours or the user's.

asked = AskTell(job)
for plan in asked.ask(16):
    asked.tell(plan)                       # scored on its tail
asked.best

def trial(t):                              # Optuna
    knobs = {name: t.suggest_categorical(name, values) for name, values in asked.knobs.items()}
    try:
        return asked.tell(asked.plan(**knobs))
    except PlanError:                      # infeasible; says why
        raise optuna.TrialPruned
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import DataError, PlanError
from ..core.units import format_bytes
from ..cost.memory import memory
from ..cost.offload import host_memory
from ..job.job import Job
from ..job.rules import check_plan
from ..plan.plan import Overlap, ParallelPlan
from ..result.objective import Objective, plan_objective
from .evaluate import Evaluator, ScreeningResult, TailScorer
from .racing import ROUNDS
from .space import PlanSpace, default_space


class EvaluatedPlan(NamedTuple):
    """A plan and its value, in the unit of the objective."""

    plan: ParallelPlan
    value_s: float


class AskTell:
    """Plans on request, scores on request, and the best of the scored plans.

    Args:
        job, space, objective, price_per_gpu_hour, seed: as in `search`.
        n_column: replica columns per score, a power of two; 256 err as much as 1,000 plain draws.
    """

    def __init__(
        self,
        job: Job,
        space: PlanSpace | None = None,
        *,
        objective: str | Objective = "p95",
        price_per_gpu_hour: float | None = None,
        seed: int = 0,
        n_column: int = ROUNDS[-1],
    ) -> None:
        self.job, self.space = job, default_space(job) if space is None else space
        self.objective = plan_objective(objective, job.plan, job.model.units_per_step(job.plan), price_per_gpu_hour)
        self._n_column = n_column
        self._evaluator = Evaluator(job, self.space)
        self._scorer = TailScorer(self._evaluator, seed)
        self._told: dict[ParallelPlan, float] = {}
        self._n_asked = 0

    @property
    def knobs(self) -> dict[str, tuple[Any, ...]]:
        """Values of every knob of the space, for an optimiser that suggests them one by one."""
        names = (field.name for field in fields(self.space) if field.name != "n_chunk")
        return {name: values for name in names if (values := getattr(self.space, name))}

    def plan(self, **knobs: Any) -> ParallelPlan:
        """The plan of some knobs; those left out are as in the job, and dp follows from the number of devices.

        Raises:
            PlanError: the plan cannot run, or does not fit into memory; says why.
        """
        unknown = set(knobs) - {field.name for field in fields(self.space)}
        if unknown:
            raise PlanError(f"unknown knobs {sorted(unknown)}; known are {[*self.knobs]}")
        overlap = {
            axis: bool(knobs.pop(f"overlap_{axis}", getattr(self.job.plan.overlap, axis)))
            for axis in ("dp", "tp", "pp")
        }
        n = knobs.pop("n_devices", self.job.cluster.n_devices)
        plan = replace(self.job.plan, overlap=Overlap(**overlap), layer_split=(), **knobs)
        plan = replace(
            plan, dp=max(1, n // (plan.tp * plan.cp * plan.pp)), sequence_parallel=bool(plan.sequence_parallel)
        )
        self._check(plan, n)
        return plan

    def _check(self, plan: ParallelPlan, n_devices: int) -> None:
        cluster = self.job.cluster.of_size(n_devices)
        check_plan(plan, self.job.model, cluster)
        need = memory(self.job.model, cluster, plan, self.job.software.memory)
        if not need.fits:
            raise PlanError(
                f"the plan needs {format_bytes(need.total_bytes)} of {format_bytes(need.capacity_bytes)} per device"
            )
        host = host_memory(self.job.model, cluster, plan, self.job.software.memory)
        if host is not None and host.capacity_bytes is not None and not host.fits:
            raise PlanError(
                f"the plan needs {format_bytes(host.total_bytes)} of {format_bytes(host.capacity_bytes)} of a host's memory"
            )

    @cached_property
    def _screen(self) -> ScreeningResult:
        return self._evaluator.bounds()

    @cached_property
    def _by_bound(self) -> np.ndarray:
        bound = self._screen.bound_s
        return np.argsort(np.where(np.isfinite(bound), bound, np.inf), kind="stable")[: self._screen.n_feasible]

    def ask(self, n: int = 1) -> list[ParallelPlan]:
        """The next `n` feasible plans of the space, those first that could be fastest.

        Raises:
            PlanError: no plan of the space is feasible.
        """
        some = self._by_bound[self._n_asked : self._n_asked + n]
        self._n_asked += len(some)
        return [self._evaluator.plan(int(number)) for number in some]

    def tell(self, plan: ParallelPlan, value_s: float | None = None) -> float:
        """Records the value of a plan, in the unit of the objective: `value_s` if it was measured, else its score.

        Raises:
            PlanError: the plan is to be scored and cannot run; says why.
            DataError: `value_s` is not a positive number.
        """
        if value_s is None:
            check_plan(plan, self.job.model, self.job.cluster.of_size(plan.n_devices))
            value_s = self._scorer.value(self.objective, plan, self._n_column)
        if not (np.isfinite(value_s) and value_s > 0.0):
            raise DataError(f"value_s = {value_s}, but it must be a positive number of seconds")
        self._told[plan] = value_s
        return value_s

    @property
    def best(self) -> EvaluatedPlan:
        """Best of the plans that were scored so far.

        Raises:
            DataError: nothing was told.
        """
        return self.top(1)[0]

    def top(self, k: int) -> list[EvaluatedPlan]:
        """Returns the best `k` of the scored plans, best first; `best` and `top` raise a DataError while there are none."""
        if not self._told:
            raise DataError("no plan was told yet. Call tell(plan) first.")
        return [EvaluatedPlan(plan, value) for plan, value in sorted(self._told.items(), key=lambda item: item[1])[:k]]

"""Objectives: what a search or a placement minimises about a plan. A caller adds one with `OBJECTIVES.add(...)`."""

from .catalog import OBJECTIVES as OBJECTIVES
from .objective import Objective as Objective
from .outcome import Outcome as Outcome, PlanFacts as PlanFacts
from .plan_objective import PlanObjective as PlanObjective, plan_objective as plan_objective

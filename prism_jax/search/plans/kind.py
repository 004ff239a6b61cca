"""Kinds of plans: what makes two of them unlike, not the switches beside it; and the plans of each kind that may be its best."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

import numpy as np

from ..._typing import Floats
from ...plan.plan import ParallelPlan
from .plan_cache import Rows

Kind = tuple[object, ...]
N_PER_KIND = 3  # plans of a kind that are looked at
N_LOOKED_AT = 4000  # plans, fastest first, until kinds are given up


class Numbered(Protocol):
    """Plans by number."""

    def plan(self, number: int, /) -> ParallelPlan: ...


def kind_of(plan: ParallelPlan) -> Kind:
    """Degrees, schedule, recomputation and sharding of states."""
    return (plan.tp, plan.cp, plan.pp, plan.dp, plan.ep, plan.schedule_name, plan.recompute, plan.sharding)


def of_each_kind(plans: Numbered, bound_s: Floats, n_kinds: int) -> Rows:
    """Numbers of the fastest plans of the first `n_kinds` kinds, by the lower bound [plan] of their steps; NaN: not feasible."""
    found: Counter[Kind] = Counter()
    numbers = []
    fastest = np.argsort(bound_s, kind="stable")[: min(N_LOOKED_AT, int(np.isfinite(bound_s).sum()))]
    for number in fastest:
        kind = kind_of(plans.plan(int(number)))
        if (kind in found or len(found) < n_kinds) and found[kind] < N_PER_KIND:
            found[kind] += 1
            numbers.append(number)
    return np.sort(np.array(numbers, dtype=np.intp))

"""Open fields: what a job leaves unsaid, as a distribution, and what each possibility does to the step.

Every open field is, independently, one of a few values with known odds (`software.usual`). A value moves the step by the ratio
of the step's outlines with and without it. Predictions stand at the mean of the logarithm over all possibilities; the band holds
them:

    ln step = ln step(assumed) + sum_fields ln ratio(value),     value ~ odds
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any
from zlib import crc32

import numpy as np

from .._typing import Floats
from ..cost.block_cost import BlockCostModel
from ..cost.efficiency import Efficiency
from ..framework import Framework, framework_of
from ..plan.plan import ParallelPlan, Software
from ..software.usual import Odds, usual_odds
from ..system.hardware import Cluster
from ..workload.base import Workload
from .surrogate import seconds_under

SMALLEST = 1e-4  # of a step: a field whose every value changes less is not open in any sense that matters


@dataclass(frozen=True)
class OpenField:
    """One field that is not stated.

    Attributes:
        name: as job files have it: `software.norm`.
        values: what it may be; the first is what the job assumes.
        odds: probability of each.
        log_ratio: logarithm of the step under each over that under the first.
    """

    name: str
    values: tuple[Any, ...]
    odds: tuple[float, ...]
    log_ratio: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Expected logarithm of the step over the assumed one."""
        return float(np.dot(self.odds, self.log_ratio))

    @property
    def sd(self) -> float:
        """Standard deviation of that logarithm."""
        return float(np.sqrt(np.dot(self.odds, (np.array(self.log_ratio) - self.mean) ** 2)))

    def drawn(self, n_draw: int, seed: int) -> Floats:
        """[draw] log ratios to the mean, of values drawn by their odds; fields of one name and the same odds draw alike."""
        named = sorted(
            (repr(value), odds, ratio)
            for value, odds, ratio in zip(self.values, self.odds, self.log_ratio, strict=True)
        )
        what = " ".join((self.name, *(f"{value} {odds:.6f}" for value, odds, _ in named)))
        rng = np.random.default_rng([seed, 3, crc32(what.encode())])
        which = rng.choice(len(named), n_draw, p=[odds for _, odds, _ in named])
        return np.array([ratio for _, _, ratio in named])[which] - self.mean


def doubtful(name: str, sd: float) -> OpenField:
    """A field that was taken for something without odds: its step may be that much off, either way."""
    apart = sd * sqrt(2.0)
    return OpenField(name, ("assumed", "less", "more"), (0.5, 0.25, 0.25), (0.0, -apart, apart))


def open_fields(
    model: Workload,
    cluster: Cluster,
    plan: ParallelPlan,
    names: Sequence[str],
    framework: str | Framework,
    efficiency_of: Callable[[Software], Efficiency],
    more: Sequence[tuple[str, Odds]] = (),
) -> tuple[OpenField, ...]:
    """The open fields of a job that matter to its step, widest first.

    Args:
        plan: with the assumed values.
        names: open fields of its software.
        efficiency_of: constants of the device under such software, as calibrated.
        more: other open fields of the plan (`dtype`), with the odds of their values.
    """
    own, generation = framework_of(framework), cluster.device.generation
    asked = [
        *((f"software.{name}", usual_odds(name, own, generation, plan.software.date)) for name in names),
        *((f"plan.{name}", odds) for name, odds in more),
    ]
    others = {name: [one for one in given if one[0] != _value(plan, name)] for name, given in asked}
    variants = [_with(plan, name, value) for name, given in others.items() for value, _ in given]
    if not variants:
        return ()
    base = BlockCostModel(model, cluster, plan, efficiency_of(plan.software))
    apart = [base.with_plan(one).under(efficiency_of(one.software).correction) for one in variants]
    seconds = seconds_under([base, *apart])
    log_ratio = iter(np.log(seconds[1:] / seconds[0]).tolist())
    found = [_field(name, _value(plan, name), given, log_ratio) for name, given in others.items()]
    return tuple(sorted((one for one in found if one.sd > SMALLEST), key=lambda one: -one.sd))


def _field(name: str, assumed: Any, others: Sequence[tuple[Any, float]], log_ratio: Iterator[float]) -> OpenField:
    """The field of which as many ratios are taken as it has other values."""
    every = [(assumed, 1.0 - sum(odds for _, odds in others), 0.0)]
    every += [(value, odds, next(log_ratio)) for value, odds in others]
    return OpenField(name, *zip(*every, strict=True))


def _value(plan: ParallelPlan, name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(plan.software if section == "software" else plan, field)


def _with(plan: ParallelPlan, name: str, value: Any) -> ParallelPlan:
    section, _, field = name.partition(".")
    if section == "software":
        return replace(plan, software=replace(plan.software, **{field: value}))
    return replace(plan, **{field: value})

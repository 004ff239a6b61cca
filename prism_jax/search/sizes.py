"""The same job on clusters of several sizes: the best plan of each, and sizes that no other beats in time, GPUs, energy or cost.

The batch stays (strong scaling). Energy is that of all devices at their power limit for the median step; cost is the price of all
devices for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ..errors import DataError
from ..job import Job
from ..objective import Objective
from ..progress import Progress, silent
from .exhaustive import search
from .figures import SizeFacts, SizeFigures, plan_facts
from .pareto import front
from .plans.space import PlanSpace, default_space
from .study import Study

CRITERIA = ("value_s", "n_devices", "memory_bytes", "energy_j", "cost")
S_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Size(SizeFigures):
    """Best plan of one cluster size, per step, with the study that found it."""

    study: Study

    def facts(self) -> SizeFacts:
        """The size as reports have it."""
        numbers = {field.name: getattr(self, field.name) for field in fields(SizeFigures)}
        return SizeFacts(**numbers, plan=plan_facts(self.study.best.plan))


def search_sizes(
    job: Job,
    n_devices: Sequence[int],
    space: PlanSpace | None = None,
    *,
    price_per_hour: float = 0.0,
    objective: str | Objective = "p95",
    seed: int = 0,
    top: int = 1,
    memory_margin: float | None = None,
    any_framework: bool = False,
    progress: Progress = silent,
) -> tuple[Size, ...]:
    """Best plan on every number of devices, fewest first.

    Args:
        job, objective, seed, top, memory_margin, progress: as in `search`.
        space: `default_space` of each size if not given; its own numbers of devices do not count.
        any_framework: as in `default_space`.
        price_per_hour: of one device.

    Raises:
        DataError: no or repeated sizes, or a negative price.
        PlanError: a size has no feasible plan.
    """
    if not n_devices or len(set(n_devices)) < len(n_devices):
        raise DataError(f"n_devices = {list(n_devices)}, but different sizes are needed, one at least")
    if not price_per_hour >= 0.0:
        raise DataError(f"price_per_hour = {price_per_hour}, but it must not be negative")
    found = []
    for n in sorted(n_devices):
        sized = replace(job, cluster=job.cluster.of_size(n))
        values = default_space(sized, any_framework=any_framework) if space is None else replace(space, n_devices=(n,))
        study = search(
            sized,
            values,
            objective=objective,
            price_per_gpu_hour=price_per_hour or None,
            seed=seed,
            top=top,
            memory_margin=memory_margin,
            progress=progress,
        )
        device_s = n * study.best.p50_s
        found.append(
            Size(
                study=study,
                n_devices=n,
                value_s=study.best.value_s,
                memory_bytes=study.best.memory_bytes,
                energy_j=device_s * job.cluster.device.power_watts,
                cost=device_s / S_PER_HOUR * price_per_hour,
                p50_s=study.best.p50_s,
            )
        )
    return tuple(found)


def best_sizes(sizes: Sequence[Size], *criteria: str) -> tuple[Size, ...]:
    """Sizes that no other beats in all of `criteria` (of `CRITERIA`), least of the first criterion first.

    Raises:
        DataError: unknown criterion.
    """
    unknown = set(criteria) - set(CRITERIA)
    if unknown or not criteria:
        raise DataError(f"criteria {sorted(unknown)} are unknown; known are {', '.join(CRITERIA)}")
    costs = np.array([[float(getattr(size, name)) for name in criteria] for size in sizes])
    return tuple(sizes[row] for row in front(costs))

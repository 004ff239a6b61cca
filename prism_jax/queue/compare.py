"""Policies and estimates side by side, in the same worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated

import numpy as np

from ..core.arrays import Floats
from ..core.executor import ALONE, Workers, answers_in_order
from ..core.processes import Progress, silent
from ..core.report import INLINE
from ..variability.tree import Variability
from .jobs import QueuedJobs, QueueFigures
from .policies import POLICIES, QueuePolicy
from .simulator import simulate
from .world import ESTIMATES, DurationEstimate, draw_world, spread_to

BASE_POLICY, POINT = "fifo", "mean"
INTERVAL = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class QueueCase:
    """Cluster, variability and seeds that are simulated.

    Attributes:
        n_gpus: of the cluster.
        variability: shape of what differs between GPUs and between steps.
        slack: mean time to spare over the duration, where the trace has no deadlines.
        restart_s: seconds time lost when an interrupted job comes back.
        seeds: one world each.
    """

    n_gpus: int
    variability: Variability
    slack: float
    restart_s: float
    seeds: Sequence[int]


@dataclass(frozen=True)
class Ratio:
    """Mean completion time over that of a reference in the same world: median and 90% interval over worlds."""

    median: float
    p5: float
    p95: float


@dataclass(frozen=True)
class QueueRow:
    """One policy with one estimate.

    Attributes:
        cv: standard deviation over mean of the speed of GPUs.
        estimate: what it takes for a duration; empty where it does not look at durations.
        figures: means over worlds.
        over_fifo: against first in, first out.
        over_point: against the same policy with point estimates; None where the policy does not look at durations.
    """

    cv: float
    policy: str
    estimate: str
    figures: Annotated[QueueFigures, INLINE]
    over_fifo: Ratio
    over_point: Ratio | None


def compare(
    jobs: QueuedJobs,
    setting: QueueCase,
    cvs: Sequence[float],
    policies: Sequence[QueuePolicy],
    estimates: Sequence[DurationEstimate],
    progress: Progress = silent,
    workers: Workers = ALONE,
) -> list[QueueRow]:
    """All policies with all estimates, in the same worlds, for every spread between GPUs.

    FIFO and point estimates are always among them: the others are measured against them.

    Args:
        workers: processes that share the worlds; they know policies and estimates by their registered names.
    """
    policies = _with(policies, POLICIES.named(BASE_POLICY))
    estimates = _with(estimates, ESTIMATES.named(POINT))
    worlds = list(product(cvs, setting.seeds))
    progress(0.0, f"{len(worlds)} worlds")
    names = [one.name for one in policies], [one.name for one in estimates]
    one = partial(_in_world, jobs=jobs, setting=setting, names=names)
    found = answers_in_order(one, worlds, workers, progress, lambda world: f"CV {world[0]:.3g}, seed {world[1]}")
    rows: list[QueueRow] = []
    for index, cv in enumerate(cvs):
        own: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        for figures in found[index * len(setting.seeds) : (index + 1) * len(setting.seeds)]:
            for key, values in figures:
                own.setdefault(key, []).append(values)
        rows += _rows(cv, {key: np.array(values) for key, values in own.items()})
    return rows


def _with(chosen: Sequence, needed: QueuePolicy | DurationEstimate) -> list:
    return list(chosen) if any(one.name == needed.name for one in chosen) else [needed, *chosen]


def _in_world(
    world_of: tuple[float, int], *, jobs: QueuedJobs, setting: QueueCase, names: tuple[Sequence[str], Sequence[str]]
) -> list[tuple[tuple[str, str], tuple[float, ...]]]:
    """Policy and estimate, and the values of `QueueFigures`, in the world of a spread and a seed; what a worker does."""
    cv, seed = world_of
    world = draw_world(jobs, setting.n_gpus, spread_to(setting.variability, cv), setting.slack, seed)
    seconds = {name: ESTIMATES.named(name).seconds(world) for name in names[1]}
    found = []
    for policy in map(POLICIES.named, names[0]):
        for name in seconds if policy.has_estimates else (POINT,):
            outcome = simulate(world, policy, seconds[name], restart_s=setting.restart_s)
            found.append(((policy.name, name if policy.has_estimates else ""), outcome.figures().values()))
    return found


def _rows(cv: float, found: dict[tuple[str, str], Floats]) -> list[QueueRow]:
    """Rows of the comparison, from [seed, figure] of every policy and estimate."""
    base = found[BASE_POLICY, ""][:, 0]
    rows = []
    for (policy, estimate), values in found.items():
        own = values[:, 0]
        point = _ratio(own / found[policy, POINT][:, 0]) if estimate else None
        rows.append(
            QueueRow(cv, policy, estimate, QueueFigures(*values.mean(axis=0).tolist()), _ratio(own / base), point)
        )
    return rows


def _ratio(values: Floats) -> Ratio:
    low, middle, high = np.quantile(values, INTERVAL).tolist()
    return Ratio(middle, low, high)

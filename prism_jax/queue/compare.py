"""Policies and estimates side by side, in the same worlds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..core.arrays import Floats
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
) -> list[QueueRow]:
    """All policies with all estimates, in the same worlds, for every spread between GPUs.

    FIFO and point estimates are always among them: the others are measured against them.
    """
    policies = _with(policies, POLICIES.named(BASE_POLICY))
    estimates = _with(estimates, ESTIMATES.named(POINT))
    rows: list[QueueRow] = []
    for index, cv in enumerate(cvs):
        found: dict[tuple[str, str], list[tuple[float, ...]]] = {}
        for number, seed in enumerate(setting.seeds):
            progress((index + number / len(setting.seeds)) / len(cvs), f"CV {cv:.3g}, seed {seed}")
            for key, figures in _in_world(jobs, setting, cv, seed, policies, estimates):
                found.setdefault(key, []).append(figures.values())
        rows += _rows(cv, {key: np.array(values) for key, values in found.items()})
    return rows


def _with(chosen: Sequence, needed: QueuePolicy | DurationEstimate) -> list:
    return list(chosen) if any(one.name == needed.name for one in chosen) else [needed, *chosen]


def _in_world(
    jobs: QueuedJobs,
    setting: QueueCase,
    cv: float,
    seed: int,
    policies: Sequence[QueuePolicy],
    estimates: Sequence[DurationEstimate],
) -> Iterable[tuple[tuple[str, str], QueueFigures]]:
    world = draw_world(jobs, setting.n_gpus, spread_to(setting.variability, cv), setting.slack, seed)
    seconds = {estimate.name: estimate.seconds(world) for estimate in estimates}
    for policy in policies:
        for name in seconds if policy.has_estimates else (POINT,):
            outcome = simulate(world, policy, seconds[name], restart_s=setting.restart_s)
            yield (policy.name, name if policy.has_estimates else ""), outcome.figures()


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

"""Defines what interrupts a job, and how often: hazards per GPU, per node and per job, slow phases, and nodes in repair.

Interruptions do not scale with the number of GPUs alone. Small jobs stop for reasons of their own (software, data, users): a rate
per node that was measured over a whole cluster says 28.8 hours for 1,024 GPUs where 7.9 were measured (RSC-1, arXiv 2410.21680).
A hazard therefore has a rate per GPU, per node and per job, in events per hour. Of nodes in repair at one time follows how many
spare ones suffice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil
from typing import ClassVar

import numpy as np

from ..core.arrays import Floats
from ..core.errors import Problem, SpecError

HOUR_S = 3600.0
MOST_PER_HOUR = 3.6e6  # one a millisecond
MOST_S = 1e10  # three centuries
# a factor of 5e8 either way: nothing is known; the largest of a million draws is still a 32-bit number
MOST_LOG_SD = 20.0
SHAPES = 0.2, 20.0  # of Weibull laws: measured ones lie between .4 and 3


@dataclass(frozen=True)
class Cause:
    """Cause of an interruption or a slow phase: a name, and how often it strikes.

    Attributes:
        cause: what a report calls it.
        per_gpu_h, per_node_h, per_job_h: events per hour of each GPU, of each node, of the job as a whole.

    Raises:
        SpecError: a figure is negative, or larger than can be meant (`MOST`).
    """

    cause: str
    per_gpu_h: float = 0.0
    per_node_h: float = 0.0
    per_job_h: float = 0.0

    ELSEWHERE: ClassVar[frozenset[str]] = frozenset({"cause"})  # fields that have a rule of their own
    MOST: ClassVar[Mapping[str, float]] = dict.fromkeys(("per_gpu_h", "per_node_h", "per_job_h"), MOST_PER_HOUR)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = 0.0 if item.name in self.ELSEWHERE else getattr(self, item.name)
            if not value >= 0.0:
                raise SpecError.of(Problem(item.name, f"{value:g}, but it must be at least 0"), self.cause)
            most = self.MOST.get(item.name, float("inf"))
            if value > most:
                raise SpecError.of(Problem(item.name, f"{value:g}, but it must be at most {most:g}"), self.cause)

    def rate_h(self, n_gpus: float, node_size: int) -> float:
        """Events per hour of a job on `n_gpus` GPUs in nodes of `node_size`."""
        return self.per_gpu_h * n_gpus + self.per_node_h * ceil(n_gpus / node_size) + self.per_job_h


@dataclass(frozen=True)
class Hazard(Cause):
    """One cause of interruptions.

    Attributes:
        nodes_lost: nodes that an event takes out of service together; 0: the job stops, no hardware is lost.
        noticed_s: seconds until the interruption is noticed: 0 for a crash, the timeout for a hang.
        repair_s, repair_log_sd: median seconds until lost nodes are back, and the standard deviation of their logarithm.
        shape: of the Weibull law of the time since the last start; 1: constant, below 1: early failures are more frequent.
        log_sd: standard deviation of the logarithm of the rates: what is not known of them.

    Raises:
        SpecError: a figure is negative or too large, or the shape out of range (`SHAPES`).
    """

    nodes_lost: float = 1.0
    noticed_s: float = 0.0
    repair_s: float = 0.0
    repair_log_sd: float = 0.0
    shape: float = 1.0
    log_sd: float = 0.0

    ELSEWHERE: ClassVar[frozenset[str]] = frozenset({"cause", "shape"})
    MOST: ClassVar[Mapping[str, float]] = {
        **Cause.MOST,
        **dict.fromkeys(("noticed_s", "repair_s"), MOST_S),
        **dict.fromkeys(("repair_log_sd", "log_sd"), MOST_LOG_SD),
        "nodes_lost": 1e6,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = SHAPES
        if not low <= self.shape <= high:
            raise SpecError.of(Problem("shape", f"{self.shape:g}, but it must be from {low:g} to {high:g}"), self.cause)


@dataclass(frozen=True)
class SlowPhase(Cause):
    """One cause of slow steps that no failure ends: a throttled GPU, a congested or flapping link.

    Attributes:
        slowdown: of the step while it lasts (1.1: 10% longer); slowdown_log_sd: spread of the logarithm of its excess.
        duration_s, duration_log_sd: median seconds until it ends or is mended, and spread of their logarithm.

    Raises:
        SpecError: a figure is negative or too large, or the slowdown below 1.
    """

    slowdown: float = 1.0
    slowdown_log_sd: float = 0.0
    duration_s: float = 0.0
    duration_log_sd: float = 0.0

    MOST: ClassVar[Mapping[str, float]] = {
        **Cause.MOST,
        "duration_s": MOST_S,
        "slowdown": 1e4,
        **dict.fromkeys(("slowdown_log_sd", "duration_log_sd"), MOST_LOG_SD),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slowdown < 1.0:
            raise SpecError.of(Problem("slowdown", f"{self.slowdown:g}, but it must be at least 1"), self.cause)


@dataclass(frozen=True)
class Reliability:
    """Reliability of a job: everything that interrupts or slows it.

    Attributes:
        hazards: causes of interruptions.
        slow_phases: causes of slow steps.
        name, source: of the preset or file.

    Raises:
        SpecError: nothing in it, or two causes of one name.
    """

    hazards: tuple[Hazard, ...]
    slow_phases: tuple[SlowPhase, ...] = ()
    name: str = "reliability"
    source: str = ""

    def __post_init__(self) -> None:
        causes = [one.cause for one in (*self.hazards, *self.slow_phases)]
        twice = sorted({cause for cause in causes if causes.count(cause) > 1})
        if twice:
            raise SpecError.of(Problem("hazards", f"{', '.join(twice)}: stated twice"))

    def rate_h(self, n_gpus: float, node_size: int) -> float:
        """Interruptions per hour of a job on `n_gpus` GPUs in nodes of `node_size`."""
        return sum(hazard.rate_h(n_gpus, node_size) for hazard in self.hazards)

    def mttf_h(self, n_gpus: float, node_size: int) -> float:
        """Mean hours between interruptions; infinite where nothing interrupts."""
        rate = self.rate_h(n_gpus, node_size)
        return 1.0 / rate if rate > 0.0 else float("inf")


def of_mtbf(hours: float, n_gpus: int, repair_s: float = 0.0, log_sd: float = 0.0) -> Reliability:
    """Interruptions of a job on `n_gpus` GPUs every `hours` on average, scaled by GPUs elsewhere.

    Raises:
        SpecError: `hours` is not positive.
    """
    if not 1.0 / MOST_PER_HOUR <= hours < float("inf"):
        raise SpecError.of(Problem("mtbf", f"{hours * HOUR_S:g} s, but it must be at least .001 s, and finite"))
    hazard = Hazard("failures", per_gpu_h=1.0 / (hours * n_gpus), repair_s=repair_s, log_sd=log_sd)
    return Reliability((hazard,), name=f"MTBF {hours:g} h on {n_gpus:,} GPUs", source="stated")


ENOUGH = 0.99  # of the time
MOST_SPARES = 1 << 14


def n_down_law(reliability: Reliability, n_gpus: int, node_size: int, n_spare: int) -> Floats:
    """Probability of 0, 1, 2, ... nodes in repair, of the job's and the spare ones.

    Notes: a node is down for the share MTTR / (MTTR + MTBF) of its time, whatever the law of repair is: binomial. Hazards that
        take k nodes together take groups of k; hazards are independent.
    """
    n_node = ceil(n_gpus / node_size)
    law = np.ones(1)
    for hazard in reliability.hazards:
        size = max(round(hazard.nodes_lost), 1)
        share = down_share(hazard, n_gpus, node_size)
        if share == 0.0:
            continue
        n_group = max((n_node + n_spare) // size, 1)
        each = _binomial(n_group, share)
        most = min(n_group, int(np.searchsorted(np.cumsum(each), 1.0 - 1e-9)) + 1)
        own = np.zeros(most * size + 1)
        own[::size] = each[: most + 1]
        law = np.convolve(law, own)
    return law


def _binomial(n: int, share: float) -> Floats:
    """Probability of 0 to `n` successes."""
    from scipy.special import gammaln  # here, so that reading a report does not pay for it

    k = np.arange(n + 1)
    log_ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.exp(log_ways + k * np.log(share) + (n - k) * np.log1p(-share))


def down_share(hazard: Hazard, n_gpus: int, node_size: int) -> float:
    """Share of the time that a group of nodes is in repair for one hazard."""
    if hazard.nodes_lost == 0.0 or hazard.repair_s == 0.0:
        return 0.0
    mean_h = hazard.repair_s * float(np.exp(0.5 * hazard.repair_log_sd**2)) / HOUR_S
    size = max(round(hazard.nodes_lost), 1)
    n_group = max(ceil(n_gpus / node_size) // size, 1)
    odds = hazard.rate_h(n_gpus, node_size) / n_group * mean_h
    return odds / (1.0 + odds)


def enough_prob(reliability: Reliability, n_gpus: int, node_size: int, n_spare: int) -> float:
    """Share of the time that at most `n_spare` nodes are in repair."""
    return float(n_down_law(reliability, n_gpus, node_size, n_spare)[: n_spare + 1].sum())


def fewest_spares(reliability: Reliability, n_gpus: int, node_size: int, enough: float = ENOUGH) -> int:
    """Smallest number of spare nodes that suffices for `enough` of the time; at most `MOST_SPARES`."""
    low, high = -1, 1
    if enough_prob(reliability, n_gpus, node_size, 0) >= enough:
        return 0
    while high < MOST_SPARES and enough_prob(reliability, n_gpus, node_size, high) < enough:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough_prob(reliability, n_gpus, node_size, middle) >= enough else (middle, high)
    return high

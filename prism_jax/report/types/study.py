"""StudyReport and SizesReport: what a search over plans has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..codec import INLINE
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True)
class SearchedJob:
    """The job whose plan was searched."""

    name: str
    model: str
    cluster: str
    device: str
    n_devices: int
    hbm_bytes: float
    sample_unit: str


@dataclass(frozen=True)
class PlanFacts:
    """Fields of a plan that a search chooses, as a job file spells them.

    Attributes:
        overlap: axis -> whether its communication may hide behind compute.
    """

    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    virtual_stages: int
    schedule: str
    micro_batch: int
    sequence_parallel: bool
    recompute: str
    zero_stage: int
    sharding: str
    dp_shard: int | None
    overlap: Mapping[str, bool]
    n_micro_batch: int
    n_devices: int


@dataclass(frozen=True)
class CandidateFacts:
    """A plan that reached the last round.

    Attributes:
        step_s: without any variability.
        value_s, value_error_s: objective and its Monte Carlo standard error, in the unit of the objective.
        behind_s, behind_error_s: how far behind the best, on the same draws, and the standard error of that.
        prob_best: probability that it is the best of all finalists, given what the cost model does not know.
        memory_bytes: peak of the worst stage; memory_interval_bytes: 90 % interval of what would be measured.
        not_fit_prob: probability that this exceeds the device's memory, 0-1.
        mfu: share of the devices' peak that the median step makes use of, 0-1.
        tokens_per_s_per_gpu: of the median step; samples where the model counts these.
        tied: whether the draws cannot tell it from the best.
        changes: overrides (`--set`) that make the job's own plan this one.
    """

    step_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    value_s: float
    value_error_s: float
    behind_s: float
    behind_error_s: float
    prob_best: float
    memory_bytes: float
    memory_interval_bytes: tuple[float, float]
    not_fit_prob: float
    mfu: float
    tokens_per_s_per_gpu: float
    tied: bool
    changes: tuple[str, ...]
    plan: PlanFacts


@dataclass(frozen=True)
class GainFacts:
    """What the best plan gains over the job's own, on draws that the search has not seen.

    Attributes:
        gain: share of the objective that is saved.
        gain_interval: 90 % interval, Monte Carlo error alone.
        model_interval: the same, counting what the cost model does not know as well; both plans share most of that.
        posterior_interval: the same over posterior draws of a fit; None without one.
    """

    base_s: float
    best_s: float
    gain: float
    gain_interval: tuple[float, float]
    model_interval: tuple[float, float]
    posterior_interval: tuple[float, float] | None


@dataclass(frozen=True)
class StudyReport(Report):
    """The best plans of a search, how sure that is, and what the best one gains.

    Attributes:
        top: best first.
        unlike: best first; the best of each combination of degrees, schedule, recomputation and sharding.
        front_memory: plans that no other beats in both the objective and memory.
        n_simulated: plans whose step was simulated; `n_raced`: plans scored on their tail.
        infeasible: reason -> number of plans.
    """

    kind: ClassVar[str] = "study"
    picture: ClassVar[str] = "prism_jax.plot.study:draw"

    job: SearchedJob
    objective: str
    objective_unit: str
    method: str
    best: CandidateFacts
    top: tuple[CandidateFacts, ...]
    unlike: tuple[CandidateFacts, ...]
    gain: GainFacts | None
    front_memory: tuple[CandidateFacts, ...]
    n_plans: int
    n_feasible: int
    n_simulated: int
    n_raced: int
    infeasible: Mapping[str, int]
    elapsed_s: float
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]


@dataclass(frozen=True)
class SizeFacts:
    """Best plan of one cluster size, per step.

    Attributes:
        value_s: objective of the best plan, in its unit.
        memory_bytes: peak per device.
        energy_j: of all devices.
        cost: in the currency of the price; 0 without one.
    """

    value_s: float
    n_devices: int
    memory_bytes: float
    energy_j: float
    cost: float
    p50_s: float
    plan: PlanFacts


@dataclass(frozen=True)
class SizesReport(Report):
    """Best plan of every cluster size.

    Attributes:
        front: numbers of devices that no other size beats in time, devices, energy and cost.
    """

    kind: ClassVar[str] = "sizes"

    job: SearchedJob
    objective: str
    objective_unit: str
    sizes: tuple[SizeFacts, ...]
    front: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]

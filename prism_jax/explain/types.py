"""What an explanation consists of; plain data, no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats
from ..result import AllocationSpread


@dataclass(frozen=True)
class Explanation:
    """Why a step takes as long as it takes.

    Attributes:
        breakdown_s: where the mean step goes, for an average GPU; sums to the mean step time. Keys: compute, exposed
            tp, cp, ep, dp and pp communication, bubble, waiting for stragglers, stalls.
        criticality: op class -> share of the critical path (d step / d seconds x seconds / step); sums to one.
        p95_owner_s: kernel class or shared factor -> seconds by which p95 falls when its variability is removed.
        allocation: spread of the step time within one allocation of GPUs and between allocations.
    """

    breakdown_s: Mapping[str, float]
    criticality: Mapping[str, float]
    p95_owner_s: Mapping[str, float]
    allocation: AllocationSpread


@dataclass(frozen=True)
class Timeline:
    """One step of its slowest replica, op by op; arrays are [level, lane], idle cells have label -1.

    Attributes:
        title: which step this is ("median step", "p99 step").
        start_s, end_s: of every op.
        compute_s: the part that the slowest member computes; the rest of the op is communication.
        label: index into `labels`.
        labels: names of ops, e.g. "F3 c1".
        end_of_lane_s: [lane] end after optimizer and final communication.
        step_s: of the whole step.
    """

    title: str
    start_s: Floats
    end_s: Floats
    compute_s: Floats
    label: NDArray[np.int32]
    labels: tuple[str, ...]
    end_of_lane_s: Floats
    step_s: float


@dataclass(frozen=True)
class Stragglers:
    """Who slowed the recorded steps down.

    Attributes:
        recorded_s: [step] replayed as recorded, without host gaps.
        ideal_s: [step] replayed ideally.
        by_op_type, by_stage, by_dp: slowdown that this part alone causes.
        by_worker: [replica, stage] slowdown of every worker.
        worst: (replica, stage) of the workers that M_W replaces.
        m_w, m_s: share of the lost time owed to the worst workers, to the last stage; nan if nothing is lost.
    """

    recorded_s: Floats
    ideal_s: Floats
    by_op_type: Mapping[str, float]
    by_stage: Mapping[int, float]
    by_dp: Mapping[int, float]
    by_worker: Floats
    worst: tuple[tuple[int, int], ...]
    m_w: float
    m_s: float

    @property
    def slowdown(self) -> float:
        """S: mean recorded over mean ideal step."""
        return float(self.recorded_s.mean() / self.ideal_s.mean())

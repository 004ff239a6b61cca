"""Job: a model, a cluster, a plan and a variability that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .calibration.calibration import Calibration, shipped
from .cost.efficiency import Efficiency
from .framework.catalog import check_framework
from .plan.plan import ParallelPlan
from .system.hardware import Cluster
from .variability.tree import Variability
from .workload.base import Workload


@dataclass(frozen=True, eq=False)
class Job:
    """What one training step is made of; compared by identity, so that what is derived from it can be cached.

    Attributes:
        framework: training software, one of `framework.catalog.FRAMEWORKS`; empty: not known, the population's average.
        calibration: what measured steps say about the cost model; None: the shipped calibration.

    Raises:
        SpecError: unknown framework.
    """

    model: Workload
    cluster: Cluster
    plan: ParallelPlan
    variability: Variability
    name: str = "job"
    framework: str = ""
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        check_framework(self.framework)

    @property
    def calibrated(self) -> Calibration:
        """What measured training steps say about the cost of this job: its own calibration, or the shipped one."""
        return shipped() if self.calibration is None else self.calibration

    @cached_property
    def efficiency(self) -> Efficiency:
        """Constants of the device under the job's software, as calibrated.

        Raises:
            SpecError: no constants for the device.
            PlanError: `layer_split` does not fit.
        """
        return self.calibrated.efficiency_of(self.model, self.cluster, self.plan, self.framework)

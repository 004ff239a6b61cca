"""A measured row as a job with its costs: what predictions, intervals and parts of it are made of, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..calibration.calibration import Calibration
from ..calibration.key import CalibrationKey
from ..calibration.open_fields import OpenField, doubtful
from ..calibration.surrogate import StepSurrogate, outline_of
from ..cost.block_cost import BlockCostModel
from ..cost.step import step_cost_of
from ..cost.step_cost import StepCost
from ..job import Job
from ..variability.catalog import default_for, preset
from ..variability.tree import Variability
from .parts import without_host
from .rows import MeasuredRow

ASSUMED_SD = 0.2  # of the logarithm of a step, per blank that a rule has filled: half a batch, a degree, a shape


@dataclass(frozen=True)
class CostedJob:
    """A job whose plan can run.

    Attributes:
        cost: of its step.
        prompt_cost: of its step if the host cost nothing.
        outline: of its step, without a correction.
        doubts: fields that a row left blank and that were filled by a rule.
    """

    job: Job
    cost: StepCost
    prompt_cost: StepCost
    outline: StepSurrogate
    doubts: tuple[OpenField, ...] = ()

    @property
    def setting(self) -> CalibrationKey:
        """What its calibration depends on."""
        job = self.job
        return CalibrationKey.of(job.cluster.device, job.framework, job.plan.software, job.model)


def job_of_row(row: MeasuredRow, calibration: Calibration | None = None, *, deterministic: bool = False) -> Job:
    """The job of a supported row; `deterministic`: without variability."""
    model, cluster, plan = row.job
    tree = Variability() if deterministic else preset(default_for(cluster.device))
    return Job(model, cluster, plan, tree, row.id, row.framework, calibration, open_plan=row.open_plan)


def costed(job: Job, assumed: Sequence[object] = ()) -> CostedJob:
    """Costs of `job`; `assumed` is what its row was taken for where it says nothing.

    Raises:
        PlanError: the plan is impossible for the model or the cluster.
        SpecError: no constants for the device, or it lacks the plan's dtype.
    """
    job.check()
    blocks = BlockCostModel(job.model, job.cluster, job.plan, job.efficiency)
    prompt = blocks.under(without_host(blocks.eff.correction))
    doubts = tuple(doubtful(str(one), ASSUMED_SD) for one in assumed)
    return CostedJob(job, step_cost_of(blocks), step_cost_of(prompt), outline_of(blocks), doubts)

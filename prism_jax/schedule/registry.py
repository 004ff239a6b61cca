"""Pipeline schedules by name; another one is one file with its class and one line in `_shipped`."""

from __future__ import annotations

from ..core.errors import PlanError
from ..core.registry import Registry
from .base import PipelineSchedule
from .one_f_one_b import GPipe, Interleaved, OneFOneB
from .order import ScheduleOrder
from .zero_bubble import ZBH1, ZBH2, ZBV, DualPipe


def _shipped() -> tuple[PipelineSchedule, ...]:
    return (
        GPipe(),
        OneFOneB(),
        Interleaved(),
        ZBH1(),
        ZBH2(),
        ZBV(),
        DualPipe(),
    )


SCHEDULES: Registry[PipelineSchedule] = Registry("schedule", _shipped, error=PlanError)


def resolve_schedule(schedule: str | PipelineSchedule) -> PipelineSchedule:
    """The schedule that a plan names, or the object it holds.

    Raises:
        PlanError: an unknown name.
    """
    return SCHEDULES.named(schedule) if isinstance(schedule, str) else schedule


def make_schedule(
    schedule: str | PipelineSchedule, pp: int, n_micro_batch: int, virtual_stages: int = 1
) -> ScheduleOrder:
    """Order of all ops of one step.

    Args:
        schedule: a name of `SCHEDULES`, or an object.
        pp: pipeline stages, >= 1.
        n_micro_batch: micro-batches per step and replica, >= 1.
        virtual_stages: model chunks per stage, >= 1.

    Raises:
        PlanError: an unknown name, or numbers with which the schedule cannot be laid out.
    """
    return resolve_schedule(schedule).lay_out(pp, n_micro_batch, virtual_stages)

"""Pipeline schedules: `SCHEDULES` by name, `PipelineSchedule` to write another one."""

from .base import PipelineSchedule as PipelineSchedule
from .order import (
    Op as Op,
    Orders as Orders,
    Part as Part,
    ScheduleOrder as ScheduleOrder,
    backward as backward,
    forward as forward,
    input_gradient as input_gradient,
    weight_gradient as weight_gradient,
)
from .registry import SCHEDULES as SCHEDULES, make_schedule as make_schedule, resolve_schedule as resolve_schedule
from .work import PipelineWork as PipelineWork

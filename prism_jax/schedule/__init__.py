"""Pipeline schedules by name; a new one is one new file and one line in `SCHEDULES`."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import PlanError
from ..hints import did_you_mean
from .base import Op as Op, Part as Part, Schedule as Schedule
from .dual_pipe import dual_pipe as dual_pipe
from .gpipe import gpipe as gpipe
from .interleaved import interleaved as interleaved
from .one_f_one_b import one_f_one_b as one_f_one_b
from .zero_bubble import zb_h1 as zb_h1, zb_h2 as zb_h2
from .zero_bubble_v import zb_v as zb_v

SCHEDULES: dict[str, Callable[[int, int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zb_v": zb_v,
    "dualpipe": dual_pipe,
}


def make_schedule(name: str, pp: int, n_micro_batch: int, virtual_stages: int = 1) -> Schedule:
    """Order of all ops of one step under the schedule `name`.

    Args:
        name: key of `SCHEDULES`.
        pp: pipeline stages, >= 1.
        n_micro_batch: micro-batches per step and replica, >= 1.
        virtual_stages: model chunks per stage, >= 1.

    Raises:
        PlanError: an unknown name, or numbers with which the schedule cannot be laid out.
    """
    if name not in SCHEDULES:
        raise PlanError(f"schedule = {name!r} is unknown{did_you_mean(name, SCHEDULES)}")
    for what, value in (("pp", pp), ("n_micro_batch", n_micro_batch), ("virtual_stages", virtual_stages)):
        if value < 1:
            raise PlanError(f"{what} = {value}, but schedule {name} needs at least 1. Try {what}=1.")
    return SCHEDULES[name](pp, n_micro_batch, virtual_stages)

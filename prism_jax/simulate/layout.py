"""Which device plays which part: member of a group, pipeline stage, replica."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..plan.plan import ParallelPlan


def device_layout(plan: ParallelPlan) -> NDArray[np.int32]:
    """Device index [member, lane, replica] of every rank, under the plan's axis order.

    Members count tp fastest, then cp, then the dp ranks tied to the group (neighbours along dp); replicas are the rest of dp.
    """
    grid = {axis: np.arange(getattr(plan, axis)) * plan.stride(axis) for axis in ("tp", "cp", "dp", "pp")}
    tied = plan.n_member // (plan.tp * plan.cp)
    dp = grid["dp"].reshape(-1, tied).T  # [tied, replica]
    member = dp[:, None, None, :] + grid["cp"][None, :, None, None] + grid["tp"][None, None, :, None]
    member = member.reshape(plan.n_member, 1, -1)
    return (member + grid["pp"][None, :, None]).astype(np.int32)

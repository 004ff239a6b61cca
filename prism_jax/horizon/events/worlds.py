"""Inputs of a simulation: the job cut into intervals, its outages, what interrupts it and what slows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..._typing import Floats


@dataclass(frozen=True)
class Shape:
    """What decides which program is compiled; the rest is numbers.

    Attributes:
        n_constant: threats of constant rate, which stand in front; the others age since the last start.
        n_slow: kinds of slow phases.
        n_slot: groups of nodes that can be in repair at once; 0: none ever is.
        shrinks: the job goes on with fewer nodes instead of waiting for some.
    """

    n_constant: int
    n_slow: int
    n_slot: int
    shrinks: bool = False


class Threats(eqx.Module):
    """Causes of interruptions; figures as in `reliability.Hazard`."""

    shape: Float[Any, " threat"]
    noticed_s: Float[Any, " threat"]
    nodes_lost: Float[Any, " threat"]
    repair_s: Float[Any, " threat"]
    repair_log_sd: Float[Any, " threat"]


class SlowArrays(eqx.Module):
    """Kinds of slow phases; figures as in `reliability.SlowPhase`, seconds between onsets."""

    between_s: Float[Any, " slow"]
    excess: Float[Any, " slow"]
    excess_log_sd: Float[Any, " slow"]
    duration_s: Float[Any, " slow"]
    duration_log_sd: Float[Any, " slow"]


class Setting(eqx.Module):
    """What all worlds share.

    Attributes:
        n_node, n_spare: of the job, and idle ones beside it.
    """

    threats: Threats
    slow: SlowArrays
    n_node: Float[Any, ""]
    n_spare: Float[Any, ""]


class Worlds(eqx.Module):
    """What differs from world to world.

    Attributes:
        scale_s: of the Weibull law of the time from a start to each threat: the mean where its shape is one.
        n_interval: intervals of work, each followed by a checkpoint.
        interval_s, first_s: work of an interval without slow phases, and of the first, which holds what is left over.
        checkpoint_s: that training waits for one.
        planned_s: of planned stops that fall on one interval.
        background_s: from the end of the wait until a checkpoint can be loaded; at most an interval.
        restart_s: from the start after an interruption to the first new step, in which the next one may strike.
        swap_s: the same where no node had to be waited for.
    """

    scale_s: Float[Any, "threat world"]
    n_interval: Int[Any, " world"]
    interval_s: Float[Any, " world"]
    first_s: Float[Any, " world"]
    checkpoint_s: Float[Any, " world"]
    planned_s: Float[Any, " world"]
    background_s: Float[Any, " world"]
    restart_s: Float[Any, " world"]
    swap_s: Float[Any, " world"]


def cut(work_s: Floats, interval_s: Floats) -> tuple[Floats, Floats]:
    """Number of intervals [world] that `work_s` makes, the first of them shorter, and the seconds of that first one."""
    n = np.maximum(np.ceil(work_s / interval_s * (1.0 - 1e-12)), 1.0)
    return n, work_s - (n - 1.0) * interval_s

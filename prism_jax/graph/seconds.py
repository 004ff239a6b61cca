"""Seconds of a step graph: the cost of chunks, placed where the schedule runs their ops. NumPy, or traced by JAX."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Values, namespace
from ..cost.step_cost import StepCost
from .levels import LevelTable
from .signatures import Signatures, signature_seconds


class GraphSeconds(NamedTuple):
    """Noise-free seconds of a `StepGraph`, in the array library of the cost.

    Attributes:
        compute_s: [level, lane, compute_class].
        comm_s: [level, lane, comm_axis].
        lag_s: [level, lane, dep].
        send_s: [level, lane].
        end_compute_s, end_comm_s: [lane].
    """

    compute_s: Values
    comm_s: Values
    lag_s: Values
    send_s: Values
    end_compute_s: Values
    end_comm_s: Values


def graph_seconds(cost: StepCost, sigs: Signatures, table: LevelTable) -> GraphSeconds:
    """Seconds of every op, transfer and end of the step.

    Args:
        cost: of the plan; its arrays may be traced.
        sigs: of the schedule's ops, at their places in `table`.
        table: levels of the schedule.
    """
    xp = namespace(cost)
    compute_s, comm_s = signature_seconds(sigs, cost.compute_s, cost.comm_s, cost.hidden_comm_s)
    p2p_s = xp.append(cost.p2p_s, 0.0)  # edge -1: nothing is sent
    send_s = p2p_s[sigs.edge].sum(axis=-1) if cost.p2p_blocking else xp.zeros(len(sigs.edge))
    return GraphSeconds(
        compute_s=_placed(compute_s, sigs.of_op, xp),
        comm_s=_placed(comm_s, sigs.of_op, xp),
        lag_s=xp.zeros(table.dep_edge.shape) if cost.p2p_blocking else p2p_s[table.dep_edge],
        send_s=_placed(send_s, sigs.of_op, xp),
        end_compute_s=xp.asarray(cost.end_compute_s, dtype=float),
        end_comm_s=xp.asarray(cost.end_comm_s, dtype=float),
    )


def _placed(seconds: Values, of_op: NDArray[np.intp], xp: Any) -> Values:
    """[level, lane, ...] of values [signature, ...]; zero where a lane idles."""
    return xp.concatenate([seconds, 0.0 * seconds[:1]])[of_op]

"""Names of array axes, one meaning each, for jaxtyping shapes such as `Float[Array, "row sample"]`.

Glossary:
    axis:   dimension of the network: tp, cp, ep, dp, then pp (transfers between stages) and the end of the step.
    batch:  independent randomisation of an estimate.
    cell:   any point of a table; `*cell` are the axes that argument and result share.
    chunk:  columns that are drawn under one key on the device; elsewhere model chunk in model order.
    batch_sample: draw of one such randomisation.
    column: independent random draw of one replica; the last axis of the engine.
    dep:    predecessor slot of an operation.
    device: GPU of the job, in the order of the plan's axis order.
    draw:   posterior draw.
    factor: group of kernel classes that are slowed by one factor per GPU.
    fleet:  GPUs and nodes that a job gets; steps of one fleet share what persists.
    kind:   F, B, W.
    knot:   bend of a piecewise-linear function.
    lane:   pipeline stage of the spec front end, rank or stream of a trace.
    level:  position in the execution order of a step graph; the scanned axis.
    member: rank of the group that synchronises inside every op of a lane.
    node:   host.
    op:     operation signature.
    pair:   two columns that share one counter of the random numbers; half as many as columns.
    part:   the factors, and after them the constant part that no factor slows.
    plan:   candidate plan of a sweep.
    replica: columns of lanes that meet at the end of the step only.
    row:    one operation instance on one lane.
    sample: Monte Carlo draw of a step; always the last axis.
    score:  value of the step's network score; all share every random number.
    stage:  pipeline stage.
    step:   training step, in the order of time where steps belong to one fleet.
    used:   network axis that has any communication inside the ops.
    word:   row of packed random words of an op: one per member, one more for its communication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike as ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int32]
    Counts = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Positions = NDArray[np.intp]
else:  # names in annotations only, so that NumPy is loaded by the modules that compute
    ArrayLike = Floats = Ints = Counts = Flags = Positions = Any

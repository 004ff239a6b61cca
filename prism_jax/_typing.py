"""Names of array axes, one meaning each, for jaxtyping shapes such as `Float[Array, "row sample"]`.

Glossary:
    sample: Monte Carlo draw of a step; always the last axis.
    row:    one operation instance on one lane.
    level:  position in the execution order of a step graph; the scanned axis.
    lane:   pipeline stage of the spec front end, rank or stream of a trace.
    dep:    predecessor slot of an operation.
    op:     operation signature.
    kind:   F, B, W.
    chunk:  model chunk in model order.
    stage:  pipeline stage.
    device: GPU of the job, in the order of the plan's axis order.
    node:   host.
    plan:   candidate plan of a sweep.
    draw:   posterior draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

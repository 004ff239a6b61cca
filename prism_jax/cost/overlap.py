"""What of a communication shows: seconds that stick out of the compute it runs beside, and what the compute pays for it.

    exposed = max(0, comm - share window)      hidden = min(comm, share window)      compute += slowdown * hidden

`share` is how much of the window communication can use: all of it where it is queued beside one kernel, `overlap_window` of the
`CostCorrection` for that of data parallelism, whose collectives wait for streams and for each other. `slowdown` is
`Efficiency.overlap_slowdown`: a running collective takes multiprocessors and memory bandwidth from the kernels.
Arguments may be arrays of any (broadcastable) shape, of the library `xp`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._typing import Floats


class Exposure(NamedTuple):
    """Seconds that show, and seconds that run beside compute."""

    exposed_s: Floats
    hidden_s: Floats


def behind(comm_s: ArrayLike, window_s: ArrayLike, share: ArrayLike = 1.0, xp: Any = np) -> Exposure:
    """`comm_s` of communication that may run during a share of `window_s` of compute."""
    comm = xp.asarray(comm_s)
    hidden = xp.minimum(comm, share * xp.maximum(xp.asarray(window_s), 0.0))
    return Exposure(comm - hidden, hidden)


def prefetched(
    comm_s: ArrayLike, alone_s: ArrayLike, window_s: ArrayLike, share: ArrayLike = 1.0, xp: Any = np
) -> Exposure:
    """Communication of which `alone_s` has no compute beside it: the first to arrive, or the last to leave."""
    alone = xp.asarray(alone_s)
    rest = behind(comm_s - alone, window_s, share, xp)
    return Exposure(alone + rest.exposed_s, rest.hidden_s)


def cut_up(
    comm_s: ArrayLike, window_s: ArrayLike, n_piece: ArrayLike, share: ArrayLike = 1.0, xp: Any = np
) -> Exposure:
    """Communication cut into `n_piece` pieces like the compute it belongs to: one piece has nothing to hide behind."""
    comm = xp.asarray(comm_s)
    return prefetched(comm, comm / xp.asarray(n_piece), window_s, share, xp)


def bucketed(
    comm_s: ArrayLike, window_s: ArrayLike, n_bucket: ArrayLike, share: ArrayLike = 1.0, xp: Any = np
) -> Exposure:
    """A gradient reduction in `n_bucket` buckets as they become ready during `window_s` of backward pass.

    Notes:
        The first bucket is ready after 1/n of the window and the last at its end: 1/n of the communication always shows.
        No bucket: nothing hides.
    """
    n = xp.maximum(xp.asarray(n_bucket, dtype=float), 1.0)
    return cut_up(comm_s, xp.asarray(window_s) * (1.0 - 1.0 / n), n, share, xp)

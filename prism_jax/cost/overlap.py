"""What of a communication shows: seconds that stick out of the compute it runs beside, and what the compute pays for it.

    exposed = max(0, comm - window)      hidden = min(comm, window)      compute += slowdown * hidden

`slowdown` is `Efficiency.overlap_slowdown`: a running collective takes multiprocessors and memory bandwidth from the kernels.
"""

from __future__ import annotations

from typing import NamedTuple


class Exposure(NamedTuple):
    """Seconds that show, and seconds that run beside compute."""

    exposed_s: float
    hidden_s: float


def behind(comm_s: float, window_s: float) -> Exposure:
    """`comm_s` of communication that may run during `window_s` of compute."""
    hidden = min(comm_s, max(window_s, 0.0))
    return Exposure(comm_s - hidden, hidden)


def cut_up(comm_s: float, window_s: float, n_piece: int) -> Exposure:
    """Communication cut into `n_piece` pieces like the compute it belongs to: one piece has nothing to hide behind."""
    first = comm_s / n_piece
    rest = behind(comm_s - first, window_s)
    return Exposure(first + rest.exposed_s, rest.hidden_s)


def bucketed(comm_s: float, window_s: float, n_bucket: int) -> Exposure:
    """A gradient reduction in `n_bucket` buckets as they become ready during `window_s` of backward pass.

    Notes:
        The first bucket is ready after 1/n of the window and the last at its end: 1/n of the communication always shows.
    """
    if n_bucket <= 0:
        return Exposure(comm_s, 0.0)
    return cut_up(comm_s, window_s * (1.0 - 1.0 / n_bucket), n_bucket)

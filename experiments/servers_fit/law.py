"""ServerLaw: steps per second of workers that exchange with parameter servers, up to what the servers can take.

    speed(k) = ((k v)^-q + (n C)^-q)^(-1/q)

v is the speed of a worker alone, C the updates per second of one server, n their number, q how sharply one takes over from the
other: a smooth form of min(k v, n C). Beside it, all-reduce is as fast as its slowest worker and shares no server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prism_jax.core.arrays import Floats
from prism_jax.core.content import ByContent
from prism_jax.core.errors import Problem, SpecError


@dataclass(frozen=True, eq=False)
class ServerLaw(ByContent):
    """In draws of what is not known, [draw].

    Attributes:
        worker_per_s: steps per second of one worker, v.
        server_per_s: updates per second that one server can take, C.
        sharpness: q.
        workers: the most that were measured.
        source: what was measured.

    Raises:
        SpecError: arrays differ in length or hold what is not positive.
    """

    worker_per_s: Floats
    server_per_s: Floats
    sharpness: Floats
    workers: int
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("worker_per_s", "server_per_s", "sharpness"):
            value = getattr(self, name)
            if value.shape != self.worker_per_s.shape or value.ndim != 1 or not len(value):
                raise SpecError.of(
                    Problem(name, f"shape {value.shape}, but it must be that of worker_per_s, [draw]"), "servers"
                )
            if not (np.isfinite(value) & (value > 0.0)).all():
                raise SpecError.of(Problem(name, "holds what is no positive number"), "servers")

    def steps_per_s(self, n_workers: int, n_servers: int = 1) -> Floats:
        """Updates per second of all workers together, [draw].

        Raises:
            SpecError: no worker or no server.
        """
        if n_workers < 1 or n_servers < 1:
            text = f"{n_workers} workers and {n_servers} servers, but there must be at least one of each"
            raise SpecError.of(Problem("n_workers", text), "servers")
        return saturating(n_workers * self.worker_per_s, n_servers * self.server_per_s, self.sharpness)


def saturating(offered: Floats, capacity: Floats, sharpness: Floats) -> Floats:
    """The smooth minimum of two speeds, written so that no power overflows."""
    low, high = np.minimum(offered, capacity), np.maximum(offered, capacity)
    return low * np.exp(-np.log1p(np.exp(sharpness * (np.log(low) - np.log(high)))) / sharpness)

"""Least attained service, of GPUs and time (2D-LAS of Tiresias, NSDI 2019), in queues with thresholds."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ..view import View
from .base import Policy

QUEUE_S = 1e12  # between the ranks of two queues: more than any trace lasts


@dataclass(frozen=True)
class LeastAttained(Policy):
    """Jobs begin in the first queue and move down as they use GPUs; inside a queue, first in, first out. Needs no durations.

    Attributes:
        thresholds_gpu_s: GPU-seconds after which a job moves to the next queue.
    """

    name: ClassVar[str] = "las"
    about: ClassVar[str] = "least attained GPU-seconds first, in queues, interrupting others"
    preempts: ClassVar[bool] = True

    thresholds_gpu_s: tuple[float, ...] = (3_600.0, 36_000.0)

    def rank(self, job: int, view: View) -> float:
        """Its queue, then its submission."""
        return self._queue(job, view) * QUEUE_S + view.submit_s[job]

    def review_s(self, job: int, view: View, is_running: bool) -> float:
        """Until a running job has used what its queue allows."""
        queue = self._queue(job, view)
        if not is_running or queue == len(self.thresholds_gpu_s):
            return inf
        return self.thresholds_gpu_s[queue] / view.gpus[job] - view.ran_s[job]

    def _queue(self, job: int, view: View) -> int:
        used = view.ran_s[job] * view.gpus[job] * (1.0 + 1e-6)  # a threshold that is reached counts, rounding apart
        return bisect_right(self.thresholds_gpu_s, used)

"""Defines queueing policies by name: who comes first, who may be interrupted, and which of the free GPUs a job gets.

GPUs are numbered from the fastest. Shipped are first in, first out; earliest deadline among the jobs that can still make it;
least attained service, of GPUs and time (2D-LAS of Tiresias, NSDI 2019), in queues with thresholds; variability-aware placement
after PAL (SC 2024), the order of FIFO on other GPUs; shortest job; shortest remaining time. A policy sees a `View` of the
cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Protocol

import numpy as np

from ..core.errors import DataError
from ..core.registry import Registry


@dataclass
class QueueView:
    """Jobs as the scheduler knows them; plain lists, which are read one number at a time.

    Attributes:
        submit_s, gpus, deadline_s: [job] as submitted.
        estimate_s: [job] estimated duration.
        now_s: the clock of the trace.
        ran_s: [job] seconds that it has run before its present run, restarts left out.
    """

    submit_s: list[float]
    gpus: list[int]
    deadline_s: list[float]
    estimate_s: list[float]
    now_s: float = 0.0
    ran_s: list[float] = field(default_factory=list)

    def remaining_s(self, job: int) -> float:
        """Estimated seconds left; at least zero."""
        left = self.estimate_s[job] - self.ran_s[job]
        return left if left > 0.0 else 0.0


class FreeGpus(Protocol):
    """Free GPUs; `len` counts them."""

    def __len__(self) -> int: ...

    def take(self, n_gpus: int) -> list[int]:
        """GPUs for a job; there are enough."""
        ...

    def give(self, gpus: list[int]) -> None:
        """GPUs that a job leaves."""
        ...


class AnyGpus:
    """The GPUs that have been free longest, from a random order: no regard to how fast they are."""

    def __init__(self, n_gpus: int, seed: int) -> None:
        self._free = deque(np.random.default_rng([seed, 4]).permutation(n_gpus).tolist())

    def __len__(self) -> int:
        return len(self._free)

    def take(self, n_gpus: int) -> list[int]:
        """The first in the row."""
        leave = self._free.popleft
        return [leave()] if n_gpus == 1 else [leave() for _ in range(n_gpus)]

    def give(self, gpus: list[int]) -> None:
        """Puts GPUs at the end of the row."""
        self._free.extend(gpus)


class FastFirst:
    """The fastest free GPUs for every job."""

    def __init__(self, n_gpus: int) -> None:
        self._free = list(range(n_gpus))

    def __len__(self) -> int:
        return len(self._free)

    def take(self, n_gpus: int) -> list[int]:
        """The fastest."""
        taken = self._free[:n_gpus]
        del self._free[:n_gpus]
        return taken

    def give(self, gpus: list[int]) -> None:
        """Puts GPUs back in their places."""
        for gpu in gpus:
            insort(self._free, gpu)


@dataclass(frozen=True)
class QueuePolicy(ABC):
    """Base of all policies; a new one is one file with a subclass, and one line in the registry.

    Attributes:
        name: as it is typed.
        about: one line.
        has_estimates: whether it looks at estimated durations.
        preempts: whether a job that waits may displace running ones of a larger rank, the largest first.
        backfills: whether jobs behind one that does not fit may start before it.
        drift: change of the rank of a running job per second.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    has_estimates: ClassVar[bool] = False
    preempts: ClassVar[bool] = False
    backfills: ClassVar[bool] = True
    drift: ClassVar[float] = 0.0

    @abstractmethod
    def rank(self, job: int, view: QueueView) -> float:
        """Rank of a job at this moment: small ones run first, equal ones in the order of submission."""

    def review_s(self, _job: int, _view: QueueView, _is_running: bool) -> float:
        """Seconds after which the rank changes by itself (in addition to `drift`); infinite: never."""
        return inf

    def pool(self, factor: list[float], seed: int) -> FreeGpus:
        """The free GPUs, which decide what a job gets.

        Args:
            factor: [gpu] slowdown, fastest first.
        """
        return AnyGpus(len(factor), seed)


@dataclass(frozen=True)
class FirstIn(QueuePolicy):
    """Jobs start in the order of submission; one that does not fit holds back all behind it."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[str] = "first in, first out; nobody overtakes"
    backfills: ClassVar[bool] = False

    def rank(self, job: int, view: QueueView) -> float:
        """Submission of the job."""
        return view.submit_s[job]


LATE_S = 1e12  # behind everybody who can make it: more than any trace lasts


@dataclass(frozen=True)
class EarliestDeadline(QueuePolicy):
    """The earliest deadline runs first and displaces later ones; who will be late by its estimate stands behind the others."""

    name: ClassVar[str] = "edf"
    about: ClassVar[str] = "earliest deadline first, interrupting others; jobs that will be late by their estimate last"
    has_estimates: ClassVar[bool] = True
    preempts: ClassVar[bool] = True

    def rank(self, job: int, view: QueueView) -> float:
        """Deadline of the job, later by an age if it cannot be met."""
        deadline = view.deadline_s[job]
        return deadline if view.now_s + view.remaining_s(job) <= deadline else deadline + LATE_S

    def review_s(self, job: int, view: QueueView, is_running: bool) -> float:
        """Seconds until a waiting job cannot make it any more."""
        spare = view.deadline_s[job] - view.now_s - view.remaining_s(job)
        return inf if is_running or spare < 0.0 else spare + 1e-6 * (1.0 + abs(spare))


QUEUE_S = 1e12  # between the ranks of two queues: more than any trace lasts


@dataclass(frozen=True)
class LeastAttained(QueuePolicy):
    """Jobs begin in the first queue and move down as they use GPUs; inside a queue, first in, first out. Needs no durations.

    Attributes:
        thresholds_gpu_s: GPU-seconds after which a job moves to the next queue.
    """

    name: ClassVar[str] = "las"
    about: ClassVar[str] = "least attained GPU-seconds first, in queues, interrupting others"
    preempts: ClassVar[bool] = True

    thresholds_gpu_s: tuple[float, ...] = (3_600.0, 36_000.0)

    def rank(self, job: int, view: QueueView) -> float:
        """Rank by the job's queue, then by its submission."""
        return self._queue(job, view) * QUEUE_S + view.submit_s[job]

    def review_s(self, job: int, view: QueueView, is_running: bool) -> float:
        """Seconds until a running job has used what its queue allows."""
        queue = self._queue(job, view)
        if not is_running or queue == len(self.thresholds_gpu_s):
            return inf
        return self.thresholds_gpu_s[queue] / view.gpus[job] - view.ran_s[job]

    def _queue(self, job: int, view: QueueView) -> int:
        used = view.ran_s[job] * view.gpus[job] * (1.0 + 1e-6)  # a threshold that is reached counts, rounding apart
        return bisect_right(self.thresholds_gpu_s, used)


@dataclass(frozen=True)
class FastGpusFirst(FirstIn):
    """FIFO in which every job gets the fastest free GPUs."""

    name: ClassVar[str] = "pal"
    about: ClassVar[str] = "FIFO with variability-aware placement: fast GPUs first"

    def pool(self, factor: list[float], _seed: int) -> FreeGpus:
        """Free GPUs by speed."""
        return FastFirst(len(factor))


@dataclass(frozen=True)
class ShortestFirst(QueuePolicy):
    """The job with the smallest estimated duration that fits starts first; nobody is interrupted."""

    name: ClassVar[str] = "sjf"
    about: ClassVar[str] = "shortest estimated duration first, without interruptions"
    has_estimates: ClassVar[bool] = True

    def rank(self, job: int, view: QueueView) -> float:
        """Estimated duration of the job."""
        return view.estimate_s[job]


@dataclass(frozen=True)
class ShortestRemaining(QueuePolicy):
    """The job with the least estimated time left runs; it displaces others with more."""

    name: ClassVar[str] = "srtf"
    about: ClassVar[str] = "shortest estimated time left first, interrupting others"
    has_estimates: ClassVar[bool] = True
    preempts: ClassVar[bool] = True
    drift: ClassVar[float] = -1.0

    def rank(self, job: int, view: QueueView) -> float:
        """Estimated time left of the job."""
        return view.remaining_s(job)


SHIPPED = (FirstIn(), ShortestFirst(), ShortestRemaining(), LeastAttained(), EarliestDeadline(), FastGpusFirst())
POLICIES: Registry[QueuePolicy] = Registry("policy", lambda: SHIPPED, error=DataError)

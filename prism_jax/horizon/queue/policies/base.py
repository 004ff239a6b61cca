"""What every queueing policy is: who comes first, who may be interrupted, and which of the free GPUs a job gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ..pools import AnyGpus, Pool
from ..view import View


@dataclass(frozen=True)
class Policy(ABC):
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
    def rank(self, job: int, view: View) -> float:
        """Where a job stands at this moment: small ones run first, equal ones in the order of submission."""

    def review_s(self, _job: int, _view: View, _is_running: bool) -> float:
        """Seconds after which the rank changes by itself (beside `drift`); infinite: never."""
        return inf

    def pool(self, factor: list[float], seed: int) -> Pool:
        """The free GPUs, which decide what a job gets.

        Args:
            factor: [gpu] slowdown, fastest first.
        """
        return AnyGpus(len(factor), seed)

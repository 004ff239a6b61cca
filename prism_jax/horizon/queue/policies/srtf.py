"""Shortest remaining time first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..view import View
from .base import Policy


@dataclass(frozen=True)
class ShortestRemaining(Policy):
    """The job with the least estimated time left runs; it displaces others with more."""

    name: ClassVar[str] = "srtf"
    about: ClassVar[str] = "shortest estimated time left first, interrupting others"
    has_estimates: ClassVar[bool] = True
    preempts: ClassVar[bool] = True
    drift: ClassVar[float] = -1.0

    def rank(self, job: int, view: View) -> float:
        """Its estimated time left."""
        return view.remaining_s(job)

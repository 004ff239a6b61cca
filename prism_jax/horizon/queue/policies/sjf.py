"""Shortest job first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..view import View
from .base import Policy


@dataclass(frozen=True)
class ShortestFirst(Policy):
    """The job with the smallest estimated duration that fits starts first; nobody is interrupted."""

    name: ClassVar[str] = "sjf"
    about: ClassVar[str] = "shortest estimated duration first, without interruptions"
    has_estimates: ClassVar[bool] = True

    def rank(self, job: int, view: View) -> float:
        """Its estimated duration."""
        return view.estimate_s[job]

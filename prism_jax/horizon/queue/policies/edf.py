"""Earliest deadline first, among the jobs that can still make it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ..view import View
from .base import Policy

LATE_S = 1e12  # behind everybody who can make it: more than any trace lasts


@dataclass(frozen=True)
class EarliestDeadline(Policy):
    """The earliest deadline runs first and displaces later ones; who will be late by its estimate stands behind the others."""

    name: ClassVar[str] = "edf"
    about: ClassVar[str] = "earliest deadline first, interrupting others; jobs that will be late by their estimate last"
    has_estimates: ClassVar[bool] = True
    preempts: ClassVar[bool] = True

    def rank(self, job: int, view: View) -> float:
        """Its deadline, later by an age if it cannot be met."""
        deadline = view.deadline_s[job]
        return deadline if view.now_s + view.remaining_s(job) <= deadline else deadline + LATE_S

    def review_s(self, job: int, view: View, is_running: bool) -> float:
        """Until a waiting job cannot make it any more."""
        spare = view.deadline_s[job] - view.now_s - view.remaining_s(job)
        return inf if is_running or spare < 0.0 else spare + 1e-6 * (1.0 + abs(spare))

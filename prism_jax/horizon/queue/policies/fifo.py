"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..view import View
from .base import Policy


@dataclass(frozen=True)
class FirstIn(Policy):
    """Jobs start in the order of submission; one that does not fit holds back all behind it."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[str] = "first in, first out; nobody overtakes"
    backfills: ClassVar[bool] = False

    def rank(self, job: int, view: View) -> float:
        """Its submission."""
        return view.submit_s[job]

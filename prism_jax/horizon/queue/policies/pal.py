"""Variability-aware placement, after PAL (SC 2024): the same order as FIFO, other GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..pools import FastFirst, Pool
from .fifo import FirstIn


@dataclass(frozen=True)
class FastGpusFirst(FirstIn):
    """FIFO in which every job gets the fastest free GPUs."""

    name: ClassVar[str] = "pal"
    about: ClassVar[str] = "FIFO with variability-aware placement: fast GPUs first"

    def pool(self, factor: list[float], _seed: int) -> Pool:
        """Free GPUs by speed."""
        return FastFirst(len(factor))

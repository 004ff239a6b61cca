"""Sharders by name: those that ship with the package and those that a caller adds.

Source of the first seven: the sharders of the universal performance model (arXiv 2404.12674) and of DreamShard (arXiv
2210.02023).
"""

from __future__ import annotations

from ...._core.registry import Registry
from ....errors import DataError
from .base import Greedy as Greedy, Sharder as Sharder, greedy as greedy
from .lookup_greedy import LOOKUP_GREEDY, NORM_LOOKUP_GREEDY, SIZE_LOOKUP_GREEDY
from .lpt import LPT
from .plain import Chunks, InTurn, Random
from .size_greedy import SIZE_GREEDY

SHIPPED: tuple[Sharder, ...] = (
    Random(),
    InTurn(),
    Chunks(),
    SIZE_GREEDY,
    LOOKUP_GREEDY,
    NORM_LOOKUP_GREEDY,
    SIZE_LOOKUP_GREEDY,
    LPT,
)
SHARDERS: Registry[Sharder] = Registry("sharder", lambda: SHIPPED, error=DataError)

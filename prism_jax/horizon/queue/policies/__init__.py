"""Queueing policies by name: those that ship with the package and those that a caller adds."""

from __future__ import annotations

from ...._core.registry import Registry
from ....errors import DataError
from .base import Policy as Policy
from .edf import EarliestDeadline as EarliestDeadline
from .fifo import FirstIn as FirstIn
from .las import LeastAttained as LeastAttained
from .pal import FastGpusFirst as FastGpusFirst
from .sjf import ShortestFirst as ShortestFirst
from .srtf import ShortestRemaining as ShortestRemaining

SHIPPED = (FirstIn(), ShortestFirst(), ShortestRemaining(), LeastAttained(), EarliestDeadline(), FastGpusFirst())
POLICIES: Registry[Policy] = Registry("policy", lambda: SHIPPED, error=DataError)

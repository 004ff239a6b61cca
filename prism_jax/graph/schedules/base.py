"""Schedule: for every pipeline stage, the order in which it runs its ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Part(NamedTuple):
    """One kind of work on one micro-batch in one model chunk."""

    kind: str  # F | B | W
    micro_batch: int
    chunk: int  # model order, 0 .. n_chunk-1


class Op(NamedTuple):
    """Parts that a stage runs as one uninterrupted op: (F,), (B, W), (B,), (W,), or a forward beside a backward (F, B, W)."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Schedule:
    """Execution order per stage.

    Attributes:
        orders: one tuple of ops per stage.
        stage_of: (chunk, micro_batch) -> stage; depends on the micro-batch only in bidirectional schedules.
    """

    name: str
    pp: int
    n_micro_batch: int
    virtual_stages: int
    orders: tuple[tuple[Op, ...], ...]
    stage_of: Callable[[int, int], int]

    @property
    def n_chunk(self) -> int:
        return self.pp * self.virtual_stages

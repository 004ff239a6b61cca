"""ScheduleOrder: for every pipeline stage, the order in which it runs its ops."""

from __future__ import annotations

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

    def __str__(self) -> str:
        """Its name in timelines and messages: kinds, micro-batch and chunk, as in `F3 c1` or `F3 c1 + BW0 c6`."""
        groups: dict[tuple[int, int], str] = {}
        for kind, micro_batch, chunk in self.parts:
            groups[micro_batch, chunk] = groups.get((micro_batch, chunk), "") + kind
        return " + ".join([f"{kinds}{micro_batch} c{chunk}" for (micro_batch, chunk), kinds in groups.items()])

    @property
    def overlaps_passes(self) -> bool:
        """Whether a forward runs beside a backward."""
        kinds = {part.kind for part in self.parts}
        return "F" in kinds and len(kinds) > 1


Orders = tuple[tuple[Op, ...], ...]  # [stage][position]


@dataclass(frozen=True)
class Placement:
    """(chunk, micro-batch) -> stage, as a table.

    Attributes:
        stages: [direction][chunk] stage.
        direction: [micro_batch] direction it flows in.
    """

    stages: tuple[tuple[int, ...], ...]
    direction: tuple[int, ...]

    def __call__(self, chunk: int, micro_batch: int) -> int:
        """Stage of a chunk for a micro-batch."""
        return self.stages[self.direction[micro_batch]][chunk]


@dataclass(frozen=True)
class ScheduleOrder:
    """Execution order per stage.

    Attributes:
        name: of the schedule.
        pp: pipeline stages.
        n_micro_batch: micro-batches of a step.
        virtual_stages: model chunks per stage.
        orders: one tuple of ops per stage.
        stage_of: (chunk, micro_batch) -> stage; depends on the micro-batch only in bidirectional schedules.
    """

    name: str
    pp: int
    n_micro_batch: int
    virtual_stages: int
    orders: Orders
    stage_of: Placement

    @property
    def n_chunk(self) -> int:
        """Model chunks of all stages."""
        return self.pp * self.virtual_stages


def forward(micro_batch: int, chunk: int) -> Op:
    """Op of one forward pass."""
    return Op((Part("F", micro_batch, chunk),))


def backward(micro_batch: int, chunk: int) -> Op:
    """Op of one whole backward pass: input gradient and weight gradient."""
    return Op((Part("B", micro_batch, chunk), Part("W", micro_batch, chunk)))


def input_gradient(micro_batch: int, chunk: int) -> Op:
    """Op of the part of a backward pass that the previous chunk waits for."""
    return Op((Part("B", micro_batch, chunk),))


def weight_gradient(micro_batch: int, chunk: int) -> Op:
    """Op of the part of a backward pass that nothing but the end of the step waits for."""
    return Op((Part("W", micro_batch, chunk),))

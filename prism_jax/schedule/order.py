"""ScheduleOrder: the order in which every pipeline stage runs its ops, the activations it holds, and its work (seconds).

Peaks are counted op by op, in chunk-activations: the activations of one micro-batch in one model chunk (a stage holds
`virtual_stages` chunks). An activation counts from the start of its forward; the peak is taken with the forward that is running
counted in full. B releases `1 - kept_for_w` of it and W the rest; parts that run as one op release together at its end. The paper
that proposes to split them counts, per layer, M_B = s b (34 h + 5 a s) bytes until B and M_W = 32 s b h until W
(arXiv 2401.10241, table 1), i.e. 32/34 with FlashAttention or selective recompute; 1 is the safe side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..core.arrays import Counts, Flags, Floats, Positions
from ..core.kernels import PASSES
from ..core.lazy import np


class Part(NamedTuple):
    """One kind of work on one micro-batch in one model chunk."""

    kind: str  # F | B | W
    micro_batch: int
    chunk: int  # model order, 0 .. n_chunk-1


class Op(NamedTuple):
    """Parts that a stage runs as one uninterrupted op: (F,), (B, W), (B,), (W,), or a forward with a backward (F, B, W)."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        """Returns the name in timelines and messages: kinds, micro-batch and chunk, as in `F3 c1` or `F3 c1 + BW0 c6`."""
        groups: dict[tuple[int, int], str] = {}
        for kind, micro_batch, chunk in self.parts:
            groups[micro_batch, chunk] = groups.get((micro_batch, chunk), "") + kind
        return " + ".join([f"{kinds}{micro_batch} c{chunk}" for (micro_batch, chunk), kinds in groups.items()])


Orders = tuple[tuple[Op, ...], ...]  # [stage][position]


@dataclass(frozen=True, eq=False)
class StepOps:
    """All ops of a step as integers, stage by stage in running order.

    Attributes:
        n_op: [stage] ops of every stage.
        kind: [op, part] index into `PASSES`, -1 for no part.
        micro_batch, chunk: [op, part], -1 for no part.
    """

    n_op: Positions
    kind: Positions
    micro_batch: Positions
    chunk: Positions

    @classmethod
    def of(cls, orders: Orders) -> StepOps:
        """Writes down ops that are objects."""
        ops = [op.parts for own in orders for op in own]
        n_part = np.array([len(parts) for parts in ops], dtype=np.intp)
        flat = np.array([(PASSES.index(kind), *rest) for parts in ops for kind, *rest in parts], dtype=np.intp)
        table = np.full((3, len(ops), n_part.max(initial=1)), -1)
        table[:, np.arange(table.shape[2]) < n_part[:, None]] = flat.reshape(-1, 3).T
        return cls(np.array([len(own) for own in orders], dtype=np.intp), *table)

    @classmethod
    def in_turn(cls, *made: Turn) -> StepOps:
        """Sorts the ops of every stage by their turns, which differ within a stage."""
        n_part = max(len(own.parts) for own in made)
        columns = []
        for own in made:
            kinds = [PASSES.index(part) for part in own.parts] + [-1] * (n_part - len(own.parts))
            values = (own.turn, own.micro_batch, own.chunk, *kinds)
            columns.append([np.broadcast_to(value, own.turn.shape) for value in values])
        turn, *values = (np.concatenate(parts, axis=1) for parts in zip(*columns, strict=True))
        micro_batch, chunk, *kinds = (np.take_along_axis(value, np.argsort(turn, axis=1), axis=1) for value in values)
        kind = np.stack([own.ravel() for own in kinds], axis=1)
        where = [np.where(kind >= 0, value.reshape(-1, 1), -1) for value in (micro_batch, chunk)]
        return cls(np.full(len(turn), turn.shape[1]), kind, *where)

    @classmethod
    def by_name(cls, names: Sequence[Sequence[str]], chunks: Counts, first: Counts) -> StepOps:
        """Ops of every stage by name, as in F0 or F1B0W0: kinds, each with the number of one of the stage's chunks.

        Args:
            names: [stage][op]
            chunks: [stage, number] of the model.
            first: [stage, number] micro-batch from which on those of a kind count up in a chunk.
        """
        words = {name: row for row, name in enumerate(dict.fromkeys(name for own in names for name in own))}
        parts = np.full((2, len(words), max(map(len, words)) // 2), -1)
        for name, row in words.items():
            parts[:, row, : len(name) // 2] = [PASSES.index(kind) for kind in name[::2]], [*map(int, name[1::2])]
        kind, number = parts[:, [words[name] for own in names for name in own]]
        n_op = np.array([len(own) for own in names])
        stage = np.repeat(np.arange(len(names)), n_op)[:, None]
        counted = np.where(kind >= 0, (stage * len(PASSES) + kind) * chunks.shape[1] + number, -1).ravel()
        by_count, nth = np.argsort(counted, kind="stable"), np.empty_like(counted)
        nth[by_count] = np.arange(len(counted)) - np.searchsorted(counted[by_count], counted[by_count])
        micro_batch = first[stage, number] + nth.reshape(kind.shape)
        return cls(n_op, kind, *(np.where(kind >= 0, own, -1) for own in (micro_batch, chunks[stage, number])))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepOps) and all(map(np.array_equal, vars(self).values(), vars(other).values()))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def stage(self) -> Positions:
        """Stage that runs each op, [op]."""
        return np.repeat(np.arange(len(self.n_op)), self.n_op)

    @property
    def overlaps_passes(self) -> Flags:
        """Whether a forward overlaps a backward, [op]."""
        return (self.kind == 0).any(axis=1) & (self.kind > 0).any(axis=1)

    def orders(self) -> Orders:
        """Returns the ops as objects."""
        columns = zip(self.kind.tolist(), self.micro_batch.tolist(), self.chunk.tolist(), strict=True)
        ops = [Op(tuple([Part(PASSES[k], m, q) for k, m, q in zip(*own, strict=True) if k >= 0])) for own in columns]
        last = np.cumsum(self.n_op).tolist()
        return tuple(tuple(ops[end - n : end]) for n, end in zip(self.n_op.tolist(), last, strict=True))


class Turn(NamedTuple):
    """Ops of one make-up on all stages.

    Attributes:
        parts: kinds of their parts.
        turn: [stage, op] when each has its turn; only the order matters.
        micro_batch: [op], or [stage, op].
        chunk: [stage, op], or what broadcasts to it.
    """

    parts: tuple[str, ...]
    turn: Counts
    micro_batch: Counts
    chunk: Counts


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
        ops: of all stages.
        stage_of: (chunk, micro_batch) -> stage; depends on the micro-batch only in bidirectional schedules.
    """

    name: str
    pp: int
    n_micro_batch: int
    virtual_stages: int
    ops: StepOps
    stage_of: Placement

    @cached_property
    def orders(self) -> Orders:
        """One tuple of ops per stage."""
        return self.ops.orders()

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


@dataclass(frozen=True, eq=False)
class PipelineWork:
    """Noise-free seconds of plans that share a pipeline; kinds are F, B, W in this order.

    Attributes:
        pp: pipeline stages.
        virtual_stages: model chunks per stage.
        n_micro_batch: [plan].
        bound_s: [plan] lower bound of the step time.
        compute_s: [plan, kind, chunk] of a micro-batch.
        comm_s: [plan, kind, chunk] communication in front of compute.
        hidden_s: [plan, kind, chunk] communication during compute.
        end_s: [plan, stage] at the end of the step.
    """

    pp: int
    virtual_stages: int
    n_micro_batch: Counts
    bound_s: Floats
    compute_s: Floats
    comm_s: Floats
    hidden_s: Floats
    end_s: Floats

    @cached_property
    def whole_s(self) -> Floats:
        """Compute and the communication in front of it, [plan, kind, chunk]."""
        return self.compute_s + self.comm_s

    @cached_property
    def mean_s(self) -> Floats:
        """Mean over the chunks of `whole_s`, [plan, kind]."""
        return self.whole_s.mean(axis=2)


def peak_activations(order: ScheduleOrder, kept_for_w: float = 1.0) -> list[float]:
    """Peak per stage, in chunk-activations.

    Args:
        order: of the ops of every stage.
        kept_for_w: fraction of an activation that stays between B and W, 0-1.
    """
    released = {"B": 1.0 - kept_for_w, "W": kept_for_w}
    return [_peak(ops, released, range(order.n_chunk)) for ops in order.orders]


def peak_logits(order: ScheduleOrder) -> list[int]:
    """Peak per stage of micro-batches whose loss is computed and whose input gradient of the last chunk is not."""
    head = range(order.n_chunk - 1, order.n_chunk)
    return [round(_peak(ops, {"B": 1.0}, head)) for ops in order.orders]


def _peak(ops: tuple[Op, ...], released: dict[str, float], chunks: range) -> float:
    held = peak = 0.0
    for op in ops:
        parts = [part for part in op.parts if part.chunk in chunks]
        held += sum(part.kind == "F" for part in parts)
        peak = max(peak, held)
        held -= sum(released.get(part.kind, 0.0) for part in parts)
    return peak

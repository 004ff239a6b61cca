"""DualPipe: micro-batches enter at both ends of the pipeline, and a forward of one direction runs beside a backward of the other.

The first half of the micro-batches flows from stage 0 to pp - 1, the second half from pp - 1 to 0, so stage s holds the
parameters of chunks s and pp - 1 - s. Eight phases; "near" is the direction that reaches the stage first.

With F, B, W the mean seconds of a chunk, pair the seconds of a forward beside a backward, p stages and x+ the positive part
of x, a step takes about

    max_s (n_pair pair_s + n_alone (F + B + W)_s) + (p / 2 - 1) (pair + B - 2 W)+

Source: DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1 and table 2; phases as in
deepseek-ai/DualPipe, `dualpipe.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from ..core.arrays import Counts, Flags, Floats
from ..core.lazy import np
from .base import PipelineSchedule
from .order import Op, Orders, PipelineWork, backward, forward, input_gradient, weight_gradient


@dataclass(frozen=True)
class DualPipe(PipelineSchedule):
    """Bidirectional order; ops that hold F, B and W overlap a forward with a whole backward."""

    name: str = "dualpipe"
    loss_goes_back_at_once: ClassVar[bool] = True
    overlaps_passes: ClassVar[bool] = True

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """Eight phases."""
        return tuple(_order(stage, pp, n_micro_batch // 2) for stage in range(pp))

    def placements(self, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
        """Stages in turn, and the same from the other end."""
        down = tuple(chunk % pp for chunk in range(pp * virtual_stages))
        return down, tuple(pp - 1 - stage for stage in down)

    def direction(self, micro_batch: int, n_micro_batch: int) -> int:
        """0 for the first half of the micro-batches, 1 for the second."""
        return int(micro_batch >= n_micro_batch // 2)

    def enough_micro_batches(self, pp: int, n_micro_batch: Counts, virtual_stages: int) -> Flags:
        """Even numbers of stages and micro-batches, and twice as many micro-batches as stages."""
        return (n_micro_batch % 2 == 0) & (n_micro_batch >= 2 * pp) & (pp % 2 == 0)

    def micro_batches_needed(self, pp: int, virtual_stages: int) -> str:
        """Even numbers of stages and micro-batches, and twice as many micro-batches as stages."""
        return "an even pp and an even number of at least 2*pp micro-batches"

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """One more than there are stages, on every stage."""
        return float(pp + 1)

    def step_s(self, work: PipelineWork) -> Floats:
        """The bound, or the busiest stage and the bubble."""
        return np.maximum(work.bound_s, _step_s(work))


def _step_s(work: PipelineWork) -> Floats:
    """[plan] a forward of chunk q runs beside a backward of its mirror image on the stage."""
    pp, pair, alone = work.pp, _pair_s(work), work.whole_s.sum(axis=1)
    pair, alone = (0.5 * (part + part[:, ::-1]) for part in (pair, alone))
    stage = np.arange(pp)
    inner = np.minimum(stage, pp - 1 - stage)
    outer = pp // 2 - 1 - inner
    n_alone = 2 * pp - 2 - 2 * inner - outer + (outer == 0)
    _, b, w = work.mean_s.T
    bubble = (pp // 2 - 1) * np.maximum(pair.mean(axis=1) + b - 2.0 * w, 0.0)
    return ((work.n_micro_batch[:, None] - n_alone) * pair + n_alone * alone + work.end_s).max(axis=1) + bubble


def _pair_s(work: PipelineWork) -> Floats:
    """[plan, chunk] forward of a chunk beside the backward of its mirror image."""
    sides = (slice(0, 1), slice(1, 3))
    busy = [work.compute_s[:, side].sum(axis=1) for side in sides]
    sent = [work.comm_s[:, side].sum(axis=1) for side in sides]
    free = [np.maximum(own - work.hidden_s[:, side].sum(axis=1), 0.0) for own, side in zip(busy, sides, strict=True)]
    forward_s = busy[0] + np.maximum(sent[0] - free[1][:, ::-1], 0.0)
    backward_s = busy[1] + np.maximum(sent[1] - free[0][:, ::-1], 0.0)
    return forward_s + backward_s[:, ::-1]


class _Stage:
    """Ops of one stage; direction 0 enters at the near end of the pipeline, direction 1 at the far end."""

    def __init__(self, stage: int, pp: int, half: int) -> None:
        self.order: list[Op] = []
        mirrored = stage >= pp // 2
        self._chunk = (pp - 1 - stage, stage) if mirrored else (stage, pp - 1 - stage)
        first = (half, 0) if mirrored else (0, half)
        self._forward = list(first)
        self._backward = list(first)
        self._waiting: deque[tuple[int, int]] = deque()  # weight gradients put off, first in first out

    def f(self, direction: int) -> None:
        self.order.append(forward(self._take(self._forward, direction), self._chunk[direction]))

    def bw(self, direction: int) -> None:
        self.order.append(backward(self._take(self._backward, direction), self._chunk[direction]))

    def b(self, direction: int) -> None:
        micro_batch = self._take(self._backward, direction)
        self._waiting.append((micro_batch, self._chunk[direction]))
        self.order.append(input_gradient(micro_batch, self._chunk[direction]))

    def w(self) -> None:
        self.order.append(weight_gradient(*self._waiting.popleft()))

    def f_beside_bw(self, forward_direction: int, backward_direction: int) -> None:
        f = forward(self._take(self._forward, forward_direction), self._chunk[forward_direction])
        bw = backward(self._take(self._backward, backward_direction), self._chunk[backward_direction])
        self.order.append(Op((*f.parts, *bw.parts)))

    @staticmethod
    def _take(counter: list[int], direction: int) -> int:
        counter[direction] += 1
        return counter[direction] - 1


def _order(stage: int, pp: int, half: int) -> tuple[Op, ...]:
    ops = _Stage(stage, pp, half)
    inner = min(stage, pp - 1 - stage)  # distance from the nearer end
    outer = pp // 2 - 1 - inner  # distance from the middle
    _fill(ops, inner, outer)
    _steady(ops, half - pp + inner + 1, middle=outer == 0)
    _drain(ops, inner, outer)
    return tuple(ops.order)


def _fill(ops: _Stage, inner: int, outer: int) -> None:
    """Phases 1 to 3: forwards of the near direction, of both, then zero-bubble backwards of the far direction."""
    for _ in range(2 * outer):
        ops.f(0)
    for _ in range(inner + 1):
        ops.f(0)
        ops.f(1)
    for _ in range(outer):
        ops.b(1)
        ops.w()
        ops.f(1)


def _steady(ops: _Stage, n_pair: int, middle: bool) -> None:
    """Phase 4: forwards beside backwards; the middle stages run their first pair apart, which shortens the bubble."""
    for pair in range(n_pair):
        if pair == 0 and middle:
            ops.f(0)
            ops.bw(1)
        else:
            ops.f_beside_bw(0, 1)
        ops.f_beside_bw(1, 0)


def _drain(ops: _Stage, inner: int, outer: int) -> None:
    """Phases 5 to 8: remaining backwards; from the middle of phase 6 on weight gradients are put off to fill the bubbles."""
    for _ in range(outer):
        ops.bw(1)
        ops.f_beside_bw(1, 0)
    for index in range(2 * (inner + 1)):  # alternating directions; the second half with weight gradients put off
        run = ops.bw if index <= inner else ops.b
        run(1 - index % 2)
    for _ in range(outer):
        ops.w()
        ops.b(0)
    for _ in range(inner + 1):
        ops.w()

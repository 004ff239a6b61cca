"""DualPipe: micro-batches enter at both ends of the pipeline, and a forward of one direction runs beside a backward of the other.

The first half of the micro-batches flows from stage 0 to pp - 1, the second half from pp - 1 to 0, so stage s holds the
parameters of chunks s and pp - 1 - s. Eight phases; "near" is the direction that reaches the stage first.

Source: DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1; phases as in deepseek-ai/DualPipe, `dualpipe.py`.
"""

from __future__ import annotations

from collections import deque

from ..errors import PlanError
from .base import Op, Schedule, backward, forward, input_gradient, require_one_chunk, weight_gradient


def dual_pipe(pp: int, n_micro_batch: int, virtual_stages: int = 1) -> Schedule:
    """Bidirectional order; ops that hold F, B and W overlap a forward with a whole backward.

    Raises:
        PlanError: pp or n_micro_batch is odd, n_micro_batch < 2 pp, or virtual_stages is not 1.
    """
    require_one_chunk("dualpipe", virtual_stages)
    if pp % 2:
        raise PlanError(f"schedule dualpipe needs an even pp, but pp = {pp}. Try pp={pp + 1}, or schedule='zb_h1'.")
    if n_micro_batch % 2 or n_micro_batch < 2 * pp:
        enough = max(2 * pp, n_micro_batch + n_micro_batch % 2)
        raise PlanError(
            f"schedule dualpipe needs an even n_micro_batch >= 2 * pp = {2 * pp}, but n_micro_batch = {n_micro_batch}. "
            f"Try n_micro_batch={enough} (global_batch = {enough} * dp * micro_batch)."
        )
    half = n_micro_batch // 2
    orders = tuple(_order(stage, pp, half) for stage in range(pp))
    return Schedule("dualpipe", pp, n_micro_batch, 1, orders, lambda q, m: q if m < half else pp - 1 - q)


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

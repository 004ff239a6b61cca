"""ZB-V: two chunks per stage, placed as a V, so that the stage that starts a micro-batch also ends it.

Chunk q < pp lives on stage q, chunk q >= pp on stage 2 pp - 1 - q. Memory of 1F1B, no bubble when F = B = W.

Source: Qi et al., arXiv 2401.10241, section 6, and arXiv 2405.15362; phases as in the authors' published
`handcrafted_zb_v` of sail-sg/zero-bubble-pipeline-parallelism.
"""

from __future__ import annotations

from ..errors import PlanError
from .base import Op, Schedule, forward, input_gradient, weight_gradient


def zb_v(pp: int, n_micro_batch: int, virtual_stages: int) -> Schedule:
    """V-shaped zero-bubble order; with fewer than 2 pp - 1 micro-batches the order of 2 pp - 1, less what does not exist.

    Raises:
        PlanError: virtual_stages is not 2.
    """
    if virtual_stages != 2:
        raise PlanError(f"schedule zb_v needs virtual_stages = 2, but it is {virtual_stages}. Try virtual_stages=2.")
    orders = tuple(_order(stage, pp, n_micro_batch) for stage in range(pp))
    return Schedule("zb_v", pp, n_micro_batch, 2, orders, lambda q, m: q if q < pp else 2 * pp - 1 - q)


class _Stage:
    """Ops of one stage, written down by kind and chunk (0: on the way down, 1: on the way up) in micro-batch order."""

    def __init__(self, stage: int, pp: int, n_micro_batch: int) -> None:
        self.order: list[Op] = []
        self._chunk = (stage, 2 * pp - 1 - stage)
        self._n_micro_batch = n_micro_batch
        self._next = {f"{kind}{v}": 0 for kind in "FBW" for v in (0, 1)}

    def count(self, what: str) -> int:
        return self._next[what]

    def run(self, *what: str) -> None:
        for name in what:
            micro_batch = self._next[name]
            self._next[name] += 1
            if micro_batch < self._n_micro_batch:
                self.order.append(_MAKE[name[0]](micro_batch, self._chunk[int(name[1])]))


_MAKE = {"F": forward, "B": input_gradient, "W": weight_gradient}


def _order(stage: int, pp: int, n_micro_batch: int) -> tuple[Op, ...]:
    ops = _Stage(stage, pp, n_micro_batch)
    n_pass = max(2 * pp - 1, n_micro_batch)
    for _ in range(2 * (pp - stage) - 1):
        ops.run("F0")
    for _ in range(stage):
        ops.run("F1", "F0")
    for _ in range(pp - stage):
        ops.run("F1", "B1", "W1")
    while ops.count("F1") < n_pass:
        if ops.count("F0") < n_pass:
            ops.run("F0")
        ops.run("B0", "W0", "F1", "B1", "W1")
    for _ in range(stage):
        ops.run("B0", "B1")
    for _ in range(pp - stage):
        ops.run("B0", "W0")
    while ops.count("W1") < n_pass:
        ops.run("W1")
    while ops.count("W0") < n_pass:
        ops.run("W0")
    return tuple(ops.order)

"""DualPipe: micro-batches enter at both ends of the pipeline, and a forward of one direction overlaps a backward of the other.

The first half of the micro-batches flows from stage 0 to pp - 1, the second half from pp - 1 to 0, so stage s holds the
parameters of chunks s and pp - 1 - s. Eight phases; "near" is the direction that reaches the stage first.

With F, B, W the mean seconds of a chunk, pair the seconds of a forward with a backward, p stages and x+ the positive part
of x, a step takes about

    max_s (n_pair pair_s + n_alone (F + B + W)_s) + (p / 2 - 1) (pair + B - 2 W)+

Source: DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1 and table 2; phases as in
deepseek-ai/DualPipe, `dualpipe.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core.arrays import Counts, Flags, Floats
from ..core.lazy import np
from .base import ArraySchedule
from .order import PipelineWork, StepOps


@dataclass(frozen=True)
class DualPipe(ArraySchedule):
    """Bidirectional order; ops that hold F, B and W overlap a forward with a whole backward."""

    name: str = "dualpipe"
    loss_goes_back_at_once: ClassVar[bool] = True
    overlaps_passes: ClassVar[bool] = True

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Eight phases; each half of the stages names ops by the end that is nearer to it."""
        half, stage = n_micro_batch // 2, np.arange(pp)[:, None]
        mirrored = stage >= pp // 2
        direction = np.where(mirrored, [1, 0], [0, 1])
        chunks = np.where(direction == 0, stage, pp - 1 - stage)
        return StepOps.by_name([_names(s, pp, half) for s in range(pp)], chunks, half * direction)

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
    """Returns the step seconds [plan] of a schedule in which a forward of chunk q overlaps a backward of its mirror image on the
    stage.
    """
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
    """Returns the seconds [plan, chunk] of a chunk's forward that overlaps the backward of its mirror image."""
    sides = (slice(0, 1), slice(1, 3))
    busy = [work.compute_s[:, side].sum(axis=1) for side in sides]
    sent = [work.comm_s[:, side].sum(axis=1) for side in sides]
    free = [np.maximum(own - work.hidden_s[:, side].sum(axis=1), 0.0) for own, side in zip(busy, sides, strict=True)]
    forward_s = busy[0] + np.maximum(sent[0] - free[1][:, ::-1], 0.0)
    backward_s = busy[1] + np.maximum(sent[1] - free[0][:, ::-1], 0.0)
    return forward_s + backward_s[:, ::-1]


def _names(stage: int, pp: int, half: int) -> list[str]:
    """Ops by name: F, B and W with the direction of their micro-batch, 0 from the near end and 1 from the far one."""
    inner = min(stage, pp - 1 - stage)  # distance from the nearer end
    outer = pp // 2 - 1 - inner  # distance from the middle
    fill = ["F0"] * (2 * outer) + ["F0", "F1"] * (inner + 1) + ["B1", "W1", "F1"] * outer
    steady = ["F0B1W1", "F1B0W0"] * (half - pp + inner + 1)
    if outer == 0:  # the middle stages run their first pair apart, which shortens the bubble
        steady[:1] = ["F0", "B1W1"]
    both = ("B1W1", "B0W0") * (inner + 1)
    put_off = ["W1" if index % 2 == 0 else "W0" for index in range(inner + 1, 2 * (inner + 1))] + ["W0"] * outer
    drain = ["B1W1", "F1B0W0"] * outer + [name if i <= inner else name[:2] for i, name in enumerate(both)]
    drain += [name for put in put_off[:outer] for name in (put, "B0")] + put_off[outer:]
    return fill + steady + drain

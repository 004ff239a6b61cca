"""GPipe, 1F1B with a flush, and interleaved 1F1B: schedules whose backward is one op.

- GPipe: every stage runs all forwards, then all backwards. arXiv 1811.06965; backwards as in arXiv 2104.04473, figure 3.
- 1F1B (PipeDream-flush, the default of Megatron-LM): stage s runs pp - 1 - s forwards ahead, then alternates. arXiv
  2006.09503.
- Interleaved: chunk q lives on stage q % pp, so that the pipeline fills in smaller steps. Micro-batches pass in groups, and a
  group visits all chunks of a stage before the next one starts. With v the chunks of a stage and m micro-batches a step takes
  at least `m sum_v max_s (F + B + W)_vs` seconds. arXiv 2104.04473, section 2.2; warm-up and group rule as in Megatron-Core,
  `megatron/core/pipeline_parallel/schedules.py` (`get_schedule_table`, `microbatch_group_size_per_vp_stage`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import ClassVar

from ..core.arrays import Counts, Flags, Floats
from ..core.errors import PlanError
from ..core.lazy import np
from .base import ArraySchedule, one_if_last
from .order import PipelineWork, StepOps, Turn


@dataclass(frozen=True)
class GPipe(ArraySchedule):
    """Order in which every stage holds the activations of all `n_micro_batch` micro-batches at once.

    Its step time is the lower bound and what it sends.
    """

    name: str = "gpipe"
    fills_one_way: ClassVar[bool] = True
    drains_one_way: ClassVar[bool] = True

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """All forwards, then all backwards."""
        return _one_by_one(np.full(pp, n_micro_batch), np.arange(n_micro_batch), np.zeros(n_micro_batch, np.int64), 1)

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Returns all micro-batches: every stage holds them at once."""
        return float(n_micro_batch)

    def logits_held(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Returns all micro-batches on the stage with the last chunk, 0 on others: all wait there for their backward pass."""
        return n_micro_batch * one_if_last(self, stage, pp, virtual_stages)


@dataclass(frozen=True)
class OneFOneB(ArraySchedule):
    """Order in which stage s never holds more than `pp - s` micro-batches.

    Its step time is the lower bound and what it sends.
    """

    name: str = "1f1b"
    loss_goes_back_at_once: ClassVar[bool] = True
    fills_one_way: ClassVar[bool] = True
    drains_one_way: ClassVar[bool] = True

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """`pp - 1 - s` forwards ahead, then one forward and one backward in turn."""
        return _one_by_one(pp - 1 - np.arange(pp), np.arange(n_micro_batch), np.zeros(n_micro_batch, np.int64), 1)

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Stages from this one to the last, or all micro-batches."""
        return float(min(pp - stage, n_micro_batch))


def _one_by_one(n_ahead: Counts, micro_batch: Counts, own_chunk: Counts, virtual_stages: int) -> StepOps:
    """Ops of stages that run `n_ahead` [stage] of the passes [pass] forward, then one forward and one backward in turn.

    A backward pass is in the chunk of the stage that mirrors that of the forward pass, `own_chunk`.
    """
    stage, nth = np.arange(len(n_ahead))[:, None], np.arange(len(micro_batch))
    back = np.broadcast_to(2 * nth + 1, (len(stage), len(nth)))
    return StepOps.in_turn(
        Turn(("F",), 2 * (nth - n_ahead[:, None]), micro_batch, own_chunk * len(stage) + stage),
        Turn(("B", "W"), back, micro_batch, (virtual_stages - 1 - own_chunk) * len(stage) + stage),
    )


@dataclass(frozen=True)
class Interleaved(ArraySchedule):
    """Order of Megatron-LM, with groups of `pp` micro-batches or a few more.

    The group is the smallest of at least pp of which `n_micro_batch` leaves no remainder, or one of at least pp:
    Megatron-Core's condition for no added bubble. It is pp itself when pp divides n_micro_batch.
    """

    name: str = "interleaved"
    loss_goes_back_at_once: ClassVar[bool] = (
        True  # a last group that is not full holds a few more for a moment, which is left out
    )
    fixed_virtual_stages: ClassVar[int | None] = None
    fills_one_way: ClassVar[bool] = True
    drains_one_way: ClassVar[bool] = True

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Warm-up forwards, then one forward and one backward in turn, chunk after chunk."""
        group = self._group(pp, n_micro_batch, virtual_stages)
        micro_batch, own_chunk = np.array(_passes(group, n_micro_batch, virtual_stages)).T
        warm_up = np.array([self._warm_up(stage, pp, n_micro_batch, virtual_stages) for stage in range(pp)])
        return _one_by_one(warm_up, micro_batch, own_chunk, virtual_stages)

    def layout_problem(self, pp: int, virtual_stages: int) -> str:
        """Several chunks per stage; on one stage any number."""
        return "needs virtual_stages of at least 2. Use schedule=1f1b for one." if virtual_stages < 2 and pp > 1 else ""

    def enough_micro_batches(self, pp: int, n_micro_batch: Counts, virtual_stages: int) -> Flags:
        """Whether there are as many micro-batches as stages."""
        return n_micro_batch >= pp

    def micro_batches_needed(self, pp: int, virtual_stages: int) -> str:
        """Returns the condition in words: as many micro-batches as stages."""
        return f"at least pp = {pp} micro-batches per replica"

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Warm-up forwards and the one that runs.

        Raises:
            PlanError: fewer micro-batches than stages.
        """
        warm_up = self._warm_up(stage, pp, n_micro_batch, virtual_stages)
        return float(min(warm_up + 1, n_micro_batch * virtual_stages))

    def in_flight_of_chunks(
        self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, sizes: Sequence[float]
    ) -> tuple[float, ...]:
        """Returns the activations at the fullest moment in the first period of one forward and one backward in turn; evenly where
        chunks are equal.

        Raises:
            PlanError: fewer micro-batches than stages.
        """
        if len(set(sizes)) <= 1:
            return (self.in_flight(stage, pp, n_micro_batch, virtual_stages) / len(sizes),) * len(sizes)
        group = self._group(pp, n_micro_batch, virtual_stages)
        warm_up = self._warm_up(stage, pp, n_micro_batch, virtual_stages)
        forwards = [v for _, v in _passes(group, n_micro_batch, virtual_stages)[: warm_up + group * virtual_stages]]
        held = [float(forwards[:warm_up].count(v)) for v in range(virtual_stages)]
        fullest = tuple(held)
        for started, ended in zip(forwards[warm_up:], forwards, strict=False):
            held[started] += 1.0
            fullest = max(fullest, tuple(held), key=lambda own: sum(map(mul, own, sizes)))
            held[virtual_stages - 1 - ended] -= 1.0
        return fullest

    def step_s(self, work: PipelineWork) -> Floats:
        """The bound, or every chunk at the pace of the slowest stage in its turn."""
        whole = work.whole_s
        slot = whole.reshape(*whole.shape[:2], -1, work.pp).max(axis=3).sum(axis=(1, 2))
        return np.maximum(work.bound_s, work.n_micro_batch * slot + work.end_s.max(axis=1))

    def _group(self, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Micro-batches that visit all chunks of a stage before the next group starts."""
        if n_micro_batch < pp:
            for problem in self.problems(pp, n_micro_batch, virtual_stages):
                raise PlanError.of(problem)
        return next(g for g in range(pp, n_micro_batch + 1) if n_micro_batch % g == 0 or n_micro_batch % g >= pp)

    def _warm_up(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Chunk forwards that `stage` runs before it alternates (Megatron-Core)."""
        group = self._group(pp, n_micro_batch, virtual_stages)
        return min(2 * (pp - 1 - stage) + (virtual_stages - 1) * group, n_micro_batch * virtual_stages)


def _passes(group: int, n_micro_batch: int, virtual_stages: int) -> list[tuple[int, int]]:
    """(micro-batch, chunk of the stage) in forward order, the same on every stage."""
    return [
        (m, v)
        for first in range(0, n_micro_batch, group)
        for v in range(virtual_stages)
        for m in range(first, min(first + group, n_micro_batch))
    ]

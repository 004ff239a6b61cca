"""ZB-H1, ZB-H2 and ZB-V: schedules whose backward is split, with the weight gradients put off into the bubbles.

With F, B, W the mean seconds of a chunk, p stages, m micro-batches and x+ the positive part of x, a step takes about

    ZB-H1, ZB-H2    bound + (p - 1) (B - min(w, (m - 1) / (p - 1)) W)+        w = 1, 2
    ZB-V            max_s busy_s + (p - 1) max(F, B, 2 B - 2 W)               from 2 p micro-batches on

ZB-H: stage s runs `ahead` forwards before its first B and holds back `held` weight gradients; from there on it repeats B W F. The
two differ in these two numbers only. ZB-V: two chunks per stage, placed as a V, so that the stage that starts a micro-batch also
ends it: chunk q < p lives on stage q, others on stage 2 p - 1 - q; memory of 1F1B, no bubble when F = B = W.

Source: Qi et al., arXiv 2401.10241, sections 2 and 6, table 1 and figure 3, and arXiv 2405.15362; the bubble of ZB-H is
corrected for few micro-batches by what the orders do; phases of ZB-V as in `handcrafted_zb_v` of
sail-sg/zero-bubble-pipeline-parallelism.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..core.arrays import Counts, Floats
from ..core.lazy import np
from .base import ArraySchedule
from .order import PipelineWork, StepOps, Turn


@dataclass(frozen=True)
class ZeroBubble(ArraySchedule):
    """Base of the two zero-bubble schedules.

    Attributes:
        filled: weight gradients that fill the wait for a gradient.
    """

    filled: ClassVar[float]
    fills_one_way: ClassVar[bool] = True
    loss_goes_back_at_once: ClassVar[bool] = True

    @abstractmethod
    def ahead(self, stage: int, pp: int) -> int:
        """Forwards before the first B."""

    @abstractmethod
    def held(self, stage: int) -> int:
        """Returns the number of weight gradients held back."""

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Forwards ahead, then B W F in turn, then the weight gradients that are left."""
        stage, m = np.arange(pp)[:, None], np.arange(n_micro_batch)
        ahead = np.array([[self.ahead(s, pp)] for s in range(pp)])
        held = np.array([[self.held(s)] for s in range(pp)])
        turns = {"F": 3 * (m - ahead) + 2, "B": 3 * (m + 0 * held), "W": 3 * (m + held) + 1}
        return StepOps.in_turn(*(Turn((kind,), turn, m, stage) for kind, turn in turns.items()))

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Forwards ahead, and activations kept for the weight gradients held back."""
        n_ahead = min(self.ahead(stage, pp), n_micro_batch)
        return n_ahead + kept_for_w * min(self.held(stage), n_micro_batch - n_ahead)

    def step_s(self, work: PipelineWork) -> Floats:
        """The bound, and the part of the wait for a gradient that weight gradients do not fill."""
        b, w = work.mean_s[:, 1:].T
        filled = np.minimum(self.filled, (work.n_micro_batch - 1) / max(work.pp - 1, 1))
        return work.bound_s + (work.pp - 1) * np.maximum(b - filled * w, 0.0)


@dataclass(frozen=True)
class ZBH1(ZeroBubble):
    """Memory of 1F1B, a third of its bubble when F = B = W."""

    name: str = "zb_h1"
    filled: ClassVar[float] = 1.0

    def ahead(self, stage: int, pp: int) -> int:
        """Returns as many forwards as 1F1B holds."""
        return pp - stage

    def held(self, stage: int) -> int:
        """Returns the number of stages before this one."""
        return stage


@dataclass(frozen=True)
class ZBH2(ZeroBubble):
    """Twice the memory of 1F1B, no bubble when F = B = W and there are 2 pp - 1 micro-batches or more."""

    name: str = "zb_h2"
    filled: ClassVar[float] = 2.0

    def ahead(self, stage: int, pp: int) -> int:
        """Returns as many forwards as fill the way there and back."""
        return 2 * (pp - 1 - stage) + 1

    def held(self, stage: int) -> int:
        """Twice as many as there are stages before."""
        return 2 * stage


@dataclass(frozen=True)
class ZBV(ArraySchedule):
    """V-shaped zero-bubble order; with fewer than 2 pp - 1 micro-batches the order of 2 pp - 1, less what does not exist."""

    name: str = "zb_v"
    loss_goes_back_at_once: ClassVar[bool] = True
    fixed_virtual_stages: ClassVar[int | None] = 2

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Phases of the authors' schedule."""
        chunks = np.arange(pp)[:, None] * [1, -1] + [0, 2 * pp - 1]
        ops = StepOps.by_name([_names(stage, pp, n_micro_batch) for stage in range(pp)], chunks, 0 * chunks)
        there = ops.micro_batch[:, 0] < n_micro_batch
        n_op = np.bincount(ops.stage[there], minlength=pp)
        return StepOps(n_op, *(own[there] for own in (ops.kind, ops.micro_batch, ops.chunk)))

    def placements(self, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
        """Returns placements that go down the stages and up again."""
        rounds = [range(pp) if turn % 2 == 0 else reversed(range(pp)) for turn in range(virtual_stages)]
        return (tuple(stage for turn in rounds for stage in turn),)

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Returns the activations on the way down and on the way up: 2 pp once the pipeline is full."""
        return float(min(2 * pp - 1 - stage, n_micro_batch) + min(stage + 1, n_micro_batch))

    def step_s(self, work: PipelineWork) -> Floats:
        """The busiest stage, and a bubble per further stage."""
        m, shares = work.n_micro_batch, self.stage_shares(work.pp, work.virtual_stages)
        busy = m[:, None] * (work.whole_s.sum(axis=1) @ shares) + work.end_s
        return busy.max(axis=1) + (work.pp - 1) * _bubble_s(work.mean_s, m, work.pp)


def _bubble_s(mean: Floats, m: Counts, pp: int) -> Floats:
    """Bubble per further stage, [plan], of mean seconds [plan, kind]: of many, of pp, and of fewer micro-batches."""
    f, b, w = mean.T
    many = np.maximum(np.maximum(f, b), 2.0 * (b - w))
    few = 2.0 * b + 2.0 * f * np.maximum(1.0 - (m - 1) / max(pp - 1, 1), 0.0)
    share = np.clip(m / pp - 1.0, 0.0, 1.0)
    return share * many + (1.0 - share) * few


def _names(stage: int, pp: int, n_micro_batch: int) -> list[str]:
    """Ops by name: F, B and W with the chunk of the stage, 0 on the way down and 1 on the way up."""
    n_pass, rest = max(2 * pp - 1, n_micro_batch), pp - stage
    n_steady, with_f0 = n_pass - pp, n_pass - (2 * pp - 1 - stage)
    names = ["F0"] * (2 * rest - 1) + ["F1", "F0"] * stage + ["F1", "B1", "W1"] * rest
    names += ["F0", "B0", "W0", "F1", "B1", "W1"] * with_f0 + ["B0", "W0", "F1", "B1", "W1"] * (n_steady - with_f0)
    return names + ["B0", "B1"] * stage + ["B0", "W0"] * rest + ["W1"] * stage + ["W0"] * stage

"""ZB-H1 and ZB-H2: 1F1B whose backward is split, with the weight gradients put off into the bubbles.

Stage s runs `ahead` forwards before its first B and holds back `held` weight gradients; from there on it repeats B W F.
The two schedules differ in these two numbers only. With F, B, W the mean seconds of a chunk, p stages, m micro-batches
and x+ the positive part of x, a step takes about

    bound + (p - 1) (B - min(w, (m - 1) / (p - 1)) W)+          w = 1, 2

Source: Qi et al., arXiv 2401.10241, section 2, table 1 and figure 3 (hand-crafted schedules); the bubble is corrected for
few micro-batches by what the orders do.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from .._core.lazy_numpy import np
from .._typing import Floats
from .base import PipelineSchedule, one_if_last
from .order import Op, Orders, forward, input_gradient, weight_gradient
from .work import PipelineWork


@dataclass(frozen=True)
class ZeroBubble(PipelineSchedule):
    """What the two have in common.

    Attributes:
        filled: weight gradients that fill the wait for a gradient.
    """

    filled: ClassVar[float]
    fills_one_way: ClassVar[bool] = True

    @abstractmethod
    def ahead(self, stage: int, pp: int) -> int:
        """Forwards before the first B."""

    @abstractmethod
    def held(self, stage: int) -> int:
        """Weight gradients held back."""

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """Forwards ahead, then B W F in turn, then the weight gradients that are left."""
        return tuple(_order(s, self.ahead(s, pp), self.held(s), n_micro_batch) for s in range(pp))

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Forwards ahead, and what is kept for the weight gradients held back."""
        n_ahead = min(self.ahead(stage, pp), n_micro_batch)
        return n_ahead + kept_for_w * min(self.held(stage), n_micro_batch - n_ahead)

    def logits_held(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Those of one micro-batch."""
        return one_if_last(self, stage, pp, virtual_stages)

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
        """As many as 1F1B holds."""
        return pp - stage

    def held(self, stage: int) -> int:
        """As many as there are stages before."""
        return stage


@dataclass(frozen=True)
class ZBH2(ZeroBubble):
    """Twice the memory of 1F1B, no bubble when F = B = W and there are 2 pp - 1 micro-batches or more."""

    name: str = "zb_h2"
    filled: ClassVar[float] = 2.0

    def ahead(self, stage: int, pp: int) -> int:
        """As many as fill the way there and back."""
        return 2 * (pp - 1 - stage) + 1

    def held(self, stage: int) -> int:
        """Twice as many as there are stages before."""
        return 2 * stage


def _order(stage: int, n_ahead: int, n_held: int, n_micro_batch: int) -> tuple[Op, ...]:
    n_ahead = min(n_ahead, n_micro_batch)
    order = [forward(m, stage) for m in range(n_ahead)]
    for m in range(n_micro_batch):
        order.append(input_gradient(m, stage))
        if m >= n_held:
            order.append(weight_gradient(m - n_held, stage))
        if m + n_ahead < n_micro_batch:
            order.append(forward(m + n_ahead, stage))
    order.extend(weight_gradient(m, stage) for m in range(max(n_micro_batch - n_held, 0), n_micro_batch))
    return tuple(order)

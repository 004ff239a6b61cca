"""GPipe: every stage runs all forwards, then all backwards.

Source: Huang et al., arXiv 1811.06965; order of the backwards as in Narayanan et al., arXiv 2104.04473, figure 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import PipelineSchedule, one_if_last
from .order import Orders, backward, forward


@dataclass(frozen=True)
class GPipe(PipelineSchedule):
    """Order in which every stage holds the activations of all `n_micro_batch` micro-batches at once.

    Its step time is the lower bound and what it sends.
    """

    name: str = "gpipe"
    fills_one_way: ClassVar[bool] = True
    drains_one_way: ClassVar[bool] = True

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """All forwards, then all backwards."""
        micro_batches = range(n_micro_batch)
        return tuple(
            tuple([forward(m, stage) for m in micro_batches] + [backward(m, stage) for m in micro_batches])
            for stage in range(pp)
        )

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """All micro-batches."""
        return float(n_micro_batch)

    def logits_held(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Those of all micro-batches."""
        return n_micro_batch * one_if_last(self, stage, pp, virtual_stages)

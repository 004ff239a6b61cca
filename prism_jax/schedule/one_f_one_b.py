"""1F1B with a flush (PipeDream-flush, the default of Megatron-LM): stage s runs pp - 1 - s forwards ahead, then alternates.

Source: Narayanan et al., arXiv 2006.09503 (PipeDream-flush) and arXiv 2104.04473, figure 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import PipelineSchedule, one_if_last
from .order import Op, Orders, backward, forward


@dataclass(frozen=True)
class OneFOneB(PipelineSchedule):
    """Order in which stage s never holds more than `pp - s` micro-batches.

    Its step time is the lower bound and what it sends.
    """

    name: str = "1f1b"
    fills_one_way: ClassVar[bool] = True
    drains_one_way: ClassVar[bool] = True

    def orders(self, pp: int, n_micro_batch: int, virtual_stages: int) -> Orders:
        """`pp - 1 - s` forwards ahead, then one forward and one backward in turn."""
        return tuple(_order(stage, min(pp - 1 - stage, n_micro_batch), n_micro_batch) for stage in range(pp))

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Stages from this one to the last, or all micro-batches."""
        return float(min(pp - stage, n_micro_batch))

    def logits_held(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int) -> int:
        """Those of one micro-batch."""
        return one_if_last(self, stage, pp, virtual_stages)


def _order(stage: int, n_warm_up: int, n_micro_batch: int) -> tuple[Op, ...]:
    order = [forward(m, stage) for m in range(n_warm_up)]
    for m in range(n_micro_batch):
        if m + n_warm_up < n_micro_batch:
            order.append(forward(m + n_warm_up, stage))
        order.append(backward(m, stage))
    return tuple(order)

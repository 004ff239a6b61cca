"""1F1B with a flush (PipeDream-flush, the default of Megatron-LM): stage s runs pp - 1 - s forwards ahead, then alternates.

Source: Narayanan et al., arXiv 2006.09503 (PipeDream-flush) and arXiv 2104.04473, figure 4.
"""

from __future__ import annotations

from .base import Op, Schedule, backward, forward, require_one_chunk, straight


def one_f_one_b(pp: int, n_micro_batch: int, virtual_stages: int = 1) -> Schedule:
    """Order in which stage s never holds more than `pp - s` micro-batches.

    Raises:
        PlanError: virtual_stages is not 1.
    """
    require_one_chunk("1f1b", virtual_stages)
    orders = tuple(_order(stage, min(pp - 1 - stage, n_micro_batch), n_micro_batch) for stage in range(pp))
    return Schedule("1f1b", pp, n_micro_batch, 1, orders, straight(pp))


def _order(stage: int, n_warm_up: int, n_micro_batch: int) -> tuple[Op, ...]:
    order = [forward(m, stage) for m in range(n_warm_up)]
    for m in range(n_micro_batch):
        if m + n_warm_up < n_micro_batch:
            order.append(forward(m + n_warm_up, stage))
        order.append(backward(m, stage))
    return tuple(order)

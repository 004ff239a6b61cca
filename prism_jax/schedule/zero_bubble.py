"""ZB-H1 and ZB-H2: 1F1B whose backward is split, with the weight gradients put off into the bubbles.

Stage s runs `n_ahead` forwards before its first B and holds back `n_held` weight gradients; from there on it repeats B W F.
The two schedules differ in these two numbers only.

Source: Qi et al., arXiv 2401.10241, section 2 and figure 3 (hand-crafted schedules).
"""

from __future__ import annotations

from .base import Op, Schedule, forward, input_gradient, require_one_chunk, straight, weight_gradient


def zb_h1(pp: int, n_micro_batch: int, virtual_stages: int = 1) -> Schedule:
    """Memory of 1F1B, a third of its bubble when F = B = W.

    Raises:
        PlanError: virtual_stages is not 1.
    """
    require_one_chunk("zb_h1", virtual_stages)
    orders = tuple(_order(s, pp - s, s, n_micro_batch) for s in range(pp))
    return Schedule("zb_h1", pp, n_micro_batch, 1, orders, straight(pp))


def zb_h2(pp: int, n_micro_batch: int, virtual_stages: int = 1) -> Schedule:
    """Twice the memory of 1F1B, no bubble when F = B = W and there are 2 pp - 1 micro-batches or more.

    Raises:
        PlanError: virtual_stages is not 1.
    """
    require_one_chunk("zb_h2", virtual_stages)
    orders = tuple(_order(s, 2 * (pp - 1 - s) + 1, 2 * s, n_micro_batch) for s in range(pp))
    return Schedule("zb_h2", pp, n_micro_batch, 1, orders, straight(pp))


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

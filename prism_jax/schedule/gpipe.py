"""GPipe: every stage runs all forwards, then all backwards.

Source: Huang et al., arXiv 1811.06965; order of the backwards as in Narayanan et al., arXiv 2104.04473, figure 3.
"""

from __future__ import annotations

from .base import Schedule, backward, forward, require_one_chunk, straight


def gpipe(pp: int, n_micro_batch: int, virtual_stages: int = 1) -> Schedule:
    """Order in which every stage holds the activations of all `n_micro_batch` micro-batches at once.

    Raises:
        PlanError: virtual_stages is not 1.
    """
    require_one_chunk("gpipe", virtual_stages)
    micro_batches = range(n_micro_batch)
    orders = tuple(
        tuple([forward(m, stage) for m in micro_batches] + [backward(m, stage) for m in micro_batches])
        for stage in range(pp)
    )
    return Schedule("gpipe", pp, n_micro_batch, 1, orders, straight(pp))

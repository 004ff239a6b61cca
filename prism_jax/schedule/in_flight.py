"""How many activations a pipeline stage holds at once, in closed form, from the plan alone.

Unit: chunk-activations, the activations of one micro-batch in one model chunk (a stage holds `virtual_stages` chunks,
so `virtual_stages` chunk-activations are one micro-batch of the whole stage). An activation counts from the start of its
forward; the peak is taken with the forward that is running counted in full.

What ends it: gpipe, 1f1b, interleaved and dualpipe (steady state) run B and W as one op and release everything there. The
zero-bubble schedules release `1 - kept_for_w` of it after B and the rest after W. The paper that proposes them counts, per
layer, M_B = s b (34 h + 5 a s) bytes until B and M_W = 32 s b h until W (arXiv 2401.10241, table 1), i.e. 32/34 with
FlashAttention or selective recompute; the default 1 is the safe side.

`schedule.activations.peak_activations` counts the same numbers from the orders themselves.
"""

from __future__ import annotations

from ..errors import PlanError
from ..plan.plan import ParallelPlan


def interleaved_group(pp: int, n_micro_batch: int) -> int:
    """Micro-batches that visit all chunks of a stage before the next group starts.

    Returns:
        The smallest group >= pp of which `n_micro_batch` leaves no remainder, or one of at least pp: Megatron-Core's
        condition for no added bubble. It is pp itself when pp divides n_micro_batch.

    Raises:
        PlanError: fewer micro-batches than stages.
    """
    if n_micro_batch < pp:
        raise PlanError(
            f"schedule interleaved needs n_micro_batch >= pp, but n_micro_batch = {n_micro_batch} and pp = {pp}. "
            f"Try n_micro_batch={pp} (global_batch = {pp} * dp * micro_batch), or schedule='1f1b'."
        )
    return next(g for g in range(pp, n_micro_batch + 1) if n_micro_batch % g == 0 or n_micro_batch % g >= pp)


def interleaved_warm_up(pp: int, n_micro_batch: int, virtual_stages: int, stage: int) -> int:
    """Chunk forwards that `stage` runs before it alternates (Megatron-Core)."""
    group = interleaved_group(pp, n_micro_batch)
    return min(2 * (pp - 1 - stage) + (virtual_stages - 1) * group, n_micro_batch * virtual_stages)


def in_flight_chunks(plan: ParallelPlan, stage: int, kept_for_w: float = 1.0) -> float:
    """Peak number of chunk-activations that pipeline stage `stage` holds under `plan.schedule`.

    Args:
        plan: uses pp, virtual_stages, schedule and n_micro_batch.
        stage: 0 .. pp - 1.
        kept_for_w: fraction of an activation that stays between B and W, 0-1 (zero-bubble schedules).

    Raises:
        PlanError: the schedule is unknown, or interleaved with fewer micro-batches than stages.
    """
    pp, n_micro_batch = plan.pp, plan.n_micro_batch
    match plan.schedule:
        case "gpipe":
            return float(n_micro_batch)
        case "1f1b":
            return float(min(pp - stage, n_micro_batch))
        case "interleaved":
            warm_up = interleaved_warm_up(pp, n_micro_batch, plan.virtual_stages, stage)
            return float(min(warm_up + 1, n_micro_batch * plan.virtual_stages))
        case "zb_h1":
            return _split(pp - stage, stage, n_micro_batch, kept_for_w)
        case "zb_h2":
            return _split(2 * (pp - 1 - stage) + 1, 2 * stage, n_micro_batch, kept_for_w)
        case "zb_v":
            return float(min(2 * pp - 1 - stage, n_micro_batch) + min(stage + 1, n_micro_batch))  # 2 pp once it is full
        case "dualpipe":
            return float(pp + 1)
    raise PlanError(f"schedule = {plan.schedule!r} is unknown, so its activations cannot be counted")


def _split(n_ahead: int, n_held: int, n_micro_batch: int, kept_for_w: float) -> float:
    """Peak of a stage that runs `n_ahead` forwards ahead and holds back `n_held` weight gradients."""
    n_ahead = min(n_ahead, n_micro_batch)
    return n_ahead + kept_for_w * min(n_held, n_micro_batch - n_ahead)

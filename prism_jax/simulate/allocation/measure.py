"""The spreads of a job within and between allocations, from repeated columns."""

from __future__ import annotations

from jax import Array

from ...result import AllocationSpread, StepTimeDistribution
from ..program import Program
from .repeats import repeated_columns
from .spread import between_share
from .typical import typical_quantile

P = 0.95


def allocation_spread(program: Program, whole: StepTimeDistribution, key: Array) -> AllocationSpread:
    """Both spreads of a job.

    Args:
        program: lowered job.
        whole: distribution over allocations and steps.
        key: typed PRNG key.
    """
    if whole.std_s == 0.0 or not (program.has_persistent or program.varying_links):
        return AllocationSpread(whole.std_s, 0.0, 0.0, whole.quantile(P), whole.mc_error(P))
    repeats = repeated_columns(program, key)
    share, share_error = between_share(repeats)
    return AllocationSpread(whole.std_s, share, share_error, *typical_quantile(repeats, P, seed=0))

"""explain: the whole answer to "why", from one program and its distribution."""

from __future__ import annotations

import jax
from jax import Array

from ..job import Job
from ..result import StepTimeDistribution
from ..simulate.allocation import allocation_spread
from ..simulate.program import lower
from .breakdown import breakdown
from .criticality import criticality
from .owners import p95_owners
from .types import Explanation


def explain(job: Job, distribution: StepTimeDistribution, *, key: Array) -> Explanation:
    """Breakdown, criticality, owners of the p95, and the spreads between and within allocations.

    Args:
        job: the job that was predicted.
        distribution: its prediction.
        key: typed PRNG key; independent of the one used for the distribution or not, as you like.
    """
    program = lower(job)
    return Explanation(
        breakdown_s=breakdown(program, distribution),
        criticality=criticality(program, jax.random.fold_in(key, 2)),
        p95_owner_s=p95_owners(program, jax.random.fold_in(key, 1)),
        allocation=allocation_spread(program, distribution, jax.random.fold_in(key, 3)),
    )

"""A fitted job in which one process computes more slowly: what nobody has recorded yet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prism_jax.trace.recorded_job import RecordedJob


def slowed(job: RecordedJob, rank: int, factor: float) -> RecordedJob:
    """`job` with all compute of micro-batches on `rank` taking `factor` times as long."""
    assert job.effects is not None
    replica, stage = (int(found[0]) for found in np.nonzero(job.trace.rank == rank))
    effect = job.effects.rank.copy()
    own = [signature.stage == stage for signature in job.effects.signatures]
    effect[own, replica] += np.log(factor)
    return replace(job, effects=replace(job.effects, rank=effect))

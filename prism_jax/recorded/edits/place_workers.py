"""A recorded job with something changed: the same draws, so that differences are due to the change alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import DataError
from ..effects import Effects
from ..recorded_job import RecordedJob
from ..trace.pipeline import COMMUNICATION


def with_median_worker(job: RecordedJob, rank: int) -> RecordedJob:
    """`job` with a worker replaced by the median one of its stage.

    Args:
        job: fitted.
        rank: global rank of a recorded worker.

    Raises:
        DataError: that rank was not recorded.
    """
    replica, stage = _place(job, rank)
    ops = np.array([op.stage == stage for op in job.trace.ops])
    run_s, gap_s = job.run_s.copy(), job.gap_s.copy()
    run_s[ops, replica] = np.median(job.run_s[ops], axis=1)
    gap_s[ops, replica] = np.median(job.gap_s[ops], axis=1)
    effects = job.effects
    if effects is not None:
        rank_effect = effects.rank.copy()
        own = np.array([signature.stage == stage for signature in effects.signatures])
        rank_effect[own, replica] = np.median(effects.rank[own], axis=1)
        effects = replace(effects, rank=rank_effect)
    return replace(job, run_s=run_s, gap_s=gap_s, effects=effects)


def with_slower_worker(job: RecordedJob, rank: int, factor: float) -> RecordedJob:
    """`job` with all micro-batch compute of one worker taking `factor` times as long.

    Raises:
        DataError: that rank was not recorded, or the factor is not positive.
    """
    if not 0.0 < factor < float("inf"):
        raise DataError(f"a worker cannot be {factor:g} times as slow; 1.1 is 10 % slower")
    replica, stage = _place(job, rank)
    effects = _effects(job)
    rank_effect = effects.rank.copy()
    own = [signature.stage == stage for signature in effects.signatures]
    rank_effect[own, replica] += np.log(factor)
    return replace(job, effects=replace(effects, rank=rank_effect))


def with_even_micro_batches(job: RecordedJob) -> RecordedJob:
    """`job` with every micro-batch as long as they are on average; the work stays the same."""
    effects = _effects(job)
    mean = np.log(np.exp(effects.pool).mean(axis=1, keepdims=True))
    return replace(job, effects=replace(effects, pool=np.broadcast_to(mean, effects.pool.shape)))


def with_even_stages(job: RecordedJob) -> RecordedJob:
    """`job` with the compute of micro-batches spread evenly over the stages; the work stays the same."""
    effects = _effects(job)
    base = effects.base.copy()
    for op_type in {signature.op_type for signature in effects.signatures}:
        own = np.array([signature.op_type == op_type for signature in effects.signatures])
        base[:, own] = np.log(np.exp(base[:, own]).mean(axis=1, keepdims=True))
    return replace(job, effects=replace(effects, base=base))


def with_layer_moved(job: RecordedJob, layers_per_stage: int) -> RecordedJob:
    """`job` with one layer moved off the last stage to the first.

    A layer takes its share of the median stage: the last stage also computes the loss, which stays.

    Raises:
        DataError: a single stage, or no layer to move.
    """
    effects = _effects(job)
    stages = sorted({signature.stage for signature in effects.signatures})
    if len(stages) < 2 or layers_per_stage < 1:
        raise DataError("moving a layer needs at least two stages and one layer per stage")
    base_s = np.exp(effects.base)
    for op_type in {signature.op_type for signature in effects.signatures}:
        own = [[i for i, s in enumerate(effects.signatures) if s == (op_type, stage, s.chunk)] for stage in stages]
        if not own[0] or not own[-1]:
            continue  # work that only some stages do is in no layer
        stage_s = np.array([base_s[:, mine].sum(axis=1) for mine in own if mine])  # of all chunks
        layer_s = np.minimum(np.median(stage_s, axis=0) / layers_per_stage, 0.99 * stage_s[-1])
        base_s[:, own[-1]] *= (1.0 - layer_s / stage_s[-1])[:, None]
        base_s[:, own[0]] *= (1.0 + layer_s / stage_s[0])[:, None]
    return replace(job, effects=replace(effects, base=np.log(base_s)))


def with_workers_placed(job: RecordedJob, places: dict[int, int]) -> RecordedJob:
    """`job` with workers at other places: how slow a worker is in compute goes with it, what the stage does stays.

    Args:
        job: fitted.
        places: recorded rank -> rank whose place it takes; ranks must change places among themselves.

    Raises:
        DataError: an unknown rank, or two workers in one place.
    """
    if sorted(places) != sorted(places.values()):
        raise DataError("places: workers must change places among themselves, so that every place is taken once")
    unknown = [rank for rank in places if not (job.trace.rank == rank).any()]
    if unknown:
        raise DataError(f"places: rank {unknown[0]} was not recorded")
    effects = _effects(job)
    where = {int(r): (int(i), int(s)) for (i, s), r in np.ndenumerate(job.trace.rank)}
    rank_effect = effects.rank.copy()
    for worker, place in places.items():
        (from_replica, from_stage), (to_replica, to_stage) = where[worker], where[place]
        for index, signature in enumerate(effects.signatures):
            if signature.stage == to_stage:
                same = [i for i, s in enumerate(effects.signatures) if s == signature._replace(stage=from_stage)]
                source = same or [i for i, s in enumerate(effects.signatures) if s.stage == from_stage]
                rank_effect[index, to_replica] = effects.rank[source, from_replica].mean() if source else 0.0
    return replace(job, effects=replace(effects, rank=rank_effect))


def with_even_transfers(job: RecordedJob) -> RecordedJob:
    """`job` with every communication at the median of its op."""
    run_s = job.run_s.copy()
    for index, op in enumerate(job.trace.ops):
        if op.op_type in COMMUNICATION or op.group:
            run_s[index] = np.median(run_s[index])
    return replace(job, run_s=run_s)


def _place(job: RecordedJob, rank: int) -> tuple[int, int]:
    """Replica and stage of a recorded worker."""
    found = np.argwhere(job.trace.rank == rank)
    if len(found) == 0:
        known = ", ".join(str(r) for r in np.sort(job.trace.rank, axis=None)[:8])
        raise DataError(f"rank {rank} was not recorded. Recorded ranks are {known}, ...")
    return int(found[0, 0]), int(found[0, 1])


def _effects(job: RecordedJob) -> Effects:
    if job.effects is None:
        raise DataError(
            "the trace has no compute that belongs to micro-batches, so there is nothing to even out or move"
        )
    return job.effects

"""Changes a recorded job and keeps its draws, so that differences are due to the change alone.

With another number of micro-batches per step, the schedule is recognised among those with one chunk per stage and whole
backwards, and laid out anew. Every op takes after the recorded one in the same phase: counted from the start of the step in its
first half, from the end in its second, a middle one where there are more than recorded. So do the waits that were read off the
recording; they are carried over as distances in the order of the stage's compute.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ..core.errors import DataError
from ..plan.plan import DEFAULT_SCHEDULE
from ..schedule.base import PipelineSchedule
from ..schedule.order import Op
from ..schedule.registry import SCHEDULES
from ..trace.dependencies import Dependencies, Links
from ..trace.pipeline import BACKWARD, COMMUNICATION, FORWARD, TRANSFERS, is_pipeline, pipeline_dependencies
from ..trace.trace import Trace, TraceOp
from .effects import Effects, Strata
from .recorded_job import RecordedJob

COMPUTE = {("F",): FORWARD, ("B", "W"): BACKWARD}  # op type of what an op of a schedule holds
NUMBERED = (FORWARD, BACKWARD, *TRANSFERS)  # one op per micro-batch
AFTER_COMPUTE = 1e6  # place of what follows all compute, in an order that is told by numbers instead of seconds
Place = tuple[str, int, int]  # op type, stage, seq


def with_micro_batches(job: RecordedJob, n_micro_batch: int) -> RecordedJob:
    """`job` with `n_micro_batch` micro-batches per replica and step.

    Raises:
        DataError: not a pipeline job, several chunks per stage, or an order of compute that no known schedule has.
    """
    recorded = _Layout(job.trace, _recorded_order(job.trace))
    schedule = _schedule(job.trace, recorded)
    wanted = _Layout(job.trace, _order(schedule, job.trace.n_stage, n_micro_batch))
    n_before = recorded.n_micro_batch
    source = [_source(i, n_micro_batch, n_before) for i in range(n_micro_batch)]
    ops, origin = _ops(job.trace, source)
    trace = _trace(job.trace, ops, origin, wanted)
    needs = _with_waits(job, trace, origin, recorded, wanted)
    return RecordedJob(
        trace=trace,
        waits=replace(job.waits, needs=needs, unexplained=job.waits.unexplained[origin]),
        run_s=job.run_s[origin],
        gap_s=job.gap_s[origin],
        effects=None if job.effects is None else _effects(job.effects, ops, source),
        agreement=job.agreement,
        kernels=None if job.kernels is None else job.kernels.of_ops(origin),
    )


class _Layout:
    """Order of compute of every stage: position of forward and backward of every micro-batch, and what stands where."""

    def __init__(self, trace: Trace, orders: list[list[tuple[str, int]]]) -> None:
        self.orders = orders
        self.position = {(t, stage, i): p for stage, order in enumerate(orders) for p, (t, i) in enumerate(order)}
        self.n_micro_batch = sum(op_type == FORWARD for op_type, _ in orders[0])

    def of(self, place: Place) -> int:
        """Position of the compute that an op belongs to: a transfer of the compute whose data it carries."""
        op_type, stage, seq = place
        return self.position[_compute(op_type), stage, seq]


def _recorded_order(trace: Trace) -> list[list[tuple[str, int]]]:
    if not is_pipeline(trace) or trace.job.virtual_stages > 1:
        raise DataError(
            f"{trace.source}: the number of micro-batches can be changed in a pipeline job with one model chunk per stage only"
        )
    orders = []
    for stage in range(trace.n_stage):
        compute = [i for i, op in enumerate(trace.ops) if op.stage == stage and op.op_type in (FORWARD, BACKWARD)]
        compute.sort(key=lambda i: trace.start_s[i, 0, 0])
        orders.append([(trace.ops[i].op_type, trace.ops[i].seq) for i in compute])
    return orders


def _order(schedule: PipelineSchedule, pp: int, n_micro_batch: int) -> list[list[tuple[str, int]]]:
    orders = schedule.lay_out(pp, n_micro_batch, 1).orders
    return [[(_op_type(op), op.parts[0].micro_batch) for op in order] for order in orders]


def _op_type(op: Op) -> str:
    return COMPUTE.get(tuple(part.kind for part in op.parts), "")


def _schedule(trace: Trace, recorded: _Layout) -> PipelineSchedule:
    known = sorted(
        SCHEDULES, key=lambda schedule: schedule.name != DEFAULT_SCHEDULE
    )  # where several fit, the usual one
    for schedule in known:
        degrees = trace.n_stage, recorded.n_micro_batch
        if not any(schedule.problems(*degrees, 1)) and _order(schedule, *degrees) == recorded.orders:
            return schedule
    raise DataError(
        f"{trace.source}: the recorded order of compute is that of no known schedule ({', '.join(SCHEDULES.names)}), "
        "so it cannot be laid out anew"
    )


def _source(index: int, n: int, n_recorded: int) -> int:
    """The recorded micro-batch that micro-batch `index` of `n` takes after."""
    kept = min(n, n_recorded)
    first = kept - kept // 2
    from_end = n - 1 - index
    if index < first:
        return index
    return n_recorded - 1 - from_end if from_end < kept - first else first - 1


def _ops(trace: Trace, source: list[int]) -> tuple[tuple[TraceOp, ...], np.ndarray]:
    """Ops of the new step and, for each, the recorded one that it takes after."""
    ops: list[TraceOp] = []
    origin: list[int] = []
    at = {(op.op_type, op.stage, op.seq): i for i, op in enumerate(trace.ops)}
    for index, op in enumerate(trace.ops):
        if op.op_type not in NUMBERED:
            ops.append(op)
            origin.append(index)
        elif op.seq == 0:
            for new, old in enumerate(source):
                found = at[op.op_type, op.stage, old]
                micro_batch = new if op.micro_batch >= 0 else op.micro_batch
                ops.append(trace.ops[found]._replace(seq=new, micro_batch=micro_batch))
                origin.append(found)
    return tuple(ops), np.array(origin)


def _trace(trace: Trace, ops: tuple[TraceOp, ...], origin: np.ndarray, wanted: _Layout) -> Trace:
    """The new skeleton; its times tell the order only."""
    start = np.empty(len(ops))
    first_s = min(trace.start_s[i, 0, 0] for i, op in enumerate(trace.ops) if op.op_type in (FORWARD, BACKWARD))
    for index, op in enumerate(ops):
        if op.op_type in NUMBERED:
            start[index] = wanted.of((op.op_type, op.stage, op.seq)) + _beside_compute(op.op_type)
        else:
            recorded_s = float(trace.start_s[origin[index], 0, 0])
            start[index] = recorded_s + (AFTER_COMPUTE if recorded_s >= first_s else -AFTER_COMPUTE)
    shape = (len(ops), trace.n_replica, len(trace.steps))
    spread = np.broadcast_to(start[:, None, None], shape)
    return replace(trace, ops=ops, start_s=spread, end_s=spread + 0.1, kernels=None)


def _compute(op_type: str) -> str:
    """Op type of the compute that a numbered op is, or whose data it carries."""
    return TRANSFERS[op_type].compute if op_type in TRANSFERS else op_type


def _beside_compute(op_type: str) -> float:
    """Offset of a numbered op from the position of its compute: receives before, sends behind."""
    if op_type not in TRANSFERS:
        return 0.0
    return 0.6 if TRANSFERS[op_type].is_send else -0.3


def _with_waits(job: RecordedJob, trace: Trace, origin: np.ndarray, recorded: _Layout, wanted: _Layout) -> Dependencies:
    """Rules of the schedule for the new step, and the waits that were read off the recording."""
    rules, found = pipeline_dependencies(job.trace), job.waits.needs
    links = Links.of(trace, pipeline_dependencies(trace))
    place = {(op.op_type, op.stage, op.seq): index for index, op in enumerate(trace.ops)}
    waits: dict[int, list[int]] = defaultdict(list)
    for op, (all_needs, by_rule) in enumerate(zip(found.after, rules.after, strict=True)):
        waits[op] = [need for need in all_needs if need not in by_rule]
    for index, op in enumerate(trace.ops):
        for need in waits[int(origin[index])]:
            other = _moved(job.trace.ops[need], job.trace.ops[origin[index]], op, recorded, wanted)
            if other in place:
                links.after[index].add(place[other])
        if found.hidden_meeting[origin[index]]:
            links.groups.append([index])
            links.meeting.add(index)
            links.hidden.add(index)
    return links.done()


def _moved(need: TraceOp, old: TraceOp, new: TraceOp, recorded: _Layout, wanted: _Layout) -> Place | None:
    """The op of the new step that `new` waits for, as its recorded model `old` waited for `need`."""
    if need.op_type not in NUMBERED:
        return need.op_type, need.stage, need.seq
    if old.op_type not in NUMBERED:  # what follows all compute waits as far from the end as before
        return need.op_type, need.stage, wanted.n_micro_batch - recorded.n_micro_batch + need.seq
    distance = recorded.of((old.op_type, old.stage, old.seq)) - recorded.of((need.op_type, need.stage, need.seq))
    position = wanted.of((new.op_type, new.stage, new.seq)) - distance
    order = wanted.orders[need.stage]
    if not 0 <= position < len(order) or order[position][0] != _compute(need.op_type):
        return None
    return need.op_type, need.stage, order[position][1]


def _effects(effects: Effects, ops: tuple[TraceOp, ...], source: list[int]) -> Effects:
    at = {(op.op_type, op.stage, op.micro_batch): index for index, op in enumerate(ops)}
    op = [[at[s.op_type, s.stage, m] for s in effects.signatures] for m in range(len(source))]
    n_before, n = len(effects.base), len(source)
    more = (n - 1) / max(n_before - 1, 1)
    strata = Strata(
        max(0.0, 1.0 + (effects.strata.replica - 1.0) * more),
        max(0.0, 1.0 + (effects.strata.step - 1.0) * n / n_before),
    )
    return replace(effects, op=np.array(op, dtype=np.int32), base=effects.base[source], strata=strata)


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
        raise DataError(f"a worker cannot be {factor:g} times as slow; 1.1 is 10% slower")
    replica, stage = _place(job, rank)
    effects = _place_workers_effects(job)
    rank_effect = effects.rank.copy()
    own = [signature.stage == stage for signature in effects.signatures]
    rank_effect[own, replica] += np.log(factor)
    return replace(job, effects=replace(effects, rank=rank_effect))


def with_even_micro_batches(job: RecordedJob) -> RecordedJob:
    """`job` with every micro-batch as long as they are on average; the work stays the same."""
    effects = _place_workers_effects(job)
    mean = np.log(np.exp(effects.pool).mean(axis=1, keepdims=True))
    return replace(job, effects=replace(effects, pool=np.broadcast_to(mean, effects.pool.shape)))


def with_even_stages(job: RecordedJob) -> RecordedJob:
    """`job` with the compute of micro-batches spread evenly over the stages; the work stays the same."""
    effects = _place_workers_effects(job)
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
    effects = _place_workers_effects(job)
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
    effects = _place_workers_effects(job)
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


def _place_workers_effects(job: RecordedJob) -> Effects:
    if job.effects is None:
        raise DataError(
            "the trace has no compute that belongs to micro-batches, so there is nothing to even out or move"
        )
    return job.effects

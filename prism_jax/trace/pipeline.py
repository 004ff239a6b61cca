"""Finds the dependencies of any trace: rules where its op types are known, recorded order elsewhere.

Megatron-like frameworks record op types of a pipeline. Compute of a stage runs in recorded order. A receive is posted when the
compute before the one that needs it has ended; a send follows the compute whose result it carries. Sends and receives of one type
form a stream. Gradients are reduced after the last backward, or bucket by bucket behind it where "separate-grads-all-reduce" says
that the job overlaps them. Where no transfers were recorded at all, compute waits for the compute of the neighbouring stage.
Source: the dependency model of Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv
2505.05713, section 3.

Used for profiles of arbitrary jobs (FSDP, data parallel, DLRM): ops of one stream of one worker follow each other, members of a
named group meet. What else an op waits for is found by `waits.observed_waits`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from ..core.errors import DataError
from .dependencies import Dependencies, Lane, Links
from .trace import Trace

FORWARD, BACKWARD = "forward-compute", "backward-compute"
FORWARD_SEND, FORWARD_RECV = "forward-send", "forward-recv"
BACKWARD_SEND, BACKWARD_RECV = "backward-send", "backward-recv"


class Transfer(NamedTuple):
    """Direction and ends of a transfer between neighbouring chunks, by its op type.

    Attributes:
        direction: forward or backward.
        compute: op type of the compute whose result is sent, or that needs what is received.
        is_send: whether it sends.
        peer: op type of the other end.
        step: from the chunk of this end to that of the other.
    """

    direction: str
    compute: str
    is_send: bool
    peer: str
    step: int


TRANSFERS = {
    FORWARD_SEND: Transfer("forward", FORWARD, True, FORWARD_RECV, 1),
    FORWARD_RECV: Transfer("forward", FORWARD, False, FORWARD_SEND, -1),
    BACKWARD_SEND: Transfer("backward", BACKWARD, True, BACKWARD_RECV, -1),
    BACKWARD_RECV: Transfer("backward", BACKWARD, False, BACKWARD_SEND, 1),
}
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
GC, NORM, EMBEDDING = "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"
REPLICA_COLLECTIVES = (GATHER, SCATTER, SEPARATE)
OP_TYPES = (FORWARD, BACKWARD, *TRANSFERS, *REPLICA_COLLECTIVES, GC, NORM, EMBEDDING, CLIP, OPTIMIZER)
COMMUNICATION = (
    *TRANSFERS,
    *REPLICA_COLLECTIVES,
    NORM,
    EMBEDDING,
    CLIP,
)  # what is judged as communication, synchronised or not
CLOCK_SLACK_S = 5e-5


def is_pipeline(trace: Trace) -> bool:
    """Whether the ops are those of a Megatron-like framework, so that the rules of this module apply."""
    return {op.op_type for op in trace.ops} <= set(OP_TYPES) and any(op.op_type == FORWARD for op in trace.ops)


def pipeline_dependencies(trace: Trace) -> Dependencies:
    """Dependencies of a trace whose op types are those of `OP_TYPES`.

    Raises:
        DataError: sends without receives, or compute without the transfers it needs; names the stage and the op.
    """
    return _Pipeline(trace).links.done()


class _Pipeline:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.links = Links(trace)
        self.pp = trace.n_stage
        self.by_type: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, op in enumerate(trace.ops):
            self.by_type[op.op_type, op.stage].append(index)
        first = trace.start_s[:, 0, 0]
        for found in self.by_type.values():
            found.sort(key=lambda op: (first[op], trace.ops[op].seq))
        self.start, self.end = first, trace.end_s[:, 0, 0]
        self.compute = [self._in_order(stage, FORWARD, BACKWARD) for stage in range(self.pp)]
        self.overlaps = any(op.op_type == SEPARATE for op in trace.ops)
        self.replicas = trace.job.dp * trace.job.sp > 1
        self.pairs: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        self.n_live: dict[tuple[str, int], int] = defaultdict(int)
        for stage in range(self.pp):
            self._stage(stage)
        if not any(op.op_type in TRANSFERS for op in trace.ops):
            self._hand_over()
        self._pair()
        self._meet()

    def _in_order(self, stage: int, *op_types: str) -> list[int]:
        ops = [op for name in op_types for op in self.by_type[name, stage]]
        return sorted(ops, key=lambda op: (self.start[op], self.trace.ops[op].seq, self.trace.ops[op].op_type))

    def _stage(self, stage: int) -> None:
        compute = self.compute[stage]
        if not compute:
            raise DataError(f"{self.trace.source}: stage {stage} has no {FORWARD} or {BACKWARD}")
        self.links.on_lane(compute, Lane(stage, 0, "compute"))
        for name in TRANSFERS:
            self.links.on_lane(self.by_type[name, stage], Lane(stage, 1, name))
        self.links.on_lane(self._in_order(stage, GATHER, SCATTER), Lane(stage, 2, "replicas"))
        for name in TRANSFERS:
            self._transfers(stage, name)
        self._first_backward(stage)
        if self.replicas:
            self._gather(stage)
            if self.overlaps:
                self._scatter(stage)
        self._after_compute(stage)

    def _transfers(self, stage: int, name: str) -> None:
        """Tie every send to the compute it follows and every receive to the compute that needs it."""
        transfer = TRANSFERS[name]
        compute = self.by_type[transfer.compute, stage]
        ops = self.by_type[name, stage]
        if not compute or not ops:
            return
        if not transfer.is_send:  # a profiler may record transfers before or after all compute that were never launched
            last = max(self.start[op] for op in compute)
            live = [op for op in ops if self.start[op] <= last + CLOCK_SLACK_S]
        else:
            first = min(self.end[op] for op in compute)
            live = [op for op in ops if self.end[op] >= first - CLOCK_SLACK_S]
        if stage in (0, self.pp - 1) and not live:
            return
        for index, op in zip(self._served(name, stage, compute, len(live)), live, strict=True):
            if transfer.is_send:
                self.links.after[op].add(compute[index])
            else:
                self.links.after[compute[index]].add(op)
                if index > 0:
                    self.links.after[op].add(compute[index - 1])
            self._expect_peer(name, stage, op, compute[index])

    def _served(self, name: str, stage: int, compute: list[int], n_live: int) -> list[int]:
        """Lists the computations that `n_live` transfers serve, in order.

        All, or those that have a peer; or all but the first receive or the last send, where those without peer are recorded too.
        """
        crossing = [index for index, op in enumerate(compute) if self._crosses(name, stage, op)]
        n = len(compute)
        if n_live == n:
            return list(range(n))
        if n_live == len(crossing):
            return crossing
        if len(crossing) < n and n_live == n - 1:
            return list(range(n - 1) if TRANSFERS[name].is_send else range(1, n))
        raise DataError(
            f"{self.trace.source}: stage {stage} has {n_live} {name} for {n} {TRANSFERS[name].compute}, of which "
            f"{len(crossing)} need one. Leave incomplete steps out of the trace."
        )

    def _crosses(self, name: str, stage: int, compute: int) -> bool:
        """Whether the transfer of a computation reaches another model chunk; those of the first and last chunk do not."""
        chunk = max(self.trace.ops[compute].chunk, 0) * self.pp + stage
        return 0 <= chunk + TRANSFERS[name].step < self.trace.job.virtual_stages * self.pp

    def _expect_peer(self, name: str, stage: int, op: int, compute: int) -> None:
        """Number the transfers that have a peer, so that the two of a pair get the same number."""
        if not self._crosses(name, stage, compute):
            return
        transfer = TRANSFERS[name]
        number = self.n_live[name, stage]
        self.n_live[name, stage] += 1
        sender = (name, stage) if transfer.is_send else (transfer.peer, (stage + transfer.step) % self.pp)
        self.pairs[(*sender, number)].append(op)

    def _first_backward(self, stage: int) -> None:
        """The first backward transfers are posted when the second compute before the first backward has ended."""
        types = [self.trace.ops[op].op_type for op in self.compute[stage]]
        if BACKWARD not in types or types.index(BACKWARD) < 2:
            return
        before = self.compute[stage][types.index(BACKWARD) - 2]
        for name in (BACKWARD_RECV, BACKWARD_SEND):
            for op in self.by_type[name, stage][:1]:
                self.links.after[op].add(before)

    def _gather(self, stage: int) -> None:
        """The first forward of a chunk needs the last gather of its parameters."""
        last = {self.trace.ops[op].chunk: op for op in self.by_type[GATHER, stage]}
        for chunk, op in last.items():
            users = [f for f in self.by_type[FORWARD, stage] if self.trace.ops[f].chunk == chunk]
            if users:
                self.links.after[users[0]].add(op)

    def _scatter(self, stage: int) -> None:
        """The first reduction of a chunk's gradients follows the chunk's last backward."""
        seen = set()
        for op in self.by_type[SCATTER, stage]:
            chunk = self.trace.ops[op].chunk
            makers = [b for b in self.by_type[BACKWARD, stage] if self.trace.ops[b].chunk == chunk]
            if makers and chunk not in seen:
                self.links.after[op].add(max(makers, key=lambda b: self.end[b]))
                seen.add(chunk)

    def _after_compute(self, stage: int) -> None:
        """Adds the ops that follow the last compute, one after another."""
        last = max(self.compute[stage], key=lambda op: self.end[op])
        gc = self.by_type[GC, stage]
        norm = self.by_type[NORM, stage]
        embedding = self.by_type[EMBEDDING, stage]
        scatter = self.by_type[SCATTER, stage]
        end = [*self.by_type[CLIP, stage], *self.by_type[OPTIMIZER, stage]]
        self.links.chain(gc, [last])
        before = gc[-1:] or [last]
        if not self.replicas:
            tail = [*norm, *embedding, *end]
        elif self.overlaps:
            before = [*before, *scatter[-1:]]
            tail = [*norm, *embedding, *self.by_type[SEPARATE, stage], *end]
        else:
            tail = [*norm, *embedding, *scatter, *end]
        self.links.chain(tail, before)
        for op in (*gc, *tail):
            self.links.lane.setdefault(op, Lane(stage, 3, "end of step"))

    def _hand_over(self) -> None:
        """Lets a chunk's compute follow that of the chunk before on the same micro-batch, where no transfers were recorded."""
        place = {}
        for index, op in enumerate(self.trace.ops):
            if op.op_type in (FORWARD, BACKWARD) and op.micro_batch >= 0:
                place[op.op_type, max(op.chunk, 0) * self.pp + op.stage, op.micro_batch] = index
        for (op_type, chunk, micro_batch), index in place.items():
            before = place.get((op_type, chunk + (-1 if op_type == FORWARD else 1), micro_batch))
            if before is not None:
                self.links.after[index].add(before)

    def _pair(self) -> None:
        """Sends with their receives; transfers without a peer stand alone."""
        for (name, stage, number), ops in sorted(self.pairs.items()):
            if len(ops) != 2:
                raise DataError(
                    f"{self.trace.source}: {name} {number} of stage {stage} has no counterpart: "
                    f"only {', '.join(str(self.trace.ops[op]) for op in ops)}"
                )
            self.links.groups.append(ops)
        paired = {op for ops in self.pairs.values() for op in ops}
        self.links.groups += [
            [op]
            for name in TRANSFERS
            for stage in range(self.pp)
            for op in self.by_type[name, stage]
            if op not in paired
        ]

    def _meet(self) -> None:
        """Groups of the collectives: across replicas, between first and last stage, across all stages."""
        if self.replicas:
            alone = [op for name in REPLICA_COLLECTIVES for stage in range(self.pp) for op in self.by_type[name, stage]]
            self.links.groups += [[op] for op in alone]
            self.links.meeting.update(alone)
        for name in (EMBEDDING, CLIP):
            rounds: dict[int, list[int]] = defaultdict(list)
            for stage in range(self.pp):
                for op in self.by_type[name, stage]:
                    rounds[self.trace.ops[op].seq].append(op)
            self.links.groups += list(rounds.values())
            if name == CLIP:
                self.links.meeting.update(op for ops in rounds.values() for op in ops)


def recorded_order(trace: Trace) -> Dependencies:
    """Dependencies from streams and groups alone.

    Raises:
        DataError: groups were entered in an order that waits in a circle.
    """
    links = Links(trace)
    first = trace.start_s[:, 0, 0]
    streams: dict[tuple[int, str], list[int]] = defaultdict(list)
    groups: dict[str, list[int]] = defaultdict(list)
    for index, op in enumerate(trace.ops):
        streams[op.stage, op.stream or op.op_type].append(index)
        if op.group:
            groups[op.group].append(index)
    for (stage, stream), ops in sorted(streams.items()):
        links.on_lane(sorted(ops, key=lambda op: (first[op], trace.ops[op].seq)), Lane(stage, 0, stream))
    links.groups += list(groups.values())
    if trace.n_replica > 1:
        links.meeting.update(op for ops in groups.values() for op in ops)
    return links.done()


def dependencies(trace: Trace) -> Dependencies:
    """Dependencies of ops by rule, without what only the recorded times show (`waits.observed_waits`)."""
    return pipeline_dependencies(trace) if is_pipeline(trace) else recorded_order(trace)

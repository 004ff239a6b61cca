"""Dependencies of a pipeline-parallel job, from the op types that Megatron-like frameworks record.

Compute of a stage runs in recorded order. A receive is posted when the compute before the one that needs it has ended; a send
follows the compute whose result it carries. Sends and receives of one type form a stream. Gradients are reduced after the last
backward, or bucket by bucket behind it where "separate-grads-all-reduce" says that the job overlaps them. Where no transfers were
recorded at all, compute waits for the compute of the neighbouring stage.
Source: the dependency model of Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
arXiv 2505.05713, section 3.
"""

from __future__ import annotations

from collections import defaultdict

from ...errors import DataError
from .dependencies import Dependencies, Links
from .trace import Trace

FORWARD, BACKWARD = "forward-compute", "backward-compute"
PEER = {
    "forward-send": ("forward-recv", 1),
    "forward-recv": ("forward-send", -1),
    "backward-send": ("backward-recv", -1),
    "backward-recv": ("backward-send", 1),
}
GATHER, SCATTER, SEPARATE = "params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce"
GC, NORM, EMBEDDING = "gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce"
CLIP, OPTIMIZER = "optimizer-clip-main-grad", "optimizer"
REPLICA_COLLECTIVES = (GATHER, SCATTER, SEPARATE)
OP_TYPES = (FORWARD, BACKWARD, *PEER, *REPLICA_COLLECTIVES, GC, NORM, EMBEDDING, CLIP, OPTIMIZER)
COMMUNICATION = (
    *PEER,
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
        if not any(op.op_type in PEER for op in trace.ops):
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
        self.links.on_lane(compute, f"{stage:03d} 0 compute")
        for name in PEER:
            self.links.on_lane(self.by_type[name, stage], f"{stage:03d} 1 {name}")
        self.links.on_lane(self._in_order(stage, GATHER, SCATTER), f"{stage:03d} 2 replicas")
        for name in PEER:
            self._transfers(stage, name)
        self._first_backward(stage)
        if self.replicas:
            self._gather(stage)
            if self.overlaps:
                self._scatter(stage)
        self._after_compute(stage)

    def _transfers(self, stage: int, name: str) -> None:
        """Tie every send to the compute it follows and every receive to the compute that needs it."""
        direction, way = name.split("-")
        compute = self.by_type[f"{direction}-compute", stage]
        ops = self.by_type[name, stage]
        if not compute or not ops:
            return
        if way == "recv":  # a profiler may record transfers before or after all compute that were never launched
            last = max(self.start[op] for op in compute)
            live = [op for op in ops if self.start[op] <= last + CLOCK_SLACK_S]
        else:
            first = min(self.end[op] for op in compute)
            live = [op for op in ops if self.end[op] >= first - CLOCK_SLACK_S]
        if stage in (0, self.pp - 1) and not live:
            return
        for index, op in zip(self._served(name, stage, compute, len(live)), live, strict=True):
            if way == "send":
                self.links.after[op].add(compute[index])
            else:
                self.links.after[compute[index]].add(op)
                if index > 0:
                    self.links.after[op].add(compute[index - 1])
            self._expect_peer(name, stage, op, compute[index])

    def _served(self, name: str, stage: int, compute: list[int], n_live: int) -> list[int]:
        """Which computations `n_live` transfers serve, in order.

        All, or those that have a peer; or all but the first receive or the last send, where those without peer are recorded too.
        """
        crossing = [index for index, op in enumerate(compute) if self._crosses(name, stage, op)]
        n = len(compute)
        if n_live == n:
            return list(range(n))
        if n_live == len(crossing):
            return crossing
        if len(crossing) < n and n_live == n - 1:
            return list(range(1, n) if name.endswith("recv") else range(n - 1))
        raise DataError(
            f"{self.trace.source}: stage {stage} has {n_live} {name} for {n} {name.split('-')[0]}-compute, of which "
            f"{len(crossing)} need one. Leave incomplete steps out of the trace."
        )

    def _crosses(self, name: str, stage: int, compute: int) -> bool:
        """Whether the transfer of a computation reaches another model chunk; those of the first and last chunk do not."""
        chunk = max(self.trace.ops[compute].chunk, 0) * self.pp + stage
        return 0 <= chunk + PEER[name][1] < self.trace.job.virtual_stages * self.pp

    def _expect_peer(self, name: str, stage: int, op: int, compute: int) -> None:
        """Number the transfers that have a peer, so that the two of a pair get the same number."""
        if not self._crosses(name, stage, compute):
            return
        peer, step = PEER[name]
        number = self.n_live[name, stage]
        self.n_live[name, stage] += 1
        sender = (name, stage) if name.endswith("send") else (peer, (stage + step) % self.pp)
        self.pairs[(*sender, number)].append(op)

    def _first_backward(self, stage: int) -> None:
        """The first backward transfers are posted when the second compute before the first backward has ended."""
        types = [self.trace.ops[op].op_type for op in self.compute[stage]]
        if BACKWARD not in types or types.index(BACKWARD) < 2:
            return
        before = self.compute[stage][types.index(BACKWARD) - 2]
        for name in ("backward-recv", "backward-send"):
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
        """What follows the last compute, one after another."""
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
            self.links.lane.setdefault(op, f"{stage:03d} 3 end of step")

    def _hand_over(self) -> None:
        """Where no transfers were recorded, a chunk's compute follows that of the chunk before on the same micro-batch."""
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
            [op] for name in PEER for stage in range(self.pp) for op in self.by_type[name, stage] if op not in paired
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

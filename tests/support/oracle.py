"""A slow, independent discrete-event simulator of one training step, the yardstick of the graph and of the sampler.

It knows only the order of the ops of every stage, the rules of who waits for whom, and seconds. Every rank is simulated:
the members of a stage (tensor-parallel ranks and others that synchronise inside every op) finish an op when the slowest has,
and the replicas of a stage meet before the end-of-step communication. No code is shared with `prism_jax.graph`.

Rules (q: model chunk, m: micro-batch): F(q,m) after F(q-1,m); B(q,m) after B(q+1,m), the last chunk after its F(q,m); W(q,m)
after B(q,m). A result that crosses to another stage arrives `transfer` seconds after its op; if sends block, the sender is
busy with them, one after another, and the results arrive when it is done.
"""

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Part = tuple[str, int, int]  # kind, micro-batch, chunk


@dataclass
class Simulation:
    """Seconds from the start of the step; `start_s` and `end_s` by (replica, stage, index of the op in its stage's order)."""

    step_s: float = 0.0
    start_s: dict[tuple[int, int, int], float] = field(default_factory=dict)
    end_s: dict[tuple[int, int, int], float] = field(default_factory=dict)


def waits_for(part: Part, n_chunk: int) -> Part | None:
    """The part whose result `part` needs."""
    kind, micro_batch, chunk = part
    if kind == "F":
        return ("F", micro_batch, chunk - 1) if chunk > 0 else None
    if kind == "B" and chunk < n_chunk - 1:
        return ("B", micro_batch, chunk + 1)
    return ("F" if kind == "B" else "B", micro_batch, chunk)


def simulate(
    orders: Sequence[Sequence[Sequence[Part]]],
    n_chunk: int,
    op_s: Callable[[int, int, int, int], float],
    transfer_s: Callable[[int, Part], float] = lambda replica, part: 0.0,
    *,
    n_member: int = 1,
    n_replica: int = 1,
    sends_block: bool = False,
    reduce_s: Mapping[int, float] | None = None,
    optimizer_s: Callable[[int, int, int], float] = lambda replica, stage, member: 0.0,
) -> Simulation:
    """Run one step.

    Args:
        orders: per stage the ops in order, an op being its parts.
        n_chunk: model chunks in all.
        op_s: (replica, stage, member, index) -> seconds of one member's work in an op.
        transfer_s: (replica, part) -> seconds until the result of `part` reaches the stage that needs it.
        n_member: ranks per stage and replica.
        n_replica: replicas.
        sends_block: the sender is busy while it sends.
        reduce_s: stage -> seconds of the reduction that starts when the last replica of the stage is through.
        optimizer_s: (replica, stage, member) -> seconds of a rank's work after the reduction.

    Raises:
        RuntimeError: the orders deadlock.
    """
    pipelines = [_Pipeline(r, orders, n_chunk, op_s, transfer_s, n_member, sends_block) for r in range(n_replica)]
    result = Simulation()
    for pipeline in pipelines:
        pipeline.run()
        result.start_s |= pipeline.start_s
        result.end_s |= pipeline.end_s
    for stage in range(len(orders)):
        reduced_s = max(pipeline.free_s[stage] for pipeline in pipelines) + (reduce_s or {}).get(stage, 0.0)
        for replica in range(n_replica):
            for member in range(n_member):
                result.step_s = max(result.step_s, reduced_s + optimizer_s(replica, stage, member))
    return result


class _Pipeline:
    """One replica: ranks that work, a heap of what happens next, and the mail each stage has received."""

    def __init__(
        self,
        replica: int,
        orders: Sequence[Sequence[Sequence[Part]]],
        n_chunk: int,
        op_s: Callable[[int, int, int, int], float],
        transfer_s: Callable[[int, Part], float],
        n_member: int,
        sends_block: bool,
    ) -> None:
        self.replica, self.orders, self.n_chunk, self.n_member = replica, orders, n_chunk, n_member
        self.op_s, self.transfer_s, self.sends_block = op_s, transfer_s, sends_block
        self.start_s: dict[tuple[int, int, int], float] = {}
        self.end_s: dict[tuple[int, int, int], float] = {}
        self.free_s = [0.0] * len(orders)
        self._next = [0] * len(orders)
        self._at_work = [0] * len(orders)  # members of the stage that have not finished the op yet
        self._mail: list[set[Part]] = [set() for _ in orders]
        self._events: list[tuple[float, int, str, int, Part | None]] = []
        self._count = itertools.count()  # events at the same instant happen in the order they were posted
        self._reader: dict[Part, list[int]] = {}
        for stage, order in enumerate(orders):
            for op in order:
                for part in op:
                    need = waits_for(part, n_chunk)
                    if need is not None:
                        self._reader.setdefault(need, []).append(stage)

    def run(self) -> None:
        for stage in range(len(self.orders)):
            self._post(0.0, "look", stage, None)
        while self._events:
            now_s, _, what, stage, item = heapq.heappop(self._events)
            if what == "member done":
                self._member_done(now_s, stage)
            elif what == "stage free":
                self._at_work[stage] = 0
                self._next[stage] += 1
                self.free_s[stage] = now_s
            elif item is not None:
                self._mail[stage].add(item)
            self._try_start(now_s, stage)
        if any(n < len(order) for n, order in zip(self._next, self.orders, strict=True)):
            raise RuntimeError("deadlock")

    def _post(self, time_s: float, what: str, stage: int, item: Part | None) -> None:
        heapq.heappush(self._events, (time_s, next(self._count), what, stage, item))

    def _try_start(self, now_s: float, stage: int) -> None:
        index = self._next[stage]
        if self._at_work[stage] or index == len(self.orders[stage]):
            return
        op = self.orders[stage][index]
        needs = [waits_for(part, self.n_chunk) for part in op]
        if any(need is not None and need not in op and need not in self._mail[stage] for need in needs):
            return
        self.start_s[self.replica, stage, index] = now_s
        self._at_work[stage] = self.n_member
        for member in range(self.n_member):
            self._post(now_s + self.op_s(self.replica, stage, member, index), "member done", stage, None)

    def _member_done(self, now_s: float, stage: int) -> None:
        self._at_work[stage] -= 1
        if self._at_work[stage]:
            return
        self._at_work[stage] = self.n_member  # still busy until it is free
        index = self._next[stage]
        letters = [(reader, part) for part in self.orders[stage][index] for reader in self._reader.get(part, [])]
        abroad_s = {part: self.transfer_s(self.replica, part) for reader, part in letters if reader != stage}
        free_s = now_s + sum(abroad_s.values()) if self.sends_block else now_s
        self.end_s[self.replica, stage, index] = free_s
        for reader, part in letters:
            arrival_s = now_s if reader == stage else free_s if self.sends_block else now_s + abroad_s[part]
            self._post(arrival_s, "mail", reader, part)
        self._post(free_s, "stage free", stage, None)

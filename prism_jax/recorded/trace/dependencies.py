"""Who waits for whom in a recorded step: the same for every replica and every step.

An op starts when the ops in `after` (on its own worker) have ended. Ops of one group meet: each is ready on its own, and
none begins its transfer before the last is ready. Some groups meet across replicas too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._typing import Ints
from ...errors import DataError
from .trace import Trace


class Lane(NamedTuple):
    """A stream of work of one stage; lanes are numbered in the order of these fields.

    Attributes:
        stage: pipeline stage (or rank).
        place: among the lanes of its stage; those at the same place stand in the order of their names.
        name: what runs there, for people.
    """

    stage: int
    place: int
    name: str


@dataclass(frozen=True)
class Dependencies:
    """Indices into `Trace.ops`.

    Attributes:
        after: per op, the ops that must have ended before it starts.
        lane: [op] stream of work; ops of a lane run one after another, which `after` states too.
        lanes: what every lane is.
        group: [op] group in which it meets others, -1 for plain work.
        meets_replicas: [op] whether it also waits for the same op of all replicas.
        hidden_meeting: [op] whether that wait lies before the recorded start, because the barrier itself was not recorded.
        order: [op] an order in which the ops can run.
    """

    after: tuple[tuple[int, ...], ...]
    lane: Ints
    lanes: tuple[Lane, ...]
    group: Ints
    meets_replicas: NDArray[np.bool_]
    hidden_meeting: NDArray[np.bool_]
    order: Ints

    def members(self) -> list[list[int]]:
        """Ops of every group."""
        found: list[list[int]] = [[] for _ in range(int(self.group.max(initial=-1)) + 1)]
        for op, group in enumerate(self.group.tolist()):
            if group >= 0:
                found[group].append(op)
        return found


class Links:
    """A draft of dependencies, as the rules find them."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.after: list[set[int]] = [set() for _ in trace.ops]
        self.lane: dict[int, Lane] = {}
        self.groups: list[list[int]] = []
        self.meeting: set[int] = set()
        self.hidden: set[int] = set()

    @classmethod
    def of(cls, trace: Trace, needs: Dependencies) -> Links:
        """A draft that starts from known dependencies."""
        links = cls(trace)
        links.after = [set(found) for found in needs.after]
        links.lane = {op: needs.lanes[lane] for op, lane in enumerate(needs.lane.tolist())}
        links.groups = needs.members()
        links.meeting = set(np.flatnonzero(needs.meets_replicas).tolist())
        links.hidden = set(np.flatnonzero(needs.hidden_meeting).tolist())
        return links

    def chain(self, ops: list[int], after: list[int] | None = None) -> None:
        """Each op after the one before it; the first after `after`."""
        before = after or []
        for op in ops:
            self.after[op].update(before)
            before = [op]

    def on_lane(self, ops: list[int], lane: Lane) -> None:
        """Ops of one stream, in order: each starts when the one before has ended."""
        self.chain(ops)
        self.lane.update(dict.fromkeys(ops, lane))

    def done(self) -> Dependencies:
        """The dependencies, checked.

        Raises:
            DataError: ops wait for each other in a circle; names them.
        """
        n_op = len(self.after)
        group = np.full(n_op, -1, dtype=np.int32)
        for index, members in enumerate(self.groups):
            group[members] = index
        lanes = sorted(set(self.lane.values()))
        place = {name: index for index, name in enumerate(lanes)}
        meets, hidden = np.zeros(n_op, dtype=bool), np.zeros(n_op, dtype=bool)
        meets[list(self.meeting)] = True
        hidden[list(self.hidden)] = True
        after = tuple([tuple(sorted(found)) for found in self.after])
        return Dependencies(
            after=after,
            lane=np.array([place[self.lane[op]] for op in range(n_op)], dtype=np.int32),
            lanes=tuple(lanes),
            group=group,
            meets_replicas=meets,
            hidden_meeting=hidden,
            order=self._order(after, group),
        )

    def _order(self, after: tuple[tuple[int, ...], ...], group: Ints) -> Ints:
        """Ops after everything they, or the members of their group, wait for."""
        needs = [set(found) for found in after]
        for members in self.groups:
            union = set().union(*(after[op] for op in members))
            for op in members:
                needs[op] = union
        users: list[list[int]] = [[] for _ in needs]
        for op, found in enumerate(needs):
            for need in found:
                users[need].append(op)
        missing = [len(found) for found in needs]
        ready = [op for op, count in enumerate(missing) if count == 0]
        order: list[int] = []
        for op in ready:  # grows as it runs
            order.append(op)
            for user in users[op]:
                missing[user] -= 1
                if missing[user] == 0:
                    ready.append(user)
        if len(order) < len(needs):
            raise DataError(
                f"{self.trace.source}: the recorded ops wait for each other: {self._circle(needs, missing)}"
            )
        return np.array(order, dtype=np.int32)

    def _circle(self, needs: list[set[int]], missing: list[int]) -> str:
        blocked = {op for op, count in enumerate(missing) if count > 0}
        op = min(blocked)
        path: list[int] = []
        while op not in path:
            path.append(op)
            op = min(need for need in needs[op] if need in blocked)
        circle = [*path[path.index(op) :], op]
        return " waits for ".join(str(self.trace.ops[op]) for op in circle)

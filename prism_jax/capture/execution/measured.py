"""Finds the kernel seconds of the nodes of an execution trace in a profile of the same run.

The two come from different observers: names and order agree, numbers do not, and either may lack what the other has. The trace
holds a step or a few, the profile often many: the trace is therefore read as a ring. Operators are followed as long as names
agree; where they stop, the nearest place is searched at which several names in a row agree again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..report import MatchedKernels
from .node import Node
from .profiled_ops import NONE, Profile
from .trace import ExecutionTrace

RUN = 4  # names in a row that must agree again
SEARCHED = 64  # operators of the profile among which they are looked for
BELIEVED = 0.5  # share of the numbers of calls that must name the same operators, for numbers to be believed
_PLACES = 4096  # of one run of names that are looked at


def aligned(trace: ExecutionTrace, profile: Profile) -> list[int]:
    """Number of the node that an operator of the profile is, [op]; -1 where there is none."""
    by_number = _by_number(trace, profile)
    by_name = _by_name(trace, profile)
    if by_number is None:
        return by_name
    return [
        named if one == NONE else one for one, named in zip(by_number, by_name, strict=True)
    ]  # other steps have names only


def _by_number(trace: ExecutionTrace, profile: Profile) -> list[int] | None:
    """Matches operators by the number of the call, which profiles of PyTorch 2.2 and later may hold; None where it is not
    there.
    """
    nodes = {node.rf_id: node for node in trace.nodes if node.rf_id}
    found = [NONE] * len(profile.ops)
    n_asked = n_right = 0
    for at, op in enumerate(profile.ops):
        node = nodes.get(op.rf_id)
        if node is None:
            continue
        n_asked += 1
        if node.name == op.name:
            n_right += 1
            found[at] = node.id
    return found if n_right >= max(1.0, BELIEVED * len(nodes)) and n_right >= BELIEVED * n_asked else None


def _by_name(trace: ExecutionTrace, profile: Profile) -> list[int]:
    theirs: defaultdict[str, list[int]] = defaultdict(list)
    for at, op in enumerate(profile.ops):
        theirs[op.thread].append(at)
    ours: defaultdict[int, list[Node]] = defaultdict(list)
    for node in trace.nodes:
        if node.rf_id:
            ours[node.thread].append(node)
    found = [NONE] * len(profile.ops)
    counts = {thread: Counter(node.name for node in nodes) for thread, nodes in ours.items()}
    for indices in theirs.values():
        names = [profile.ops[at].name for at in indices]
        nodes = ours.get(_nearest(Counter(names), counts), [])
        for at, place in zip(indices, _ring([node.name for node in nodes], names), strict=True):
            found[at] = NONE if place == NONE else nodes[place].id
    return found


def _nearest(names: Counter[str], counts: Mapping[int, Counter[str]]) -> int:
    """The thread of the trace that shares most operators with one of the profile."""
    return max(
        counts, key=lambda thread: (counts[thread] & names).total() / max(counts[thread].total(), 1), default=NONE
    )


def _ring(ours: Sequence[str], theirs: Sequence[str]) -> list[int]:
    """Place of each of theirs in `ours`, which is read round and round, [theirs]; -1 where there is none."""
    found = [NONE] * len(theirs)
    if not ours:
        return found
    n, run = len(ours), min(RUN, len(ours))
    places: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for at in range(n):
        known = places[tuple(ours[(at + step) % n] for step in range(run))]
        if len(known) < _PLACES:
            known.append(at)
    here = j = 0
    while j < len(theirs):
        if ours[here] == theirs[j]:
            found[j] = here
            here, j = (here + 1) % n, j + 1
            continue
        skip, here = _resumed(theirs, j, here, places, run, n)
        j += skip
    return found


def _resumed(
    theirs: Sequence[str], j: int, here: int, places: Mapping[tuple[str, ...], list[int]], run: int, n: int
) -> tuple[int, int]:
    """Returns the number of their names to leave out, and our place at which names agree again: both as small as possible."""
    best, skip, there = n + SEARCHED, min(SEARCHED, len(theirs) - j), here
    for left_out in range(SEARCHED):
        if left_out >= best or j + left_out >= len(theirs):
            break
        known = places.get(tuple(theirs[j + left_out : j + left_out + run]), ())
        for place in known:
            cost = left_out + (place - here) % n
            if cost < best:
                best, skip, there = cost, left_out, place
    return skip, there


SHOWN = 5


@dataclass(frozen=True)
class MeasuredNodes:
    """Measured seconds of a trace's nodes, from a profile.

    Attributes:
        kernels: how much of the profile was found in the trace.
        seconds: number of a node -> seconds of the kernels that it starts itself, without communication: the median over all
            times that the profile holds it; 0 where it starts none.
        launching: numbers of the nodes that start kernels other than communication.
    """

    kernels: MatchedKernels
    seconds: dict[int, float]
    launching: frozenset[int]


def measure(trace: ExecutionTrace, profile: Profile) -> MeasuredNodes:
    """The kernels of a profile, given to the nodes that started them."""
    nodes = aligned(trace, profile)
    own: defaultdict[int, float] = defaultdict(float)  # operator -> seconds
    matched_s = earlier_s = communication_s = 0.0
    missing: Counter[str] = Counter()
    for kernel in profile.kernels:
        node = NONE if kernel.op == NONE else nodes[kernel.op]
        if kernel.op == NONE:
            earlier_s += kernel.seconds
        elif node == NONE:
            missing[profile.ops[kernel.op].name] += kernel.seconds  # pyright: ignore[reportArgumentType]
        else:
            matched_s += kernel.seconds
        if kernel.is_communication:
            communication_s += kernel.seconds
        elif node != NONE:
            own[kernel.op] += kernel.seconds
    visits: defaultdict[int, list[float]] = defaultdict(list)
    for at, node in enumerate(nodes):
        if node != NONE:
            visits[node].append(own.get(at, 0.0))
    seconds = {node: median(found) for node, found in visits.items()}
    started_s = profile.seconds - earlier_s
    kernels = MatchedKernels(
        trace=trace.name,
        profile=profile.name,
        device=profile.device,
        kernel_s=profile.seconds,
        earlier_s=earlier_s,
        communication_s=communication_s,
        matched=min(matched_s / started_s, 1.0) if started_s > 0.0 else 1.0,
        same_process=trace.pid is not None and trace.pid == profile.pid,
        missing=tuple(name for name, _ in missing.most_common(SHOWN)),
    )
    return MeasuredNodes(kernels, seconds, frozenset(node for node, one in seconds.items() if one > 0.0))

"""Kernel seconds of the nodes of an execution trace, from a profile of the same run."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median

from ...report.types.captured.execution import MatchedKernels
from .align import aligned
from .profiled_ops import NONE, Profile
from .trace import ExecutionTrace

SHOWN = 5


@dataclass(frozen=True)
class MeasuredNodes:
    """What a profile says about the nodes of a trace.

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

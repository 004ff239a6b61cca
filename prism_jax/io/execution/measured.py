"""Kernel seconds of the nodes of an execution trace, from a profile of the same run."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median

from .align import aligned
from .profiled_ops import NONE, Profile
from .trace import ExecutionTrace

SHOWN = 5


@dataclass(frozen=True)
class MeasuredNodes:
    """What a profile says about the nodes of a trace.

    Attributes:
        profile: its name.
        device: that it was recorded on.
        seconds: number of a node -> seconds of the kernels that it starts itself, without communication: the median over all
            times that the profile holds it; 0 where it starts none.
        launching: numbers of the nodes that start kernels other than communication.
        kernel_s: of the whole profile.
        matched_s: of kernels whose operator is a node of the trace.
        earlier_s: of kernels whose launch is not in the profile: they were started before it began, by the step before.
        communication_s: of `kernel_s`, kernels of NCCL, which wait for peers.
        missing: operators of the profile that start kernels and are no node, and their seconds; the longest first.
        same_process: whether both recorded the same process.
    """

    profile: str
    device: str
    seconds: dict[int, float]
    launching: frozenset[int]
    kernel_s: float
    matched_s: float
    earlier_s: float
    communication_s: float
    missing: tuple[tuple[str, float], ...]
    same_process: bool

    @property
    def matched(self) -> float:
        """Share that is matched of the kernel seconds that were started while the profile was recorded; 1 of none."""
        started_s = self.kernel_s - self.earlier_s
        return min(self.matched_s / started_s, 1.0) if started_s > 0.0 else 1.0


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
    return MeasuredNodes(
        profile.name,
        profile.device,
        seconds,
        frozenset(node for node, one in seconds.items() if one > 0.0),
        profile.seconds,
        matched_s,
        earlier_s,
        communication_s,
        tuple(missing.most_common(SHOWN)),
        trace.pid is not None and trace.pid == profile.pid,
    )

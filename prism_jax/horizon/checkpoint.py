"""Defines what a checkpoint costs (seconds of waiting, until it can be loaded, to load it) and what an interruption does.

After one come restart, load, warm-up and spare nodes; some stops are planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.errors import Problem, SpecError

if TYPE_CHECKING:
    from ..job.job import Job

GB = 1e9
# bf16 weights, fp32 master weights and two moments of Adam; BLOOM's 2.3 TB are 13.1 per parameter
BYTES_PER_PARAM = 14.0


@dataclass(frozen=True)
class CheckpointTier:
    """A place that checkpoints are written to.

    Attributes:
        name: what a report calls it: "memory", "disk", "object".
        gb_per_s_node, gb_per_s_cluster: that a node can write or read, and that all can together; GB, 1e9 bytes.
        waits: whether training stands still while this tier is written.

    Raises:
        SpecError: a rate is not positive.
    """

    name: str
    gb_per_s_node: float
    gb_per_s_cluster: float = float("inf")
    waits: bool = True

    def __post_init__(self) -> None:
        for field in ("gb_per_s_node", "gb_per_s_cluster"):
            if not getattr(self, field) > 0.0:
                raise SpecError.of(Problem(field, f"{getattr(self, field):g}, but it must be above 0"), self.name)

    def seconds(self, n_bytes: float, n_writer: int) -> float:
        """Seconds to write or read `n_bytes` from `n_writer` nodes."""
        return n_bytes / (GB * min(n_writer * self.gb_per_s_node, self.gb_per_s_cluster))


# GPU to pinned host memory: 8 GPUs over PCIe, less what dlrover's 0.5 s for 18 GB leave open
MEMORY = CheckpointTier("memory", 10.0)
# BLOOM: 2.3 TB in 40 s from 48 nodes; Llama 3: 2 TB/s sustained by all (2407.21783)
DISK = CheckpointTier("disk", 1.2, 2000.0)
BEHIND = (MEMORY, replace(DISK, waits=False))


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoints of a job.

    Attributes:
        blocking_s: seconds that training pauses to write one.
        background_s: seconds after that until it can be loaded; an interruption before loses one interval more.
        load_s: seconds to load it.
        interval_s: of work between two; None: the best one by the exact form.
        source: where the seconds are from.
        memory_s: seconds to copy one into the memory of the nodes, and to load it from there; None: not known.

    Raises:
        SpecError: seconds are negative, or the interval is not positive.
    """

    blocking_s: float
    background_s: float = 0.0
    load_s: float = 0.0
    interval_s: float | None = None
    source: str = "stated"
    memory_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("blocking_s", "background_s", "load_s", "memory_s"):
            if not 0.0 <= (getattr(self, name) or 0.0) < float("inf"):
                problem = Problem(name, f"{getattr(self, name):g}, but it must be finite and at least 0")
                raise SpecError.of(problem, "checkpoint")
        if self.interval_s is not None and not 0.0 < self.interval_s < float("inf"):
            problem = Problem("interval_s", f"{self.interval_s:g}, but it must be finite and above 0")
            raise SpecError.of(problem, "checkpoint")

    @classmethod
    def of_bytes(
        cls, n_bytes: float, n_writer: int, tiers: Sequence[CheckpointTier] = (DISK,), interval_s: float | None = None
    ) -> Checkpoint:
        """Checkpoint by its size, the nodes that write it, and the tiers that it passes, nearest first; loaded from the last.

        Raises:
            SpecError: no tier, no bytes, or no writer.
        """
        if not tiers or not n_bytes > 0.0 or n_writer < 1:
            text = f"{n_bytes:g} bytes, {n_writer} writers, {len(tiers)} tiers: each must be above 0"
            raise SpecError.of(Problem("", text), "checkpoint")
        seconds = [tier.seconds(n_bytes, n_writer) for tier in tiers]
        waits = sum(s for s, tier in zip(seconds, tiers, strict=True) if tier.waits)
        words = ", then ".join(tier.name for tier in tiers)
        source = f"{n_bytes / GB:,.0f} GB from {n_writer:,} nodes to {words}"
        return cls(
            waits, sum(seconds) - waits, seconds[-1], interval_s, source, memory_s=MEMORY.seconds(n_bytes, n_writer)
        )


def checkpoint_bytes(job: Job) -> float:
    """Bytes of weights, master weights and optimizer state of a job."""
    return BYTES_PER_PARAM * job.model.n_params()


POLICIES = ("restart", "hot_spare", "shrink")


@dataclass(frozen=True)
class PlannedStop:
    """Seconds of work between stops that are planned (evaluation, maintenance after a checkpoint), and the seconds of one."""

    every_s: float
    seconds: float

    def __post_init__(self) -> None:
        if not self.every_s > 0.0 or not self.seconds >= 0.0:
            text = f"{self.seconds:g} s every {self.every_s:g} s, but they must be at least 0 and above 0"
            raise SpecError.of(Problem("planned", text), "recovery")


@dataclass(frozen=True)
class Recovery:
    """Restart after an interruption: times, spare nodes and policy.

    Attributes:
        restart_s: from the interruption, once noticed, until a checkpoint is loaded: drain, schedule, start processes.
        swap_s: time until then where a hot spare takes over (policy "hot_spare"); None: as long.
        warmup_steps, warmup_slowdown: first steps after a restart, and how much longer they take (1.05: 5%).
        spares: idle nodes in addition to the job's; None: the fewest that suffice 99% of the time.
        policy: "restart" waits for nodes where spares do not suffice, "hot_spare" too, "shrink" goes on with fewer.
        planned: stops that are planned.

    Raises:
        SpecError: a figure out of range, or an unknown policy.
    """

    restart_s: float
    swap_s: float | None = None
    warmup_steps: int = 0
    warmup_slowdown: float = 1.0
    spares: int | None = None
    policy: str = "restart"
    planned: tuple[PlannedStop, ...] = ()

    def __post_init__(self) -> None:
        wrong = [
            Problem(name, f"{value:g}, but it must be finite and at least {low:g}")
            for name, value, low in (
                ("restart_s", self.restart_s, 0.0),
                ("swap_s", self.swap_s or 0.0, 0.0),
                ("warmup_steps", self.warmup_steps, 0.0),
                ("warmup_slowdown", self.warmup_slowdown, 1.0),
                ("spares", self.spares or 0, 0.0),
            )
            if not low <= value < float("inf")
        ]
        if self.policy not in POLICIES:
            wrong.append(Problem("policy", f"{self.policy!r}, but it must be one of {', '.join(POLICIES)}"))
        if wrong:
            raise SpecError.of(wrong[0], "recovery")

    @property
    def planned_share(self) -> float:
        """Seconds of planned stops per second of work."""
        return sum(stop.seconds / stop.every_s for stop in self.planned)

    def warmup_s(self, step_s: float) -> float:
        """Seconds that the first steps take longer."""
        return self.warmup_steps * (self.warmup_slowdown - 1.0) * step_s

    def quickest_s(self) -> float:
        """Restart where no node has to be waited for."""
        return self.restart_s if self.swap_s is None or self.policy != "hot_spare" else self.swap_s

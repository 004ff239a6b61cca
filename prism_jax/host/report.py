"""Reports recorded steps run again as calls of the host, work on two streams, and meetings of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Table, notes
from ..core.readable import counted, percent
from ..core.report import INLINE, Report, RunRecord
from ..core.units import format_s


@dataclass(frozen=True)
class RankSteps:
    """One rank; seconds.

    Attributes:
        step_s, traversed_s: the recorded step until its work is done, and the same by traversal; means over the steps.
        error: of the latter, relative.
        waited_s: in collectives, for the rank that comes last.
        device_work_s: all work on the device, without waiting, as if nothing overlapped.
        naive_sum_s: host and device one after another.
    """

    name: str
    step_s: float
    traversed_s: float
    error: float
    waited_s: float
    device_work_s: float
    naive_sum_s: float


@dataclass(frozen=True)
class HostOverhead:
    """One kind of overhead over all operators.

    Attributes:
        mean_s: without outliers.
        n: values.
        share: of the host's time in the step.
    """

    about: str
    mean_s: float
    n: int
    share: float


@dataclass(frozen=True)
class HostReport(Report):
    """Ranks in the order of the files.

    Attributes:
        n_step: recorded steps, which are run again one after another.
        device_alone_s: the step if hosts took no time and all ranks started together.
        host_alone_s: the step if devices took no time, from the start of the first rank.
        host_bound: whether the latter is longer.
        overheads: T1 to T5.
    """

    kind: ClassVar[str] = "host"

    n_step: int
    ranks: tuple[RankSteps, ...]
    device_alone_s: float
    host_alone_s: float
    host_bound: bool
    overheads: Mapping[str, HostOverhead]
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    def card(self) -> Card:
        slowest = max(self.ranks, key=lambda one: one.step_s)
        host, device = (format_s(one, 3) for one in (self.host_alone_s, self.device_alone_s))
        on_host, on_device = "CUDA graphs, larger batches, fused operators", "faster kernels, a faster device"
        steps = counted(self.n_step, "recorded step")
        worst = max(abs(one.error) for one in self.ranks)
        return Card(
            f"CPU and GPU of {counted(len(self.ranks), 'rank')} in {steps}",
            f"The step is {'CPU' if self.host_bound else 'GPU'}-bound: alone the CPU takes {host}, the GPU {device}.",
            facts={
                "step": f"{format_s(slowest.step_s)} ({slowest.name}); without any overlap {format_s(slowest.naive_sum_s)}",
                "waiting": f"{format_s(slowest.waited_s)} of it in collectives, for the last rank",
                "CPU overhead": self._largest,
            },
            evidence=f"the recorded steps, run again: off by at most {percent(worst)}",
            next_step=f"what helps: {on_host if self.host_bound else on_device}",
        )

    @property
    def _largest(self) -> str:
        """The largest overhead of the host."""
        largest = max(self.overheads.values(), key=lambda one: one.share, default=None)
        return "" if largest is None else f"{percent(largest.share)} of its time {largest.about}"

    def blocks(self) -> Sequence[Block]:
        alone = {"CPU": format_s(self.host_alone_s), "GPU": format_s(self.device_alone_s)}
        mean = f", mean of {self.n_step:,}" if self.n_step > 1 else ""
        return (
            Table.of(f"Step of every rank{mean}", self.ranks, RANKS),
            Table.named("CPU overheads (mean without outliers)", "", self.overheads.items(), OVERHEADS),
            Facts("The step if the other took no time", alone),
            *notes(self.notes),
        )


RANKS: dict[str, Callable[[RankSteps], str]] = {
    "rank": lambda one: one.name,
    "step": lambda one: format_s(one.step_s),
    "run again": lambda one: format_s(one.traversed_s),
    "error": lambda one: f"{one.error:+.2%}",
    "waiting": lambda one: format_s(one.waited_s),
    "GPU work": lambda one: format_s(one.device_work_s),
    "without overlap": lambda one: format_s(one.naive_sum_s),
}
OVERHEADS: dict[str, Callable[[HostOverhead], str]] = {
    "mean": lambda one: format_s(one.mean_s),
    "times": lambda one: f"{one.n:,}",
    "of the CPU's time": lambda one: percent(one.share),
    "what": lambda one: one.about,
}

"""Reports recorded steps run again as calls of the host, work on two streams, and meetings of all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, more
from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import percent
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
        bound = "CPU-bound" if self.host_bound else "GPU-bound"
        host, device = (format_s(one, 3) for one in (self.host_alone_s, self.device_alone_s))
        advice = (
            "CUDA graphs, larger batches, fused operators" if self.host_bound else "faster kernels, a faster device"
        )
        largest = max(self.overheads.values(), key=lambda one: one.share, default=None)
        n_rank, n_step = len(self.ranks), self.n_step
        worst = max(abs(one.error) for one in self.ranks)
        return Card(
            title=f"CPU and GPU of {n_rank:,} rank{'s' * (n_rank > 1)} in {n_step:,} recorded step{'s' * (n_step > 1)}",
            verdict=f"The step is {bound}: alone the CPU takes {host}, the GPU {device}.",
            tone="plain",
            facts={
                "step": f"{format_s(slowest.step_s)} ({slowest.name}); without any overlap {format_s(slowest.naive_sum_s)}",
                "waiting": f"{format_s(slowest.waited_s)} of it in collectives, for the last rank",
                **(
                    {} if largest is None else {"CPU overhead": f"{percent(largest.share)} of its time {largest.about}"}
                ),
            },
            evidence=f"the recorded steps, run again: off by at most {percent(worst)}",
            next_step=f"what helps: {advice}; {more(self.notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        rows = [
            (
                one.name,
                *(format_s(value) for value in (one.step_s, one.traversed_s)),
                f"{one.error:+.2%}",
                *(format_s(value) for value in (one.waited_s, one.device_work_s, one.naive_sum_s)),
            )
            for one in self.ranks
        ]
        over = [
            (name, format_s(one.mean_s), f"{one.n:,}", percent(one.share), one.about)
            for name, one in self.overheads.items()
        ]
        alone = {"CPU": format_s(self.host_alone_s), "GPU": format_s(self.device_alone_s)}
        mean = f", mean of {self.n_step:,}" if self.n_step > 1 else ""
        return (
            Table(f"Step of every rank{mean}", HEAD, rows),
            Table("CPU overheads (mean without outliers)", ("", "mean", "times", "of the CPU's time", "what"), over),
            Facts("The step if the other took no time", alone),
            *(Note(f"note: {note}") for note in self.notes),
        )


HEAD = ("rank", "step", "run again", "error", "waiting", "GPU work", "without overlap")

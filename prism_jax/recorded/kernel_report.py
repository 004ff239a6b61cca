"""Reports which kernels of a recorded job take its time, and which of them to stabilise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Table, left_out, notes
from ..core.readable import counted, percent
from ..core.report import INLINE, Report, RunRecord
from ..core.units import format_s
from .report import TraceFacts, recorded_words, recording_blocks, recording_title

LEAST_SAVED = 0.002  # of the p95; less is not worth a word
MOST_SHOWN, LONGEST = 20, 48


@dataclass(frozen=True)
class PoolFacts:
    """One pool of kernels.

    Attributes:
        name, shapes, stream: of the kernels (`trace.trace.KernelPool`).
        count: recorded kernels.
        mean_s: of a kernel.
        share: of the time of all runs of kernels.
        cv: standard deviation over mean, around the mean of each place in the program.
        cv_within, cv_between: of kernels on one GPU, of the means of GPUs; the latter None where one GPU alone ran the pool.
        family: that describes held-out values best: normal, student_t, mixture of the logarithm, or pool for the recorded values.
        saved_p95_s: seconds by which the p95 of the recorded steps falls if the pool holds still; None where it was not asked.
        saved_std_s: the same of their standard deviation.
    """

    name: str
    shapes: str
    stream: str
    count: int
    mean_s: float
    share: float
    cv: float
    cv_within: float
    cv_between: float | None
    family: str | None = None
    saved_p95_s: float | None = None
    saved_std_s: float | None = None


@dataclass(frozen=True)
class PoolTable:
    """Pools of a job, and how they fill its time.

    Attributes:
        pools: those first whose variation costs most; then those that were not asked about, by time.
        rest_share: of the time of all runs, in which none of their kernels ran; it and the shares of pools sum to 1.
        run_s: seconds of all runs of kernels in a step, mean over steps and replicas.
        p95_s: of the recorded steps, replayed.
    """

    pools: tuple[PoolFacts, ...]
    rest_share: float
    run_s: float
    p95_s: float


@dataclass(frozen=True)
class TraceKernelsReport(Report):
    """Kernels of a recorded job by pool.

    Attributes:
        table: of all pools.
        pools: those first whose variation costs most of the p95.
    """

    kind: ClassVar[str] = "trace-kernels"
    picture: ClassVar[str] = "prism_jax.recorded.picture:draw_kernels"

    info: Annotated[TraceFacts, INLINE]
    table: Annotated[PoolTable, INLINE]
    record: Annotated[RunRecord, INLINE]

    @property
    def pools(self) -> tuple[PoolFacts, ...]:
        """Pools, those first whose variation costs most."""
        return self.table.pools

    def card(self) -> Card:
        table, longest = self.table, max(self.pools, key=lambda one: one.share)
        kinds = f"{counted(len(self.pools), 'kind')} of kernels, {percent(table.rest_share)} of it between them"
        return Card(
            recording_title(self.info),
            _verdict(table, self.pools[0]),
            facts={
                "kernels": f"{format_s(table.run_s)} of a replica's step in {kinds}",
                "longest": f"{short(longest)}: {percent(longest.share)} of that time, CV {percent(longest.cv)}",
            },
            evidence=recorded_words(self.info),
            next_step="prism-jax trace predict --kernels: steps with kernels drawn anew",
        )

    def blocks(self) -> Sequence[Block]:
        def cost(one: PoolFacts) -> str:
            return "" if one.saved_p95_s is None else percent(one.saved_p95_s / self.table.p95_s)

        title = "Kernels, those first whose variation costs most of the p95"
        return (
            Table.of(title, self.pools[:MOST_SHOWN], {**COLUMNS, "p95 that it costs": cost}),
            left_out(len(self.pools), MOST_SHOWN, "kinds of kernels"),
            *recording_blocks(self.info),
            *notes(self.info.notes),
        )


COLUMNS: dict[str, Callable[[PoolFacts], str]] = {
    "kernel, shapes": lambda one: short(one),
    "time": lambda one: percent(one.share),
    "number": lambda one: f"{one.count:,}",
    "mean": lambda one: format_s(one.mean_s),
    "CV, one GPU": lambda one: percent(one.cv_within),
    "CV, GPUs": lambda one: "" if one.cv_between is None else percent(one.cv_between),
    "family": lambda one: one.family or "",
}


def short(one: PoolFacts) -> str:
    """Name and shapes of a pool, cut to what a line holds."""
    shapes, name = one.shapes, one.name.removeprefix("void ")
    cut = name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
    return f"{cut} {shapes if len(shapes) <= LONGEST else f'{shapes[: LONGEST - 3]}...'}".rstrip()


def _verdict(table: PoolTable, first: PoolFacts) -> str:
    if first.saved_p95_s is None:
        return "One step does not tell which kernel varies."
    if first.saved_p95_s < LEAST_SAVED * table.p95_s:
        return f"No kernel stands out: alone each costs less than {percent(LEAST_SAVED)} of the p95 by its variation."
    return f"Stabilise {short(first)} first: its variation costs {percent(first.saved_p95_s / table.p95_s)} of the p95."

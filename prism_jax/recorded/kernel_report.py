"""Reports which kernels of a recorded job take its time, and which of them to stabilise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Note, Table, more
from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import percent
from ..core.units import format_s
from .kernel_pools import PoolFacts, PoolTable
from .report import TraceFacts, note_blocks, recorded_words, recording_blocks, recording_title

LEAST_SAVED = 0.002  # of the p95; less is not worth a word
MOST_SHOWN, LONGEST = 20, 48


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
        table, first = self.table, self.pools[0]
        longest = max(self.pools, key=lambda one: one.share)
        n = len(self.pools)
        return Card(
            title=recording_title(self.info),
            verdict=_verdict(table, first),
            tone="plain",
            facts={
                "kernels": f"{format_s(table.run_s)} of a replica's step in {n:,} kind{'s' * (n > 1)} of kernels, "
                f"{percent(table.rest_share)} of it between them",
                "longest": f"{short(longest)}: {percent(longest.share)} of that time, CV {percent(longest.cv)}",
            },
            evidence=recorded_words(self.info),
            next_step=f"prism-jax trace predict --kernels: steps with kernels drawn anew; {more(self.info.notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        p95 = self.table.p95_s
        rows = [
            (
                short(one),
                percent(one.share),
                f"{one.count:,}",
                format_s(one.mean_s),
                percent(one.cv_within),
                "" if one.cv_between is None else percent(one.cv_between),
                one.family or "",
                "" if one.saved_p95_s is None else percent(one.saved_p95_s / p95),
            )
            for one in self.pools[:MOST_SHOWN]
        ]
        left = len(self.pools) - MOST_SHOWN
        return (
            Table("Kernels, those first whose variation costs most of the p95", COLUMNS, rows),
            *([Note(f"and {left:,} more kinds of kernels (--json lists them)")] if left > 0 else []),
            *recording_blocks(self.info),
            *note_blocks(self.info.notes),
        )


COLUMNS = ("kernel, shapes", "time", "number", "mean", "CV, one GPU", "CV, GPUs", "family", "p95 that it costs")


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

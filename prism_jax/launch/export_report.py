"""Reports the export of a job: files that were written, and fields that the framework has no argument for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Table
from ..core.readable import some
from ..core.report import INLINE, Report, RunRecord

MOST_NAMED = 3


@dataclass(frozen=True)
class UnexpressedField:
    """A field that no argument says.

    Attributes:
        path: of the field.
        value: of the job.
        read_as: value that the written arguments mean.
    """

    path: str
    value: str
    read_as: str


@dataclass(frozen=True)
class ExportReport(Report):
    """Arguments of a framework that were written for a job.

    Attributes:
        job: its name.
        framework: that the arguments are of.
        plan: in a few words.
        n_devices: GPUs of the job.
        n_fields: fields of the job that matter to its step.
        unexpressed: those that the framework has no argument for.
        written: the files.
    """

    kind: ClassVar[str] = "export"

    job: str
    framework: str
    plan: str
    n_devices: int
    n_fields: int
    unexpressed: tuple[UnexpressedField, ...]
    written: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    def card(self) -> Card:
        rest = self.n_fields - len(self.unexpressed)
        names = [one.path for one in self.unexpressed]
        return Card(
            title=f"{self.job}: arguments of {self.framework}",
            verdict=f"Exported: {rest} of {self.n_fields} fields read back alike.",
            tone="unsure" if self.unexpressed else "good",
            facts={
                "plan": f"{self.plan}, {self.n_devices:,} GPUs",
                f"not expressible in {self.framework}": some(names, MOST_NAMED) or "nothing",
            },
            evidence="the files were read back by the import and held against the job",
            next_step=f"add your data and start {self.written[0]}",
        )

    def blocks(self) -> Sequence[Block]:
        if not self.unexpressed:
            return []
        rows = [(one.path, one.value, one.read_as) for one in self.unexpressed]
        return [Table(f"Not expressible in {self.framework}", ("field", "job", "as the arguments mean"), rows)]

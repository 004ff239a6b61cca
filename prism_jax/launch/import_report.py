"""Reports the import of a job: what was read and where, what has no effect on speed, what matters and is not modelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Note, Table
from ..core.readable import counted, some
from ..core.report import INLINE, Report, RunRecord

MOST_NAMED = 3
SUFFIXES = (".yaml", ".yml", ".toml", ".json")  # of configurations, which have no line of their own


@dataclass(frozen=True)
class ImportedField:
    """A field of the job file.

    Attributes:
        path: of the field.
        value: as the job file has it.
        origin: where it is from.
    """

    path: str
    value: str
    origin: str


@dataclass(frozen=True)
class LaunchArgument:
    """An argument of the trainer.

    Attributes:
        name: as the trainer has it.
        value: as written.
        line: of the file.
    """

    name: str
    value: str
    line: int


@dataclass(frozen=True)
class ImportReport(Report):
    """A job that was made of a launch script or a log.

    Attributes:
        file: its name.
        line: of the command line, or of the first line of the run.
        model, plan, devices: in a few words.
        read: fields of the job file.
        no_effect: arguments that no reader looks at, since they have no effect on speed as far as is known.
        not_modelled: arguments with an effect that no field describes.
        assumed: what the file does not say and was taken as usual.
        written: the job file; null where none was written.
    """

    kind: ClassVar[str] = "import"

    file: str
    line: int
    model: str
    plan: str
    devices: str
    read: tuple[ImportedField, ...]
    no_effect: tuple[LaunchArgument, ...]
    not_modelled: tuple[LaunchArgument, ...]
    assumed: tuple[str, ...]
    written: str | None
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    def card(self) -> Card:
        stated = sum(bool(one.origin.startswith("line")) for one in self.read)
        facts = {
            "model": self.model,
            "plan": self.plan,
            "devices": self.devices,
            "assumed": some(self.assumed, MOST_NAMED, "; ") or "nothing beyond the defaults of the trainer",
            "not modelled": some([one.name for one in self.not_modelled], MOST_NAMED, "; ")
            or "nothing that is known to matter",
        }
        return Card(
            title=f"{self.file}: the training{f' at line {self.line}' * (not self.file.endswith(SUFFIXES))}",
            verdict=f"Imported: {stated} of {len(self.read)} fields are stated there.",
            tone="unsure" if self.not_modelled else "good",
            facts=facts,
            evidence=f"{counted(len(self.no_effect), 'argument')} without effect on speed; every field names its line",
            next_step=f"prism-jax predict {self.written}" if self.written else "-o job.yaml writes the job file",
        )

    def blocks(self) -> Sequence[Block]:
        found: list[Block] = [
            Table("Read", ("field", "value", "from"), [(one.path, one.value, one.origin) for one in self.read])
        ]
        for title, arguments in (
            ("Matters and is not modelled", self.not_modelled),
            ("Has no effect on speed", self.no_effect),
        ):
            if arguments:
                rows = [(one.name, one.value, str(one.line)) for one in arguments]
                found.append(Table(title, ("argument", "value", "line"), rows))
        return [
            *found,
            *(Note(f"assumed: {text}") for text in self.assumed),
            *(Note(f"note: {text}") for text in self.notes),
        ]

"""Head of a run: what a trainer says of its own job, as values by name, each with its line.

Logs, scripts and configurations give heads (`launch_files.heads_of_file`); readers of trainers make jobs of them
(`log_trainers`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_NAMES = 5000  # of a run
LONGEST_VALUE = 400


class SaidValue(NamedTuple):
    """Value that a log states under a name.

    Attributes:
        text: as written, cut.
        line: number of the line, from 1.
        name: as written.
    """

    text: str
    line: int
    name: str = ""


@dataclass
class Head:
    """Facts about the job of one run in a log.

    Attributes:
        trainer: who wrote it, as `said.BEGINS` and the arguments tell; empty: nobody that is known.
        first_line, last_line: of the run in the log; its steps are among them.
        arguments: of a block of arguments, by name.
        engine: configuration that DeepSpeed prints, by name.
        facts: what else is said, by the names of `said.SAID`.
        params: number of parameters by (tensor, pipeline) rank.
        hosts: names in front of lines (never written out).
        has_hosts: whether they stand in front of the arguments, so that they are hosts for sure.
        most: largest numbers of some kinds.
        timers: seconds of parts of steps, as the trainer times them, in the order of steps.
        source: what kind of file it is from, for messages.
        asked: names that a reader looked up.
        notes: other things to be known of the file.
        config: configuration of Hugging Face of the model, where a file of its own holds it.
        generation: of the device, where it is known: decides which kernels there are.
    """

    trainer: str = ""
    first_line: int = 1
    last_line: int = 0
    arguments: dict[str, SaidValue] = field(default_factory=dict)
    engine: dict[str, SaidValue] = field(default_factory=dict)
    facts: dict[str, SaidValue] = field(default_factory=dict)
    params: dict[tuple[int, int], SaidValue] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    has_hosts: bool = False
    most: dict[str, float] = field(default_factory=dict)
    timers: dict[str, array[float]] = field(default_factory=dict)
    source: str = "log"
    asked: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    config: Mapping[str, Any] | None = None
    generation: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a job was read."""
        return not (self.arguments or self.trainer)

    def said(self, *names: str) -> SaidValue | None:
        """The first of these names that an argument, or else a fact, has a value for; what is `None` is not said."""
        self.asked.update(names)
        for name in names:
            found = self.arguments.get(name) or self.facts.get(name)
            if found is not None and found.text not in ("None", "null", ""):
                return found
        return None

    def questions(self) -> list[str]:
        """Lists what was looked up and is open: nothing, where values are printed."""
        return []

    def lacking(self) -> str:
        """Says which files it builds on were not found; empty: it builds on none."""
        return ""

    def shown(self, text: str) -> str:
        """Returns a value as it is written."""
        return text


def runs_of(heads: Iterable[Head]) -> Iterator[Head]:
    """Heads that say something of a job."""
    return (head for head in heads if not head.is_empty)

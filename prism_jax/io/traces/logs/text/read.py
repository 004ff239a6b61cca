"""`read_text_log`: the step times of a text log, in the format that says most about it."""

from __future__ import annotations

import re
from pathlib import Path

from .....errors import DataError
from .....recorded.trace.step_log import StepLog
from ...format import TraceFormat
from ...streams import lines
from ..clock import Clocked
from ..entries import Entries
from .formats import LINE_FORMATS, frameworks, looked_for
from .line_format import CLOCK, LineFormat


class Found:
    """What a log says in one format."""

    def __init__(self, known: LineFormat, path: Path) -> None:
        self.known = known
        self.entries = Entries(path)
        self.facts: dict[str, float] = {}

    @property
    def needles(self) -> tuple[bytes, ...]:
        """What a line contains if it says anything in this format."""
        work = self.known.work
        facts = () if work is None else (marker for marker, _ in work.facts.values())
        return (self.known.marker, *self.known.pauses, *facts)

    def take(self, line: bytes, text: str, place: str) -> None:
        """Reads a line that holds one of `needles`."""
        known = self.known
        if any(pause in line for pause in known.pauses):
            self.entries.pause()
        facts = {} if known.work is None else known.work.facts
        for name, (marker, read) in facts.items():
            if name not in self.facts and marker in line and (value := read(text)):
                self.facts[name] = value
        if known.marker in line:
            entry = known.parse(text, place)
            if entry is not None:
                self.entries.add(entry)

    def steps(self) -> Clocked | None:
        """The step times; None where entries hold no times and nothing that they follow from."""
        if self.known.kind != CLOCK:
            return self.entries.timed(is_mean=self.known.is_mean) if len(self.entries) else None
        if self.entries.has_clock:
            found = self.entries.clocked()
            return found if len(found.step) else None
        work = None if self.known.work is None else self.known.work.per_step(self.facts)
        return None if work is None or not len(self.entries) else self.entries.by_rate(work)


def read_text_log(path: Path) -> StepLog:
    """The step times of a training log, packed with gzip or not. Of several formats in it, times of steps win over the clock;
    among those the one with most entries.

    Raises:
        DataError: cannot be read, holds no step times, or a time that is not positive; names file:line.
    """
    found = [Found(known, path) for known in LINE_FORMATS]
    needles = [(needle, one) for one in found for needle in one.needles]
    says_something = re.compile(
        b"|".join(re.escape(needle) for needle, _ in needles)
    )  # ten times as fast as one by one
    for number, line in lines(path, cut=True):
        if says_something.search(line):
            text, place = line.decode("utf-8", "replace"), f"{path}:{number}"
            for one in dict.fromkeys(one for needle, one in needles if needle in line):
                one.take(line, text, place)
    best = max(found, key=_rank)
    times = best.steps()
    if times is None:
        raise _without_steps(path, found)
    notes = (f"{best.known.framework} log", *((best.known.note,) if best.known.note else ()))
    return best.entries.step_log(times, framework=best.known.framework, notes=notes)


def _rank(found: Found) -> tuple[bool, int, int]:
    return found.steps() is not None, -found.known.kind, len(found.entries)


def _without_steps(path: Path, found: list[Found]) -> DataError:
    started = max(found, key=lambda one: len(one.entries))
    if len(started.entries) == 0:
        return DataError(
            f"{path}: no line with a step time. Supported formats: text logs of {frameworks()}, and MLPerf (:::MLLOG); by their "
            "content also tables of step times (CSV, TSV), W&B histories (JSON lines), TensorBoard event files and "
            f"trainer_state.json. Looked for {looked_for()}."
        )
    known, n = started.known, len(started.entries)
    counted = "1 step" if n == 1 else f"{n:,} steps"
    needs = "" if known.work is None else f", nor {known.work.needs}"
    return DataError(
        f"{path}: {counted} of {known.framework} ({known.looks_for}), but not how long they took: there are "
        f"no two lines with a time of day between which training went on{needs}. Keep these lines, or log the step time."
    )


TEXT_LOG = TraceFormat(
    "text log",
    f"text logs of {frameworks()}",
    lambda begins: True,  # asked last
    lambda files: read_text_log(files[0]),
)

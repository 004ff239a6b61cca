"""`LineFormat`: how one framework writes a step on a line of its log.

Every pattern is bounded, so that a hostile line costs time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .....errors import DataError
from ....job.document import short
from ..entries import Entry

NUMBER = r"(?P<number>[-+0-9.eE]{1,30}|[nN]a[nN]|[-+]?inf)"
THREE_DIGITS = "the log prints times with three digits, so that single steps are known to 0.05-0.5 %"
MAX_STEP_S = 1e7

Facts: TypeAlias = Mapping[str, float]
REPORTED, PARTS, CLOCK, WHOLE_RUN = range(4)
KINDS = {
    REPORTED: "reported",
    PARTS: "sum of its reported parts",
    CLOCK: "time between two lines",
    WHOLE_RUN: "mean of the whole run",
}


@dataclass(frozen=True)
class Work:
    """What a rate is turned into seconds by: the work of one step.

    Attributes:
        facts: name -> what a line that says it contains, and what reads its value, None where it is not there after all.
        per_step: the work of a step in the unit of the rate, from those facts; None where one is missing.
        needs: in words, for the message.
    """

    facts: Mapping[str, tuple[bytes, Callable[[str], float | None]]]
    per_step: Callable[[Facts], float | None]
    needs: str


@dataclass(frozen=True)
class LineFormat:
    """How one framework writes a step.

    Attributes:
        name: of the format, unique: "DeepSpeed step lines".
        framework: "DeepSpeed".
        looks_for: the part of the line that is looked for, in words, for messages.
        marker: what every such line contains, as written.
        parse: line and its place -> what it says; None for a line that is no step. Raises `DataError` for a time that is none.
        kind: `REPORTED` step times win over `PARTS` of steps, those over the `CLOCK`, that over one mean of the `WHOLE_RUN`.
        is_mean: whether a time is a mean over the steps since the entry before.
        pauses: what lines contain during which no training goes on; they matter for the clock.
        work: turns rates into seconds, where there is no clock.
        note: what people should know.
        patterns: all that `parse` and `work` search lines for.
    """

    name: str
    framework: str
    looks_for: str
    marker: bytes
    parse: Callable[[str, str], Entry | None]
    kind: int = REPORTED
    is_mean: bool = False
    pauses: tuple[bytes, ...] = ()
    work: Work | None = None
    note: str = ""
    patterns: tuple[re.Pattern[str], ...] = field(default=(), repr=False)


def timed_line(
    field_name: str, time: re.Pattern[str], steps: tuple[re.Pattern[str], ...], unit_s: Mapping[str, float]
) -> Callable[[str, str], Entry | None]:
    """Reads lines that hold a step time.

    Args:
        field_name: of the time, for messages.
        time: pattern with the groups `number` and `unit`.
        steps: patterns of the number of the step; the first that is found counts.
        unit_s: seconds of a unit or suffix.
    """

    def parse(line: str, place: str) -> Entry | None:
        found = time.search(line)
        if found is None:
            return None
        step = step_number(steps, line, found.start())
        if step is None:
            return None
        return Entry(step, seconds_of(found, unit_s[found["unit"] or ""], field_name, place))

    return parse


def seconds_of(found: re.Match[str], unit_s: float, field_name: str, place: str) -> float:
    """The step time that a pattern with the group `number` has found, seconds.

    Raises:
        DataError: no number, or no step time; names the place and the field.
    """
    try:
        seconds = float(found["number"].replace(",", "")) * unit_s
    except ValueError:
        raise DataError(f"{place} {field_name}: {short(found[0])} is not a time") from None
    if not 0 < seconds < MAX_STEP_S:
        raise DataError(f"{place} {field_name}: {seconds:g} s is not a step time. Remove the line.")
    return seconds


def first_number(pattern: re.Pattern[str]) -> Callable[[str], float | None]:
    """Reads the number in the first group of a pattern."""

    def read(line: str) -> float | None:
        found = pattern.search(line)
        return float(found[1]) if found else None

    return read


def step_number(patterns: tuple[re.Pattern[str], ...], line: str, before: int) -> int | None:
    """The number that is nearest to a place: before it, else after it (progress bars of old steps may share the line)."""
    for pattern in patterns:
        earlier = list(pattern.finditer(line, 0, before))[-1:]
        later = pattern.search(line, before)
        for match in earlier or ([later] if later else []):
            return int(match[1])
    return None

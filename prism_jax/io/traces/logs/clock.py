"""Step times by the clock: the time between two entries of a log over the steps between them.

A clock that ticks in whole seconds says little of one step of two seconds. So an interval spans at least 50 ticks, and its time
is the mean over the steps in it. Intervals in which training paused, or the count of steps went back, are left out.
"""

from __future__ import annotations

import re
from calendar import timegm
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...._typing import Floats

TICKS = 50  # that an interval lasts at least: both of its ends are known to one tick, its length to 2 %
_DATE = re.compile(
    r"(?P<year>(?:19|20)\d\d)[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_US_DATE = re.compile(
    r"\b(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>20\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_GLOG = re.compile(r"\b[IWEF](?P<month>[01]\d)(?P<day>[0-3]\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)\.(?P<f>\d{1,9})")


class Clocked(NamedTuple):
    """Step times.

    Attributes:
        step: last step of the entry.
        step_s: seconds per step.
        n_steps: steps that it is a mean of.
        notes: what people should know.
    """

    step: NDArray[np.int64]
    step_s: Floats
    n_steps: NDArray[np.int32]
    notes: tuple[str, ...]


def timestamp(text: str, before: int | None = None) -> tuple[float, float] | None:
    """The last time of day in `text` before a place: seconds, and how finely it is written; None where there is none.

    Notes: a time without a zone counts as UTC; differences are all that is used.
    """
    head = text if before is None else text[:before]
    for pattern in (_DATE, _US_DATE, _GLOG):
        found = next(reversed(list(pattern.finditer(head))), None)
        if found is not None:
            part = found.groupdict()
            year = int(part.get("year") or 2000)  # glog writes none
            fields = (year, *(int(part[name]) for name in ("month", "day", "h", "m", "s")))
            if not (1 <= fields[1] <= 12 and 1 <= fields[2] <= 31):
                continue
            digits = part["f"] or ""
            return timegm((*fields, 0, 0, 0)) + float(f"0.{digits or 0}"), 10.0 ** -len(digits)
    return None


def steps_by_clock(step: NDArray[np.int64], clock_s: Floats, pauses: NDArray[np.int64], resolution_s: float) -> Clocked:
    """Step times from entries of one count of steps.

    Args:
        step: [entry] number.
        clock_s: [entry] seconds; NaN where unknown.
        pauses: [entry] how often training had paused before it.
        resolution_s: of the clock.
    """
    known = np.isfinite(clock_s)
    step, clock_s, pauses = step[known], clock_s[known], pauses[known]
    ends: list[int] = []
    starts: list[int] = []
    begin, n_paused = 0, 0
    for entry in range(1, len(step)):
        n, elapsed = step[entry] - step[entry - 1], clock_s[entry] - clock_s[entry - 1]
        if pauses[entry] != pauses[entry - 1]:
            n_paused += 1
            begin = entry
        elif n <= 0 or elapsed < 0:
            begin = entry
        elif clock_s[entry] - clock_s[begin] >= TICKS * resolution_s and clock_s[entry] > clock_s[begin]:
            starts.append(begin)
            ends.append(entry)
            begin = entry
    first, last = np.array(starts, np.int64), np.array(ends, np.int64)
    n_steps = (step[last] - step[first]).clip(1, 2**31 - 1)
    notes = ["step times by the clock, between successive entries: whatever happens between them is in it"]
    if resolution_s >= 1.0:
        notes.append(f"the clock ticks every {resolution_s:g} s, so times are means over at least {TICKS} s")
    if n_paused:
        notes.append(f"{n_paused} intervals with an evaluation or a checkpoint in them are left out")
    return Clocked(step[last], (clock_s[last] - clock_s[first]) / n_steps, n_steps.astype(np.int32), tuple(notes))

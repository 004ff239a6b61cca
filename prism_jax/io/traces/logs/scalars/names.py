"""What the name of a scalar says: the step, the time of a step in some unit, or the clock.

"run-7 - train/step_time", "perf/step_time_seconds" and "Step Time (ms)" are one quantity: what stands before " - " is the run,
what stands before "/" is a group, what stands in brackets is a unit.
"""

from __future__ import annotations

import re
from typing import NamedTuple

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "usecs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
}
STEPS = (
    "global_step",
    "trainer_global_step",
    "train_step",
    "step",
    "steps",
    "iteration",
    "iterations",
    "iter",
    "_step",
)
TIMES = (
    "step_time",
    "steptime",
    "time_per_step",
    "train_step_time",
    "train_step_timing_in",
    "train_step_timing",
    "step_duration",
    "step",
    "per_step",
    "iteration_time",
    "iter_time",
    "time_per_iteration",
    "time_per_iter",
    "elapsed_time_per_iteration",
    "iteration_duration",
    "per_iteration",
    "per_iter",
    "iteration",
    "iter",
    "end_to_end",
    "measured_step_time",
)
PLAIN_TIMES = ("duration", "time", "batch_time", "dt", "")  # times of a step only beside its number
MEANS = ("end_to_end", "iteration_time", "elapsed_time_per_iteration")  # over the steps since the entry before
CLOCKS = (
    "_timestamp",
    "_runtime",
    "timestamp",
    "wall_time",
    "walltime",
    "runtime",
    "relative_time",
    "time_elapsed",
    "elapsed",
)
NOT_TRAINING = re.compile(r"(^|[/_ ])(eval|evaluation|val|validation|test|valid)([/_ ]|$)", re.IGNORECASE)
_BRACKETS = re.compile(r"\s{0,3}[\[(]\s{0,3}([^\])]{1,20})[\])]\s{0,3}$")
LONGEST = 300  # characters of a name that are looked at


class Meaning(NamedTuple):
    """What a name says.

    Attributes:
        base: the quantity without run, group and unit: "step_time".
        unit_s: seconds of its unit; None where the name says none.
        run: what stands before " - "; empty if nothing does.
    """

    base: str
    unit_s: float | None
    run: str


def meaning(name: str) -> Meaning:
    """What `name` says."""
    run, _, rest = name[-LONGEST:].strip().rpartition(" - ")
    rest = rest.rpartition("/")[2]
    brackets = _BRACKETS.search(rest)
    unit = None if brackets is None else UNITS.get(brackets[1].strip().lower())
    if brackets is not None:
        rest = rest[: brackets.start()]
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", rest.strip())
    base = re.sub(r"[^a-z0-9_]{1,50}", "_", spaced.lower()).rstrip("_")
    words = base.split("_")
    if unit is None and words[-1] in UNITS:
        return Meaning("_".join(words[:-1]).rstrip("_"), UNITS[words[-1]], run)
    if unit is None and words[0] in UNITS and len(words) > 1 and words[1] == "per":  # ms_per_step
        return Meaning("_".join(words[1:]), UNITS[words[0]], run)
    return Meaning(base, unit, run)


def is_step(name: str) -> bool:
    """Whether a scalar of this name is the number of a step."""
    found = meaning(name)
    return found.base in STEPS and found.unit_s is None


def is_time(name: str, *, beside_steps: bool) -> bool:
    """Whether a scalar of this name is the time of a step.

    Args:
        beside_steps: whether there are numbers of steps, so that "duration" is enough.
    """
    found = meaning(name)
    if (found.base in STEPS and found.unit_s is None) or name.endswith(("__MIN", "__MAX")):
        return False
    return found.base in TIMES or (
        beside_steps and found.base in PLAIN_TIMES and (found.base != "" or found.unit_s is not None)
    )


def is_clock(name: str) -> bool:
    """Whether a scalar of this name is the time of the entry."""
    return meaning(name).base in CLOCKS and not name.endswith(("__MIN", "__MAX"))

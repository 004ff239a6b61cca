"""Meaning of the names of logged numbers: the number of a step, its time, a rate, a clock; and in which unit.

One vocabulary serves columns of tables, keys of JSON and labels in text. "run-7 - train/step_time", "perf/step_time_seconds",
"Step Time (ms)", "timing_s/step" and "ms/step" are one quantity: what stands before " - " is the run, what stands before "/" is a
group, what stands in brackets is a unit, and "per" is "/". A rate of steps ("it/s", "batches_per_second", "ups") is a step time
upside down; a rate of work ("tokens/s/device", "samples_per_second", "tgs") needs the work of a step. Parts of a step (data,
forward, generation), what is left of a run, and evaluations are not read.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "usec", "usecs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
}
_LONG_UNITS = {**dict.fromkeys(("min", "minute"), 60.0), **dict.fromkeys(("h", "hr", "hour"), 3600.0), "day": 86_400.0}
STEPS = (
    "global_step", "trainer_global_step", "global_steps", "num_updates", "update_num", "current_steps", "train_step",
    "training_step", "step", "steps", "iteration", "iterations", "iter", "iters", "_step", "global_iter", "update",
    "updates", "up", "global_batch", "batch", "it", "num_steps",
)  # fmt: skip
TIMES = (
    "step_time", "steptime", "time_per_step", "per_step_time", "train_step_time", "train_step_timing_in",
    "train_step_timing", "total_step_time", "step_duration", "step", "per_step", "step_total", "total_step",
    "iteration_time", "iter_time", "time_per_iteration", "time_per_iter", "elapsed_time_per_iteration",
    "iteration_duration", "iter_duration", "train_iter_time", "per_iteration", "per_iter", "per_batch", "per_it",
    "iteration", "iter", "time_per_batch", "train_batch_time", "batch_cost", "avg_batch_cost", "avg_step_time",
    "average_step_time", "mean_step_time", "avg_iter_time", "avg_iteration_time", "average_iteration_time",
    "end_to_end", "e2e", "measured_step_time",
)  # fmt: skip
PLAIN_TIMES = (
    "duration",
    "time",
    "batch_time",
    "dt",
    "train_time",
    "took",
    "",
)  # times of a step only beside its number
MEANS = (  # over the steps since the entry before
    "end_to_end",
    "iteration_time",
    "elapsed_time_per_iteration",
    *(name for name in TIMES if name.startswith(("avg_", "average_", "mean_"))),
)
CLOCKS = (
    "_timestamp", "_runtime", "timestamp", "wall_time", "walltime", "wall", "runtime", "relative_time",
    "time_elapsed", "elapsed_time", "elapsed", "total_time", "total_runtime",
)  # fmt: skip
NOT_TRAINING = re.compile(
    r"(^|[/_ \[(-])(eval|evaluating|evaluation|evaluate|val|validate|validation|validating|test|testing|valid|sanity)"
    r"([\])/_ :=-]|$)",
    re.IGNORECASE,
)
_ITEMS_OF_STEPS = frozenset(
    ("it", "its", "iter", "iters", "iteration", "iterations", "step", "steps", "batch", "batches", "update", "updates")
)
_ITEMS_OF_WORK = frozenset(
    [
        "tok", "toks", "token", "tokens", "word", "words", "sample", "samples", "seq", "seqs", "sequence",
        "sequences", "example", "examples", "img", "imgs", "image", "images", "frame", "frames",
    ]
)  # fmt: skip
_DEVICES = frozenset(("gpu", "device", "chip", "rank", "npu", "card", "core", "node"))
_SHORT_RATES = {"ups": "steps", "tps": "tokens", "wps": "words", "tgs": "tokens", "ips": "items"}
_TIME_GROUPS = frozenset(("time", "times", "timing", "timings", "timeperf", "duration", "durations"))
_BRACKETS = re.compile(r"\s{0,3}[\[(]\s{0,3}([^\])]{1,40})[\])]\s{0,3}$")
_CAMEL = re.compile(r"([a-z])([A-Z])")
_OTHER = re.compile(r"[^a-z0-9_]{1,50}")
_NOT_RATE = re.compile(r"[^a-z0-9/µ]{1,50}")
LONGEST = 300  # characters of a name that are looked at


NOT_OF_STEPS = (  # charts of W&B: spread over what is grouped; the HF Trainer: means of the whole run
    "__MIN",
    "__MAX",
    "train_steps_per_second",
    "train_samples_per_second",
    "train_tokens_per_second",
)


class QuantityKind(IntEnum):
    """Kind of quantity of a logged number."""

    STEP = 0
    TIME = 1
    STEP_RATE = 2
    PLAIN_TIME = 3
    WORK_RATE = 4
    CLOCK = 5


class Meaning(NamedTuple):
    """Quantity, unit and run that a name states.

    Attributes:
        base: the quantity without run, group and unit: "step_time".
        unit_s: seconds of its unit; of a rate, of its unit of time. None where the name says none.
        run: what stands before " - "; empty if nothing does.
        items: of a rate: what is counted, "steps" where it is steps; empty where it is none.
        in_times: whether its group says that it is a time: "timing/step".
    """

    base: str
    unit_s: float | None
    run: str
    items: str = ""
    in_times: bool = False


@lru_cache(maxsize=4096)
def meaning(name: str) -> Meaning:
    """Reads quantity, unit and run from `name`."""
    run, _, whole = name[-LONGEST:].strip().rpartition(" - ")
    found = _rate(whole)
    if found is not None:
        return found._replace(run=run)
    group, _, rest = whole.rpartition("/")
    brackets = _BRACKETS.search(rest)
    unit = None if brackets is None else UNITS.get(brackets[1].strip().lower())
    if brackets is not None:
        rest = rest[: brackets.start()]
    base = _OTHER.sub("_", _CAMEL.sub(r"\1_\2", rest.strip()).lower()).rstrip("_")
    words = base.split("_")
    in_times = not _TIME_GROUPS.isdisjoint(_OTHER.sub("_", group.lower()).split("_"))
    if unit is None and words[-1] in UNITS:
        return Meaning("_".join(words[:-1]).rstrip("_"), UNITS[words[-1]], run, "", in_times)
    return Meaning(base, unit, run, "", in_times)


def _rate(whole: str) -> Meaning | None:
    """A rate ("tokens/s/device", "batches_per_second"), or a time that is spelled as one ("ms/batch", "s_per_it")."""
    text = _NOT_RATE.sub(" ", _CAMEL.sub(r"\1 \2", whole).lower().replace("/", " / ").replace("_", " "))
    words = ["/" if word == "per" else word for word in text.split()]
    if not words or (words[-1] not in _SHORT_RATES and "/" not in words):
        return None
    if words[-1] in _SHORT_RATES:
        return Meaning(words[-1], 1.0, "", _SHORT_RATES[words[-1]])
    while len(words) > 2 and words[-1] in _DEVICES and words[-2] == "/":  # tokens / s / device
        words = words[:-2]
    if len(words) > 4 and words[-3] in _DEVICES and words[-4] == "/":  # tokens / device / s
        words = [*words[:-4], *words[-2:]]
    if len(words) < 3 or words[-2] != "/":
        return None
    items, each = words[-3], words[-1]
    unit_s = UNITS.get(each, _LONG_UNITS.get(each))
    if unit_s is not None and items in _ITEMS_OF_STEPS:
        return Meaning(f"{items}_per_time", unit_s, "", "steps")
    if unit_s is not None and items in _ITEMS_OF_WORK:
        return Meaning(f"{items}_per_time", unit_s, "", items)
    if items in UNITS and each in _ITEMS_OF_STEPS:
        return Meaning(f"per_{'iter' if each.startswith('it') else each}", UNITS[items], "")
    return None


def kind_of(name: str, *, beside_steps: bool = True) -> QuantityKind | None:
    """Kind of a number of this name; None for anything that is not read.

    Args:
        beside_steps: whether there are numbers of steps, so that "duration" is enough for a time.
    """
    if name.endswith(NOT_OF_STEPS):
        return None
    found = meaning(name)
    if found.items:
        return QuantityKind.STEP_RATE if found.items == "steps" else QuantityKind.WORK_RATE
    if found.unit_s is None and not found.in_times and (found.base in STEPS or name.endswith("global_step/max_steps")):
        return QuantityKind.STEP
    if found.base in TIMES:
        return QuantityKind.TIME
    if found.base in CLOCKS:
        return QuantityKind.CLOCK
    if beside_steps and found.base in PLAIN_TIMES and (found.base != "" or found.unit_s is not None):
        return QuantityKind.PLAIN_TIME
    return None


def is_step(name: str) -> bool:
    """Whether a scalar of this name is the number of a step."""
    return kind_of(name) == QuantityKind.STEP


def is_time(name: str, *, beside_steps: bool) -> bool:
    """Whether a scalar of this name is the time of a step.

    Args:
        beside_steps: whether there are numbers of steps, so that "duration" is enough.
    """
    return kind_of(name, beside_steps=beside_steps) in (QuantityKind.TIME, QuantityKind.PLAIN_TIME)


def is_clock(name: str) -> bool:
    """Whether a scalar of this name is the time of the entry."""
    return kind_of(name, beside_steps=False) == QuantityKind.CLOCK


def is_mean(name: str) -> bool:
    """Whether a scalar of this name is a mean over the steps since the entry before."""
    found = meaning(name)
    return found.base in MEANS or bool(found.items)


def rank_of(name: str) -> int:
    """The place of a name among those of its kind: the lower, the surer."""
    base = meaning(name).base
    order = {
        QuantityKind.STEP: STEPS,
        QuantityKind.TIME: TIMES,
        QuantityKind.PLAIN_TIME: PLAIN_TIMES,
        QuantityKind.CLOCK: CLOCKS,
    }.get(kind_of(name) or QuantityKind.STEP, ())
    return order.index(base) if base in order else len(order)

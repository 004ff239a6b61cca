"""Reads the step times of a text log in the format that says most about it; of two equal ones, the first of `LINE_FORMATS`.

NeMo logs the time of a step on a line of its own or in the progress bar; nanotron with letters for thousands; Megatron-LM,
Megatron-DeepSpeed and Megatron-Bridge the mean over the steps since the entry before; MaxText the time of a step:

Training epoch 0, iteration 5/99 | ... | train_step_timing in s: 11.2
Epoch 0: :  5%|#   | 51/1000 [09:37<2:59:01, ... train_step_timing in s=11.20]
iteration: 5 / 100 | ... | elapsed_time_per_iteration_ms: 3.51K | ...
iteration 20/ 1000 | ... | elapsed time per iteration (ms): 1234.5 | ...
completed step: 5, seconds: 3.214, TFLOP/s/device: 180.1, Tokens/s/device: 3187.2, total_weights: 65536, loss: 10.9
"""

from __future__ import annotations

import re
from pathlib import Path

from ...core.errors import DataError
from ...core.registry import Registry
from ...tables.streams import lines
from ...trace.step_log import StepLog, TraceFormat
from .deepspeed import PIPELINE, STEP_LINES, THROUGHPUT, WALL_CLOCK_BREAKDOWN
from .hugging_face import PROGRESS_BAR, RECORDS, TRAIN_RUNTIME
from .log_entries import CLOCK, NUMBER, THREE_DIGITS, Clocked, Entries, LineFormat, timed_line
from .torchtitan import TORCHTITAN

NEMO_TIME = re.compile(r"train_step_timing in s: {0,5}" + NUMBER + r"(?P<unit>)")
STEPS = (re.compile(r"global_step: {0,5}(\d{1,15})\b(?!\.\d|e)"), re.compile(r"iteration (\d{1,15})/"))
BAR_TIME = re.compile(r"train_step_timing in s=" + NUMBER + r"(?P<unit>)")
BAR_STEP = re.compile(r"(\d{1,15})(?:/\d{1,15}|it) \[")

NEMO = LineFormat(
    "NeMo",
    "NeMo",
    "'train_step_timing in s: 11.2'",
    b"train_step_timing in s:",
    timed_line("train_step_timing in s", NEMO_TIME, STEPS, {"": 1.0}),
    patterns=(NEMO_TIME, *STEPS),
)
NEMO_BAR = LineFormat(
    "NeMo progress bar",
    "NeMo",
    "'train_step_timing in s=11.2'",
    b"train_step_timing in s=",
    timed_line("train_step_timing in s", BAR_TIME, (BAR_STEP,), {"": 1.0}),
    note=THREE_DIGITS,
    patterns=(BAR_TIME, BAR_STEP),
)


NANOTRON_TIME = re.compile(r"time_per_iteration_ms: {0,5}" + NUMBER + r"(?P<unit>[KMB]?)")
NANOTRON_STEP = re.compile(r"iteration: {0,5}(\d{1,15}) {0,5}/")

NANOTRON = LineFormat(
    "nanotron",
    "nanotron",
    "'elapsed_time_per_iteration_ms: 3.51K'",
    b"time_per_iteration_ms:",
    timed_line("time_per_iteration_ms", NANOTRON_TIME, (NANOTRON_STEP,), {"": 1e-3, "K": 1.0, "M": 1e3, "B": 1e6}),
    note=THREE_DIGITS,
    patterns=(NANOTRON_TIME, NANOTRON_STEP),
)


MEGATRON_TIME = re.compile(r"elapsed time per iteration ?\((?P<unit>ms|s)\):? {0,20}" + NUMBER)
MEGATRON_STEP = re.compile(r"iteration {0,20}(\d{1,15}) {0,20}/")

MEGATRON = LineFormat(
    "Megatron-LM",
    "Megatron-LM",
    "'elapsed time per iteration (ms): 1234.5'",
    b"elapsed time per iteration",
    timed_line("elapsed time per iteration", MEGATRON_TIME, (MEGATRON_STEP,), {"ms": 1e-3, "s": 1.0}),
    is_mean=True,
    patterns=(MEGATRON_TIME, MEGATRON_STEP),
)


MAXTEXT_TIME = re.compile(r"completed step: {0,5}\d{1,15}, {1,5}seconds: {0,5}" + NUMBER + r"(?P<unit>)")
MAXTEXT_STEP = re.compile(r"completed step: {0,5}(\d{1,15}),")

MAXTEXT = LineFormat(
    "MaxText",
    "MaxText",
    "'completed step: 5, seconds: 3.214'",
    b"completed step:",
    timed_line("seconds", MAXTEXT_TIME, (MAXTEXT_STEP,), {"": 1.0}),
    patterns=(MAXTEXT_TIME, MAXTEXT_STEP),
)


SHIPPED = (
    MEGATRON,
    NEMO,
    NEMO_BAR,
    NANOTRON,
    TORCHTITAN,
    STEP_LINES,
    THROUGHPUT,
    PIPELINE,
    WALL_CLOCK_BREAKDOWN,
    MAXTEXT,
    PROGRESS_BAR,
    RECORDS,
    TRAIN_RUNTIME,
)
LINE_FORMATS: Registry[LineFormat] = Registry("log format", lambda: SHIPPED, error=DataError)


def frameworks() -> str:
    """Whose logs are read, in words."""
    names = list(dict.fromkeys(known.framework for known in LINE_FORMATS))
    return f"{', '.join(names[:-1])} and {names[-1]}"


def looked_for() -> str:
    """What lines are looked for, one per framework, in words."""
    found: dict[str, str] = {}
    for known in LINE_FORMATS:
        found.setdefault(known.framework, known.looks_for)
    return ", ".join(f"{text} ({name})" for name, text in found.items())


def is_step_line(line: bytes) -> bool:
    """Whether a line of a text log says something of a step, be it right or wrong."""
    return any(known.marker in line and _parses(known, line.decode("utf-8", "replace")) for known in LINE_FORMATS)


def _parses(known: LineFormat, line: str) -> bool:
    try:
        return known.parse(line, "") is not None
    except DataError:
        return True


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

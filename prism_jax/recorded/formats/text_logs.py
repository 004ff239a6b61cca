"""Reads the step times of a text log: in a format that says most about it, or by its labelled numbers (`labelled_log`).

A format of its own (`LINE_FORMATS`) has what labels do not tell: parts that sum to a step, the work of a step in other lines, one
mean of a run. Everything else is read by its labels, in whatever trainer's words; `WRITERS` gives the framework its name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...core.errors import DataError
from ...core.registry import Registry
from ...tables.streams import lines
from ...trace.step_log import NOTHING_STATED, Stated, StepLog, TraceFormat
from .labelled import read_line
from .labelled_log import LabelledLog
from .line_formats import THROUGHPUT, TORCHTITAN, TRAIN_RUNTIME, VERL_PARTS, WALL_CLOCK_BREAKDOWN
from .log_entries import CLOCK, REPORTED, WHOLE_RUN, Clocked, Entries, LineFormat
from .quantities import QuantityKind

SHIPPED = (TORCHTITAN, THROUGHPUT, WALL_CLOCK_BREAKDOWN, VERL_PARTS, TRAIN_RUNTIME)
LINE_FORMATS: Registry[LineFormat] = Registry("log format", lambda: SHIPPED, error=DataError)


class Writer(NamedTuple):
    """Writer of logs that are read by their labels, for messages and the name of the framework.

    Attributes:
        name: in `prism-jax show logs`.
        framework: empty where anybody may write so.
        looks_for: a part of the line, in words.
        marker: what such lines contain, as written.
        times: where the step time is from.
    """

    name: str
    framework: str
    looks_for: str
    marker: bytes
    times: str = "reported"


BY_CLOCK = "time between two lines"
WRITERS = (
    Writer(
        "Megatron-LM",
        "Megatron-LM",
        "'iteration 20/ 1000 | elapsed time per iteration (ms): 1234.5'",
        b"elapsed time per iteration",
    ),
    Writer("NeMo", "NeMo", "'global_step: 5 | train_step_timing in s: 11.2'", b"train_step_timing in s"),
    Writer(
        "nanotron",
        "nanotron",
        "'iteration: 5 / 100 | elapsed_time_per_iteration_ms: 3.51K'",
        b"time_per_iteration_ms:",
    ),
    Writer("torchtitan clock", "torchtitan", "'[titan] ... step: 10  loss: ...'", b"[titan]", BY_CLOCK),
    Writer(
        "DeepSpeed step lines",
        "DeepSpeed",
        "'[2023-07-25 21:03:21,037] ... step=35, skipped=0'",
        b", skipped=",
        BY_CLOCK,
    ),
    Writer("DeepSpeed pipeline engine", "DeepSpeed", "'steps: 10 loss: 9.5 iter time (s): 1.234'", b"iter time (s):"),
    Writer("MaxText", "MaxText", "'completed step: 5, seconds: 3.214'", b"completed step:"),
    Writer("Composer", "Composer", "'Train throughput/batches_per_sec: 0.5'", b"Train throughput/batches_per_sec"),
    Writer("OLMo", "OLMo", "'throughput/device/batches_per_second=0.5'", b"throughput/device/batches_per_second"),
    Writer("verl", "verl", "'step:1 - timing_s/step:2.5'", b"timing_s/step"),
    Writer("llm.c", "llm.c", "'step 1/19560 | ... | 2500.06 ms | 209710 tok/s'", b"bf16 MFU"),
    Writer("HF Trainer records", "HF Trainer", "a time of day before {'loss': ..., 'step': 10}", b"{'loss':", BY_CLOCK),
    Writer("tqdm", "", "a bar, '507/1000 [15:32<16:42, 2.03s/it]'", b"%|", "rate in the bar"),
    Writer("any other", "", "a step and 'step time', 'dt', 's/it', 'steps/s', or a time of day", b"", "what is surest"),
)


def frameworks() -> str:
    """Names of the writers whose logs are read, in words."""
    names = dict.fromkeys([one.framework for one in WRITERS if one.framework] + [one.framework for one in LINE_FORMATS])
    return f"{', '.join(names)} and others that label a step and its time"


def is_step_line(line: bytes) -> bool:
    """Whether a line of a text log says something of a step, be it right or wrong."""
    if any(known.marker in line and _parses(known, line.decode("utf-8", "replace")) for known in LINE_FORMATS):
        return True
    kinds = {one.kind for one in read_line(line.decode("utf-8", "replace")).found}
    return QuantityKind.STEP in kinds and not kinds.isdisjoint(
        {QuantityKind.TIME, QuantityKind.STEP_RATE, QuantityKind.PLAIN_TIME}
    )


def _parses(known: LineFormat, line: str) -> bool:
    try:
        return known.parse(line, "") is not None
    except DataError:
        return True


class Found:
    """Entries of a log in one format."""

    def __init__(self, known: LineFormat, path: Path) -> None:
        self.known = known
        self.entries = Entries(path)
        self.facts: dict[str, float] = {}

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Texts, one of which a line contains if it states anything in this format."""
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


def read_text_log(path: Path, stated: Stated = NOTHING_STATED, between: tuple[int, int] | None = None) -> StepLog:
    """The step times of a training log, packed with gzip or not.

    Times of steps win over their parts, those over the clock, and that over one mean of the run.

    Args:
        stated: the unit of times that have none, and the work of a step.
        between: first and last line of one of several runs; None: the whole log.

    Raises:
        DataError: cannot be read, holds no step times, or a time that is not positive; names file:line.
    """
    found = [Found(known, path) for known in LINE_FORMATS]
    labels, writers = LabelledLog(path), Counter[str]()
    needles = [(needle, one) for one in found for needle in one.needles]
    says_something = re.compile(
        b"|".join(re.escape(needle) for needle, _ in needles)
    )  # ten times as fast as one by one
    first, last = between or (1, 2**62)
    for number, line in lines(path, cut=True):
        if number < first:
            continue
        if number > last:
            break
        if says_something.search(line):
            text, place = line.decode("utf-8", "replace"), f"{path}:{number}"
            for one in dict.fromkeys(one for needle, one in needles if needle in line):
                one.take(line, text, place)
        labels.take(line, number)
        name = next((one.framework for one in WRITERS if one.marker and one.marker in line), "")
        if name:
            writers[name] += 1
    best = max(found, key=_rank)
    steps = best.steps()
    if steps is not None and best.known.kind == REPORTED:
        return _log_of(best, steps)
    labelled = labels.read(stated.per_step, stated.unit_s)
    writer = writers.most_common(1)[0][0] if writers else ""
    if labelled is not None and (labelled.is_reported or steps is None or best.known.kind == WHOLE_RUN):
        log = labelled.log
        first = f"{writer} log" if writer else f"log {log.notes[0]}"
        return replace(log, framework=writer, notes=(first, *log.notes[1:]))
    if steps is None:
        raise _without_steps(path, found, labels.without_times().format(of=f" of {writer}" if writer else ""))
    return _log_of(best, steps)


def _log_of(best: Found, steps: Clocked) -> StepLog:
    notes = (f"{best.known.framework} log", *((best.known.note,) if best.known.note else ()))
    return best.entries.step_log(steps, framework=best.known.framework, notes=notes)


def _rank(found: Found) -> tuple[bool, int, int]:
    return found.steps() is not None, -found.known.kind, len(found.entries)


def _without_steps(path: Path, found: list[Found], numbered: str) -> DataError:
    started = max(found, key=lambda one: len(one.entries))
    if len(started.entries) == 0 and numbered:
        return DataError(f"{path}: {numbered} Keep lines with a time of day, or log the step time.")
    if len(started.entries) == 0:
        mine = [known for known in LINE_FORMATS if known not in SHIPPED]
        added = "".join(f"{known.looks_for} ({known.framework}), " for known in mine)
        return DataError(
            f"{path}: no line with a step time. Supported formats: text logs of {frameworks()}, and MLPerf (:::MLLOG); by their "
            "content also tables of step times (CSV, TSV), W&B histories (JSON lines), TensorBoard event files and "
            f"trainer_state.json. Looked for {added}lines with a number of a step ('step', 'iteration', a bar of tqdm) and a "
            "step time, a rate of steps or a time of day (`prism-jax show logs`). For other lines: --pattern "
            "'update (?P<step>\\d+) .*in (?P<time_s>[\\d.]+)'."
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
    read_stated=lambda files, stated: read_text_log(files[0], stated),
)

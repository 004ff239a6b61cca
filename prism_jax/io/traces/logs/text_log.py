"""Step times from the text logs of Megatron-LM (and Megatron-DeepSpeed, Megatron-Bridge), NeMo and nanotron.

What is read, whatever a launcher puts before it:

    iteration 20/ 1000 | ... | elapsed time per iteration (ms): 1234.5 |          mean over the steps since the entry before
    Training epoch 0, iteration 5/99 | ... | train_step_timing in s: 11.2         that step
    Epoch 0: :  5%|#   | 51/1000 [09:37<2:59:01, ... train_step_timing in s=11.20]   that step
    iteration: 5 / 100 | ... | elapsed_time_per_iteration_ms: 3.51K | ...           that step

Every pattern is bounded, so that a hostile line costs time in proportion to its length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....errors import DataError
from ....recorded.trace.step_log import StepLog
from ...job.document import short
from ..format import TraceFormat
from ..streams import lines

MAX_ENTRIES = 5_000_000
_NUMBER = r"(?P<number>[-+0-9.eE]{1,30}|[nN]a[nN]|[-+]?inf)"
_SUFFIX = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9}
_THREE_DIGITS = "the log prints times with three digits, so that single steps are known to 0.05-0.5 %"


class LogFormat(NamedTuple):
    """How one framework writes a step.

    Attributes:
        name: of the framework.
        marker: what every such line contains.
        time: pattern of the time, with groups `number` and `unit`.
        steps: patterns of the step number; the first that is found counts.
        unit_s: seconds of a unit or suffix.
        is_mean: whether the time is a mean over the steps since the entry before.
        note: what people should know.
    """

    name: str
    marker: bytes
    time: re.Pattern[str]
    steps: tuple[re.Pattern[str], ...]
    unit_s: dict[str, float]
    is_mean: bool = False
    note: str = ""


FORMATS = (
    LogFormat(
        name="Megatron-LM",
        marker=b"elapsed time per iteration",
        time=re.compile(r"elapsed time per iteration ?\((?P<unit>ms|s)\):? {0,20}" + _NUMBER),
        steps=(re.compile(r"iteration {0,20}(\d{1,15}) {0,20}/"),),
        unit_s={"ms": 1e-3, "s": 1.0},
        is_mean=True,
    ),
    LogFormat(
        name="NeMo",
        marker=b"train_step_timing in s:",
        time=re.compile(r"train_step_timing in s: {0,5}" + _NUMBER + r"(?P<unit>)"),
        steps=(re.compile(r"global_step: {0,5}(\d{1,15})\b(?!\.\d|e)"), re.compile(r"iteration (\d{1,15})/")),
        unit_s={"": 1.0},
    ),
    LogFormat(
        name="NeMo progress bar",
        marker=b"train_step_timing in s=",
        time=re.compile(r"train_step_timing in s=" + _NUMBER + r"(?P<unit>)"),
        steps=(re.compile(r"(\d{1,15})(?:/\d{1,15}|it) \["),),
        unit_s={"": 1.0},
        note=_THREE_DIGITS,
    ),
    LogFormat(
        name="nanotron",
        marker=b"time_per_iteration_ms:",
        time=re.compile(r"time_per_iteration_ms: {0,5}" + _NUMBER + r"(?P<unit>[KMB]?)"),
        steps=(re.compile(r"iteration: {0,5}(\d{1,15}) {0,5}/"),),
        unit_s={suffix: 1e-3 * factor for suffix, factor in _SUFFIX.items()},
        note=_THREE_DIGITS,
    ),
)


class Entry(NamedTuple):
    """One logged step time."""

    step: int
    seconds: float


def read_text_log(path: Path) -> StepLog:
    """The step times of a training log, packed with gzip or not; of the format with most entries, if it holds several.

    Raises:
        DataError: cannot be read, holds no step times, or a time that is not positive; names file:line.
    """
    found: dict[str, list[Entry]] = {known.name: [] for known in FORMATS}
    repeats: Counter[str] = Counter()
    for n_entries, (known, entry) in enumerate(_entries(path), start=1):
        if n_entries > MAX_ENTRIES:
            raise DataError(f"{path}: more than {MAX_ENTRIES:,} step times. Cut the log.")
        entries = found[known.name]
        if entries and entries[-1].step == entry.step:  # printed again by another rank, or a progress bar drawn again
            repeats[known.name] += 1
            entries.pop()
        entries.append(entry)
    known = max(FORMATS, key=lambda known: len(found[known.name]))
    if not found[known.name]:
        formats = ", ".join(known.name for known in FORMATS)
        raise DataError(f"{path}: no line with a step time. Logs of these are read: {formats}, and MLPerf (:::MLLOG).")
    return _step_log(path, known, found[known.name], repeats[known.name])


def _entries(path: Path) -> Iterator[tuple[LogFormat, Entry]]:
    for number, line in lines(path, cut=True):
        for known in FORMATS:
            if known.marker in line:
                entry = _parse(known, line.decode("utf-8", "replace"), f"{path}:{number}")
                if entry is not None:
                    yield known, entry


def _parse(known: LogFormat, line: str, place: str) -> Entry | None:
    time = known.time.search(line)
    if time is None:
        return None
    step = next((match for pattern in known.steps for match in _nearest(pattern, line, time.start())), None)
    if step is None:
        return None
    field = known.marker.decode()
    try:
        seconds = float(time["number"]) * known.unit_s[time["unit"]]
    except ValueError:
        raise DataError(f"{place} {field}: {short(time[0])} is not a time") from None
    if not 0 < seconds < 1e7:
        raise DataError(f"{place} {field}: {seconds:g} s is not a step time. Remove the line.")
    return Entry(int(step[1]), seconds)


def _nearest(pattern: re.Pattern[str], line: str, before: int) -> list[re.Match[str]]:
    """The last match before the time; the first after it if there is none (progress bars of old steps may share the line)."""
    earlier = list(pattern.finditer(line, 0, before))[-1:]
    later = pattern.search(line, before)
    return earlier or ([later] if later else [])


def _step_log(path: Path, known: LogFormat, entries: list[Entry], n_repeats: int) -> StepLog:
    step = np.array([entry.step for entry in entries], dtype=np.int64)
    n_steps = _interval(step) if known.is_mean else np.ones(len(step), dtype=np.int32)
    notes = [f"{known.name} log"]
    if known.note:
        notes.append(known.note)
    if n_repeats:
        notes.append(f"{n_repeats} entries repeat the step before them; the last of each step was taken")
    n_restarts = int((np.diff(step) < 0).sum())
    if n_restarts:
        notes.append(f"the log starts over {n_restarts} times; steps that were run twice are in it twice")
    return StepLog(
        source=str(path),
        name=path.name.removesuffix(".gz").rsplit(".", 1)[0],
        step=step,
        step_s=np.array([entry.seconds for entry in entries]),
        n_steps=n_steps,
        notes=tuple(notes),
    )


def _interval(step: np.ndarray) -> np.ndarray:
    """Steps since the entry before; for the first after a (re)start, the usual interval if its number is a multiple of it."""
    since = np.diff(step)
    usual = Counter(since[since > 0].tolist()).most_common(1)
    interval = usual[0][0] if usual else 1
    first = np.concatenate(([True], since < 0))
    since = np.concatenate(([1], since))
    started = np.where((step % interval == 0) & (step > 0), interval, 1)
    return np.where(first, started, since).clip(1, 2**31 - 1).astype(np.int32)


TEXT_LOG = TraceFormat(
    "text log",
    "text logs of Megatron-LM, NeMo and nanotron",
    lambda begins: True,  # asked last
    lambda files: read_text_log(files[0]),
)

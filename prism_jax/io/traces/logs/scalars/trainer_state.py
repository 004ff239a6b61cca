"""trainer_state.json of the Hugging Face Trainer: an object whose `log_history` lists what was logged.

Its records hold no time but the last one, which has the seconds of the whole run; where a callback has logged step times, those.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .....errors import DataError
from .....recorded.trace.step_log import StepLog
from ...format import FileStart, TraceFormat
from ...streams import chunks
from ..entries import Entries, Entry
from .choose import choose, is_told
from .json_lines import scalars
from .read import Row, read_scalars

_KEYS = re.compile(r"\"(?:log_history|best_metric|global_step|is_world_process_zero|max_steps)\"\s{0,3}:")
_SEARCHED = 20_000  # characters
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()
MAX_BYTES = 2**26
RECORD_CHARACTERS = (2**14, 2**20)  # of one record: what it takes as a rule, and at most
WHOLE_RUN = (
    "one mean over the whole run (train_runtime): evaluations, checkpoints and the start are in it, and how steps vary is not. "
    "Log a step time per step to see that"
)


def read_trainer_state(path: Path) -> StepLog:
    """The step times in a state of the Trainer; the file is read twice, record by record.

    Raises:
        DataError: damaged, or its records hold neither step times nor the seconds of the run.
    """
    counts: Counter[str] = Counter()
    last: dict[str, Any] = {}
    for row in _rows(path):
        counts.update(row.values.keys())
        if "train_runtime" in row.values:
            last = dict(row.values)
    names = [name for name, _ in counts.most_common() if not name.startswith(("train_runtime", "eval_"))]
    if is_told(names):
        return read_scalars(path, choose(names, str(path)), _rows(path), "HF Trainer state", "HF Trainer")
    runtime_s, n_steps = last.get("train_runtime"), last.get("step")
    if not isinstance(runtime_s, (int, float)) or not isinstance(n_steps, int) or runtime_s <= 0 or n_steps < 1:
        raise DataError(
            f"{path}: a state of the HF Trainer without step times: its log_history has neither a step time nor train_runtime, "
            "which the end of a run adds. Give the log of the run, or log a step time (step_time_s) in a callback."
        )
    entries = Entries(path)
    entries.add(Entry(n_steps, runtime_s / n_steps, n_steps=min(n_steps, 2**31 - 1)))
    return entries.step_log(entries.timed(is_mean=False), framework="HF Trainer", notes=("HF Trainer state", WHOLE_RUN))


def _rows(path: Path) -> Iterator[Row]:
    text = _text(path)
    place = text.find('"log_history"')
    place = text.find("[", place) if place >= 0 else -1
    if place < 0:
        raise DataError(f"{path}: no log_history, which a state of the HF Trainer has. Is the file whole?")
    index, place = 0, _BETWEEN.match(text, place + 1).end()  # pyright: ignore[reportOptionalMemberAccess]  (matches anything)
    while place < len(text) and text[place] == "{":
        index += 1
        where = f"{path}: record {index} of log_history"
        record, length = _record(text, place, where)
        yield Row(where, scalars(record))
        place = _BETWEEN.match(text, place + length).end()  # pyright: ignore[reportOptionalMemberAccess]
    if not text[place : place + 1] == "]":
        raise DataError(f"{path}: not JSON after record {index} of log_history. Was the file cut off? Copy it again.")


def _text(path: Path) -> str:
    pieces, n_bytes = [], 0
    for piece in chunks(path):
        n_bytes += len(piece)
        if n_bytes > MAX_BYTES:
            raise DataError(f"{path}: more than {MAX_BYTES >> 20} MiB, which no state of the HF Trainer has.")
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace")


def _record(text: str, place: int, where: str) -> tuple[dict[str, Any], int]:
    """The object that begins at `place`, and how long its text is."""
    for longest in RECORD_CHARACTERS:
        try:
            return _DECODER.raw_decode(text[place : place + longest])
        except RecursionError:
            break
        except ValueError:
            continue
    raise DataError(f"{where}: not JSON. Was the file cut off? Copy it again.")


def _recognises(begins: FileStart) -> bool:
    text = begins.text[:_SEARCHED]
    if not text.startswith("{") or "traceEvents" in text:
        return False
    return '"log_history"' in text or len(set(_KEYS.findall(text))) >= 3


TRAINER_STATE = TraceFormat(
    "trainer_state.json",
    "states of the HF Trainer (trainer_state.json)",
    _recognises,
    lambda files: read_trainer_state(files[0]),
)

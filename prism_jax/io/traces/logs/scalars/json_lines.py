"""One JSON object per line: the history of a W&B run, or what a training script wrote itself.

{"_step": 10, "_timestamp": 1710241821.5, "_runtime": 63.2, "train/step_time": 1.21, "train/loss": 2.3}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .....errors import DataError
from .....recorded.trace.step_log import StepLog
from ...format import FileStart, TraceFormat
from ...streams import lines
from .choose import choose, is_told
from .read import Row, Value, read_scalars

MOST_NAMES = 10_000


def read_json_lines(path: Path, unit_s: float | None = None) -> StepLog:
    """The step times in a file of one object per line, packed with gzip or not. The file is read twice.

    Args:
        unit_s: seconds of the unit of a step time whose name says none.

    Raises:
        DataError: a line is no JSON object, or as `choose` and `read_scalars`; names file:line.
    """
    counts: Counter[str] = Counter()
    for row in _rows(path):
        counts.update(row.values.keys())
        if len(counts) > MOST_NAMES:
            raise DataError(f"{path}: more than {MOST_NAMES:,} names. Keep those that matter.")
    chosen = choose([name for name, _ in counts.most_common()], str(path), unit_s)
    return read_scalars(path, chosen, _rows(path), "JSON lines")


def _rows(path: Path) -> Iterator[Row]:
    for number, line in lines(path, cut=False):
        text = line.decode("utf-8", "replace").strip("\ufeff \t\r\n")
        if text:
            yield Row(f"{path}:{number}", scalars(_object(text, f"{path}:{number}")))


def scalars(record: dict[str, Any]) -> dict[str, Value]:
    """The numbers and texts of a record; those one level further down under "outer/inner"."""
    flat: dict[str, Value] = {}
    for name, value in record.items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for more, one in inner:
            if isinstance(one, (int, float, str)) and not isinstance(one, bool):
                flat[name if more is None else f"{name}/{more}"] = one
    return flat


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError:
        raise DataError(f"{place}: not JSON: nested too deeply. Remove the line.") from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number of thousands of digits"
        raise DataError(f"{place}: not JSON: {reason}. Remove the line.") from None
    if not isinstance(found, dict):
        raise DataError(f"{place}: not a JSON object. Remove the line.")
    return found


def _recognises(begins: FileStart) -> bool:
    """Whether the first line is a whole object that says something of a step, and no other line follows or another object."""
    first, _, rest = begins.text.partition("\n")
    if not first.startswith("{") or (rest.strip() and not rest.lstrip().startswith("{")):
        return False
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "traceEvents" not in found and is_told(list(scalars(found)))


JSON_LINES = TraceFormat(
    "JSON lines",
    "histories of one JSON object per line (W&B)",
    _recognises,
    lambda files: read_json_lines(files[0]),
    read_in_unit=lambda files, unit_s: read_json_lines(files[0], unit_s),
)

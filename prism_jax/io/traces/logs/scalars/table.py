"""Tables of step times: CSV with comma, semicolon or tab, as people write them, and as W&B and TensorBoard export them.

step,step_time_s                                         any table with a known name; see `names.py`
"Step","run-7 - train/step_time","run-7 - train/step_time__MIN",...     a chart of W&B
Wall time,Step,Value                                     one tag of TensorBoard, whose name is in that of the file
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from .....errors import DataError
from .....recorded.trace.step_log import StepLog
from ...csv_columns import CsvRows
from ...format import FileStart, TraceFormat
from .choose import Chosen, choose, is_told, stated_unit
from .names import is_time
from .read import Row, read_scalars

SEPARATORS = ",\t;"
OF_OPS = frozenset(("op_type", "start_s", "micro_batch", "chunk", "stream", "group", "dp", "pp", "tp", "rank"))
TENSORBOARD = ("wall time", "step", "value")
TAG = "tag-"  # before the tag in the names of files that TensorBoard exports
MOST_COLUMNS = 10_000


def header_names(first_line: str) -> list[str]:
    """Names in the first line of a table; none if it is no list of names."""
    try:
        names = next(csv.reader([first_line], delimiter=separator_of(first_line)), [])
    except csv.Error:
        return []
    return [name.strip() for name in names]


def separator_of(line: str) -> str:
    """What stands between the fields of a line; a comma if nothing does."""
    return max(SEPARATORS, key=line.count)


def is_step_table(names: list[str]) -> bool:
    """Whether a table with these names holds step times or entries with a clock, and no ops."""
    lower = [name.lower() for name in names]
    if OF_OPS & set(lower):
        return False
    return tuple(lower) == TENSORBOARD or is_told(names)


def read_step_table(path: Path, unit_s: float | None = None) -> StepLog:
    """The step times in a table, packed with gzip or not.

    Args:
        unit_s: seconds of the unit of a step time whose name says none.

    Raises:
        DataError: no step time, several that could be it, a unit that nothing tells, a row of another length, or a value that is
            no number; names file:line.
    """
    with_header = CsvRows(path)
    first = next(iter(with_header), None)
    if first is None:
        raise DataError(f"{path}: the file is empty. Its first line names the columns.")
    separator = "," if len(first) > 1 else separator_of(first[0])
    rows = CsvRows(path, separator)
    names = [name.strip() for name in next(iter(rows), [])]
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{path}:1: {len(names):,} columns, more than {MOST_COLUMNS:,}. Keep those that matter.")
    chosen = _tensorboard(path, names, unit_s) or choose(names, f"{path}:1", unit_s)
    for name in (chosen.step, chosen.time, chosen.clock):
        if name is not None and names.count(name) > 1:
            raise DataError(f"{path}:1: the column {name!r} is there {names.count(name)} times. Keep one.")
    return read_scalars(path, chosen, _rows(path, rows, names), "table of step times")


def _rows(path: Path, rows: CsvRows, names: list[str]) -> Iterator[Row]:
    for row in rows:
        if len(row) != len(names):
            raise DataError(f"{path}:{rows.number}: {len(row)} fields, but the first line names {len(names)} columns")
        yield Row(f"{path}:{rows.number}", dict(zip(names, row, strict=True)))


def _tensorboard(path: Path, names: list[str], unit_s: float | None) -> Chosen | None:
    """Of a file of one tag: its values if the tag is a step time; else the clock alone."""
    if tuple(name.lower() for name in names) != TENSORBOARD:
        return None
    clock, step, value = names
    tag = path.name.removesuffix(".gz").removesuffix(".csv").rpartition(TAG)[2]
    for start in range(len(tag)):  # a slash of the tag is "_" in the file's name
        if (start == 0 or tag[start - 1] in "_-") and is_time(tag[start:], beside_steps=False):
            return Chosen(step, value, stated_unit(tag[start:], unit_s, str(path)), clock, 1.0, False)
    return Chosen(step, None, None, clock, 1.0, False)


def _recognises(begins: FileStart) -> bool:
    first = begins.text.partition("\n")[0].strip("\r")
    names = header_names(first)
    if len(names) == 1 and not begins.name.endswith((".csv", ".tsv")):
        return False
    of_ops = OF_OPS & {name.lower() for name in names}
    return is_step_table(names) or (begins.name.endswith((".csv", ".tsv")) and bool(names) and not of_ops)


STEP_TABLE = TraceFormat(
    "step table",
    "tables of step times (CSV, TSV; W&B and TensorBoard exports)",
    _recognises,
    lambda files: read_step_table(files[0]),
    read_in_unit=lambda files, unit_s: read_step_table(files[0], unit_s),
)

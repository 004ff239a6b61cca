"""Reads step times from files of scalars: JSON lines, CSV tables, and trainer_state.json of the Hugging Face Trainer.

JSON lines, one object each, are the history of a W&B run or what a training script wrote itself:

{"_step": 10, "_timestamp": 1710241821.5, "_runtime": 63.2, "train/step_time": 1.21, "train/loss": 2.3}

Tables have comma, semicolon or tab, as people write them and as W&B and TensorBoard export them:

step,step_time_s                                         any table with a known name; see `scalars.py`
step,rank,step_time_s,data_time_s                        one row per step and rank, in any order; see `rank_rows.py`
step,rank0_s,rank1_s                                     one column per rank
"Step","run-7 - train/step_time","run-7 - train/step_time__MIN",...     a chart of W&B
Wall time,Step,Value                                     one tag of TensorBoard, whose name is in that of the file

trainer_state.json is an object whose `log_history` lists what was logged. Its records hold no time but the last one, which has
the seconds of the whole run; where a callback has logged step times, those.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.errors import DataError
from ...tables.streams import chunks, lines
from ...trace.columns import CsvRows
from ...trace.step_log import NOTHING_STATED, FileStart, Stated, StepLog, TraceFormat
from .log_entries import Entries, Entry
from .quantities import is_step, is_time, meaning
from .scalars import UNIT_NAMES, ScalarNames, ScalarRow, Value, choose, is_told, read_scalars, stated_unit

MOST_NAMES = 10_000
FIRST_LINES = 50  # of which one has to say something of a step
HEAD_BYTES = 2**16  # of a file that is larger, the last line of the beginning is cut


def read_json_lines(path: Path, stated: Stated = NOTHING_STATED) -> StepLog:
    """The step times in a file of one object per line, packed with gzip or not. The file is read twice.

    Args:
        stated: what a person says of its names.

    Raises:
        DataError: a line is no JSON object, or as `choose` and `read_scalars`; names file:line.
    """
    counts: Counter[str] = Counter()
    for row in _rows(path):
        counts.update(row.values.keys())
        if len(counts) > MOST_NAMES:
            raise DataError(f"{path}: more than {MOST_NAMES:,} names. Keep those that matter.")
    chosen = choose([name for name, _ in counts.most_common()], str(path), stated)
    return read_scalars(path, chosen, _rows(path), "JSON lines")


def _rows(path: Path) -> Iterator[ScalarRow]:
    for number, line in lines(path, cut=False):
        text = line.decode("utf-8", "replace").strip("\ufeff \t\r\n")
        if text:
            yield _scalar_row(text, f"{path}:{number}")


def scalars(record: dict[str, Any]) -> dict[str, Value]:
    """The numbers and texts of a record; those one level further down under "outer/inner"."""
    flat: dict[str, Value] = {}
    for name, value in record.items():
        inner = value.items() if isinstance(value, dict) else [(None, value)]
        for more, one in inner:
            if isinstance(one, (int, float, str)) and not isinstance(one, bool):
                flat[name if more is None else f"{name}/{more}"] = one
    return flat


def _scalar_row(text: str, place: str) -> ScalarRow:
    wrong = ""
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            return ScalarRow(place, scalars(found))
        wrong = "not a JSON object. Remove the line."
    except RecursionError:
        wrong = "not JSON: nested too deeply. Remove the line."
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number of thousands of digits"
        wrong = f"not JSON: {reason}. Remove the line."
    return ScalarRow(place, {}, wrong)


def _recognises(begins: FileStart) -> bool:
    """Whether lines are whole objects, of which one of the first says something of a step."""
    if not begins.text.startswith("{"):
        return False
    whole = len(begins.start) < HEAD_BYTES
    texts = [line.strip() for line in begins.text.splitlines()[: None if whole else -1] if line.strip()][:FIRST_LINES]
    rows = [_scalar_row(text, "") for text in texts]
    if not rows or rows[0].wrong or "traceEvents" in texts[0] or 2 * sum(bool(row.wrong) for row in rows) > len(rows):
        return False
    return any(is_told(list(row.values)) for row in rows)


JSON_LINES = TraceFormat(
    "JSON lines",
    "histories of one JSON object per line (W&B)",
    _recognises,
    lambda files: read_json_lines(files[0]),
    read_stated=lambda files, stated: read_json_lines(files[0], stated),
)


SEPARATORS = ",\t;"
OF_OPS = frozenset(("op_type", "start_s", "micro_batch", "chunk", "stream", "group"))
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
    """Separator between the fields of a line; a comma if there is none."""
    return max(SEPARATORS, key=line.count)


def is_step_table(names: list[str]) -> bool:
    """Whether a table with these names holds step times or entries with a clock, and no ops."""
    lower = [name.lower() for name in names]
    if OF_OPS & set(lower):
        return False
    return tuple(lower) == TENSORBOARD or is_told(names) or bool(wide_ranks(names))


def read_step_table(path: Path, stated: Stated = NOTHING_STATED) -> StepLog:
    """The step times in a table, packed with gzip or not.

    Args:
        stated: what a person says of its names.

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
    if (pair := _key_and_value(names)) is not None:
        return _read_long_metrics(path, separator, names, pair, stated)
    wide = wide_ranks(names)
    if wide:
        long = [*(name for name in names if name not in wide), WIDE_RANK, _wide_time(wide)]
        return read_scalars(path, choose(long, f"{path}:1", stated), _long(path, rows, names, wide), "table of ranks")
    chosen = _tensorboard(path, names, stated) or choose(names, f"{path}:1", stated)
    for name in (chosen.step, chosen.time, chosen.clock):
        if name is not None and names.count(name) > 1:
            raise DataError(f"{path}:1: the column {name!r} is there {names.count(name)} times. Keep one.")
    return read_scalars(path, chosen, _table_rows(path, rows, names), "table of step times")


KEYS = ("key", "metric", "metric_name", "tag")


def _key_and_value(names: list[str]) -> tuple[str, str] | None:
    """The columns of a table with one row per metric and step, as MLflow exports them; None of another table."""
    lower = {name.lower(): name for name in names}
    key = next((lower[name] for name in KEYS if name in lower), None)
    return None if key is None or "value" not in lower or not any(map(is_step, names)) else (key, lower["value"])


def _read_long_metrics(path: Path, separator: str, names: list[str], pair: tuple[str, str], stated: Stated) -> StepLog:
    def rows() -> Iterator[ScalarRow]:
        found = CsvRows(path, separator)
        next(iter(found), None)
        for row in _table_rows(path, found, names):
            more = {name: value for name, value in row.values.items() if name not in pair}
            yield ScalarRow(row.place, {**more, str(row.values.get(pair[0])): row.values.get(pair[1])}, row.wrong)

    keys: Counter[str] = Counter()
    for row in rows():
        keys.update(row.values.keys())
        if len(keys) > MOST_NAMES:
            raise DataError(f"{path}: more than {MOST_NAMES:,} metrics. Keep those that matter.")
    chosen = choose([name for name, _ in keys.most_common()], str(path), stated)
    return read_scalars(path, chosen, rows(), "table of metrics, one per row")


WIDE = re.compile(
    r"^(?:step_time_|time_)?(?:rank|worker|gpu|process|host|node|device)_?(\d{1,9})(?:_step_time|_time)?$"
)
WIDE_RANK = "rank"


def wide_ranks(names: list[str]) -> dict[str, str]:
    """Column -> rank of a table with one row per step and a column per rank; none if there are not two such columns."""
    if not any(map(is_step, names)) or WIDE_RANK in names:
        return {}
    found = {name: match[1] for name in names if (match := WIDE.match(meaning(name).base))}
    units = {meaning(name).unit_s for name in found}
    return found if len(found) > 1 and len(units) == 1 and len(set(found.values())) == len(found) else {}


def _wide_time(wide: dict[str, str]) -> str:
    """Name of the step time that the columns of ranks hold, with their unit."""
    unit_s = meaning(next(iter(wide))).unit_s
    return "step_time" if unit_s is None else f"step_time_{UNIT_NAMES[unit_s]}"


def _long(path: Path, rows: CsvRows, names: list[str], wide: dict[str, str]) -> Iterator[ScalarRow]:
    """One row per step and rank."""
    time = _wide_time(wide)
    for row in _table_rows(path, rows, names):
        common = {name: value for name, value in row.values.items() if name not in wide}
        for name, rank in wide.items():
            yield ScalarRow(row.place, {**common, WIDE_RANK: rank, time: row.values.get(name)}, row.wrong)


def _table_rows(path: Path, rows: CsvRows, names: list[str]) -> Iterator[ScalarRow]:
    for row in rows:
        wrong = "" if len(row) == len(names) else f"{len(row)} fields, but the first line names {len(names)} columns"
        yield ScalarRow(f"{path}:{rows.number}", dict(zip(names, row, strict=False)), wrong)


def _tensorboard(path: Path, names: list[str], stated: Stated) -> ScalarNames | None:
    """Names in a file of one tag: its values if the tag is a step time; else the clock alone."""
    if tuple(name.lower() for name in names) != TENSORBOARD or stated.columns:
        return None
    clock, step, value = names
    tag = path.name.removesuffix(".gz").removesuffix(".csv").rpartition(TAG)[2]
    for start in range(len(tag)):  # a slash of the tag is "_" in the file's name
        if (start == 0 or tag[start - 1] in "_-") and is_time(tag[start:], beside_steps=False):
            return ScalarNames(step, value, stated_unit(tag[start:], stated.unit_s, str(path)), clock, 1.0, False)
    return ScalarNames(step, None, None, clock, 1.0, False)


def _table_recognises(begins: FileStart) -> bool:
    first = begins.text.partition("\n")[0].strip("\r")
    names = header_names(first)
    if len(names) == 1 and not begins.name.endswith((".csv", ".tsv")):
        return False
    of_ops = OF_OPS & {name.lower() for name in names}
    return is_step_table(names) or (begins.name.endswith((".csv", ".tsv")) and bool(names) and not of_ops)


STEP_TABLE = TraceFormat(
    "step table",
    "tables of step times (CSV, TSV; W&B and TensorBoard exports)",
    _table_recognises,
    lambda files: read_step_table(files[0]),
    read_stated=lambda files, stated: read_step_table(files[0], stated),
)


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
    for row in _trainer_state_rows(path):
        counts.update(row.values.keys())
        if "train_runtime" in row.values:
            last = dict(row.values)
    names = [name for name, _ in counts.most_common() if not name.startswith(("train_runtime", "eval_"))]
    if is_told(names):
        return read_scalars(path, choose(names, str(path)), _trainer_state_rows(path), "HF Trainer state", "HF Trainer")
    runtime_s, n_steps = last.get("train_runtime"), last.get("step")
    if not isinstance(runtime_s, (int, float)) or not isinstance(n_steps, int) or runtime_s <= 0 or n_steps < 1:
        raise DataError(
            f"{path}: a state of the HF Trainer without step times: its log_history has neither a step time nor train_runtime, "
            "which the end of a run adds. Give the log of the run, or log a step time (step_time_s) in a callback."
        )
    entries = Entries(path)
    entries.add(Entry(n_steps, runtime_s / n_steps, n_steps=min(n_steps, 2**31 - 1)))
    return entries.step_log(entries.timed(is_mean=False), framework="HF Trainer", notes=("HF Trainer state", WHOLE_RUN))


def _trainer_state_rows(path: Path) -> Iterator[ScalarRow]:
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
        yield ScalarRow(where, scalars(record))
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


def _trainer_state_recognises(begins: FileStart) -> bool:
    text = begins.text[:_SEARCHED]
    if not text.startswith("{") or "traceEvents" in text:
        return False
    return '"log_history"' in text or len(set(_KEYS.findall(text))) >= 3


TRAINER_STATE = TraceFormat(
    "trainer_state.json",
    "states of the HF Trainer (trainer_state.json)",
    _trainer_state_recognises,
    lambda files: read_trainer_state(files[0]),
)

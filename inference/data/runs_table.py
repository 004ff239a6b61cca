"""Tables in two parts: one row per step in `X_series` or `X_steps`, one row per run in `X_runs`, tied by `run_id`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.errors import DataError

from .formats.raw_table import RawTable, column_of
from .names import plain
from .values import labels

LONG = ("_series", "_steps")
RUNS = "_runs"


def part(path: Path) -> tuple[str, str]:
    """What comes before and after the last "_" of a file's name, without endings: ("mlperf", "_series")."""
    stem = path.name.partition(".")[0]
    front, bar, back = stem.rpartition("_")
    return front, bar + back


def is_long(path: Path) -> bool:
    """Whether the file is named as one that holds steps and not what is known of the runs."""
    return part(path)[1] in LONG


def is_runs(path: Path) -> bool:
    """Whether the file is named as one that holds what is known of the runs."""
    return part(path)[1] == RUNS


def sibling(path: Path) -> Path | None:
    """The file of runs that lies beside a file of steps, if one does."""
    front, _ = part(path)
    for ending in dict.fromkeys(("".join(path.suffixes), ".csv.gz", ".csv", ".tsv", ".parquet")):
        beside = path.with_name(f"{front}{RUNS}{ending}")
        if os.path.isfile(beside):  # False for names that are too long
            return beside
    return None


def join_runs(tables: Mapping[Path, RawTable], read: Callable[[Path], RawTable]) -> dict[Path, RawTable]:
    """The tables, those of runs joined to those of their steps.

    Args:
        tables: by file.
        read: reads a table of runs that lies beside and was not named.

    Raises:
        DataError: a run is there twice in a table of runs.
    """
    joined = dict(tables)
    long = [path for path, table in tables.items() if is_long(path) and _key(table) is not None]
    for path in long:
        runs_path = next((other for other in tables if is_runs(other) and part(other)[0] == part(path)[0]), None)
        note = ""
        if runs_path is None:
            runs_path = sibling(path)
            if runs_path is None:
                continue
            note = f"{path.name}: joined with {runs_path.name}, which lies beside it"
        runs = tables[runs_path] if runs_path in tables else read(runs_path)
        if _key(runs) is None:
            continue
        joined[path] = _join(tables[path], runs, note)
        joined.pop(runs_path, None)
    if len(long) > 1:
        joined = {path: _numbered(table, part(path)[0]) if path in long else table for path, table in joined.items()}
    return joined


def missing_half(path: Path) -> str:
    """What to add to an error about a table of runs that came without its steps."""
    if not is_runs(path):
        return ""
    front, _ = part(path)
    beside = [path.with_name(f"{front}{back}{''.join(path.suffixes)}") for back in LONG]
    there = [other.name for other in beside if os.path.isfile(other)]
    return f" The steps of these runs are in {there[0]}: name it too." if there else ""


def _key(table: RawTable) -> str | None:
    return next((name for name in table.frame.columns if plain(name) == "run_id"), None)


def _join(long: RawTable, runs: RawTable, note: str) -> RawTable:
    key, runs_key = str(_key(long)), str(_key(runs))
    of_runs = runs.frame.set_index(runs_key)
    if not of_runs.index.is_unique:
        again = of_runs.index[of_runs.index.duplicated()][0]
        raise DataError(f"{runs.source}: run {again} is there twice. Keep one row per run.")
    own = {plain(name) for name in long.header}
    new = [name for name in of_runs.columns if plain(name) not in own]
    place = of_runs.index.get_indexer(pd.Index(column_of(long.frame, key)))
    frame = long.frame.copy(deep=False)
    for name in new:
        frame[name] = _looked_up(column_of(of_runs, name), place)
    notes = [note] if note else []
    n_lost = int((place < 0).sum())
    if n_lost:
        notes.append(f"{long.name}: {n_lost:,} rows of runs that are not in {Path(runs.source).name}")
    return replace(
        long, frame=frame, header=(*long.header, *new), units={**runs.units, **long.units}, notes=(*long.notes, *notes)
    )


def _looked_up(values: pd.Series, place: NDArray[np.intp]) -> Any:
    """The value of the run of every row; texts as categories, because a run has many rows."""
    if not pd.api.types.is_numeric_dtype(values):
        values = values.astype("category")
    return cast(Any, values.array).take(place, allow_fill=True)


def _numbered(table: RawTable, name: str) -> RawTable:
    """The table with runs that keep their own numbers apart from those of other tables."""
    names = [column for column in table.frame.columns if plain(column) in ("run_id", "dup_of")]
    numbered = {column: name + "/" + labels(column_of(table.frame, column)) for column in names}
    return replace(table, frame=table.frame.assign(**numbered))

"""Logs of GPUs over time, and tables that are joined: these logs to measured rows, and rows of runs to rows of steps.

The logs are of `nvidia-smi --query-gpu=... --format=csv`, `dcgmi dmon` and `nvidia-smi dmon`. Clocks, temperatures and powers are
joined by GPU and nearest time. A table in two parts has one row per step in `X_series` or `X_steps` and one row per run in
`X_runs`, tied by `run_id`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import DataError
from prism_jax.tables.monitor_text import GPU, HOST, header_of, monitor_rows
from prism_jax.tables.streams import lines

from .columns import DataOptions, ModelColumn, plain
from .raw_table import NOT_AVAILABLE, RawTable, as_floats, column_of, raw_table, read_delimited
from .values import factor, labels, numbers

NAMES = {
    "timestamp": "time",
    "uuid": "gpu_uuid",
    "gpu_uuid": "gpu_uuid",
    "index": "gpu_index",
    "gpu_index": "gpu_index",
    "pci_bus_id": "gpu_bus_id",
    "gpu_bus_id": "gpu_bus_id",
    "name": "gpu_model",
    "gpu_name": "gpu_model",
    "hostname": "node",
    "host": "node",
    "clocks_sm": "clock_mhz",
    "clocks_current_sm": "clock_mhz",
    "clocks_gr": "clock_gr_mhz",
    "clocks_current_graphics": "clock_gr_mhz",
    "temperature_gpu": "temp_c",
    "power_draw": "power_w",
    "power_draw_instant": "power_instant_w",
    "power_draw_average": "power_average_w",
}
"""Name in a query of nvidia-smi -> ours."""

_TELLING = (
    "clocks_sm",
    "clocks_current_sm",
    "temperature_gpu",
    "power_draw",
    "power_draw_instant",
    "power_draw_average",
)
_QUERIES = (
    "clocks", "temperature", "power", "utilization", "memory", "pstate", "fan", "pci", "driver", "serial", "count", "vbios",
    "ecc", "enforced", "compute", "persistence", "display", "encoder", "mig", "module", "fabric", "gsp", "accounting",
)  # fmt: skip
_MONITORED = {
    HOST: "node",
    GPU: "gpu",
    "sm_clock_mhz": "clock_mhz",
    "temp_c": "temp_c",
    "power_w": "power_w",
}
MAX_HEADER = 10_000  # bytes
MAX_ROWS = 20_000_000


def is_gpu_header(names: Sequence[str]) -> bool:
    """Whether all columns are those of a query of nvidia-smi, so that nothing was timed."""
    known = {plain(name) for name in names}
    return not known.isdisjoint(_TELLING) and all(name in NAMES or name.startswith(_QUERIES) for name in known)


def read_nvidia_smi(path: Path) -> RawTable:
    """A log of nvidia-smi in CSV, with units or without.

    Raises:
        DataError: as `read_delimited`.
    """
    table = read_delimited(path, lambda names: [name for name in names if plain(name) in NAMES])
    ours: dict[str, str] = {}
    for name in table.frame.columns:
        ours.setdefault(NAMES[plain(name)], name)
    frame = pd.DataFrame({new: column_of(table.frame, old) for new, old in ours.items()})
    frame = frame.rename(columns=_first(frame, ("power_average_w", "power_instant_w"), "power_w"))
    frame = frame.rename(columns=_first(frame, ("clock_gr_mhz",), "clock_mhz"))
    frame = frame.rename(columns=_first(frame, ("gpu_uuid", "gpu_bus_id", "gpu_index"), "gpu"))
    return RawTable(str(path), frame, tuple(frame.columns), table.row_hash, is_gpu_log=True)


def _first(frame: pd.DataFrame, names: Sequence[str], ours: str) -> dict[str, str]:
    found = next((name for name in names if name in frame), None)
    return {found: ours} if found and ours not in frame else {}


def is_monitor_line(line: bytes) -> bool:
    """Whether only what `dcgmi dmon` or `nvidia-smi dmon` print has such a line."""
    return bool(header_of(line[:MAX_HEADER].decode("utf-8", "replace")))


def read_monitor(path: Path) -> RawTable:
    """A log of `dcgmi dmon` or `nvidia-smi dmon`; it has no times, so that it says what is typical of a GPU.

    Raises:
        DataError: cannot be read, no rows, or neither clock, temperature nor power.
    """
    rows: list[dict[str, str]] = []
    text = ((number, raw.decode("utf-8", "replace")) for number, raw in lines(path, cut=True))
    for row in monitor_rows(text, str(path)):
        rows.append({ours: row.fields[name] for name, ours in _MONITORED.items() if name in row.fields})
        if len(rows) > MAX_ROWS:
            raise DataError(f"{path}: more than {MAX_ROWS:,} rows. Split it.")
    if not rows:
        raise DataError(f"{path}: a log of dcgmi or nvidia-smi dmon without a row of a GPU. Record it again.")
    frame = pd.DataFrame(rows)
    if frame.columns.isin((GPU, "node")).all():
        raise DataError(f"{path}: neither clock, temperature nor power. Record them with dcgmi dmon -e 100,150,155.")
    frame = frame.replace(list(NOT_AVAILABLE), None)
    return raw_table(str(path), frame, is_gpu_log=True)


MAX_APART_S = 30.0  # between a measurement and the sample that stands for it; nvidia-smi is run every 1 to 10 s
COVARIATES = (
    ModelColumn("clock_mhz", positive=True),
    ModelColumn("temp_c"),
    ModelColumn("power_w"),
)
_TIME = ModelColumn("time")
_PLAIN = DataOptions({}, {}, {})


def join_telemetry(
    table: RawTable, found: Mapping[str, str], logs: Sequence[RawTable]
) -> tuple[RawTable, dict[str, str]]:
    """A table of measurements with the covariates of GPU logs, and the names of its columns.

    Args:
        found: canonical name -> name in the table.

    Raises:
        DataError: the logs and the table have no GPU, or no time, in common.
    """
    new = [
        column for column in COVARIATES if column.name not in found and any(column.name in log.frame for log in logs)
    ]
    if not new:
        note = f"{table.name}: has clock, temperature and power itself; the GPU logs are not used"
        return replace(table, notes=(*table.notes, note)), dict(found)
    names = ", ".join(log.source for log in logs)
    if "gpu" not in found:
        raise DataError(
            f"{table.source}: no column gpu, by which {names} could be joined. Say which it is with --map gpu=NAME."
        )
    gpu = labels(column_of(table.frame, found["gpu"])).reset_index(drop=True)
    samples = _samples(logs, new)
    shared = set(gpu.dropna()) & set(samples["gpu"].dropna())
    if not shared:
        examples = f"{next(iter(gpu.dropna()), 'none')!s:.50} and {next(iter(samples['gpu'].dropna()), 'none')!s:.50}"
        raise DataError(
            f"{table.source} and {names} have no GPU in common (they hold {examples}). Log uuid, or map gpu."
        )
    time = numbers(column_of(table.frame, found["time"]), _TIME).value if "time" in found else None
    if time is not None and np.isfinite(as_floats(column_of(samples, "time"))).any():
        joined, note = _nearest(table.source, gpu, time, samples, new)
    else:
        joined, note = _typical(table.source, gpu, samples, new, names)
    frame = table.frame.assign(**{column.name: joined[column.name].to_numpy() for column in new})
    both = {**found, **{column.name: column.name for column in new}}
    header = (*table.header, *(column.name for column in new))
    return replace(table, frame=frame, header=header, notes=(*table.notes, note)), both


def _samples(logs: Sequence[RawTable], columns: Sequence[ModelColumn]) -> pd.DataFrame:
    """gpu, time (s) and covariates of all logs."""
    parts = []
    for log in logs:
        if "gpu" not in log.frame:
            raise DataError(
                f"{log.source}: no uuid, index or bus id of the GPU. Query it with --query-gpu=timestamp,uuid,..."
            )
        nothing = np.full(len(log.frame), np.nan)
        values: dict[str, object] = {
            "gpu": labels(column_of(log.frame, "gpu")),
            "time": numbers(column_of(log.frame, "time"), _TIME).value if "time" in log.frame else nothing,
        }
        for column in columns:
            values[column.name] = _values(log, column) if column.name in log.frame else nothing
        parts.append(pd.DataFrame(values))
    return pd.concat(parts, ignore_index=True)


def _values(log: RawTable, column: ModelColumn) -> NDArray[np.float64]:
    value, beside, _ = numbers(column_of(log.frame, column.name), column)
    by_column = np.broadcast_to(factor(log, column, column.name, _PLAIN).value, value.shape)
    return value * (by_column if beside is None else np.where(np.isnan(beside), by_column, beside))


def _nearest(
    source: str, gpu: pd.Series, time: NDArray[np.float64], samples: pd.DataFrame, columns: Sequence[ModelColumn]
) -> tuple[pd.DataFrame, str]:
    rows = pd.DataFrame({"gpu": gpu, "time": time, "row": np.arange(len(gpu))}).dropna().sort_values(by="time")
    samples = samples.dropna(subset=["gpu", "time"]).sort_values(by="time")
    samples = samples.assign(sampled=samples["time"])
    nearest = pd.merge_asof(rows, samples, on="time", by="gpu", direction="nearest").set_index("row")
    apart_s = as_floats(column_of(nearest, "sampled")) - as_floats(column_of(nearest, "time"))
    is_close = np.abs(apart_s) <= MAX_APART_S
    if not is_close.any():
        apart = f"; the nearest is {np.nanmin(np.abs(apart_s)) / 3600:.4g} h away" if np.isfinite(apart_s).any() else ""
        raise DataError(
            f"{source}: no row within {MAX_APART_S:g} s of a sample of its GPU{apart}. Times without a time zone count as UTC: "
            "write them with their zone, or leave the GPU log out."
        )
    note = (
        f"{Path(source).name}: {is_close.sum():,} of {len(gpu):,} rows have a GPU sample within {MAX_APART_S:g} s (times without "
        "zone count as UTC)"
    )
    close = cast(pd.DataFrame, nearest.loc[is_close, [column.name for column in columns]])
    return close.reindex(np.arange(len(gpu))), note


def _typical(
    source: str, gpu: pd.Series, samples: pd.DataFrame, columns: Sequence[ModelColumn], names: str
) -> tuple[pd.DataFrame, str]:
    medians = samples.groupby("gpu")[[column.name for column in columns]].median()
    note = f"{Path(source).name}: no times in common with {names}; every row gets the medians of its GPU"
    return cast(pd.DataFrame, medians.reindex(gpu)), note


LONG = ("_series", "_steps")
RUNS = "_runs"


def part(path: Path) -> tuple[str, str]:
    """Splits a file's name, without endings, before its last "_": ("mlperf", "_series")."""
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
    """File of runs in the same folder as a file of steps, if there is one."""
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
        read: reads a table of runs from the same folder that was not named.

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
            note = f"{path.name}: joined with {runs_path.name}, which lies in the same folder"
        runs = tables[runs_path] if runs_path in tables else read(runs_path)
        if _key(runs) is None:
            continue
        joined[path] = _join(tables[path], runs, note)
        joined.pop(runs_path, None)
    if len(long) > 1:
        joined = {path: _numbered(table, part(path)[0]) if path in long else table for path, table in joined.items()}
    return joined


def missing_half(path: Path) -> str:
    """Completes an error about a table of runs that came without its steps."""
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

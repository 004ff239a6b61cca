"""`read_measurements` and `tidy`: files, or a table in memory, as a checked table with an account of every row.

Reports of straggler detectors and monitors are tables of measurements of GPUs: seconds of a unit of work, or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.fits.models import CollectiveRun
from prism_jax.fits.report import CleaningReport
from prism_jax.job.read_tables import expert_columns
from prism_jax.recorded.formats.scalar_files import is_step_table
from prism_jax.slowdowns.detectors import about_of, detectors_of, read_detectors
from prism_jax.slowdowns.readings import GpuPlace

from .checks import ROW, copied_rows
from .clean import Clean, Measurements, clean, naming, speeds_of, with_seconds
from .columns import TO_SECONDS, DataOptions, ModelColumn, plain, resolve, understand_options, wanted
from .formats import Format, detect, read_mlperf, read_training_log
from .network_tests import notes_on_logs, read_network_tests
from .raw_table import MAX_COLUMNS, RawTable, header_of, raw_table, read_delimited, read_parquet
from .telemetry import join_runs, join_telemetry, missing_half, read_monitor, read_nvidia_smi
from .values import refuse_unknown

NOTHING: Mapping[str, str] = {}


def read_measurements(
    paths: Sequence[Path],
    columns: Sequence[ModelColumn],
    *,
    mapping: Mapping[str, str] = NOTHING,
    units: Mapping[str, str] = NOTHING,
    where: Mapping[str, str] = NOTHING,
    collective: CollectiveRun = CollectiveRun(),
) -> Measurements:
    """The valid measurements in files of any known format.

    Args:
        paths: files; a table of runs joins the table of their steps, and a GPU log the measurements.
        columns: what the model needs and can use.
        mapping: canonical name, with or without unit -> name in the files.
        units: canonical name, with or without unit -> unit, where the files do not say it.
        where: name, canonical or of the files -> value of the rows that are kept.
        collective: of logs of network tests that do not say what was run, or among how many.

    Raises:
        DataError: a file cannot be read, lacks a required column, or no row is left; names file and remedy.
        UnitError: a duration's unit is not known, or said in two ways.
    """
    options = understand_options(columns, mapping, units, where)
    files = list(dict.fromkeys(Path(path) for path in paths))
    if not files:
        raise DataError("no files. Name at least one file of measurements.")
    runs = dict(zip(files, _run_names(files), strict=True))
    tables = {path: _read(path, runs[path], columns, options, collective) for path in files}
    tables = join_runs(tables, lambda path: _read(path, "", columns, options))
    alone = notes_on_logs(list(tables.values()))
    notes = [f"{path.name}: named {n} times, read once" for path in files if (n := [*map(Path, paths)].count(path)) > 1]
    try:
        with naming([str(path) for path in files]):
            return _measurements(list(tables.values()), columns, options, [*notes, *alone], tuple(map(str, files)))
    except DataError as error:
        halves = {missing_half(path) for path in tables} - {""}
        raise DataError(f"{error}{''.join(halves)}") from None


def tidy(
    frame: pd.DataFrame,
    columns: Sequence[ModelColumn],
    *,
    mapping: Mapping[str, str] = NOTHING,
    units: Mapping[str, str] = NOTHING,
    where: Mapping[str, str] = NOTHING,
) -> Measurements:
    """The valid measurements of a table in memory, as `read_measurements`; the table is not changed.

    Raises:
        DataError: a required column is missing, or no row is left.
        UnitError: a duration's unit is not known, or said in two ways.
    """
    options = understand_options(columns, mapping, units, where)
    names = [str(name) for name in frame.columns]
    if isinstance(frame.columns, pd.MultiIndex) or len(names) > MAX_COLUMNS:
        raise DataError(
            f"table: {len(names):,} columns in {frame.columns.nlevels} levels. Give one level, up to {MAX_COLUMNS:,}."
        )
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise DataError(f"table: column {again} is there {names.count(again)} times. Keep one, or rename the others.")
    if len(frame) == 0:
        raise DataError("table: no rows. Give at least one measurement.")
    table = raw_table("table", frame.set_axis(names, axis=1).reset_index(drop=True))
    return _measurements([table], columns, options, [], ("table",))


def _read(
    path: Path,
    run: str,
    columns: Sequence[ModelColumn],
    options: DataOptions,
    collective: CollectiveRun = CollectiveRun(),
) -> RawTable:
    def choose(names: Sequence[str]) -> list[str]:
        if _experts(names, columns):
            return list(names)
        speeds = [one.column for one in speeds_of(str(path), names, columns, options)]
        return list(dict.fromkeys((*wanted(names, columns, options), *speeds)))

    if (reported := of_detector(path, columns)) is not None:
        return reported
    kind: Format = detect(path)
    if kind == "table" and _is_step_table(path, columns, options):
        kind = "step log"
    if kind in ("table", "parquet"):
        return _long(read_delimited(path, choose) if kind == "table" else read_parquet(path, choose), columns)
    if kind == "network test":
        return read_network_tests(path, collective)
    if kind == "nvidia-smi":
        return read_nvidia_smi(path)
    if kind == "dcgm":
        return read_monitor(path)
    return read_mlperf(path, run) if kind == "mllog" else read_training_log(path, run, _unit_s(columns, options))


def _experts(names: Sequence[str], columns: Sequence[ModelColumn]) -> dict[str, str]:
    """Columns of experts, and which, in a table that has one for each where a model asks for a row for each."""
    return expert_columns(names) if any(column.name == "expert" for column in columns) else {}


def _long(table: RawTable, columns: Sequence[ModelColumn]) -> RawTable:
    """The table with a row per expert; a column of the tokens of all experts together is left out."""
    experts = _experts(table.header, columns)
    if not experts:
        return table
    frame = table.frame.drop(columns="tokens", errors="ignore")
    rest = [name for name in frame.columns if name not in experts]
    frame = frame.melt(rest, list(experts), "expert", "tokens")
    return raw_table(table.source, frame.assign(expert=[experts[name] for name in frame["expert"]]))


def _is_step_table(path: Path, columns: Sequence[ModelColumn], options: DataOptions) -> bool:
    """Whether a table holds the steps of one run: step times as logs name them, where runs are asked for and not named."""
    if options.mapping or not any(column.name == "run" and column.required for column in columns):
        return False
    names = header_of(path)
    return resolve(str(path), names, columns, {})[0].get("run") is None and is_step_table(names)


def _unit_s(columns: Sequence[ModelColumn], options: DataOptions) -> float | None:
    """Seconds of the unit that was stated for durations."""
    stated = next(
        (options.units[column.name] for column in columns if column.is_duration and column.name in options.units), None
    )
    return None if stated is None else TO_SECONDS[stated]


def _run_names(files: Sequence[Path]) -> list[str]:
    """A name for every file: its own, with as many folders before it as it takes to tell all apart."""
    parts = [path.absolute().parts for path in files]
    for n in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-n:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in files]


def _measurements(
    tables: Sequence[RawTable],
    columns: Sequence[ModelColumn],
    options: DataOptions,
    notes: list[str],
    sources: tuple[str, ...],
) -> Measurements:
    logs = [table for table in tables if table.is_gpu_log]
    others = [table for table in tables if not table.is_gpu_log] or logs
    if others is logs:
        logs = []
    others = [with_seconds(table, columns, options) for table in others]
    found, resolved = [], []
    for table in others:
        names, said = resolve(table.source, table.header, columns, _mapping_of(table, others, options))
        notes += said
        if logs:
            table, names = join_telemetry(table, names, logs)
        names = {name: of_file for name, of_file in names.items() if any(name == column.name for column in columns)}
        found.append(names)
        resolved.append(table)
    refuse_unknown(resolved, columns, found, options.where)
    cleaned = [clean(table, columns, names, options) for table, names in zip(resolved, found, strict=True)]
    for table, part in zip(resolved, cleaned, strict=True):
        notes += [*table.notes, *part.notes]
    return _together(resolved, cleaned, columns, notes, sources)


def _mapping_of(table: RawTable, tables: Sequence[RawTable], options: DataOptions) -> Mapping[str, str]:
    """The part of the mapping that is about this file, where another file has the rest."""

    def has(other: RawTable, text: str) -> bool:
        return plain(text) in map(plain, other.header)

    return {
        name: text
        for name, text in options.mapping.items()
        if has(table, text) or not any(has(other, text) for other in tables)
    }


def _together(
    tables: Sequence[RawTable],
    parts: Sequence[Clean],
    columns: Sequence[ModelColumn],
    notes: list[str],
    sources: tuple[str, ...],
) -> Measurements:
    dropped: dict[str, int] = {}
    for part in parts:
        for rule, n in part.dropped.items():
            dropped[rule] = dropped.get(rule, 0) + n
    kept = [np.flatnonzero(part.kept) for part in parts]
    frame = pd.concat([part.frame.iloc[rows] for part, rows in zip(parts, kept, strict=True)], ignore_index=True)
    each_counts = any(column.each_counts for column in columns)
    again = np.zeros(sum(map(len, kept)), bool) if each_counts else _copied(tables, parts, kept, notes)
    if again.any():
        dropped["the same row again"] = int(again.sum())
        frame = cast(pd.DataFrame, frame[~again]).reset_index(drop=True)
    n_read = sum(len(part.frame) for part in parts)
    if frame.empty:
        reasons = "; ".join(f"{n:,} {rule}" for rule, n in sorted(dropped.items(), key=lambda item: -item[1])[:5])
        raise DataError(
            f"{', '.join(sources[:3])}: none of {n_read:,} rows is left ({reasons}). Correct the file, or --where."
        )
    order = [column.name for column in columns if column.name in frame and frame[column.name].notna().to_numpy().any()]
    order += [ROW] if ROW in frame else []
    frame = cast(pd.DataFrame, frame[order])
    return Measurements(
        frame,
        CleaningReport(n_read, len(frame), dropped, tuple(dict.fromkeys(notes))),
        sources,
    )


def _copied(
    tables: Sequence[RawTable], parts: Sequence[Clean], kept: Sequence[np.ndarray], notes: list[str]
) -> np.ndarray:
    """Marks rows that were there before, in the same file or another of the same columns."""
    again = [np.zeros(len(rows), bool) for rows in kept]
    alike: dict[tuple[str, ...], list[int]] = {}
    for index, table in enumerate(tables):
        alike.setdefault(tuple(sorted(table.header)), []).append(index)
    for indices in alike.values():
        row_hash = np.concatenate([tables[index].row_hash[kept[index]] for index in indices])
        copied, n_chance = copied_rows(
            row_hash, _measured([parts[index] for index in indices], [kept[i] for i in indices])
        )
        if n_chance:
            notes.append(
                f"{tables[indices[0]].name}: {n_chance:,} rows are equal to one before and stay: repeats carry no number and "
                "times are rounded, so that equal rows are to be expected"
            )
        for index, flags in zip(
            indices, np.split(copied, np.cumsum([len(kept[i]) for i in indices])[:-1]), strict=True
        ):
            again[index] = flags
    return np.concatenate(again)


def _measured(parts: Sequence[Clean], kept: Sequence[np.ndarray]) -> pd.Series | None:
    """The measured column of tables with the same columns, as it stands in them; None if it holds no plain numbers."""
    values = [part.measured.iloc[rows] for part, rows in zip(parts, kept, strict=True) if part.measured is not None]
    if len(values) < len(parts):
        return None
    together = cast(pd.Series, pd.concat(values, ignore_index=True))
    return together if pd.api.types.is_numeric_dtype(together) else None


def of_detector(path: Path, columns: Sequence[ModelColumn]) -> RawTable | None:
    """The readings in a report of a detector, for models of GPUs; None where the file is none, or GPUs are not asked for.

    Rates and scores are one over seconds of a unit of work; clocks are a log of GPUs, like those of nvidia-smi.

    Raises:
        DataError: the report measures no GPU, or clocks together with other figures.
    """
    if not any(column.name == "gpu" and column.required for column in columns):
        return None
    detectors = detectors_of(path)
    if not detectors:
        return None
    found = read_detectors(path, detectors)
    kinds = {one.kind for one in found.readings}
    clocks = kinds == {"clock"}
    if not clocks and "clock" in kinds:
        raise DataError(f"{path}: clocks and other figures. Query one of them.")
    value = [one.value if one.kind in ("time", "factor", "clock") else 1.0 / one.value for one in found.readings]
    frame = pd.DataFrame(
        {
            "gpu": [_gpu(one.place) for one in found.readings],
            "node": [one.place.host or None for one in found.readings],
            **({} if clocks else {"kernel": [one.series for one in found.readings]}),
            "run": [f"report {one.report}" for one in found.readings],
            "clock_mhz" if clocks else "duration_s": value,
        }
    )
    note = f"{path.name}: read as {about_of(detectors)}"
    return raw_table(str(path), frame, is_gpu_log=clocks, in_si=True, notes=(note, *found.notes))


def _gpu(place: GpuPlace) -> str:
    """The GPU's name in its node, or in the job."""
    if place.rank is not None:
        return str(place.rank)
    return place.host if place.index is None else str(place.index)

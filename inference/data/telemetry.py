"""Clocks, temperatures and powers of a GPU log, joined to measured rows by GPU and nearest time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.errors import DataError

from .columns import Column
from .formats.raw_table import RawTable, as_floats, column_of
from .options import Options
from .units import factor
from .values import labels, numbers

MAX_APART_S = 30.0  # between a measurement and the sample that stands for it; nvidia-smi is run every 1 to 10 s
COVARIATES = (
    Column("clock_mhz", positive=True),
    Column("temp_c"),
    Column("power_w"),
)
_TIME = Column("time")
_PLAIN = Options({}, {}, {})


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


def _samples(logs: Sequence[RawTable], columns: Sequence[Column]) -> pd.DataFrame:
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


def _values(log: RawTable, column: Column) -> NDArray[np.float64]:
    value, beside, _ = numbers(column_of(log.frame, column.name), column)
    by_column = np.broadcast_to(factor(log, column, column.name, _PLAIN).value, value.shape)
    return value * (by_column if beside is None else np.where(np.isnan(beside), by_column, beside))


def _nearest(
    source: str, gpu: pd.Series, time: NDArray[np.float64], samples: pd.DataFrame, columns: Sequence[Column]
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
    source: str, gpu: pd.Series, samples: pd.DataFrame, columns: Sequence[Column], names: str
) -> tuple[pd.DataFrame, str]:
    medians = samples.groupby("gpu")[[column.name for column in columns]].median()
    note = f"{Path(source).name}: no times in common with {names}; every row gets the medians of its GPU"
    return cast(pd.DataFrame, medians.reindex(gpu)), note

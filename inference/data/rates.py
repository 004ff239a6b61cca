"""Tables of GPUs that hold no times but speeds (TFLOP/s, scores) or clocks: what was measured as seconds of a unit of work.

How GPUs differ is a ratio, so that one over the speed does. A log of clocks counts where the GPU works: at half of the largest
power that was logged, or more. Kernels that compute follow the clock, copies do not; a note says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.measured_speeds import HALF_POWER, SpeedColumn, kind_of, quantities

from .columns import DataOptions, ModelColumn, resolve
from .raw_table import RawTable, column_of, hash_column
from .values import numbers

SECONDS = "duration_s"


def speeds_of(
    source: str, header: Sequence[str], columns: Sequence[ModelColumn], options: DataOptions
) -> tuple[SpeedColumn, ...]:
    """The column of speeds that stands for the seconds that a model of GPUs asks for; none where there are seconds.

    Raises:
        DataError: several columns could be it.
    """
    required = {column.name for column in columns if column.required}
    if not {"gpu", SECONDS} <= required or SECONDS in options.mapping:
        return ()
    if SECONDS in resolve(source, header, columns, {})[0]:
        return ()
    speeds = [name for name in header if kind_of(name) in ("rate", "clock")]
    found = quantities(speeds, source)
    if len(found) > 1:
        names = ", ".join(one.column for one in found)
        raise DataError(f"{source}: speeds of several kernels ({names}). Keep one, or write rows with a column kernel.")
    return found


def with_seconds(table: RawTable, columns: Sequence[ModelColumn], options: DataOptions) -> RawTable:
    """The table with seconds from its speeds, where it holds those alone."""
    found = speeds_of(table.source, table.header, columns, options)
    if not found or found[0].column not in table.frame:
        return table
    (speed,) = found
    what = ModelColumn("clock_mhz" if speed.kind == "clock" else "speed")
    value = numbers(column_of(table.frame, speed.column), what).value
    counts = _working(table) if speed.kind == "clock" else np.ones(len(value), bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(counts & (value > 0.0), 1.0 / value, np.nan)
    frame = table.frame.assign(**{SECONDS: seconds})
    header = (*table.header, SECONDS)
    if speed.kind == "clock":  # as a covariate it would explain itself
        frame, header = frame.drop(columns=speed.column), tuple(name for name in header if name != speed.column)
    row_hash = (
        table.row_hash - hash_column(column_of(table.frame, speed.column)) + hash_column(column_of(frame, SECONDS))
    )
    if table.is_gpu_log:
        row_hash = row_hash + np.arange(len(value), dtype=np.uint64)  # samples may well be equal
    follows = (
        "kernels that compute follow the clock, copies do not"
        if speed.kind == "clock"
        else "so ratios are known, seconds are not"
    )
    note = f"{table.name}: {SECONDS} is one over {speed.column}: {follows}"
    return replace(
        table,
        frame=frame,
        header=header,
        row_hash=row_hash,
        is_gpu_log=False,
        notes=(*table.notes, note),
    )


def _working(table: RawTable) -> np.ndarray:
    """Whether the GPU worked in a row, by its power; everywhere where none was logged."""
    if "power_w" not in table.frame:
        return np.ones(len(table.frame), bool)
    power = numbers(column_of(table.frame, "power_w"), ModelColumn("power_w")).value
    most = float(np.nanmax(power, initial=0.0))
    return power >= HALF_POWER * most if most > 0.0 else np.ones(len(power), bool)

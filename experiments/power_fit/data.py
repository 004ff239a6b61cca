# pyright: reportArgumentType=false, reportReturnType=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""What the power model reads: seconds and watts of a workload at several clocks, or under several power limits.

Rows that agree in device, workload and every column of `SETTINGS` are one series. Its row at the highest clock (or limit) is its
top; the others are held as logarithms of their ratio to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd

from inference.data.columns import ModelColumn
from prism_jax.core.errors import DataError

SETTINGS = ("dataset", "optimizer", "batch_size", "stage", "instruction")
COLUMNS = (
    ModelColumn("device", ("gpu", "gpu_name", "gpu_model"), required=True, text=True),
    ModelColumn("workload", ("network", "model"), required=True, text=True),
    ModelColumn("duration_s", ("epoch_s", "step_s", "time"), required=True, positive=True),
    ModelColumn("power_watts", ("avg_power_w", "power_w", "mean_power_w", "watts"), positive=True),
    ModelColumn("energy_joules", ("energy_j", "energy", "joules"), positive=True),
    ModelColumn("clock_mhz", ("frequency", "sm_clock_mhz", "clock"), positive=True),
    ModelColumn("power_limit_watts", ("power_limit_w", "power_limit", "limit_w"), positive=True),
    *(ModelColumn(name, (), text=True) for name in SETTINGS),
)
KIND = ("device", "workload", "instruction")  # series that agree in these lose as much to a lower clock
MOST_SERIES = 2000
FEWEST_ROWS = 2  # of a series: the top and another


@dataclass(frozen=True)
class PowerData:
    """Series of rows, each relative to its top.

    Attributes:
        devices: names, in the order of `device`.
        kinds: device, workload and instruction of series that are alike, in the order of `kind`.
        series: what each series is, for people.
        device, kind: of each series, [series].
        is_limit: whether power limits were varied, not clocks, [series].
        top: the highest limit, of the device's highest; 1 of clocks, [series].
        top_power: watts at the top, of the device's highest limit (of clocks: of the highest power met), [series].
        of: series of each row, [row].
        control: clock, of the series' highest, or limit, of the device's highest, [row].
        log_time, log_power: log of the ratio to the top, [row].
        reference_watts: highest limit met, or highest power where clocks were varied, [device].
    """

    devices: Annotated[tuple[str, ...], "device"]
    kinds: Annotated[tuple[str, ...], "kind"]
    series: Annotated[tuple[str, ...], "series"]
    device: Annotated[np.ndarray, "series -> device"]
    kind: Annotated[np.ndarray, "series -> kind"]
    is_limit: Annotated[np.ndarray, "series"]
    top: Annotated[np.ndarray, "series"]
    top_power: Annotated[np.ndarray, "series"]
    of: Annotated[np.ndarray, "row -> series"]
    control: Annotated[np.ndarray, "row"]
    log_time: Annotated[np.ndarray, "row"]
    log_power: Annotated[np.ndarray, "row"]
    reference_watts: Annotated[np.ndarray, "device"]


def from_frame(frame: pd.DataFrame) -> PowerData:
    """Series of a checked table.

    Raises:
        DataError: rows have neither power nor energy, or neither clock nor limit, or no series has two rows.
    """
    table = _with_power_and_control(frame)
    keys = [name for name in ("device", "workload", *SETTINGS, "is_limit") if name in table]
    found = [
        (name, rows.sort_values("control", ascending=False))
        for name, rows in table.groupby(keys, sort=True, dropna=False)
        if len(rows) >= FEWEST_ROWS
    ]
    if not found:
        raise DataError(
            "no workload was measured at two clocks or power limits. Give device, workload and all settings."
        )
    if len(found) > MOST_SERIES:
        raise DataError(f"more than {MOST_SERIES:,} series. Are the columns what they should be?")
    tops = pd.DataFrame([rows.iloc[0] for _, rows in found])
    devices = tuple(sorted(set(tops["device"])))
    alike = [" ".join(str(tops[name].iloc[at]) for name in KIND if name in tops) for at in range(len(tops))]
    kinds = tuple(sorted(set(alike)))
    device = np.array([devices.index(name) for name in tops["device"]])
    is_limit = tops["is_limit"].to_numpy(dtype=bool)
    reference = _references(table, devices)
    of = np.repeat(np.arange(len(found)), [len(rows) - 1 for _, rows in found])
    below = pd.concat([rows.iloc[1:] for _, rows in found])
    top = tops.iloc[of]
    scale = np.where(is_limit, reference[device], tops["control"].to_numpy(dtype=float))
    return PowerData(
        devices=devices,
        kinds=kinds,
        series=tuple(" ".join(str(part) for part in name[:-1] if pd.notna(part)) for name, _ in found),
        device=device,
        kind=np.array([kinds.index(name) for name in alike]),
        is_limit=is_limit,
        top=tops["control"].to_numpy(dtype=float) / scale,
        top_power=tops["power_watts"].to_numpy(dtype=float) / reference[device],
        of=of,
        control=below["control"].to_numpy(dtype=float) / scale[of],
        log_time=np.log(below["duration_s"].to_numpy(dtype=float) / top["duration_s"].to_numpy(dtype=float)),
        log_power=np.log(below["power_watts"].to_numpy(dtype=float) / top["power_watts"].to_numpy(dtype=float)),
        reference_watts=reference,
    )


def _with_power_and_control(frame: pd.DataFrame) -> pd.DataFrame:
    """With `power_watts`, `control` (MHz or watts) and `is_limit` in every row that has both."""
    n = len(frame)
    power, energy, clock, limit = (
        frame[name].to_numpy(dtype=float) if name in frame else np.full(n, np.nan)
        for name in ("power_watts", "energy_joules", "clock_mhz", "power_limit_watts")
    )
    power = np.where(np.isnan(power), energy / frame["duration_s"].to_numpy(dtype=float), power)
    is_limit = np.isnan(clock)
    control = np.where(is_limit, limit, clock)
    good = np.isfinite(power) & np.isfinite(control)
    if not good.any():
        raise DataError("rows need power_watts or energy_joules, and clock_mhz or power_limit_watts.")
    return frame.assign(power_watts=power, control=control, is_limit=is_limit)[good].reset_index(drop=True)


def _references(table: pd.DataFrame, devices: tuple[str, ...]) -> np.ndarray:
    """Watts that powers of a device are shares of."""
    out = []
    for name in devices:
        rows = table[table["device"] == name]
        limits = rows[rows["is_limit"]]
        out.append(float(limits["control"].max() if len(limits) else rows["power_watts"].max()))
    return np.array(out)

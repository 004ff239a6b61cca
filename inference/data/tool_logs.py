"""Logs of GPUs over time: `nvidia-smi --query-gpu=... --format=csv`, `dcgmi dmon`, `nvidia-smi dmon`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.tables.monitor_text import GPU, HOST, header_of, monitor_rows
from prism_jax.tables.streams import lines

from .columns import plain
from .raw_table import NOT_AVAILABLE, RawTable, column_of, raw_table, read_delimited

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

"""Groups of rows that are left out together: a source, a device, a model, a framework, a number of devices."""

from __future__ import annotations

from collections.abc import Callable

from .rows import MeasuredRow

GROUPS: dict[str, Callable[[MeasuredRow], str]] = {
    "source": lambda row: row.source,
    "gpu": lambda row: row.job[1].device.like or row.job[1].device.name,  # variants of a device are no other device
    "model": lambda row: row.job[0].name,
    "framework": lambda row: row.framework or "not stated",
    "scale": lambda row: f"{row.job[2].n_devices} devices",
}


def group_of(row: MeasuredRow, by: str) -> str:
    """Name of the group of a supported row; `by` is a key of `GROUPS`."""
    return GROUPS[by](row)

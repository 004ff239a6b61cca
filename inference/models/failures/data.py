# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""What the failures model reads: counts of interruptions with what was watched for how long.

A row is one cluster (or one cause in it): `count` interruptions of `gpus` GPUs in `nodes` nodes under `jobs` jobs, during `hours`
(or `days`, or a `window` such as "54 days"). `kind` says what a cause hits: a gpu, a node, or the job as a whole (software, data,
people); blank where counts of all kinds stand together. Rows that differ in nothing but their cause are one window, so that its
hours count once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from prism_jax.errors import DataError

from ...data.checks.strict import ROW
from ...data.columns import Column

LEVELS = ("gpu", "node", "job")
KINDS = (*LEVELS, "all")
_SPELLINGS = {
    **dict.fromkeys(("gpu", "device", "accelerator"), "gpu"),
    **dict.fromkeys(("node", "host", "server", "machine"), "node"),
    **dict.fromkeys(("job", "software", "run"), "job"),
    **dict.fromkeys(("all", "any", "total"), "all"),
}
COLUMNS = (
    Column("cluster", ("system", "site"), required=True, text=True, may_be_blank=False, strict=True),
    Column("gpus", ("n_gpus", "accelerators", "devices"), required=True, positive=True, strict=True),
    Column("count", ("failures", "interruptions", "events", "n_failures"), required=True, strict=True, least=0.0),
    Column("nodes", ("n_nodes", "hosts", "servers"), positive=True, strict=True),
    Column("node_size", ("gpus_per_node",), positive=True, strict=True),
    Column("hours", ("window_h", "window_hours", "observed_hours"), positive=True, strict=True),
    Column("days", ("window_days", "observed_days"), positive=True, strict=True),
    Column("window", ("period",), text=True, strict=True),
    Column("jobs", ("n_jobs", "concurrent_jobs"), strict=True, least=1.0),
    Column("cause", ("failure_type", "category"), text=True, strict=True),
    Column("kind", ("level", "scope"), text=True, strict=True, choices=tuple(_SPELLINGS)),
)
_HOURS = {
    **dict.fromkeys(("h", "hour", "hours"), 1.0),
    **dict.fromkeys(("d", "day", "days"), 24.0),
    **dict.fromkeys(("week", "weeks"), 168.0),
    **dict.fromkeys(("month", "months"), 730.5),
    **dict.fromkeys(("year", "years"), 8766.0),
}
_WINDOW = re.compile(r"^([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)$")
USUAL_NODE = 8.0  # GPUs of a node, where a table names neither nodes nor their size
LARGEST = 1e15  # GPU-hours and counts: every GPU ever made, for longer than there were any


@dataclass(frozen=True)
class FailuresData:
    """Counts and exposures.

    Attributes:
        clusters: names, in the order of `cluster`.
        cluster: index into `clusters`, [group]; a group is a kind of failure in a cluster.
        kind: index into `KINDS`, [group].
        group: index of the group, [window].
        count: interruptions, [window].
        gpu_hours: GPUs times hours, [window].
        exposure_h: hours times GPUs, nodes, jobs (what the window's kind can hit), [window, level].
        levels: which of `LEVELS` the data tell apart, 1 or 0, [level].
        node_size: GPUs of a node by cluster, [cluster].
        gpus: of the largest row of a cluster, [cluster].
        causes: names, the most frequent first; reported as they are.
        cause_count: interruptions by cause, [cause].
        notes: what was assumed.
    """

    AXES: ClassVar[Mapping[str, str]] = {
        "cluster": "clusters node_size gpus",
        "group -> cluster": "cluster",
        "group -> 4": "kind",
        "window": "count gpu_hours",
        "window -> group": "group",
        "window 3": "exposure_h",
        "3": "levels",
        "cause": "causes cause_count",
    }

    clusters: tuple[str, ...]
    cluster: np.ndarray
    kind: np.ndarray
    group: np.ndarray
    count: np.ndarray
    gpu_hours: np.ndarray
    exposure_h: np.ndarray
    levels: np.ndarray
    node_size: np.ndarray
    gpus: np.ndarray
    causes: tuple[str, ...]
    cause_count: np.ndarray
    notes: tuple[str, ...] = ()

    @property
    def n_group(self) -> int:
        """Kinds of failures by cluster."""
        return len(self.cluster)


def from_frame(frame: pd.DataFrame) -> FailuresData:
    """Counts and exposures of a checked table.

    Raises:
        DataError: a row without hours, with more nodes than GPUs, with a broken count, or no interruption at all.
    """
    gpus, count = _numbers(frame, "gpus"), _numbers(frame, "count")
    _refuse(frame, count != np.round(count), "count", "is not a whole number. Give counts, not rates.")
    nodes, notes = _nodes(frame, gpus)
    hours = _hours(frame)
    _refuse(frame, (hours * gpus > LARGEST) | (count > LARGEST), "hours", "is more than was ever run. Check the unit.")
    if not count.sum():
        raise DataError("column count: no interruption in any row: nothing can be said of their rate")
    jobs = np.nan_to_num(_numbers(frame, "jobs"), nan=1.0)
    clusters, cluster = np.unique(frame["cluster"].astype(str).to_numpy(), return_inverse=True)
    kind = np.array([KINDS.index(_SPELLINGS[str(text).lower()]) for text in _texts(frame, "kind", "all")])
    causes = np.array(_texts(frame, "cause", ""), dtype=object)
    first, window = _windows(np.stack([cluster, kind, gpus, nodes, hours, jobs], axis=1), causes)
    exposure = hours[:, None] * np.stack([gpus, nodes, jobs], axis=1)
    exposure[(kind[:, None] != len(LEVELS)) & (kind[:, None] != np.arange(len(LEVELS)))] = 0.0
    pairs, group = np.unique((cluster * len(KINDS) + kind)[first], return_inverse=True)
    names, cause_count = _by_cause(causes, count)
    return FailuresData(
        clusters=tuple(str(name) for name in clusters),
        cluster=(pairs // len(KINDS)).astype(np.int64),
        kind=(pairs % len(KINDS)).astype(np.int64),
        group=group.astype(np.int64),
        count=np.bincount(window, weights=count, minlength=len(first)),
        gpu_hours=(gpus * hours)[first],
        exposure_h=exposure[first],
        levels=_told_apart(kind, gpus / jobs, gpus / nodes),
        node_size=_by_cluster(np.maximum(np.round(gpus / nodes), 1.0), cluster, len(clusters)),
        gpus=_by_cluster(gpus, cluster, len(clusters)),
        causes=names,
        cause_count=cause_count,
        notes=notes,
    )


def _windows(what: np.ndarray, causes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row of every window, and the window of every row; a cause that comes again in equal rows is another window's."""
    table = pd.DataFrame(what)
    again = table.assign(cause=causes).groupby([*table.columns, "cause"]).cumcount().to_numpy()
    _, first, window = np.unique(np.column_stack([what, again]), axis=0, return_index=True, return_inverse=True)
    return first, window.reshape(-1)


def _by_cause(causes: np.ndarray, count: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    named = causes != ""
    names, index = np.unique(causes[named].astype(str), return_inverse=True)
    total = np.bincount(index, weights=count[named], minlength=len(names))
    order = np.argsort(-total, kind="stable")
    return tuple(str(name) for name in names[order]), total[order]


def _told_apart(kind: np.ndarray, per_job: np.ndarray, per_node: np.ndarray) -> np.ndarray:
    """GPUs always; nodes and jobs where rows say so, or where their sizes differ twofold in rows of all kinds."""
    mixed = kind == len(LEVELS)

    def vary(size: np.ndarray) -> bool:
        return bool(mixed.any() and size[mixed].max() >= 2.0 * size[mixed].min())

    node, job = (bool((kind == LEVELS.index(name)).any()) for name in ("node", "job"))
    return np.array([1.0, float(node or vary(per_node)), float(job or vary(per_job))])


def _nodes(frame: pd.DataFrame, gpus: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    nodes, size = _numbers(frame, "nodes"), _numbers(frame, "node_size")
    _refuse(frame, nodes > gpus, "nodes", "is more than the row's GPUs. Were the two exchanged?")
    _refuse(
        frame, size > np.maximum(gpus, USUAL_NODE), "node_size", "is more than the row's GPUs. Were the two exchanged?"
    )
    blank = np.isnan(nodes) & np.isnan(size)
    note = f"{int(blank.sum()):,} rows name neither nodes nor node_size: {USUAL_NODE:g} GPUs in a node are assumed"
    size = np.where(blank, USUAL_NODE, size)
    return np.where(np.isnan(nodes), np.ceil(gpus / size), nodes), (note,) if blank.any() else ()


def _hours(frame: pd.DataFrame) -> np.ndarray:
    hours, days = _numbers(frame, "hours"), _numbers(frame, "days")
    hours = np.where(np.isnan(hours), 24.0 * days, hours)
    texts = _texts(frame, "window", "")
    for row in np.flatnonzero(np.isnan(hours)):
        found = _WINDOW.match(texts[row].lower().strip())
        if found and found[2] in _HOURS:
            hours[row] = float(found[1]) * _HOURS[found[2]]
    _refuse(frame, ~(hours > 0.0), "hours", "is not known. Add a column hours or days, or a window such as '54 days'.")
    return hours


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[name].to_numpy(dtype=np.float64) if name in frame else np.full(len(frame), np.nan)


def _texts(frame: pd.DataFrame, name: str, blank: str) -> list[str]:
    if name not in frame:
        return [blank] * len(frame)
    return [blank if pd.isna(value) else str(value) for value in frame[name]]


def _by_cluster(value: np.ndarray, cluster: np.ndarray, n: int) -> np.ndarray:
    out = np.zeros(n)
    np.maximum.at(out, cluster, value)
    return out


def _refuse(frame: pd.DataFrame, wrong: np.ndarray, name: str, why: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        number = int(frame[ROW].iloc[row]) if ROW in frame else row + 1
        raise DataError(f"row {number}: {name} {why}")

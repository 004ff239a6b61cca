# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""What the repairs model reads: a log of nodes that went down and came back, of one or more systems.

A row is one node that went down: `start_time`, `end_time` (blank where it is not back yet), its `node`, the `system` with
`nodes_total` nodes, and where it is known from when and until when the system was watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from prism_jax.errors import DataError

from ...data.checks.strict import numbers_of, refuse_row
from ...data.columns import Column
from .. import durations
from .events import SystemLog, alike_on_line, exponents_on_line, system_log

COLUMNS = (
    Column("system", ("cluster", "site"), required=True, text=True, may_be_blank=False, strict=True),
    Column("node", ("host", "hostname", "node_id"), text=True, strict=True),
    Column(
        "start_time",
        ("start", "failed_at", "failure_start", "down_since", "failed"),
        required=True,
        strict=True,
        instant=True,
    ),
    Column(
        "end_time",
        ("end", "repaired_at", "failure_end", "up_since", "repaired"),
        strict=True,
        instant=True,
        not_before="start_time",
    ),
    Column("nodes_total", ("nodes", "n_nodes"), positive=True, strict=True),
    Column("observed_from_time", ("observed_from", "trace_start"), strict=True, instant=True),
    Column(
        "observed_until_time",
        ("observed_until", "trace_end"),
        strict=True,
        instant=True,
        not_before="observed_from_time",
    ),
)
QUANTITIES = ("between", "repair", "of_node")
# Log seconds: a node-year, an hour, a node-year; three powers of e either way. Spreads of log times: 0.2 to 12.
CENTRE, WIDTH = np.array([17.0, 8.0, 17.0]), 3.0
SPREAD_CENTRE, SPREAD_WIDTH = 0.5, 1.0
MOST_SYSTEMS = 500
GROUPED = 0.10
"""Share of the downs that come in events of several nodes, from which on a system counts as one with group losses."""


@dataclass(frozen=True)
class RepairsData:
    """Likelihoods of the systems, on grids.

    Attributes:
        systems: names, in the order of every other array.
        n_node, n_event, n_down, watched_s: nodes, events, nodes lost in them, and seconds of the log, [system].
        grouped: share of the downs that came in events of several nodes, [system].
        named: whether every down names its node, 0 or 1, [system].
        theta: log median (of times between events: as if of one node) and log spread, [law, quantity, system, point, 2].
        log_weight: log(likelihood x volume) there, [law, quantity, system, point].
        median: log median of the exponential law, [quantity, system, place].
        median_log_weight: the same there, [quantity, system, place].
        log_width: what makes log densities in 1/s of log probabilities, [quantity, system].
        n_multi: events of several nodes, [system].
        exponent: of the law of their sizes, [system, place].
        exponent_log_weight: the same there, [system, place].
        alike: log of how alike the nodes are in how often they fail alone, see `events`, [system, place].
        alike_log_weight: the same there, [system, place].
        log_which: log density of which nodes went together and how soon, [system].
        notes: what was assumed.
    """

    AXES: ClassVar[Mapping[str, str]] = {
        "system": "systems n_node n_event n_down watched_s grouped named n_multi log_which",
        "2 3 system point 2": "theta",
        "2 3 system point": "log_weight",
        "3 system place": "median median_log_weight",
        "3 system": "log_width",
        "system place": "exponent exponent_log_weight alike alike_log_weight",
    }

    systems: tuple[str, ...]
    n_node: np.ndarray
    n_event: np.ndarray
    n_down: np.ndarray
    watched_s: np.ndarray
    grouped: np.ndarray
    named: np.ndarray
    theta: np.ndarray
    log_weight: np.ndarray
    median: np.ndarray
    median_log_weight: np.ndarray
    log_width: np.ndarray
    n_multi: np.ndarray
    exponent: np.ndarray
    exponent_log_weight: np.ndarray
    alike: np.ndarray
    alike_log_weight: np.ndarray
    log_which: np.ndarray
    notes: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame) -> RepairsData:
    """The likelihoods of a checked table.

    Raises:
        DataError: too many systems, downs outside the watch, or a single event in all.
    """
    logs, notes = _logs(frame)
    n_event = np.array([float(len(log.sizes)) for log in logs.values()])
    if n_event.max() < 2:
        raise DataError("column start_time: no system has two events, so that there is no time between failures")
    counted = {name: [getattr(log, name) for log in logs.values()] for name in QUANTITIES}
    shift = {name: [_per_node(log, name) for log in logs.values()] for name in QUANTITIES}
    grids = [
        durations.stacked(
            [
                durations.on_grids(counted[name], law, (centre, SPREAD_CENTRE), (WIDTH, SPREAD_WIDTH), shift[name])
                for name, centre in zip(QUANTITIES, CENTRE, strict=True)
            ]
        )
        for law in durations.LAWS
    ]
    lines = durations.stacked(
        [
            durations.on_grids(counted[name], "exponential", (centre,), (WIDTH,), shift[name])
            for name, centre in zip(QUANTITIES, CENTRE, strict=True)
        ]
    )
    multi = [log.sizes[log.sizes > 1] for log in logs.values()]
    exponents = durations.stacked(
        [exponents_on_line(one, log.n_node) for one, log in zip(multi, logs.values(), strict=True)]
    )
    alike = durations.stacked([alike_on_line(log.alone, log.n_node) for log in logs.values()])
    n_down = np.array([float(log.sizes.sum()) for log in logs.values()])
    return RepairsData(
        systems=tuple(logs),
        n_node=np.array([log.n_node for log in logs.values()]),
        n_event=n_event,
        n_down=n_down,
        watched_s=np.array([log.watched_s for log in logs.values()]),
        grouped=np.array([float(one.sum()) for one in multi]) / n_down,
        named=np.array([float(log.named) for log in logs.values()]),
        theta=np.stack([points for points, _ in grids]),
        log_weight=np.stack([weight for _, weight in grids]),
        median=lines[0][..., 0],
        median_log_weight=lines[1],
        log_width=np.array([[one.log_width for one in counted[name]] for name in QUANTITIES]),
        n_multi=np.array([float(len(one)) for one in multi]),
        exponent=exponents[0],
        exponent_log_weight=exponents[1],
        alike=alike[0],
        alike_log_weight=alike[1],
        log_which=np.array([log.log_which for log in logs.values()]),
        notes=notes,
    )


def _logs(frame: pd.DataFrame) -> tuple[dict[str, SystemLog], tuple[str, ...]]:
    """The log of every system, by name."""
    names = frame["system"].astype(str).to_numpy()
    if len(np.unique(names)) > MOST_SYSTEMS:
        raise DataError(f"column system: more than {MOST_SYSTEMS:,} systems. Is it the column of nodes?")
    start, end = frame["start_time"].to_numpy(dtype=np.float64), numbers_of(frame, "end_time")
    begun, until = numbers_of(frame, "observed_from_time"), numbers_of(frame, "observed_until_time")
    refuse_row(frame, start < begun, "start_time is before observed_from_time. Correct one of them.")
    refuse_row(frame, start > until, "start_time is after observed_until_time. Correct one of them.")
    node = frame["node"].fillna("").astype(str).to_numpy() if "node" in frame else np.full(len(frame), "")
    total = numbers_of(frame, "nodes_total")
    logs = {}
    for name in np.unique(names):
        of = names == name
        logs[str(name)] = system_log(node[of], start[of], end[of], _most(total[of]), _most(until[of]))
    return logs, _notes(node, end, total)


def _notes(node: np.ndarray, end: np.ndarray, total: np.ndarray) -> tuple[str, ...]:
    unnamed, open_ended, unsized = int((node == "").sum()), int(np.isnan(end).sum()), bool(np.isnan(total).any())
    notes = []
    if unnamed:
        notes.append(
            f"{unnamed:,} rows name no node: each counts as a node of its own, and repeated failures are not seen"
        )
    if open_ended:
        notes.append(f"{open_ended:,} rows have no end: longer than the watch where that is known, else no repair")
    if unsized:
        notes.append("nodes_total is not given everywhere: the nodes that failed are taken for all nodes there")
    return tuple(notes)


def _per_node(log: SystemLog, name: str) -> float:
    """A system of N nodes has events N times as often as one of its nodes."""
    return float(np.log(log.n_node)) if name == "between" else 0.0


def _most(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else np.nan

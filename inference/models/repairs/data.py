"""What the repairs model reads: a log of nodes that went down and came back, of one or more systems.

A row is one node that went down: `start_time`, `end_time` (blank where it is not back yet), its `node`, the `system` with
`nodes_total` nodes, and where it is known from when and until when the system was watched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from prism_jax.errors import DataError

from ...data.columns import Column
from ...data.strict import ROW
from . import laws as laws, sizes as sizes
from .bins import Times
from .grid import around_likelihood
from .groups import SystemLog, system_log

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
# Log seconds: a node-year, an hour, a node-year; three powers of e either way. Shapes: 0.05 to 7.
CENTRE, WIDTH = np.array([17.0, 8.0, 17.0]), 3.0
SHAPE_CENTRE, SHAPE_WIDTH = -0.5, 1.0
MOST_SYSTEMS = 500
GROUPED = 0.10
"""Share of the downs that come in events of several nodes, from which on a system counts as one with group losses."""


@dataclass(frozen=True)
class RepairsData:
    """Likelihoods of the systems, on grids.

    Attributes:
        systems: names, in the order of every other array.
        laws: of times between events, of repair, and between downs of one node; see `laws.LAWS`.
        n_node, n_event, n_down, watched_s: nodes, events, nodes lost in them, and seconds of the log, [system].
        grouped: share of the downs that came in events of several nodes, [system].
        named: whether every down names its node, 0 or 1, [system].
        theta: log scale (of times between events: as if the system had one node) and log shape, [quantity, system, point, 2].
        log_weight: log(likelihood x volume) there, [quantity, system, point].
        scale: log scale of the exponential law, [quantity, system, place].
        scale_log_weight: the same there, [quantity, system, place].
        log_width: what makes log densities in 1/s of log probabilities, [quantity, system].
        n_multi: events of several nodes, [system].
        exponent: of the law of their sizes, [system, place].
        exponent_log_weight: the same there, [system, place].
        log_which: log density of which nodes went in events, [system].
        notes: what was assumed.
    """

    systems: tuple[str, ...]
    laws: tuple[str, ...]
    n_node: np.ndarray
    n_event: np.ndarray
    n_down: np.ndarray
    watched_s: np.ndarray
    grouped: np.ndarray
    named: np.ndarray
    theta: np.ndarray
    log_weight: np.ndarray
    scale: np.ndarray
    scale_log_weight: np.ndarray
    log_width: np.ndarray
    n_multi: np.ndarray
    exponent: np.ndarray
    exponent_log_weight: np.ndarray
    log_which: np.ndarray
    notes: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame, chosen: tuple[str, ...] | None = None) -> RepairsData:
    """The likelihoods of a checked table.

    Args:
        chosen: laws by quantity; None: the one of `laws.LAWS` under which the times of all systems are likelier.

    Raises:
        DataError: too many systems, downs outside the watch, or a single event in all.
    """
    logs, notes = _logs(frame)
    n_event = np.array([float(len(log.sizes)) for log in logs.values()])
    if n_event.max() < 2:
        raise DataError("column start_time: no system has two events, so that there is no time between failures")
    named = {law: _grids(logs, law) for law in laws.LAWS}
    chosen = chosen or tuple(
        max(laws.LAWS, key=lambda law: _evidence(*named[law][quantity])) for quantity in range(len(QUANTITIES))
    )
    grids = [named[law][quantity] for quantity, law in enumerate(chosen)]
    lines = [_lines(logs, quantity) for quantity in range(len(QUANTITIES))]
    multi = [log.sizes[log.sizes > 1] for log in logs.values()]
    exponents = [sizes.on_line(one, log.n_node) for one, log in zip(multi, logs.values(), strict=True)]
    n_down = np.array([float(log.sizes.sum()) for log in logs.values()])
    return RepairsData(
        systems=tuple(logs),
        laws=chosen,
        n_node=np.array([log.n_node for log in logs.values()]),
        n_event=n_event,
        n_down=n_down,
        watched_s=np.array([log.watched_s for log in logs.values()]),
        grouped=np.array([float(one.sum()) for one in multi]) / n_down,
        named=np.array([float(log.named) for log in logs.values()]),
        theta=np.stack([points for points, _ in grids]),
        log_weight=np.stack([weight for _, weight in grids]),
        scale=np.stack([points for points, _ in lines]),
        scale_log_weight=np.stack([weight for _, weight in lines]),
        log_width=np.array([[_times(log, q).log_width for log in logs.values()] for q in QUANTITIES]),
        n_multi=np.array([float(len(one)) for one in multi]),
        exponent=np.stack([points for points, _ in exponents]),
        exponent_log_weight=np.stack([weight for _, weight in exponents]),
        log_which=np.array([log.log_which for log in logs.values()]),
        notes=notes,
    )


def _logs(frame: pd.DataFrame) -> tuple[dict[str, SystemLog], tuple[str, ...]]:
    """The log of every system, by name."""
    names = frame["system"].astype(str).to_numpy()
    if len(np.unique(names)) > MOST_SYSTEMS:
        raise DataError(f"column system: more than {MOST_SYSTEMS:,} systems. Is it the column of nodes?")
    start, end = frame["start_time"].to_numpy(dtype=np.float64), _numbers(frame, "end_time")
    begun, until = _numbers(frame, "observed_from_time"), _numbers(frame, "observed_until_time")
    _refuse(frame, start < begun, "is before observed_from_time")
    _refuse(frame, start > until, "is after observed_until_time")
    node = frame["node"].fillna("").astype(str).to_numpy() if "node" in frame else np.full(len(frame), "")
    total = _numbers(frame, "nodes_total")
    logs = {}
    for name in np.unique(names):
        of = names == name
        logs[str(name)] = system_log(node[of], start[of], end[of], _most(total[of]), _most(until[of]))
    return logs, _notes(node, end, total)


def _notes(node: np.ndarray, end: np.ndarray, total: np.ndarray) -> tuple[str, ...]:
    unnamed, open_ended, unsized = int((node == "").sum()), int(np.isnan(end).sum()), bool(np.isnan(total).any())
    notes = []
    if unnamed:
        notes.append(f"{unnamed:,} rows name no node: each counts as a node of its own, and repeated failures are not seen")
    if open_ended:
        notes.append(f"{open_ended:,} rows have no end: longer than the watch where that is known, else no repair")
    if unsized:
        notes.append("nodes_total is not given everywhere: the nodes that failed are taken for all nodes there")
    return tuple(notes)


def _grids(logs: dict[str, SystemLog], law: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points [system, point, 2] and log weights [system, point] of every quantity under one law."""
    centre = [np.array([CENTRE[quantity], SHAPE_CENTRE]) for quantity in range(len(QUANTITIES))]
    return [
        _stacked(
            [
                _shifted(log, name, lambda at, one=_times(log, name): laws.log_likelihood(law, one, at), centre[quantity])
                for log in logs.values()
            ]
        )
        for quantity, name in enumerate(QUANTITIES)
    ]


def _lines(logs: dict[str, SystemLog], quantity: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of the exponential law: log scales [system, place]."""
    name = QUANTITIES[quantity]
    found = [
        _shifted(log, name, lambda at, one=_times(log, name): laws.exponential(one, at[:, 0]), CENTRE[quantity : quantity + 1])
        for log in logs.values()
    ]
    points, weight = _stacked(found)
    return points[..., 0], weight


def _shifted(
    log: SystemLog, name: str, log_likelihood: Callable[[np.ndarray], np.ndarray], centre: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The grid of one system; a system of N nodes has events N times as often as one of its nodes."""
    shift = np.zeros(len(centre))
    shift[0] = np.log(log.n_node) if name == "between" else 0.0
    width = np.array([WIDTH, SHAPE_WIDTH])[: len(centre)]
    return around_likelihood(lambda at: log_likelihood(at - shift), centre, width)


def _stacked(found: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([points for points, _ in found]), np.stack([weight for _, weight in found])


def _times(log: SystemLog, name: str) -> Times:
    return getattr(log, name)


def _evidence(theta: np.ndarray, log_weight: np.ndarray) -> float:
    """Log probability of all systems under one law, each with parameters of its own from the broad law."""
    shape = (theta[..., 1] - SHAPE_CENTRE) / SHAPE_WIDTH
    return float(logsumexp(log_weight - 0.5 * shape**2, axis=-1).sum())


def _refuse(frame: pd.DataFrame, wrong: np.ndarray, why: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        number = int(frame[ROW].iloc[row]) if ROW in frame else row + 1
        raise DataError(f"row {number}: start_time {why}. Correct one of them.")


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[name].to_numpy(dtype=np.float64) if name in frame else np.full(len(frame), np.nan)


def _most(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else np.nan

"""Data of the repairs model: a log of nodes that went down and came back, of one or more systems, as likelihoods on grids.

A row is one node that went down: `start_time`, `end_time` (blank where it is not back yet), its `node`, the `system` with
`nodes_total` nodes, and where it is known from when and until when the system was watched. Downs that start within minutes of the
first one are one event with a size: one node, or several by a power law that ends at the size of the system,

    P(1) = 1 - p,    P(k) = p k^-exponent / sum over j = 2..N of j^-exponent

Nodes that fail alone are told apart by the urn of Polya: rates come from a gamma law of shape a, all alike where a is large,

    P(node i next | failures before) = (a + n_i) / (N a + n)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from scipy.special import gammaln, logsumexp

from prism_jax.core.errors import DataError

from ..data.checks import numbers_of, refuse_row
from ..data.columns import ModelColumn
from . import durations
from .durations import Grid, Times, around_likelihood, tick, times

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)


WITHIN_S = 300.0
"""Downs that start within five minutes of the first are one event: logs are written in minutes, monitors poll every few."""


@dataclass(frozen=True)
class SystemLog:
    """Times, sizes and counts from the log of one system.

    Attributes:
        n_node: nodes of the system.
        between: times between events of any size.
        repair: times until a node was back.
        of_node: times between downs of one and the same node, nodes that never failed too; none where nodes are not named.
        sizes: nodes lost by event, [event].
        alone: how often each node went alone, the first event not counted; of nodes that ever did, [node].
        log_which: log density of which nodes went together and how long after the first one, given the sizes.
        named: whether every row names its node.
        watched_s: seconds from the first event to the end of the log.
    """

    n_node: float
    between: Times
    repair: Times
    of_node: Times
    sizes: np.ndarray
    alone: np.ndarray
    log_which: float
    named: bool
    watched_s: float


def system_log(node: np.ndarray, start: np.ndarray, end: np.ndarray, n_node: float, until: float) -> SystemLog:
    """The log of one system.

    Args:
        node: names, empty where they are not known, [down].
        start: seconds, [down].
        end: seconds; NaN where a node is not back yet, [down].
        n_node: nodes of the system; NaN where that is not known: those that were seen are all.
        until: end of the watch in seconds; NaN where that is not known: the last event is the end.
    """
    named = bool(np.all(node != ""))
    names = node if named else np.where(node == "", [f"?{i}" for i in range(len(node))], node)
    clock = tick(np.concatenate([start, end[np.isfinite(end)]]))
    downs = _merged(names, start, end)
    first = np.unique(downs["event"].to_numpy(), return_index=True)[1]
    began, sizes = downs["start"].to_numpy()[first], np.bincount(downs["event"].to_numpy())
    n_seen = downs["node"].nunique() if named else sizes.max()
    n_node = float(max(n_node if np.isfinite(n_node) else 0.0, n_seen))
    last = max(until if np.isfinite(until) else 0.0, began[-1])
    censored = np.array([last - began[-1]])
    return SystemLog(
        n_node=n_node,
        between=times(np.diff(began), censored, clock),
        repair=_repairs(downs, until, clock),
        of_node=_of_nodes(downs, n_node, began[0], last, clock) if named else times(np.zeros(0), np.zeros(0), clock),
        sizes=sizes,
        alone=_alone(downs, sizes) if named else np.zeros(0),
        log_which=_log_which(sizes[1:], n_node),
        named=named,
        watched_s=float(last - began[0]),
    )


def _merged(node: np.ndarray, start: np.ndarray, end: np.ndarray) -> pd.DataFrame:
    """Downs by event; a node that goes down again within one event went down once, until it was back for the last time."""
    order = np.argsort(start, kind="stable")
    table = pd.DataFrame(
        {"event": _events(start[order]), "node": node[order], "start": start[order], "end": end[order]}
    )
    table["end"] = table["end"].fillna(np.inf)
    merged = table.groupby(["event", "node"], sort=False, as_index=False).agg({"start": "min", "end": "max"})
    return merged.sort_values(["event", "start"], kind="stable", ignore_index=True)


def _events(start: np.ndarray) -> np.ndarray:
    """Number of the event of every down, [down]; starts in order."""
    event, began, out = -1, -np.inf, []
    for at in start.tolist():
        if at - began > WITHIN_S:
            event, began = event + 1, at
        out.append(event)
    return np.array(out, dtype=np.int64)


def _repairs(downs: pd.DataFrame, until: float, clock: float) -> Times:
    start, end = downs["start"].to_numpy(), downs["end"].to_numpy()
    done = np.isfinite(end)
    still = np.maximum(until - start[~done], 0.0) if np.isfinite(until) else np.zeros(0)
    return times(end[done] - start[done], still, clock)


def _of_nodes(downs: pd.DataFrame, n_node: float, began: float, last: float, clock: float) -> Times:
    """Every node is watched from the first event on; the nodes of that event are conditioned on, as the event is."""
    ordered = downs.sort_values(["node", "start"], kind="stable")
    node, start = ordered["node"].to_numpy(), ordered["start"].to_numpy()
    is_first = np.append(True, node[1:] != node[:-1])
    since = np.where(is_first, began, np.append(began, start[:-1]))
    counted = ordered["event"].to_numpy() > 0
    is_last = np.append(is_first[1:], True)
    never = np.full(int(n_node) - int(is_first.sum()), last - began)
    return times((start - since)[counted], np.concatenate([last - start[is_last], never]), clock)


def _alone(downs: pd.DataFrame, sizes: np.ndarray) -> np.ndarray:
    event = downs["event"].to_numpy()
    of = (sizes[event] == 1) & (event > 0)
    return downs["node"][of].value_counts().to_numpy(dtype=float)


def _log_which(sizes: np.ndarray, n_node: float) -> float:
    """Log density of events of several nodes: all nodes alike, one is first, the others go within `WITHIN_S` of it."""
    rest = np.asarray(sizes[sizes > 1], dtype=float) - 1.0
    choose = gammaln(n_node) - gammaln(rest + 1.0) - gammaln(n_node - rest)  # of the n_node - 1 others
    return float((-np.log(n_node) - choose - rest * np.log(WITHIN_S)).sum())


# Of exponents: all sizes up to N alike at 0, next to nothing above three nodes at 5
EXPONENT, EXPONENT_WIDTH = (2.0, 1.5)
MOST_TERMS = 4096  # sizes that are summed one by one; beyond them steps grow


def exponents_on_line(sizes: np.ndarray, n_node: float) -> tuple[np.ndarray, np.ndarray]:
    """Exponents and log(likelihood x volume) there, [place], of events of several nodes [event]."""
    total = float(np.log(sizes).sum())

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        return -at[:, 0] * total - len(sizes) * log_sum(at[:, 0], n_node) if len(sizes) else np.zeros(len(at))

    points, weight = around_likelihood(log_likelihood, np.array([EXPONENT]), np.array([EXPONENT_WIDTH]))
    return points[:, 0], weight


def log_sum(exponent: np.ndarray, n_node: float) -> np.ndarray:
    """Logarithm of the sum of k^-exponent over 2..n_node, [...]."""
    size, weight = _sizes(n_node)
    return np.asarray(logsumexp(np.log(weight) - np.asarray(exponent)[..., None] * np.log(size), axis=-1))


def mean_of_several(exponent: np.ndarray, n_node: float) -> np.ndarray:
    """Mean size of events of several nodes, [...]."""
    return np.exp(log_sum(np.asarray(exponent) - 1.0, n_node) - log_sum(exponent, n_node))


def _sizes(n_node: float) -> tuple[np.ndarray, np.ndarray]:
    """Sizes, and how many sizes each stands for."""
    n = max(int(n_node), 2)
    if n <= MOST_TERMS:
        return np.arange(2.0, n + 1.0), np.ones(n - 1)
    edges = np.unique(np.round(np.geomspace(MOST_TERMS, n + 1, 200)))
    head = np.arange(2.0, MOST_TERMS)
    return np.append(head, np.sqrt(edges[1:] * (edges[:-1]))), np.append(np.ones(len(head)), np.diff(edges))


ALIKE, ALIKE_WIDTH = 0.5, 1.5  # of log a: rates of nodes differ by a coefficient of variation of 0.2 to 3


def alike_on_line(alone: np.ndarray, n_node: float) -> Grid:
    """log a and log(likelihood x volume) there, [place], of counts by node that failed alone [node]."""
    repeats, n_with = np.unique(alone, return_counts=True)

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        a = np.exp(np.clip(at, -20.0, 20.0))
        by_node = ((gammaln(a + repeats) - gammaln(a)) * n_with).sum(axis=1)
        return by_node + (gammaln(n_node * a) - gammaln(n_node * a + alone.sum()))[:, 0]

    points, weight = around_likelihood(log_likelihood, np.array([ALIKE]), np.array([ALIKE_WIDTH]))
    return points[:, 0], weight


COLUMNS = (
    ModelColumn("system", ("cluster", "site"), required=True, text=True, strict=True),
    ModelColumn("node", ("host", "hostname", "node_id"), text=True, strict=True),
    ModelColumn(
        "start_time",
        ("start", "failed_at", "failure_start", "down_since", "failed"),
        required=True,
        strict=True,
        instant=True,
    ),
    ModelColumn(
        "end_time",
        ("end", "repaired_at", "failure_end", "up_since", "repaired"),
        strict=True,
        instant=True,
        not_before="start_time",
    ),
    ModelColumn("nodes_total", ("nodes", "n_nodes"), positive=True, strict=True),
    ModelColumn("observed_from_time", ("observed_from", "trace_start"), strict=True, instant=True),
    ModelColumn(
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
        alike: log of how alike the nodes are in how often they fail alone, see the module, [system, place].
        alike_log_weight: the same there, [system, place].
        log_which: log density of which nodes went together and how soon, [system].
        notes: what was assumed.
    """

    systems: Annotated[tuple[str, ...], "system"]
    n_node: Annotated[np.ndarray, "system"]
    n_event: Annotated[np.ndarray, "system"]
    n_down: Annotated[np.ndarray, "system"]
    watched_s: Annotated[np.ndarray, "system"]
    grouped: Annotated[np.ndarray, "system"]
    named: Annotated[np.ndarray, "system"]
    theta: Annotated[np.ndarray, "2 3 system point 2"]
    log_weight: Annotated[np.ndarray, "2 3 system point"]
    median: Annotated[np.ndarray, "3 system place"]
    median_log_weight: Annotated[np.ndarray, "3 system place"]
    log_width: Annotated[np.ndarray, "3 system"]
    n_multi: Annotated[np.ndarray, "system"]
    exponent: Annotated[np.ndarray, "system place"]
    exponent_log_weight: Annotated[np.ndarray, "system place"]
    alike: Annotated[np.ndarray, "system place"]
    alike_log_weight: Annotated[np.ndarray, "system place"]
    log_which: Annotated[np.ndarray, "system"]
    notes: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame) -> RepairsData:
    """The likelihoods of a checked table.

    Raises:
        DataError: too many systems, downs outside the watch, or a single event in all.
    """
    named, notes = _logs(frame)
    logs = list(named.values())
    n_event = np.array([float(len(log.sizes)) for log in logs])
    if n_event.max() < 2:
        raise DataError("column start_time: no system has two events, so that there is no time between failures")
    counted = {name: [getattr(log, name) for log in logs] for name in QUANTITIES}

    def on_grids(law: str, centre: tuple[float, ...], width: tuple[float, ...]) -> Grid:
        """Likelihoods of all quantities; a system of N nodes has events N times as often as one of its nodes."""
        per_node = [float(np.log(log.n_node)) for log in logs]
        shift = {"between": per_node}
        each = zip(QUANTITIES, CENTRE, strict=True)
        grids = [durations.on_grids(counted[name], law, (at, *centre), width, shift.get(name, ())) for name, at in each]
        return durations.stacked(grids)

    points, log_weight = durations.stacked(
        [on_grids(law, (SPREAD_CENTRE,), (WIDTH, SPREAD_WIDTH)) for law in durations.LAWS]
    )
    median, median_log_weight = on_grids("exponential", (), (WIDTH,))
    multi = [log.sizes[log.sizes > 1] for log in logs]
    exponents = durations.stacked([exponents_on_line(one, log.n_node) for one, log in zip(multi, logs, strict=True)])
    alike = durations.stacked([alike_on_line(log.alone, log.n_node) for log in logs])
    n_down = np.array([float(log.sizes.sum()) for log in logs])
    return RepairsData(
        systems=tuple(named),
        n_node=np.array([log.n_node for log in logs]),
        n_event=n_event,
        n_down=n_down,
        watched_s=np.array([log.watched_s for log in logs]),
        grouped=np.array([float(one.sum()) for one in multi]) / n_down,
        named=np.array([float(log.named) for log in logs]),
        theta=points,
        log_weight=log_weight,
        median=median[..., 0],
        median_log_weight=median_log_weight,
        log_width=np.array([[one.log_width for one in counted[name]] for name in QUANTITIES]),
        n_multi=np.array([float(len(one)) for one in multi]),
        exponent=exponents[0],
        exponent_log_weight=exponents[1],
        alike=alike[0],
        alike_log_weight=alike[1],
        log_which=np.array([log.log_which for log in logs]),
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


def _most(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else np.nan

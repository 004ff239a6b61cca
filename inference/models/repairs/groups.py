# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Losses of several nodes at once: downs that start within minutes of the first one are one event with a size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import gammaln

from .bins import Times, tick, times

WITHIN_S = 300.0
"""Downs that start within five minutes of the first are one event: logs are written in minutes, monitors poll every few."""


@dataclass(frozen=True)
class SystemLog:
    """What the log of one system comes to.

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
    """Of events of several nodes: all nodes alike, one is first, the others go within `WITHIN_S` of it."""
    rest = np.asarray(sizes[sizes > 1], dtype=float) - 1.0
    choose = gammaln(n_node) - gammaln(rest + 1.0) - gammaln(n_node - rest)  # of the n_node - 1 others
    return float((-np.log(n_node) - choose - rest * np.log(WITHIN_S)).sum())

"""What no assignment can beat: even work, the largest piece, even traffic.

In a part of the step the slowest rank takes at least the mean over ranks, and at least what the longest piece takes. A piece
may be held in the way that is least work: whole it is one rank's, spread by rows or copied it is every rank's. A table may be
cut into the number of columns that is least work, and, for the longest piece, into the shortest pieces. An exchange is fastest
if all ranks send equally much. Which tables leave the exchange (rows, copies) is a trade, bounded from below table by table:
every table pays the least of its work per rank plus its traffic at the exchange's cheapest rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from ..._typing import Floats
from .task import COPIES, ROWS, ShardingTask

RATES = np.logspace(-6, 0, 61)  # shares of the traffic at which the exchange's rate is looked at


def lower_bound(tasks: Sequence[ShardingTask]) -> Float[np.ndarray, " sample"]:
    """Seconds of the step that no assignment is below, memory aside, in every sample.

    Args:
        tasks: the same tables cut into columns in every number that is open, at least one.
    """
    first = tasks[0]
    if not any(task.allowed[ROWS:].any() for task in tasks):
        return first.fixed_s + _parts(tasks) + _shown_s(first, _traffic(first))
    return first.fixed_s + np.maximum(_parts(tasks), _trades(tasks))


def _parts(tasks: Sequence[ShardingTask]) -> Float[np.ndarray, " sample"]:
    """The parts alone: mean over ranks of the busiest resource, and longest piece, each at its least."""
    mean = np.minimum.reduce([_by_table(task, _open(task, _work(task)), np.add) for task in tasks])
    busiest = [_open(task, task.seconds_s).max(axis=1, keepdims=True) for task in tasks]
    longest = np.minimum.reduce([_by_table(task, own, np.maximum) for task, own in zip(tasks, busiest, strict=True)])
    each = np.maximum(mean.sum(axis=2).max(axis=1), longest.max(axis=2)[:, 0])
    return (each + np.array(tasks[0].start_s)[:, None]).sum(axis=0)


def _work(task: ShardingTask) -> Float[np.ndarray, "way part resource piece sample"]:
    """Seconds of a piece per rank if work is spread evenly."""
    return task.seconds_s * np.array([1.0 / task.n_ranks, 1.0, 1.0])[:, None, None, None, None]


def _open(task: ShardingTask, seconds_s: Floats) -> Float[np.ndarray, "part resource piece sample"]:
    """The least over the ways in which a piece may be held."""
    return (seconds_s + np.where(task.allowed, 0.0, np.inf)[:, None, None, :, None]).min(axis=0)


def _by_table(
    task: ShardingTask, of_piece: Floats, joined: np.ufunc
) -> Float[np.ndarray, "part resource table sample"]:
    """Pieces of a table joined."""
    found = np.zeros((*of_piece.shape[:2], len(task.pieces.tables), of_piece.shape[-1]))
    joined.at(found.swapaxes(0, 2), task.pieces.table, of_piece.swapaxes(0, 2))
    return found


def _traffic(task: ShardingTask) -> float:
    """Bytes that an exchange carries if all pieces are whole."""
    return float(task.sent_bytes.sum())


def _shown_s(task: ShardingTask, total_bytes: float) -> float:
    """Seconds of the exchanges that nothing hides, if all ranks send equally much."""
    one = task.exchange.least_s(total_bytes, task.n_ranks)
    return sum(max(one - beside, 0.0) for beside in task.beside_s)


def _trades(tasks: Sequence[ShardingTask]) -> Float[np.ndarray, " sample"]:
    """Every table held in its cheapest way: work per rank, its collectives, and its traffic at the cheapest rate."""
    first, found = tasks[0], []
    rates = [
        _cheapest(lambda n_bytes: _shown_s(first, n_bytes), _traffic(first)),
        *(
            _cheapest(lambda n_bytes, law=law: float(law(np.array([n_bytes]))[0]), float(first.joint_bytes[way].sum()))
            for way, law in zip((ROWS, COPIES), first.joint_laws, strict=True)
        ),
    ]
    for task in tasks:
        extra = np.array(rates)[:, None] * np.stack([task.sent_bytes, *task.joint_bytes[ROWS:]])
        refused = np.where(task.allowed, extra, np.inf)
        paid = (_work(task).sum(axis=1) + refused[:, None, :, None]).min(axis=0)
        found.append(_by_table(task, paid[None], np.add)[0])
    return np.minimum.reduce(found).sum(axis=1).max(axis=0) + sum(first.start_s)


def _cheapest(seconds: Callable[[float], float], most_bytes: float) -> float:
    """Least seconds per byte of any traffic up to `most_bytes`."""
    return min(seconds(most_bytes * share) / (most_bytes * share) for share in RATES) if most_bytes > 0.0 else 0.0

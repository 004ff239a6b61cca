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

from ...._typing import Floats
from ..exchange import Law
from ..task import COPIES, ROWS, WHOLE, ShardingTask, comparable, together

RATES = np.logspace(-6, 0, 61)  # shares of the traffic at which the exchange's rate is looked at


def lower_bound(tasks: Sequence[ShardingTask]) -> Float[np.ndarray, " sample"]:
    """Seconds of the step that no assignment is below, memory aside, in every sample.

    Args:
        tasks: the same tables cut into columns in every number that is open, at least one.
    """
    tasks = comparable(tasks)
    first, rest = tasks[0], tasks[0].rest
    is_shared = any(task.allowed[ROWS:].any() for task in tasks)
    exchange = 0.0 if is_shared else rest.exchange.least_s(traffic(first), first.n_ranks)
    parts = np.stack([rest.paced(part, own + exchange) for part, own in enumerate(_parts(tasks))]).sum(axis=0)
    if is_shared:
        device, host = _trades(tasks) + sum(rest.other_s), sum(rest.host_s)
        parts = np.maximum(parts, together(device, host) if host > 0.0 else device)
    return rest.n_micro_batch * parts + rest.fixed_s


def _parts(tasks: Sequence[ShardingTask]) -> Float[np.ndarray, "part sample"]:
    """Tables alone: mean over ranks of the busiest resource, and longest piece, each at its least."""
    mean = np.minimum.reduce([by_table(task, _open(task, _work(task)), np.add) for task in tasks])
    busiest = [_open(task, task.seconds_s).max(axis=1, keepdims=True) for task in tasks]
    longest = np.minimum.reduce([by_table(task, own, np.maximum) for task, own in zip(tasks, busiest, strict=True)])
    each = np.maximum(mean.sum(axis=2).max(axis=1), longest.max(axis=2)[:, 0])
    return each + np.array(tasks[0].rest.start_s)[:, None]


def _work(task: ShardingTask) -> Float[np.ndarray, "way part resource piece sample"]:
    """Seconds of a piece per rank if work is spread evenly."""
    return task.seconds_s * np.array([1.0 / task.n_ranks, 1.0, 1.0])[:, None, None, None, None]


def _open(task: ShardingTask, seconds_s: Floats) -> Float[np.ndarray, "part resource piece sample"]:
    """The least over the ways in which a piece may be held."""
    return (seconds_s + np.where(task.allowed, 0.0, np.inf)[:, None, None, :, None]).min(axis=0)


def by_table(task: ShardingTask, of_piece: Floats, joined: np.ufunc) -> Float[np.ndarray, "part resource table sample"]:
    """Pieces of a table joined."""
    found = np.zeros((*of_piece.shape[:2], len(task.pieces.tables), of_piece.shape[-1]))
    joined.at(found.swapaxes(0, 2), task.pieces.table, of_piece.swapaxes(0, 2))
    return found


def traffic(task: ShardingTask) -> float:
    """Bytes that an exchange carries if all pieces are whole."""
    return float(task.sent_bytes[WHOLE].sum())


def _trades(tasks: Sequence[ShardingTask]) -> Float[np.ndarray, " sample"]:
    """Every table held in its cheapest way: work per rank, its collectives, and its traffic at the cheapest rate; a micro-batch.

    Parts are added up: the norm of `paced` is convex, so that their sum is at least that of the sums.
    """
    first, rest, n = tasks[0], tasks[0].rest, tasks[0].n_ranks
    found = []
    exchanged = 2.0 * cheapest(lambda n_bytes: rest.exchange.least_s(n_bytes, n), traffic(first))
    rows = sum(cheapest(one_number(law), float(first.joint_bytes[ROWS].sum())) for law in rest.rows_laws)
    copies = cheapest(one_number(rest.copies_law), float(first.joint_bytes[COPIES].sum())) / rest.n_micro_batch
    share = np.array([1.0, n, n])[:, None]  # what all ranks send
    for task in tasks:
        extra = exchanged * task.sent_bytes * share + np.array([0.0, rows, copies])[:, None] * task.joint_bytes
        refused = np.where(task.allowed, extra, np.inf)
        paid = (_work(task).sum(axis=1) + refused[:, None, :, None]).min(axis=0)
        found.append(by_table(task, paid[None], np.add)[0])
    return np.minimum.reduce(found).sum(axis=1).max(axis=0) + sum(rest.start_s)


def one_number(law: Law) -> Callable[[float], float]:
    """A law of one number."""
    return lambda n_bytes: float(law(np.array([n_bytes]))[0])


def cheapest(seconds: Callable[[float], float], most_bytes: float) -> float:
    """Least seconds per byte of any traffic up to `most_bytes`."""
    return min(seconds(most_bytes * share) / (most_bytes * share) for share in RATES) if most_bytes > 0.0 else 0.0

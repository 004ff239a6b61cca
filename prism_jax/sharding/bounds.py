"""Bounds the noise-free step from below: what no assignment can beat, by even work, the largest piece and even traffic.

In a part of the step the slowest rank takes at least the mean over ranks, and at least what the longest piece takes. A piece
may be held in the way that is least work: whole it is one rank's, spread by rows or copied it is every rank's. A table may be
cut into the number of columns that is least work, and, for the longest piece, into the shortest pieces. An exchange is fastest
if all ranks send equally much. Which tables leave the exchange (rows, copies) is a trade, bounded from below table by table:
every table pays the least of its work per rank plus its traffic at the exchange's cheapest rate.

A tighter bound follows from linear programs in which tables may be held in shares.

    min  sum_p z_p + exchanges(s) + collectives     over shares w of (table, way to cut and hold it), sums 1 per table
    z_p >= sum_t w work / n  for every resource,  z_p >= sum w piece  for every table,  s >= sum_t w sent / n

An assignment is a choice of shares 0 and 1, so no assignment is below. It is tighter than the plain bound where cutting a
table makes its pieces shorter and its work more: the plain bound takes the best of both. One program for every set of ways that
are used at all, so that the start of each collective is counted.

Where tables stay whole, one of them (T) is known to be on some rank: with y the shares of the other tables there,

    z_p >= T_p + sum y t_p,   z_p >= sum (1 - y) t_p / (n - 1),   the same for s

which sees that a rank with a long table has room for little else, so that the others send more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from ..core.arrays import Floats
from ..workload.dlrm.sizes import SizeRule
from .task import COPIES, ROWS, WHOLE, Law, ShardingTask, comparable, together

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


N_LONG = 4  # tables that the second program is asked for, the longest ones
STEEPER = np.linspace(1.01, 6.0, 40)  # multiples of the even exchange at which its slope is looked at


class TableOptions(NamedTuple):
    """Ways to cut and hold a table, [option, ..., table]; infinite where not allowed.

    Attributes:
        work_s: [option, part, resource, table] seconds per rank if spread evenly.
        longest_s: [option, part, table] seconds of its longest piece.
        sent_bytes: [option, table] what a rank sends on average.
        other_s: [option, table] seconds of collectives of its own, at their cheapest rate.
        allowed: [option, table].
    """

    work_s: Floats
    longest_s: Floats
    sent_bytes: Floats
    other_s: Floats
    allowed: Floats


def linear_bound(tasks: Sequence[ShardingTask]) -> float:
    """Seconds of the noise-free step that no assignment is below, memory aside.

    Args:
        tasks: the same tables cut in every number that is open, one sample each; at least one.
    """
    tasks = comparable(tasks)
    first, rest = tasks[0], tasks[0].rest
    is_shared = any(task.allowed[ROWS:].any() for task in tasks)
    base, slope = _even_exchange(first)
    if is_shared:
        device = min(_with_ways(tasks, ways) for ways in _ways_used(tasks))
    else:
        device = _spread_evenly(_options(tasks, (0.0, 0.0)), base, slope)
    if not is_shared and len(tasks) == 1:
        longest = np.argsort(-first.seconds_s[0, ..., 0].max(axis=1).sum(axis=0), kind="stable")[:N_LONG]
        device = max(device, *(_with_one_placed(first, int(table), base, slope) for table in longest))
    device += sum(rest.start_s) + sum(rest.other_s)
    host = sum(rest.host_s)
    parts = float(together(np.array(device), host)) if host > 0.0 else device
    return rest.n_micro_batch * parts + rest.fixed_s


def _ways_used(tasks: Sequence[ShardingTask]) -> Iterator[tuple[bool, ...]]:
    """Marks the ways that an assignment uses at all: whole, rows, copies."""
    is_open = np.any([task.allowed.any(axis=1) for task in tasks], axis=0).tolist()
    for ways in product((False, True), repeat=3):
        if any(ways) and all(is_open[way] or not used for way, used in enumerate(ways)):
            yield ways


def _with_ways(tasks: Sequence[ShardingTask], ways: tuple[bool, ...]) -> float:
    """The first program for assignments that use just these ways: of each way's collective the start is paid at least once."""
    first, n = tasks[0], tasks[0].n_ranks
    masked = [replace(task, allowed=task.allowed & np.array(ways)[:, None]) for task in tasks]
    if not by_table(masked[0], masked[0].allowed.any(axis=0).astype(float)[None, None, :, None], np.maximum).all():
        return np.inf
    least_sent = min(float(task.sent_bytes[task.sent_bytes > 0.0].min(initial=np.inf)) for task in tasks)
    base, slope = _affine(lambda n_bytes: 2.0 * first.rest.exchange.least_s(n_bytes, n), least_sent, traffic(first))
    rows, copies = first.rest.rows_laws, first.rest.copies_law
    smallest = [own[own > 0.0].min(initial=np.inf) for own in first.joint_bytes]
    by_rows = _affine(lambda b: sum(one_number(law)(b) for law in rows), smallest[ROWS], first.joint_bytes[ROWS].sum())
    by_copy = _affine(one_number(copies), smallest[COPIES], first.joint_bytes[COPIES].sum())
    n_micro = first.rest.n_micro_batch
    seldom = bool((first.joint_bytes[ROWS] == 0.0).any())  # rows of tables that are exchanged instead
    starts = (base if ways[WHOLE] else 0.0) + (by_rows[0] if ways[ROWS] and not seldom else 0.0)
    starts += by_copy[0] / n_micro if ways[COPIES] else 0.0
    return _spread_evenly(_options(masked, (by_rows[1], by_copy[1] / n_micro)), starts, slope * n)


def _affine(law: Callable[[float], float], least: float, most: float) -> tuple[float, float]:
    """`(a, b)` with `a + b x` nowhere above the law from `least` to `most` bytes, and close to it at `least`."""
    if not 0.0 < least < most:
        return 0.0, 0.0 if most <= 0.0 else law(most) / most
    start = law(least)
    more = np.geomspace(least * 1.001, most, 60)
    slope = min((law(size) - start) / (size - least) for size in more.tolist())
    return max(start - slope * least, 0.0), min(slope, start / least)


def _even_exchange(task: ShardingTask) -> tuple[float, float]:
    """Lower bound of both exchanges as `base + slope s`, by the most that a rank sends to each other."""
    n, exchange = task.n_ranks, task.rest.exchange
    even = traffic(task) / n
    least = exchange.least_s(even * n, n)
    if exchange.rule is not SizeRule.MAX_OF_MAX or even == 0.0:
        return 2.0 * least, 0.0
    more = even * STEEPER
    slope = float(((exchange.law(more * n) - least) / (more - even)).min())
    return 2.0 * (least - slope * even), 2.0 * slope


def _options(tasks: Sequence[ShardingTask], shared_rates: tuple[float, float]) -> TableOptions:
    """All ways of all cuts; rates are seconds per byte of the collectives of rows and copies."""
    found, rates = [], (0.0, *shared_rates)
    for task in tasks:
        n = task.n_ranks
        for way, share in enumerate((1.0 / n, 1.0, 1.0)):
            if not task.allowed[way].any():
                continue
            seconds = task.seconds_s[way, ..., 0]
            cells = [
                by_table(task, seconds[..., None] * share, np.add)[..., 0],
                by_table(task, seconds.max(axis=1)[:, None, :, None], np.maximum)[:, 0, :, 0],
                by_table(task, task.sent_bytes[way][None, None, :, None] * share, np.add)[0, 0, :, 0],
                by_table(task, rates[way] * task.joint_bytes[way][None, None, :, None], np.add)[0, 0, :, 0],
                by_table(task, task.allowed[way].astype(float)[None, None, :, None], np.maximum)[0, 0, :, 0],
            ]
            found.append(cells)
    return TableOptions(*(np.stack(column) for column in zip(*found, strict=True)))


def _spread_evenly(options: TableOptions, base: float, slope: float) -> float:
    """The first program; variables are shares [option, table], z [part] and s."""
    n_option, n_part, n_resource, n_table = options.work_s.shape
    n_share = n_option * n_table
    scale = options.work_s[options.work_s > 0.0].max(initial=1e-12)
    most = max(float(options.sent_bytes.max()), 1e-300)
    rows, right = [], []
    for part in range(n_part):
        minus = -(np.arange(n_part + 1) == part).astype(float)
        for resource in range(n_resource):
            rows.append(np.concatenate([options.work_s[:, part, resource].ravel() / scale, minus]))
        for table in range(n_table):
            own = np.zeros((n_option, n_table))
            own[:, table] = options.longest_s[:, part, table] / scale
            rows.append(np.concatenate([own.ravel(), minus]))
    rows.append(np.concatenate([options.sent_bytes.ravel() / most, -(np.arange(n_part + 1) == n_part).astype(float)]))
    right = np.zeros(len(rows))
    one_each = np.concatenate([np.tile(np.eye(n_table), n_option), np.zeros((n_table, n_part + 1))], axis=1)
    cost = np.concatenate([options.other_s.ravel() / scale, np.ones(n_part), [slope * most / scale]])
    bounds = [(0.0, float(open_)) for open_ in options.allowed.ravel()] + [(0.0, None)] * (n_part + 1)
    assert len(cost) == n_share + n_part + 1
    return base + scale * _least(cost, np.stack(rows), right, one_each, np.ones(n_table), bounds)


def _with_one_placed(task: ShardingTask, table: int, base: float, slope: float) -> float:
    """The second program; variables are shares y [table] on the rank of `table`, z [part] and s."""
    seconds, sent = task.seconds_s[0, ..., 0], task.sent_bytes[0]
    n_part, _, n_table = seconds.shape
    scale, most = float(seconds.max()), float(sent.max())
    rows, right = [], []
    for index in range(n_part + 1):
        minus = -(np.arange(n_part + 1) == index).astype(float)
        for own in seconds[index] / scale if index < n_part else [sent / most]:
            rows += [np.concatenate([own, minus]), np.concatenate([-own / (task.n_ranks - 1), minus])]
            right += [0.0, -float(own.sum()) / (task.n_ranks - 1)]
    cost = np.concatenate([np.zeros(n_table), np.ones(n_part), [slope * most / scale]])
    bounds = [(float(t == table), 1.0) for t in range(n_table)] + [(0.0, None)] * (n_part + 1)
    none = np.zeros((1, len(cost)))
    return base + scale * _least(cost, np.stack(rows), np.array(right), none, np.zeros(1), bounds)


def _least(
    cost: Float[np.ndarray, " variable"],
    rows: Float[np.ndarray, "row variable"],
    right: Float[np.ndarray, " row"],
    equal: Float[np.ndarray, "one variable"],
    to: Float[np.ndarray, " one"],
    bounds: list[tuple[float, float | None]],
) -> float:
    """The least cost; minus infinity where the program could not be solved, so that it bounds nothing."""
    found = linprog(cost, rows, right, equal, to, bounds, method="highs")
    return float(found.fun) * (1.0 - 1e-9) if found.success else -np.inf

"""A tighter lower bound of the noise-free step, from linear programs in which tables may be held in shares.

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

from ...._typing import Floats
from ....workload.dlrm.exchange import SizeRule
from ..task import COPIES, ROWS, WHOLE, ShardingTask, comparable, together
from .bound import by_table, one_number, traffic

N_LONG = 4  # tables that the second program is asked for, the longest ones
STEEPER = np.linspace(1.01, 6.0, 40)  # multiples of the even exchange at which its slope is looked at


class Options(NamedTuple):
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
    """Which of the ways an assignment uses at all: whole, rows, copies."""
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
    """Both exchanges as `base + slope s` from below, of the most that a rank sends to each other."""
    n, exchange = task.n_ranks, task.rest.exchange
    even = traffic(task) / n
    least = exchange.least_s(even * n, n)
    if exchange.rule is not SizeRule.MAX_OF_MAX or even == 0.0:
        return 2.0 * least, 0.0
    more = even * STEEPER
    slope = float(((exchange.law(more * n) - least) / (more - even)).min())
    return 2.0 * (least - slope * even), 2.0 * slope


def _options(tasks: Sequence[ShardingTask], shared_rates: tuple[float, float]) -> Options:
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
    return Options(*(np.stack(column) for column in zip(*found, strict=True)))


def _spread_evenly(options: Options, base: float, slope: float) -> float:
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

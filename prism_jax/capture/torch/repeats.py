"""Rows that repeat, layer after layer, written once: the longest repeats of a class, without overlap.

A repeat begins where it tears no chain of operations that one kernel could do, if there is such a place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...workload.captured.program import CapturedComm, CapturedOp, CapturedRow, Repeat

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_LONGEST = 4000  # rows of one repeated part: searching is of quadratic cost
_LEAST_SAVED = 8  # rows


class Folded(NamedTuple):
    """Rows of which repeats are there once."""

    rows: tuple[CapturedRow, ...]
    repeats: tuple[Repeat, ...]


def folded(rows: Sequence[CapturedRow]) -> Folded:
    """The rows with repeats written once; collectives that are awaited in another repetition keep theirs apart."""
    numbers: dict[CapturedRow, int] = {}
    keys = np.array([numbers.setdefault(_alike(row, at), len(numbers)) for at, row in enumerate(rows)], dtype=np.int64)
    found = sorted(_repeats(keys, 0, len(keys), rows))
    kept: list[CapturedRow] = []
    places: dict[int, int] = {}
    made: list[Repeat] = []
    at = 0
    for start, period, times in [*found, (len(rows), 0, 0)]:
        places |= {old: len(kept) + old - at for old in range(at, start)}
        kept += rows[at:start]
        if times:
            made.append(Repeat(len(kept), len(kept) + period, times))
            places |= {start + step: len(kept) + step % period for step in range(period * times)}
            kept += rows[start : start + period]
        at = start + period * times
    return Folded(tuple(_moved(row, places) for row in kept), tuple(made))


def _alike(row: CapturedRow, at: int) -> CapturedRow:
    """The row without the number of its layer, waiting a number of rows ahead."""
    module = _NUMBER.sub("*", row.module)
    if isinstance(row, CapturedComm) and row.wait is not None:
        return replace(row, module=module, wait=row.wait - at)
    return replace(row, module=module)


def _moved(row: CapturedRow, places: dict[int, int]) -> CapturedRow:
    if isinstance(row, CapturedComm) and row.wait is not None:
        return replace(row, wait=places[row.wait])
    return row


def _repeats(keys: NDArray[np.int64], low: int, high: int, rows: Sequence[CapturedRow]) -> list[tuple[int, int, int]]:
    """Returns (start, period, times) of the repeats between two rows: the one that saves most, between those in front and
    behind.
    """
    best = _best(keys[low:high])
    if best is None:
        return []
    start, period, times = _between_chains(rows, best[0] + low, best[1], best[2])
    if _crosses(rows, start, period, times):
        return []
    before, after = _repeats(keys, low, start, rows), _repeats(keys, start + period * times, high, rows)
    return [*before, (start, period, times), *after]


def _between_chains(rows: Sequence[CapturedRow], start: int, period: int, times: int) -> tuple[int, int, int]:
    """The repeat, begun later where a chain leads over its beginning; as it was if chains lead over every place."""
    end = start + period * times
    for shift in range(period):
        at = start + shift
        if not _tears(rows, at, period) and not _tears(rows, at + period, period):
            fitting = (end - at) // period
            return (at, period, fitting) if fitting > 1 else (start, period, times)
    return start, period, times


def _tears(rows: Sequence[CapturedRow], at: int, period: int) -> bool:
    """Whether a chain leads from before a row to it or beyond."""
    before = rows[max(at - period, 0) : at]
    return any(isinstance(row, CapturedOp) and row.chain >= len(before) - n > 0 for n, row in enumerate(before))


def _best(keys: NDArray[np.int64]) -> tuple[int, int, int] | None:
    found, saved = None, _LEAST_SAVED - 1
    for period in range(1, min(len(keys) // 2, _LONGEST) + 1):
        start, length = _longest_run(keys[period:] == keys[:-period])
        times = length // period + 1
        if times > 1 and (times - 1) * period > saved:
            found, saved = (start, period, times), (times - 1) * period
    return found


def _longest_run(equal: NDArray[np.bool_]) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.astype(np.int8), [0]))))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(edges[2 * longest]), int(lengths[longest])


def _crosses(rows: Sequence[CapturedRow], start: int, period: int, times: int) -> bool:
    """Whether a collective of a repetition is awaited outside it, or one from outside in it."""
    end = start + period * times
    for at, row in enumerate(rows):
        if isinstance(row, CapturedComm) and row.wait is not None:
            own = (at - start) // period if start <= at < end else None
            other = (row.wait - start) // period if start <= row.wait < end else None
            if own != other and (own is not None or (other or 0) > 0):
                return True
    return False


# pyright: reportMissingImports=false

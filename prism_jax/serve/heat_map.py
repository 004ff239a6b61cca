"""Draws ranks by steps as SVG with attributes and classes alone: how much longer each rank is than those with the same work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import ceil

import htpy as h
import numpy as np

from ..core.arrays import Floats
from ..core.page import Table
from ..core.page_html import table_html
from ..core.readable import evenly, percent
from ..core.units import format_s
from ..watch.rank_map import MOST_OTHERS, MOST_SLOW, PhaseSteps, RankMap

N_COLOUR = 6  # classes heat-0 to heat-5 of the style sheet, from none to most
LEAST_TOP = 0.02  # of the scale: noise of a per cent is no colour
LEFT, TOP, WIDTH, ROW, BELOW = 90, 26, 900, 16, 74  # of the drawing, in its units
N_TICK = 8
MOST_ROWS = 8  # of the table that is not folded


def heat_map(found: RankMap, phases: Sequence[PhaseSteps] = ()) -> h.Element:
    """The ranks of a recording by steps, with a legend, and their numbers in a table.

    Args:
        phases: slow phases, which are marked above the steps.
    """
    height = TOP + ROW * len(found.shown)
    edges = _edges(found.cells)
    title = f"How much longer the {found.quantity or 'step'} of each rank is than {found.peers}"
    drawn = h.svg(
        {"viewBox": f"0 0 {LEFT + WIDTH + 10} {height + BELOW}", "aria-labelledby": "heat-title heat-about"},
        class_="chart heat",
        role="img",
    )[
        h.title(id="heat-title")[title],
        h.desc(id="heat-about")[f"{found.verdict} The table below has the numbers."],
        h.rect(".heat-0", x=str(LEFT), y=str(TOP), width=str(WIDTH), height=str(height - TOP)),
        [_row(found, at, edges) for at in range(len(found.shown))],
        [_phase(found, phase, "slow phase" if number == 0 else "") for number, phase in enumerate(phases)],
        _ticks(found, height),
        _legend(edges, height + 44),
    ]
    return h.figure[
        h.figcaption[_about(found)],
        h.div(".wide", tabindex="0", role="region", aria_label=title)[drawn],
        _numbers(found),
    ]


def _about(found: RankMap) -> str:
    of_column = "" if found.n_per_column == 1 else f" A column is the mean of up to {found.n_per_column:,} steps."
    n_all, n_shown = len(found.rows), len(found.shown)
    left_out = ""
    if n_shown < n_all:
        left_out = f" {n_shown} of {n_all:,} ranks are shown: the slowest {MOST_SLOW} and {MOST_OTHERS} of the others."
    return (
        f"Ranks by steps: how much longer the {found.quantity or 'step'} is than {found.peers} in the same step."
        f"{of_column}{left_out}"
    )


def _edges(cells: Floats) -> list[float]:
    """Lower ends of the colours above the first, as shares: round numbers up to what all but the largest cells reach."""
    known = cells[np.isfinite(cells)]
    top = max(LEAST_TOP, float(np.quantile(known, 0.995)) if len(known) else 0.0)
    step = top / (N_COLOUR - 1)
    size = 10.0 ** np.floor(np.log10(step))
    step = float(size * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * size >= step * (1 - 1e-9)))
    return [step * number for number in range(1, N_COLOUR)]


def _x(found: RankMap, column: float) -> float:
    return LEFT + WIDTH * column / len(found.steps)


def _row(found: RankMap, at: int, edges: Sequence[float]) -> Iterable[h.Node]:
    """Cells of a rank; neighbours of one colour are one rectangle, and the first colour is that of the ground."""
    y = TOP + ROW * at
    is_slow = ".slow" if found.shown[at] in found.slow else ""
    yield h.text(f".rank{is_slow}", x=str(LEFT - 8), y=str(y + ROW - 4), text_anchor="end")[_short(found.shown[at])]
    for colour, first, n in _runs(found.cells[at], edges):
        if colour:
            start, end = _x(found, first), _x(found, first + n)
            yield h.rect(f".heat-{colour}", x=f"{start:.1f}", y=str(y), width=f"{end - start:.1f}", height=str(ROW - 1))


def _short(name: str) -> str:
    return name if len(name) <= 11 else f"{name[:4]}…{name[-6:]}"


def _runs(cells: Floats, edges: Sequence[float]) -> Iterator[tuple[int, int, int]]:
    """Colour, first column and number of columns of neighbours that look alike."""
    colours = np.searchsorted(edges, np.nan_to_num(cells, nan=0.0), side="right").tolist()
    first = 0
    for colour, own in groupby(colours):
        n = len(list(own))
        yield int(colour), first, n
        first += n


def _phase(found: RankMap, phase: PhaseSteps, text: str) -> h.Node:
    steps = np.asarray(found.steps)
    first = max(int(np.searchsorted(steps, phase.first, side="right")) - 1, 0)
    end = len(steps) if phase.end is None else max(int(np.searchsorted(steps, phase.end)), first + 1)
    start, stop = _x(found, first), _x(found, end)
    return [
        h.rect(".phase", x=f"{start:.1f}", y=str(TOP - 6), width=f"{stop - start:.1f}", height="4"),
        h.text(".axis", x=f"{start:.1f}", y=str(TOP - 10))[text] if text else None,
    ]


def _ticks(found: RankMap, height: int) -> Iterable[h.Node]:
    for column in evenly(range(len(found.steps)), N_TICK):
        x = f"{_x(found, column + 0.5):.1f}"
        yield h.text(".axis", x=x, y=str(height + 15), text_anchor="middle")[f"{found.steps[column]:,}"]
    yield h.text(".axis", x=str(LEFT), y=str(height + 32))["step"]
    yield h.text(".axis", x=str(LEFT - 8), y=str(TOP - 10), text_anchor="end")["rank"]


def _legend(edges: Sequence[float], y: int) -> Iterable[h.Node]:
    wide = 110
    texts = [f"below {_share(edges[0])}", *(f"from {_share(edge)}" for edge in edges)]
    for number, text in enumerate(texts):
        x = LEFT + number * wide
        yield h.rect(f".heat-{number}.key", x=str(x), y=str(y), width="18", height="14")
        yield h.text(".axis", x=str(x + 24), y=str(y + 11))[text]
    yield h.text(".axis", x=str(LEFT + N_COLOUR * wide), y=str(y + 11))["longer"]


def _share(value: float) -> str:
    decimals = max(0, ceil(-np.log10(value) - 2 - 1e-9)) if value > 0 else 0
    return f"{value:.{decimals + (0 if round(value, decimals + 2) == round(value, 12) else 1)}%}"


def _numbers(found: RankMap) -> list[h.Node]:
    """Numbers of the ranks, the slowest first; those of many are folded."""
    rows = [row for row in found.rows if row.rank in found.shown]
    columns = {
        "rank": lambda row: row.rank,
        f"median {found.quantity or 'step'}": lambda row: format_s(row.median_s, 4),
        f"longer than {found.peers}": lambda row: percent(row.excess, sign=True),
        "slowest in": lambda row: f"{row.slowest:.0%} of steps",
    }
    first = table_html(Table.of(f"The slowest ranks{found.when}", rows[:MOST_ROWS], columns))
    if len(rows) <= MOST_ROWS:
        return [first]
    rest = table_html(Table.of(f"Other ranks{found.when}", rows[MOST_ROWS:], columns))
    return [first, h.details[h.summary[f"{len(rows) - MOST_ROWS} other ranks in numbers"], rest]]

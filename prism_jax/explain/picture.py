"""Horizontal bars with their values written at the ends: where a step's seconds go, and the sources of its tail."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from ..core.picture import colour, new_axes
from ..core.readable import unit_of_time
from .types import Explanation, words

SMALLEST_SHARE = 0.001  # of the step; below, a part is not drawn
MOST_OWNERS = 6
FEWEST_ROWS = 4  # room is kept for, so that two bars are not blocks
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
SMALLEST_OWNER = 0.005  # of the largest; below, Monte Carlo noise


def plot_breakdown(breakdown_s: Explanation | Mapping[str, float], *, ax: Axes | None = None) -> Axes:
    """Draws where the mean step goes for an average GPU: one bar per part, largest first, with seconds and share.

    Args:
        breakdown_s: result of `explain`, or its seconds by part.
        ax: where to draw; a new figure if not given.
    """
    ax = new_axes() if ax is None else ax
    all_s = breakdown_s.breakdown_s if isinstance(breakdown_s, Explanation) else breakdown_s
    whole_s = sum(all_s.values())
    parts = {name: value for name, value in all_s.items() if abs(value) >= SMALLEST_SHARE * whole_s}
    scale, unit = unit_of_time(whole_s)
    digits = max(2, 2 - int(np.floor(np.log10(scale * whole_s))))
    labels = {name: f"{scale * value:.{digits}f} {unit}  {value / whole_s:.1%}" for name, value in parts.items()}
    plot_bars(ax, {name: scale * value for name, value in parts.items()}, labels)
    ax.set_xlabel(f"{UNIT_NAMES[unit]} of the mean step, average GPU")
    return ax


def plot_owners(
    owner_s: Explanation | Mapping[str, float], fleet_share: float | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws by how much p95 would fall if one kind of work did not vary; the falls need not add up.

    Args:
        owner_s: result of `explain`, or its seconds by source.
        fleet_share: of the variance that lies between allocations; of an explanation its own.
        ax: where to draw; a new figure if not given.
    """
    ax = new_axes() if ax is None else ax
    if isinstance(owner_s, Explanation):
        owner_s, fleet_share = owner_s.p95_owner_s, owner_s.allocation.share
    largest_s = max(map(abs, owner_s.values()), default=0.0)
    scale, unit = unit_of_time(largest_s)
    ranked = sorted(owner_s.items(), key=lambda item: -item[1])[:MOST_OWNERS]
    owners = {name: scale * value for name, value in ranked if abs(value) >= SMALLEST_OWNER * largest_s > 0.0}
    plot_bars(ax, owners, {name: f"{value:.3g} {unit}" for name, value in owners.items()})
    fleet = "" if fleet_share is None else f"\n({fleet_share:.0%} of the variance: which GPUs the job gets)"
    ax.set_xlabel(f"{UNIT_NAMES[unit]} of p95 saved if this source did not vary{fleet}" if owners else "nothing varies")
    return ax


def plot_bars(ax: Axes, values: Mapping[str, float], labels: Mapping[str, str]) -> None:
    """One bar per entry, largest on top; room on the right for the texts."""
    names = sorted(values, key=lambda name: values[name])
    ax.barh([words(name) for name in names], [values[name] for name in names], color=[colour(name) for name in names])
    largest = max((abs(value) for value in values.values()), default=1.0) or 1.0
    for row, name in enumerate(names):
        ax.text(max(values[name], 0.0) + 0.02 * largest, row, labels[name], va="center", fontsize="small")
    ax.set_xlim(min(0.0, 1.1 * min(values.values(), default=0.0)), 1.45 * largest)
    ax.set_ylim(len(names) - max(len(names), FEWEST_ROWS) - 0.6, len(names) - 0.4)
    ax.tick_params(axis="y", length=0)
    ax.grid(True, axis="x")

"""Picture of a choice of cloud: time and money of what was simulated, and the front."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.picture import INDIGO, ROSE, TEAL, new_axes, new_figure, style
from .choice import CandidateOutcome, CloudChoice
from .report import CloudReport
from .requirements import CloudRequirements

DAY_S = 86400.0


def plot_choice(choice: CloudChoice, wish: CloudRequirements, title: str) -> Figure:
    """Expected cost over expected days, with deadline and budget.

    Args:
        title: of the figure.
    """
    with style():
        figure = new_figure((8.0, 5.0))
        plot_front(choice, wish, ax=figure.add_subplot()).set_title(f"{title}: {wish.n_steps:,} steps")
    return figure


def plot_front(choice: CloudChoice, wish: CloudRequirements, *, ax: Axes | None = None) -> Axes:
    """Draws what was simulated as points, the front as a line, the best as a star; worlds without an end are left out."""
    ax = new_axes() if ax is None else ax
    ended = [one for one in choice.simulated if np.isfinite(one.mean_s)]
    for needs, colour, label in ((True, INDIGO, "with spot"), (False, TEAL, "on demand")):
        _points(ax, [one for one in ended if one.candidate.policy.needs_spot == needs], colour, label)
    if choice.front:
        ax.plot(*_both(choice.front), color="#444444", lw=1.0, label="front")
    if choice.best is not None:
        ax.plot(*_both([choice.best]), "*", color=ROSE, ms=14.0, label="best")
    if np.isfinite(wish.deadline_s):
        ax.axvline(wish.deadline_s / DAY_S, color=ROSE, ls="--", label="deadline")
    if np.isfinite(wish.budget_usd):
        ax.axhline(wish.budget_usd, color=ROSE, ls=":", label="budget")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("expected days")
    ax.set_ylabel("expected cost, USD")
    ax.legend(fontsize="small")
    return ax


def _points(ax: Axes, outcomes: list[CandidateOutcome], colour: str, label: str) -> None:
    if outcomes:
        ax.plot(*_both(outcomes), "o", color=colour, ms=4.0, alpha=0.6, label=label)


def _both(outcomes: list[CandidateOutcome] | tuple[CandidateOutcome, ...]) -> tuple[list[float], list[float]]:
    return [one.mean_s / DAY_S for one in outcomes], [one.mean_usd for one in outcomes]


def draw_cloud(report: CloudReport) -> Figure:
    """Time and money of all that was simulated, the front, and the promise of the best."""
    return plot_choice(report.parts.choice, report.parts.wish, report.job)

"""Draws a sweep, a comparison, a scaling study and a capacity plan.

A sweep has the objective of every job, a line for every combination of the other axes; a comparison what every job takes, its
ratio to the best, and how probable it is that one beats another; a scaling study throughput per GPU, where the step goes, and
what tokens cost, over the number of GPUs; a capacity plan when each fleet is done, or how much it does, and for how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import DataError
from ..core.picture import GREY, INDIGO, ROSE, SAND, TEAL, hours_or_days, name_time_axis, new_axes, new_figure, style
from ..explain.types import percent
from .capacity import DAY_S
from .figures import JobFigures
from .report import ComparedJob, ComparisonReport, SweepReport, short, shortened_name
from .scaling import SizeRow
from .scaling_report import CapacityReport, ScalingReport
from .table import StudyRow, StudyTable

MOST_LINES = 12  # in the legend


def draw_sweep(report: SweepReport) -> Figure:
    """p50 with its model interval on the left, the objective relative to the best job on the right."""
    with style():
        figure = new_figure((12.0, 4.8), report.job)
        left, right = figure.subplots(1, 2)
        plot_along(report, lambda row: row.figures.p50_s if row.figures else np.nan, ax=left)
        name_time_axis(left.yaxis, "median step time")
        left.set_title("Median, and where 90% of measured medians lie")
        plot_along(report, lambda row: row.relative, with_band=False, ax=right).set_ylabel("relative to the best job")
        right.set_title(f"By {report.objective}")
    return figure


def plot_along(
    table: SweepReport | StudyTable,
    value: Callable[[StudyRow], float],
    *,
    with_band: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Values along the longest axis of the grid; impossible jobs are gaps.

    Args:
        value: of a row; NaN where there is none.
        with_band: draws the model interval of the median.
    """
    ax = new_axes() if ax is None else ax
    along = _longest(table)
    ticks = list(dict.fromkeys(row.settings.get(along, "") for row in table.rows))
    lines: dict[str, list[StudyRow]] = {}
    for row in table.rows:
        rest = ", ".join(f"{short(field)} {text}" for field, text in row.settings.items() if field != along)
        lines.setdefault(rest, []).append(row)
    for number, (name, rows) in enumerate(lines.items()):
        at = np.array([ticks.index(row.settings.get(along, "")) for row in rows])
        values = np.array([value(row) for row in rows])
        drawn = ax.plot(at, values, "o-", markersize=4, label=name if number < MOST_LINES else None)
        if with_band:
            low, high = (
                np.array([getattr(row.figures, end) if row.figures else np.nan for row in rows])
                for end in ("model_low", "model_high")
            )
            ax.fill_between(at, values * low, values * high, color=drawn[0].get_color(), alpha=0.12, lw=0.0)
    ax.set_xticks(range(len(ticks)), ticks)
    ax.set_xlabel(short(along))
    if len(lines) > 1:
        ax.legend()
    return ax


def _longest(table: SweepReport | StudyTable) -> str:
    """The axis with the most values; the first of several."""
    counts = {axis: len({row.settings[axis] for row in table.rows}) for axis in table.axes}
    return max(counts, key=lambda axis: counts[axis]) if counts else ""


DARK = 0.6  # probability from which text stands on a dark cell


def draw_comparison(report: ComparisonReport) -> Figure:
    """Medians with their bands, ratios to the best, and the probabilities."""
    names = [f"{own.label}  {shortened_name(own.name)}" for own in report.jobs]
    with style():
        figure = new_figure((14.0, 2.2 + 0.55 * len(names)), f"{len(names)} jobs on the same draws")
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1.0, 1.0))
        plot_medians(report.jobs, names, ax=left).set_title("Median, and where 90% of measured ones lie")
        plot_ratios(report.jobs, ax=middle).set_title(f"By {report.objective}")
        labels = [own.label for own in report.jobs]
        plot_probabilities(report.prob_less, labels, ax=right).set_title("P(row better than column)")
    return figure


def plot_medians(jobs: Sequence[ComparedJob], names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Predicted medians with their model intervals, seconds."""
    ax = new_axes() if ax is None else ax
    at = np.arange(len(names))
    median, low, high = (
        np.array([getattr(job.figures, name) for job in jobs]) for name in ("p50_s", "model_low", "model_high")
    )
    ax.hlines(at, median * low, median * high, color=INDIGO, alpha=0.35, lw=6)
    ax.plot(median, at, "o", color=INDIGO)
    ax.set_yticks(at, names)
    name_time_axis(ax.xaxis, "step time")
    return _from_top(ax, len(names))


def plot_ratios(jobs: Sequence[ComparedJob], *, ax: Axes | None = None) -> Axes:
    """Objectives over that of the best job: predicted, and the 90% interval as they would be measured."""
    ax = new_axes() if ax is None else ax
    at = np.arange(len(jobs))
    ax.axvline(1.0, color=GREY, lw=1.0)
    ax.hlines(at, [job.ratio_low for job in jobs], [job.ratio_high for job in jobs], color=TEAL, alpha=0.35, lw=6)
    ax.plot([job.relative for job in jobs], at, "o", color=TEAL)
    ax.set_yticks(at, [job.label for job in jobs])
    ax.set_xlabel("relative to the best (90% as measured)")
    return _from_top(ax, len(at))


def plot_probabilities(prob_less: Sequence[Sequence[float]], labels: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Paired probabilities as a table of colours and per cents."""
    ax = new_axes() if ax is None else ax
    probs = np.array(prob_less)
    ax.imshow(np.where(np.eye(len(labels)) > 0, np.nan, probs), cmap="Purples", vmin=-0.2, vmax=1.0, aspect="auto")
    for row, column in permutations(range(len(labels)), 2):
        prob = probs[row, column]
        ax.text(column, row, percent(prob), ha="center", va="center", color="white" if prob > DARK else "black")
    for at in range(len(labels)):
        ax.text(at, at, "-", ha="center", va="center", color=GREY)
    ax.set_xticks(range(len(labels)), labels)
    ax.set_yticks(range(len(labels)), labels)
    ax.grid(visible=False)
    return ax


def _from_top(ax: Axes, n: int) -> Axes:
    ax.set_ylim(n - 0.5, -0.5)
    return ax


PARTS = (
    ("compute", ("compute_s",), INDIGO),
    ("exposed dp", ("exposed_dp_s",), ROSE),
    ("other exposed", ("exposed_tp_s", "exposed_cp_s", "exposed_ep_s", "exposed_pp_s"), SAND),
    ("bubble", ("bubble_s",), TEAL),
    ("waiting, stalls", ("waiting_s", "stalls_s"), GREY),
)  # of the mean step
LEAST_SHARE = 1e-3  # of the mean step, at any size: what is not to be seen is not in the legend


def draw_scaling(report: ScalingReport) -> Figure:
    """Throughput, where the step goes, and energy or tail over the number of GPUs; impossible sizes are left out."""
    known = [row for row in report.rows if row.figures]
    with style():
        figure = new_figure((14.0, 5.0), f"{report.job}: {report.mode} scaling")
        left, middle, right = figure.subplots(1, 3)
        plot_throughput(known, report.onset_step, report.sample_unit, ax=left)
        left.set_title("Throughput per GPU, 90% model interval")
        plot_parts(known, ax=middle).set_title("Where the mean step goes")
        plot_tail(known, ax=right)
        if report.target is not None and report.target.n_devices is not None:
            left.axvline(report.target.n_devices, color=TEAL, ls=":", label=f"from here: {report.target.target}")
            left.legend()
    return figure


def plot_throughput(
    rows: Sequence[SizeRow], onset: float = np.nan, sample_unit: str = "tokens", *, ax: Axes | None = None
) -> Axes:
    """Tokens (or what `sample_unit` says) per second and GPU of the median step.

    Args:
        onset: GPUs at which communication shows, where that is known.
    """
    ax = new_axes() if ax is None else ax
    n, value, low, high = (
        _column(rows, name) for name in ("n_devices", "tokens_per_s_per_gpu", "model_low", "model_high")
    )
    ax.plot(n, value, "o-", color=INDIGO, markersize=4)
    ax.fill_between(n, value / high, value / low, color=INDIGO, alpha=0.12, lw=0.0)
    if n.min() < onset < n.max():
        ax.axvline(onset, color=ROSE, ls="--", label=f"communication takes 5%: {onset:,.0f}")
        ax.legend()
    ax.set_ylabel(f"{sample_unit}/s/GPU")
    ax.set_ylim(0.0)
    return _sizes(ax, n)


def plot_parts(rows: Sequence[SizeRow], *, ax: Axes | None = None) -> Axes:
    """Shares of the mean step, stacked; parts that no size has are left out."""
    ax = new_axes() if ax is None else ax
    n, mean_s = _column(rows, "n_devices"), _column(rows, "mean_s")
    shares = {part: sum((_column(rows, name) for name in names), np.zeros(len(n))) / mean_s for part, names, _ in PARTS}
    drawn = [(part, colour) for part, _, colour in PARTS if shares[part].max() >= LEAST_SHARE]
    ax.stackplot(
        n,
        [shares[part] for part, _ in drawn],
        labels=[part for part, _ in drawn],
        colors=[colour for _, colour in drawn],
        alpha=0.85,
    )
    ax.set_ylabel("share of the mean step")
    ax.set_ylim(0.0, 1.0)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return _sizes(ax, n)


def plot_tail(rows: Sequence[SizeRow], *, ax: Axes | None = None) -> Axes:
    """Energy per token where power is known, else p95 over p50."""
    ax = new_axes() if ax is None else ax
    n, joules = _column(rows, "n_devices"), _column(rows, "joules_per_token")
    if np.isfinite(joules).all():
        ax.plot(n, joules, "o-", color=TEAL, markersize=4)
        ax.set_ylabel("GPU energy per token (J)")
        ax.set_title("Energy")
        ax.set_ylim(0.0)
    else:
        ax.plot(n, _column(rows, "p95_s") / _column(rows, "p50_s"), "o-", color=TEAL, markersize=4)
        ax.set_ylabel("p95 / p50")
        ax.set_title("Tail")
    return _sizes(ax, n)


def _column(rows: Sequence[SizeRow], name: str) -> np.ndarray:
    return np.array([getattr(row.figures, name) for row in rows if isinstance(row.figures, JobFigures)])


MOST_LEVEL = 6  # sizes whose numbers stand side by side


def _sizes(ax: Axes, n: np.ndarray) -> Axes:
    ax.set_xscale("log", base=2)
    ax.set_xticks(n, [f"{int(count):,}" for count in n], rotation=45 if len(n) > MOST_LEVEL else 0)
    ax.minorticks_off()
    ax.margins(x=0.04)
    ax.set_xlabel("GPUs")
    return ax


def draw_capacity(report: CapacityReport) -> Figure:
    """Draws when each fleet is done, or how much it does in the days, on the left; what that takes on the right."""
    with style():
        figure = new_figure((12.0, 4.8), f"{report.job}: {report.asked}")
        left, right = figure.subplots(1, 2, width_ratios=(1.4, 1.0))
        plot_fleets(report, ax=left)
        plot_price(report, ax=right)
    return figure


IN_SIGHT = 1.5  # times the latest day drawn: a later deadline stands in the legend alone


def plot_fleets(report: CapacityReport, *, ax: Axes | None = None) -> Axes:
    """Probability that a fleet is done over days, with the deadline, or that it does at least so many tokens in the days.

    Raises:
        DataError: the report is of a version that kept no curves.
    """
    ax = new_axes() if ax is None else ax
    known = [one for one in report.fleets if one.capacity is not None]
    longest_s = max((one.capacity.days_p50 * DAY_S for one in known if one.capacity is not None), default=0.0)
    unit, unit_s = hours_or_days(longest_s)
    for one in known:
        if one.curve is None:
            raise DataError(
                "this capacity was saved by an older version, which kept no curves. Compute it again to draw it."
            )
        draws = np.array(one.curve.token_s)
        value = DAY_S * (report.days or 0.0) / draws if report.tokens is None else report.tokens * draws / unit_s
        mark = " (chosen)" if one.label == report.chosen and len(known) > 1 else ""
        ax.plot(value, one.curve.level, label=f"{one.label}  {one.fleet}{mark}")
    if report.deadline_days is not None:
        deadline = report.deadline_days * DAY_S / unit_s
        is_near = deadline <= IN_SIGHT * max(line.get_xdata().max() for line in ax.lines)  # type: ignore[union-attr]
        label = f"deadline {report.deadline_days:.4g} d{'' if is_near else ', beyond this axis'}"
        draw = ax.axvline if is_near else lambda _, **how: ax.plot([], [], **how)
        draw(deadline, color=ROSE, ls="--", label=label)
    if report.tokens is None:
        ax.set_xlabel(report.sample_unit)
        ax.set_title(f"P(at least so many {report.sample_unit} in {report.days:g} days)")
    else:
        ax.set_xlabel(unit)
        ax.set_title("P(done by then)")
    ax.set_ylim(0.0, 1.0)
    ax.legend()
    return ax


def plot_price(report: CapacityReport, *, ax: Axes | None = None) -> Axes:
    """Draws money per million tokens of every fleet at the median where all prices are known, else GPU-hours."""
    ax = new_axes() if ax is None else ax
    known = [(one, one.capacity) for one in report.fleets if one.capacity is not None]
    priced = all(np.isfinite(made.money_p50) for _, made in known)
    taken = [made.money_p50 if priced else one.n_devices * 24.0 * made.days_p50 for one, made in known]
    at = np.arange(len(known))
    ax.barh(at, [1e6 * value / made.tokens_p50 for value, (_, made) in zip(taken, known, strict=True)], color=TEAL)
    ax.set_yticks(at, [f"{one.label}  {one.fleet}" for one, _ in known])
    ax.set_xlabel(f"{'money (currency of the price)' if priced else 'GPU-hours'} per million {report.sample_unit}")
    ax.set_title("What it takes")
    return _from_top(ax, len(known))

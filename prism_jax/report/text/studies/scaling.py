"""A job on several numbers of GPUs as lines of plain text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from ....study.figures import Figures
from ....study.onset import PassOnset
from ....study.scaling import SizeRow
from ....units import format_s
from ...quantity import with_error
from ...table import Table
from ...types.studies.scaling import ScalingReport
from .sweep import short

MOST_REASONS = 4


@dataclass(frozen=True)
class _Column:
    name: str
    text: Callable[[SizeRow, Figures], str]
    is_known: Callable[[Figures], bool] = lambda _: True


COLUMNS = (
    _Column("p50", lambda _, own: format_s(own.p50_s)),
    _Column("p95", lambda _, own: "{} ± {} s".format(*with_error(own.p95_s, own.p95_error_s))),
    _Column("p95/p50", lambda _, own: f"{own.p95_s / own.p50_s:.3f}"),
    _Column("tokens/s", lambda _, own: f"{own.tokens_per_s:,.0f}"),
    _Column("per GPU", lambda row, own: f"{own.tokens_per_s_per_gpu:,.0f} ({100 * row.per_gpu_change:+.1f}%)"),
    _Column("MFU", lambda _, own: f"{100 * own.mfu:.1f}%"),
    _Column("exposed comm", lambda _, own: f"{100 * _exposed_s(own) / own.mean_s:.1f}%"),
    _Column("hidden comm", lambda _, own: f"{100 * _hidden_s(own) / own.mean_s:.1f}%"),
    _Column("return", lambda row, _: f"{row.marginal_return:.2f}" if isfinite(row.marginal_return) else "-"),
    _Column("W/GPU", lambda _, own: f"{own.gpu_watts:.0f}", lambda own: isfinite(own.gpu_watts)),
    _Column("J/token", lambda _, own: f"{own.joules_per_token:.3g}", lambda own: isfinite(own.joules_per_token)),
    _Column("money/Mtoken", lambda _, own: f"{own.money_per_mtoken:.4g}", lambda own: isfinite(own.money_per_mtoken)),
    _Column("P(target)", lambda _, own: f"{100 * own.target_prob:.0f}%", lambda own: isfinite(own.target_prob)),
)


def lines(report: ScalingReport) -> list[str]:
    """The report, line by line."""
    known = [row.figures for row in report.rows if row.figures]
    shown = [column for column in COLUMNS if any(map(column.is_known, known))]
    varied = list(dict.fromkeys(field for row in report.rows for field in row.settings))
    head = ("GPUs", *map(short, varied), *(column.name for column in shown))
    cells = [_cells(row, varied, shown) for row in report.rows]
    title = f"{report.job}: {report.mode} scaling" + (f", best plan by {report.objective}" if varied else "")
    return [
        *Table(title, head, cells).lines(),
        *_reasons(report),
        *_answers(report),
        *(f"note: {note}" for note in report.notes),
        f"seed {report.record.seed}; {report.elapsed_s:.1f} s",
    ]


def _cells(row: SizeRow, varied: list[str], shown: list[_Column]) -> tuple[str, ...]:
    own = row.figures
    count = f"{row.n_devices:,}" + ("" if own is None or own.fits else " !")
    texts = ["impossible", *("" for _ in shown[1:])] if own is None else [column.text(row, own) for column in shown]
    return (count, *(row.settings.get(field, "") for field in varied), *texts)


def _reasons(report: ScalingReport) -> list[str]:
    first = {row.problem: row.n_devices for row in reversed(report.rows) if row.problem}
    told = [f"impossible: {n:,} GPUs: {reason}" for reason, n in list(first.items())[::-1]]
    unfit = any(row.figures and not row.figures.fits for row in report.rows)
    return [*(["! does not fit into memory"] if unfit else []), *told[:MOST_REASONS]]


def _answers(report: ScalingReport) -> list[str]:
    if report.stop_size is None:
        stop = f"marginal return stays above {report.threshold:g}"
    else:
        stop = f"marginal return falls below {report.threshold:g} at {report.stop_size:,} GPUs"
    told = [stop]
    shows = f"{report.onset_step:,.0f} GPUs" if isfinite(report.onset_step) else "no size"
    seen = f"{report.knee:,}" if report.knee else "none of the sizes"
    told.append(f"data-parallel communication shows with 5% of the step from {shows} (closed form), {seen} (simulated)")
    told += [_onset(own) for own in report.onsets]
    if report.target is not None:
        own = report.target
        if own.n_devices is None:
            told.append(
                f"{own.target}: no size meets it more likely than not; highest probability {100 * own.prob:.0f}%"
            )
        else:
            told.append(f"{own.target}: from {own.n_devices:,} GPUs, with probability {100 * own.prob:.0f}%")
    return told


def _onset(own: PassOnset) -> str:
    sizes = ", ".join(
        f"{name} n* = {value:,.0f}" if isfinite(value) and value < 1e9 else f"{name} never"
        for name, value in (("ring", own.ring), ("tree", own.tree), ("as the network chooses", own.law))
    )
    return f"  {own.name}: {format_s(own.comm_s, 3)} beside {format_s(own.window_s, 3)} of a layer; stops hiding at {sizes}"


def _exposed_s(own: Figures) -> float:
    return own.exposed_tp_s + own.exposed_cp_s + own.exposed_ep_s + own.exposed_dp_s + own.exposed_pp_s


def _hidden_s(own: Figures) -> float:
    return own.hidden_tp_s + own.hidden_cp_s + own.hidden_ep_s + own.hidden_dp_s

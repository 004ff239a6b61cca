"""Draws what the variation of kernels costs: of made-up jobs with one noisy kernel, and of a recorded one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from prism_jax.core.picture import GREY, WINE, new_figure, style
from prism_jax.recorded.kernel_report import TraceKernelsReport, short

MOST = 10


def draw(costs: Sequence[tuple[float, float]], report: TraceKernelsReport, path: str) -> None:
    """Writes the picture.

    Args:
        costs: of every made-up job the share of the p95 that the first and the second kernel cost.
        report: of the recorded job.
        path: of the picture.
    """
    first, second = np.array(costs).T
    with style():
        figure = new_figure((11.0, 4.4))
        left, right = figure.subplots(1, 2)
        for values, colour, label in ((first, WINE, "noisy kernel"), (second, GREY, "next one")):
            left.plot(np.sort(values), np.arange(1, len(values) + 1) / len(values), color=colour, label=label)
        left.set_title(f"{len(first)} made-up jobs")
        left.set_xlabel("share of the p95 that its variation costs")
        left.set_ylabel("jobs with at most this cost")
        left.legend()
        pools = list(report.pools[:MOST])[::-1]
        right.barh(
            [short(one) for one in pools], [(one.saved_p95_s or 0.0) / report.table.p95_s for one in pools], color=WINE
        )
        right.tick_params(axis="y", labelsize=6)
        right.set_title("a recorded job")
        right.set_xlabel("share of the p95 that its variation costs")
        right.xaxis.set_major_locator(MaxNLocator(5))
        for axis in (left.xaxis, right.xaxis, left.yaxis):
            axis.set_major_formatter(PercentFormatter(1.0))
        figure.savefig(path)

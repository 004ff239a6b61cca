"""The best plan of every cluster size as lines of plain text."""

from __future__ import annotations

from ...units import format_bytes, format_s
from ..types.study import SizesReport
from .study import joined, plan_words


def lines(report: SizesReport) -> list[str]:
    """The best plan of every cluster size, and which sizes nothing else beats."""
    head = ("GPUs", report.objective, "GPU-s per step", "energy", "cost", "memory", "plan")
    is_time, unit = report.objective_unit == "s", report.objective_unit
    rows = [
        (
            f"{'*' if size.n_devices in report.front else ' '} {size.n_devices:,}",
            format_s(size.value_s) if is_time else f"{size.value_s:.4g} {unit}",
            f"{size.n_devices * (size.value_s if is_time else size.p50_s):,.0f}",
            f"{size.energy_j / 3.6e6:.4g} kWh",
            f"{size.cost:.4g}" if size.cost else "-",
            format_bytes(size.memory_bytes),
            plan_words(size.plan),
        )
        for size in report.sizes
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    title = f"{report.job.name}: {report.job.model} on {report.job.device}, best plan by {report.objective}"
    last = "* on the Pareto front of time, GPUs, energy and cost; energy and cost refer to the median step"
    return [title, "", *(joined(row, widths) for row in (head, *rows)), "", last]

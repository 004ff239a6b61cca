"""Measured against predicted peaks of memory, by case family, and the log-normal law of their ratio learnt from families."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
from scipy.stats import t

from experiments.memory_validation.megatron_rows import MegatronRow
from experiments.step_tables.memory_table import classify_rows
from experiments.step_tables.records import read_records
from experiments.step_tables.table import read_step_rows
from prism_jax.cost.memory import StageMemory, memory
from prism_jax.framework.base import GIB, MEGATRON
from prism_jax.framework.frameworks import NANOTRON
from prism_jax.system import catalog

_ALLOCATED = re.compile(r"real_alloc_gib ([\d.]+)")
_Z95 = NormalDist().inv_cdf(0.95)
_CLUSTER = catalog.cluster("dgx-h100", 8)  # peaks do not depend on it


@dataclass(frozen=True)
class Peak:
    """One measured peak with its prediction, bytes."""

    family: str
    labels: tuple[str, ...]
    has_experts: bool
    predicted_bytes: float
    measured_bytes: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_bytes / self.measured_bytes - 1.0

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured / predicted."""
        return float(np.log(self.measured_bytes / self.predicted_bytes))


def allocated_bytes(stage: StageMemory) -> float:
    """What torch's allocator hands out: without context, communicators and fragmentation."""
    return stage.allocator_bytes - stage.fragmentation_bytes


def megatron_peaks(rows: Iterable[MegatronRow], *, with_flags: bool) -> list[Peak]:
    """Peaks of the last pipeline stage.

    Args:
        with_flags: what the flags of a row say beside its plan (dropout, workspaces); else as a job file is predicted.
    """
    found = []
    for row in rows:
        last = memory(row.model, _CLUSTER, row.plan, row.options if with_flags else MEGATRON).stages[-1]
        labels = (row.device, *row.features)
        found.append(Peak(row.family, labels, row.model.has_experts, allocated_bytes(last), row.peak_bytes))
    return found


def step_table_peaks(path: Path) -> list[Peak]:
    """The Megatron-LM rows of the table of step times that report a peak; one family per model."""
    measured = {record.id: _ALLOCATED.search(record.notes) for record in read_records(path)}
    found = []
    for row in read_step_rows(path):
        match = measured[row.id]
        if match and not row.unsupported:
            model = row.job[0]
            predicted = allocated_bytes(memory(*row.job).worst)
            found.append(Peak(f"steps {model.name}", ("B200",), model.has_experts, predicted, float(match[1]) * GIB))
    return found


def nanotron_peaks(path: Path) -> list[Peak]:
    """Reserved memory of the layouts that ran; one family per model."""
    return [
        Peak(
            row.row.model.name,
            ("H100",),
            False,
            row.predicted.worst.allocator_bytes,
            row.row.peak_reserved_bytes,
        )
        for row in classify_rows(path, NANOTRON.memory).rows
        if row.row.peak_reserved_bytes is not None
    ]


@dataclass(frozen=True)
class Law:
    """Normal law of log(measured / predicted)."""

    location: float
    scale: float

    def covers(self, peak: Peak) -> bool:
        """Whether the 90% interval holds a measured peak."""
        return abs(peak.log_ratio - self.location) <= _Z95 * self.scale


def fit_law(peaks: Sequence[Peak]) -> Law:
    """Median of the families' medians; spread within and between families, that between widened for their small number.

    Notes:
        var = within + between (t_{n-1} / z)^2 (1 + 1/n) at the 95% quantiles: a new family is a new draw, of n that were seen.
    """
    families = by(peaks, lambda peak: [peak.family])
    ratios = [np.array([peak.log_ratio for peak in own]) for own in families.values()]
    medians, n = np.array([np.median(own) for own in ratios]), len(ratios)
    within = float(np.mean([np.mean((own - np.median(own)) ** 2) for own in ratios]))
    between = float(medians.var(ddof=1))
    wider = (float(t(n - 1).ppf(0.95)) / _Z95) ** 2 * (1.0 + 1.0 / n)
    return Law(float(np.median(medians)), sqrt(within + wider * between))


def left_out_coverage(peaks: Sequence[Peak]) -> dict[Peak, bool]:
    """Peak -> whether the law of the other families, of the same kind (with or without experts), covers it."""
    found = {}
    for kind in by(peaks, lambda peak: [str(peak.has_experts)]).values():
        for family, own in by(kind, lambda peak: [peak.family]).items():
            law = fit_law([peak for peak in kind if peak.family != family])
            found |= {peak: law.covers(peak) for peak in own}
    return found


def by(peaks: Iterable[Peak], labels: Callable[[Peak], Iterable[str]]) -> dict[str, list[Peak]]:
    """Peaks by each of their labels."""
    groups = dict[str, list[Peak]]()
    for peak in peaks:
        for label in labels(peak):
            groups.setdefault(label, []).append(peak)
    return groups


def error_record(peaks: Sequence[Peak], covered: dict[Peak, bool]) -> dict[str, float]:
    """Errors of a group, and the share of it inside the intervals learnt without its family."""
    errors = np.array([peak.error for peak in peaks])
    families = by(peaks, lambda peak: [peak.family]).values()
    return {
        "n": len(peaks),
        "n_families": len(families),
        "median_abs": round(float(np.median(np.abs(errors))), 4),
        "p90_abs": round(float(np.quantile(np.abs(errors), 0.9)), 4),
        "bias": round(float(errors.mean()), 4),
        "coverage": round(float(np.mean([covered[peak] for peak in peaks])), 4),
        "coverage_of_families": round(
            float(np.mean([np.mean([covered[peak] for peak in own]) for own in families])), 4
        ),
    }

"""A captured program as text."""

from __future__ import annotations

from ...units import format_bytes, format_count
from ..types.capture import CaptureReport, ClassFacts

MOST_CLASSES = 8  # told one by one


def lines(report: CaptureReport) -> list[str]:
    """The report, line by line."""
    axes = " x ".join(f"{axis} {size}" for axis, size in report.axes.items()) or "no axes"
    samples = f"{report.samples_per_step:,} samples"
    if report.tokens_per_sample:
        samples += f" of {report.tokens_per_sample:,} tokens"
    found = [
        f"{report.name}: {report.world:,} ranks, {axes}, captured by {report.front_end} from {report.source}",
        f"  step        {samples}, {report.micro_batches} micro-batches per replica",
        f"  parameters  {format_count(report.n_params)}",
        f"  fusion      {report.fusion}",
    ]
    for one in report.classes[:MOST_CLASSES]:
        found += _of_class(one)
    if len(report.classes) > MOST_CLASSES:
        found.append(f"  and {len(report.classes) - MOST_CLASSES:,} more classes")
    found += [f"  assumed: {sentence}" for sentence in report.assumptions]
    return [*found, f"wrote {report.file}"] if report.file else found


def _of_class(one: ClassFacts) -> list[str]:
    forward, backward = one.flops_forward / 1e12, one.flops_backward / 1e12
    said = ", ".join(f"{axis} {format_bytes(size)}" for axis, size in one.axis_bytes.items())
    return [
        f"  {one.name}: {one.n_ranks:,} ranks of part {one.stage}, {one.rows:,} rows, {one.kernels:,} kernels a micro-batch",
        f"    forward {forward:.4g} TFLOP, backward {backward:.4g} TFLOP, {format_bytes(one.memory_bytes)} of memory traffic",
        *([f"    collectives {said}"] if said else []),
    ]

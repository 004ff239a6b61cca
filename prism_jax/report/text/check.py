"""What follows from a job as text."""

from __future__ import annotations

from ...units import format_bytes, format_count
from ..quantity import uncertain_memory
from ..table import Facts
from ..types.check import CheckReport
from ..types.open_field import TOLD


def lines(report: CheckReport) -> list[str]:
    """The report, line by line."""
    return facts(report).lines()


def facts(report: CheckReport) -> Facts:
    """Names and values."""
    active = f", {format_count(report.n_params_active)} active" if report.has_experts else ""
    verdict = "fits" if report.fits else "DOES NOT FIT"
    memory = report.memory_bytes_per_gpu
    total, capacity = format_bytes(memory.total), format_bytes(memory.capacity)
    values = {
        "model": f"{report.model}, {format_count(report.n_params)} parameters{active}",
        "cluster": f"{report.cluster}, {report.n_devices:,} x {report.device}",
        "plan": f"tp {report.tp} x cp {report.cp} x pp {report.pp} x dp {report.dp}, ep {report.ep}",
        "schedule": f"{report.schedule}, {report.n_micro_batch} micro-batches of {report.micro_batch}, chunks: {report.n_chunk}",
        "batch": _batch(report),
        "groups": f"{report.n_replica:,} replicas of {report.pp} stages of {report.n_member} synchronised devices",
        "framework": report.framework or "not specified",
        "variability": report.variability,
        **({"evidence": report.evidence.sentence} if report.evidence else {}),
        **({"assumed": "what such software usually does"} if report.open_fields else {}),
        **{f"  {one.name.removeprefix('software.')}": one.words for one in report.open_fields[:TOLD]},
        "memory": f"{total} of {capacity} per device on stage {report.memory_stage}, the fullest: {verdict}",
        "  interval": uncertain_memory((memory.low, memory.high), memory.not_fit_prob),
        **{f"  {name}": format_bytes(size) for name, size in memory.parts.items()},
    }
    return Facts(report.name, values)


def _batch(report: CheckReport) -> str:
    """Sequences and their length, or samples that are none."""
    if not report.seq_len:
        return f"{report.global_batch:,} {report.sample_unit}"
    return f"{report.global_batch:,} sequences of {report.seq_len:,} {report.sample_unit}"

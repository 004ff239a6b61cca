"""Lines that all reports on recorded jobs share."""

from __future__ import annotations

from collections.abc import Sequence

from ...types.trace import TraceFacts

BAR_WIDTH = 24
SMALLEST_SHARE = 0.001
FAR = 0.05  # of the step; a replay that far off is warned about


def notes(info: TraceFacts) -> list[str]:
    """What the reader should know about the recording."""
    return [f"note: {note}" for note in info.notes]


def warnings(doubts: Sequence[str]) -> list[str]:
    """Why not to trust the figures above."""
    return [f"warning: {doubt}" for doubt in doubts]


def headline(info: TraceFacts) -> list[str]:
    """Which job, and how much of it was recorded."""
    if info.job is None:
        return [f"{info.name}: step times of a log, no ops ({info.source})"]
    job, shape = info.job, info.job.shape
    axes = (
        " x ".join(f"{axis} {getattr(shape, axis)}" for axis in ("dp", "pp", "tp", "sp") if getattr(shape, axis) > 1)
        or "one rank"
    )
    chunks = f", {shape.virtual_stages} chunks per stage" if shape.virtual_stages > 1 else ""
    return [
        f"{shape.name}: {job.world_size:,} ranks, {axes}{chunks}",
        f"{job.n_recorded_workers:,} recorded workers, {job.n_ops_per_replica:,} ops per replica and step",
    ]


def step_lines(info: TraceFacts) -> list[str]:
    """The recorded steps."""
    times = info.step_s
    return [f"{_steps(info)}: p50 {times.p50:.4g} s, p95 {times.p95:.4g} s, CV {times.cv:.2%}"]


def _steps(info: TraceFacts) -> str:
    if info.n_steps == 1:
        return f"1 step, number {info.first_step:,}"
    return f"{info.n_steps:,} steps between {info.first_step:,} and {info.last_step:,}"


def counted(n: int, what: str) -> str:
    """As "1 gap", "2 gaps"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"

"""EvidenceFacts: which measured runs lie near a job, and how far off they were when left out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EvidenceFacts:
    """Measured runs near a job.

    Attributes:
        n_rows, n_sources: how many.
        median_error: of their predictions by calibrations without their source; absent where there are none.
        inside: share of them in their 90 % interval.
        differs: in what they differ from the job.
        is_extrapolated: whether that changes the answer.
        sentence: in words.
    """

    n_rows: int
    n_sources: int
    median_error: float | None
    inside: float | None
    differs: tuple[str, ...]
    is_extrapolated: bool
    sentence: str

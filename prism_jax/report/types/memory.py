"""Peak memory of one device as reports hold it: by component, with what is not known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated

from ...job import Job
from ...memory.breakdown import MemoryBreakdown
from ..codec import WHERE_KNOWN, from_plain


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes on the pipeline stage that needs most; `headroom` is negative where they do not fit.

    Attributes:
        low, high: 90 % interval of the peak that would be measured.
        not_fit_prob: probability that it exceeds the capacity, 0-1.
        stage: which stage that is; absent where another key says so.
    """

    total: float
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    temporary: float
    workspace: float
    communication: float
    framework: float
    fragmentation: float
    capacity: float
    headroom: float
    low: float
    high: float
    not_fit_prob: float
    stage: Annotated[int | None, WHERE_KNOWN] = None

    @property
    def parts(self) -> Mapping[str, float]:
        """Component -> bytes; they sum to the total."""
        whole = ("total", "capacity", "headroom", "low", "high", "not_fit_prob", "stage")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in whole}


def memory_facts(job: Job, needed: MemoryBreakdown, *, stage: int | None = None) -> MemoryFacts:
    """Bytes on the fullest stage, the 90 % interval of what would be measured, and the probability that it does not fit.

    Args:
        needed: memory of the job.
        stage: the fullest stage, where the report does not say it elsewhere.
    """
    law, has_experts = job.software.peak_law, job.model.has_experts
    low, high = law.interval_bytes(needed.total_bytes, has_experts)
    not_fit_prob = law.not_fit_prob(needed.total_bytes, needed.capacity_bytes, has_experts)
    uncertain = {"low": low, "high": high, "not_fit_prob": not_fit_prob, "stage": stage}
    return from_plain(MemoryFacts, {**needed.as_dict(), **uncertain})

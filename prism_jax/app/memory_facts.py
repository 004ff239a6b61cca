"""Peak memory of a job as a report holds it: by component, with what is not known of it."""

from __future__ import annotations

from ..job import Job
from ..memory.breakdown import MemoryBreakdown
from ..report.codec import from_plain
from ..report.types.memory import MemoryFacts


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

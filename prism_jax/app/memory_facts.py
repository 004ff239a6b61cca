"""Peak memory of a job as a report holds it: by component, with what is not known of it."""

from __future__ import annotations

from ..job import Job
from ..memory.breakdown import MemoryBreakdown
from ..report.codec import from_plain
from ..report.types.memory import MemoryFacts
from ..report.use_case import Told
from ..units import format_bytes

IGNORE_MEMORY = "Exit with 0 even if the job does not fit into memory."


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


def memory_verdict(fits: bool, headroom_bytes: float, stage: int | None, ignore: bool) -> Told | None:
    """The warning about a job that does not fit; the command fails then, unless that is to be ignored.

    Args:
        fits: whether it does.
        headroom_bytes: capacity left on the fullest stage.
        stage: that pipeline stage; None: not known.
        ignore: whether `--ignore-memory` was given.
    """
    if fits:
        return None
    where = "" if stage is None else f" on stage {stage}"
    remedy = "" if ignore else "; --ignore-memory accepts that"
    return Told(
        f"warning: does not fit: needs {format_bytes(-headroom_bytes)} more per device{where}{remedy}",
        failed=not ignore,
    )

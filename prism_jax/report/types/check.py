"""CheckReport: what follows from a job, without simulating anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...calibration.evidence import Evidence
from ..report import Report
from .memory import MemoryFacts
from .open_field import OpenFieldFacts


@dataclass(frozen=True)
class CheckReport(Report):
    """Counts that follow from a job, and whether it fits into memory.

    Attributes:
        n_params_active: parameters that a token meets.
        has_experts: whether these differ by design.
        memory_stage: the pipeline stage that `memory_bytes_per_gpu` is of.
        micro_batch, global_batch: sequences; seq_len: tokens.
        open_fields: what the job leaves unsaid, the field that widens the interval of predictions most in front.
        evidence: measured runs near this job.
        notes: what of the model is left out or beyond what it is made for, and what of the plan is without effect, in sentences.
    """

    kind: ClassVar[str] = "check"

    name: str
    model: str
    cluster: str
    device: str
    variability: str
    framework: str
    n_params: int
    n_params_active: int
    n_devices: int
    tp: int
    cp: int
    pp: int
    dp: int
    ep: int
    schedule: str
    n_micro_batch: int
    n_chunk: int
    n_member: int
    n_replica: int
    tokens_per_step: int
    sample_unit: str
    memory_bytes_per_gpu: MemoryFacts
    fits: bool
    has_experts: bool
    memory_stage: int
    micro_batch: int
    global_batch: int
    seq_len: int
    notes: tuple[str, ...] = ()
    open_fields: tuple[OpenFieldFacts, ...] = ()
    evidence: Evidence | None = None

    def lines(self) -> list[str]:
        from ..text.check import lines

        return lines(self)

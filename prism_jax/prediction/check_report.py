"""Reports what follows from a job without simulating anything: counts, peak memory by component, fields left unsaid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..calibration.evidence import Evidence
from ..core.page import Block, Card, Facts, Tone, notes
from ..core.readable import percent, prob
from ..core.report import WHERE_KNOWN, Report, RunRecord
from ..core.units import format_bytes, format_count
from .job_facts import HostFacts, MemoryFacts, OpenFieldFacts

MOST_ASSUMED = 2  # fields of the first screen; a report holds all
SURE = 0.01  # probability that a job does not fit below which "fits" is said without a doubt
UNSURE = 0.2  # probability that a job does not fit from which "fits" is not said without a doubt
ALL_STATED = "no field that moves the step is left open in the job file"
AS_MEASURED = "what the job file leaves open is as usual, and as the runs of --fit have it"


@dataclass(frozen=True)
class CheckReport(Report):
    """Counts that follow from a job, and whether it fits into memory.

    Attributes:
        n_params_active: parameters that a token meets.
        has_experts: whether these differ by design.
        fits: into the memory of the devices, and of the node where something is kept there.
        memory_stage: the pipeline stage that `memory_bytes_per_gpu` is of.
        micro_batch, global_batch: sequences; seq_len: tokens.
        states: the optimizer, and bytes per parameter of what is kept, before it is sharded; empty where nothing is trained so.
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
    host_memory_bytes_per_node: Annotated[HostFacts | None, WHERE_KNOWN] = None
    states: str = ""
    record: Annotated[RunRecord | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        memory, values = self.memory_bytes_per_gpu, self._values
        verdict, tone = memory_verdict(memory, fits=self.fits)
        file = self.record.inputs.get("job") if self.record else None
        return Card(
            f"{self.name}: {self.model} on {self.n_devices:,} x {self.device}",
            f"{verdict} Nothing was simulated.",
            tone,
            facts={**{name: values[name] for name in ("model", "plan", "batch")}, "memory": memory.words},
            evidence="none" if self.evidence is None else self.evidence.short,
            assumptions=assumed(self.open_fields, is_fitted=bool(self.record and self.record.inputs.get("fit"))),
            next_step=f"prism-jax {'predict' if self.fits else 'search'} {file or self.name}",
        )

    def blocks(self) -> Sequence[Block]:
        return (
            Facts("Job", self._values),
            memory_block(self.memory_bytes_per_gpu, self.host_memory_bytes_per_node, self.memory_stage),
            *assumption_blocks(self.evidence, self.open_fields, self.notes),
        )

    @property
    def fullest_stage(self) -> int:
        """The pipeline stage that needs most memory."""
        return self.memory_stage

    @property
    def _values(self) -> dict[str, str]:
        active = f", {format_count(self.n_params_active)} active" if self.has_experts else ""
        size = f"{self.n_micro_batch} micro-batches of {self.micro_batch}, chunks: {self.n_chunk}"
        return {
            "model": f"{self.model}, {format_count(self.n_params)} parameters{active}",
            "cluster": f"{self.cluster}, {self.n_devices:,} x {self.device}",
            "plan": f"tp {self.tp} x cp {self.cp} x pp {self.pp} x dp {self.dp}, ep {self.ep}",
            "schedule": f"{self.schedule}, {size}",
            "batch": _batch(self),
            "groups": f"{self.n_replica:,} replicas of {self.pp} stages of {self.n_member} synchronised devices",
            "framework": self.framework or "not stated: the average of frameworks",
            "states": self.states,
            "variability": self.variability,
        }


def assumed(open_fields: Sequence[OpenFieldFacts], *, is_fitted: bool = False) -> tuple[str, ...]:
    """The assumptions of a first screen: the open fields that matter most.

    Args:
        is_fitted: whether the prediction stands on measured runs, which then decide the fields.
    """
    return tuple(one.sentence for one in open_fields[:MOST_ASSUMED]) or (AS_MEASURED if is_fitted else ALL_STATED,)


def memory_verdict(memory: MemoryFacts, *, fits: bool) -> tuple[str, Tone]:
    """Whether a job fits, as a sentence, and its tone.

    Args:
        fits: into the memory of the devices and, where something is kept there, of the node.
    """
    if memory.headroom < 0.0:
        return f"DOES NOT FIT: {format_bytes(-memory.headroom, 3)} too much per GPU.", "bad"
    if not fits:
        return "DOES NOT FIT into the memory of the host.", "bad"
    risk = f"({prob(memory.not_fit_prob)} risk of OOM)"
    if memory.not_fit_prob >= UNSURE:
        return f"May not fit {risk}.", "unsure"
    return f"Probably fits {risk}." if memory.not_fit_prob >= SURE else "Fits.", "good"


def memory_block(memory: MemoryFacts, host: HostFacts | None, stage: int | None = None) -> Facts:
    """Peak memory by component, largest first, of the fullest stage, and what the host keeps."""
    where = memory.stage if stage is None else stage
    parts = sorted(((size, name) for name, size in memory.parts.items() if size > 0), reverse=True)
    facts = {
        "peak": memory.words,
        **{name: f"{format_bytes(size, 3)}, {percent(size / memory.total)}" for size, name in parts},
        "on the host": host.sentence if host else "",
    }
    return Facts(f"Memory per GPU{'' if where is None else f' on stage {where}, the fullest'}", facts)


def assumption_blocks(
    found: Evidence | None, open_fields: Sequence[OpenFieldFacts], told: Sequence[str]
) -> list[Block]:
    """Blocks on the evidence of an answer, its assumptions, and parts of the job that are left out or have no effect."""
    runs = {} if found is None else {"interval": found.known, "measured runs": found.nearest}
    assumed_fields = {one.name: one.words for one in open_fields}
    return [
        Facts("Evidence", runs),
        Facts("Assumed of fields that the job file does not state", assumed_fields),
        *notes(told),
    ]


def _batch(report: CheckReport) -> str:
    """Sequences and their length, or samples that are none."""
    if not report.seq_len:
        return f"{report.global_batch:,} {report.sample_unit}"
    return f"{report.global_batch:,} sequences of {report.seq_len:,} tokens"

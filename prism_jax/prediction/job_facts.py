"""Facts that follow from a job without simulating anything: fields left unsaid, memory of devices and hosts, what is assumed.

Of memory it says what is not known of it; of an unsaid field what it may do to the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import exp, sqrt
from typing import Annotated, Any

import numpy as np

from ..calibration.band import model_factors, why_wide
from ..calibration.evidence import Evidence, cell_of, evidence
from ..calibration.open_fields import NETWORK, OpenField
from ..core.readable import counted, percent
from ..core.report import WHERE_KNOWN, from_plain
from ..core.units import format_bytes
from ..cost.memory import MemoryBreakdown
from ..job.job import Job
from ..plan.fields import FP8_RECIPES, gradients_on_host, optimizer_on_host
from ..plan.optimizers import has_master, moments_bytes, updated_bytes

SMALLEST_CHANGE = 5e-4  # of the step
SMALLEST_GAIN = 0.005  # of the width of an interval


@dataclass(frozen=True)
class Alternative:
    """Value that the field may have instead.

    Attributes:
        value: as a job file has it.
        odds: its probability.
        change: of the step if it is that value instead of the assumed one, relative.
    """

    value: str
    odds: float
    change: float


@dataclass(frozen=True)
class OpenFieldFacts:
    """One field.

    Attributes:
        name: `software.norm`.
        assumed: the likeliest value, which memory and plan are checked with.
        odds: its probability.
        alternatives: the others.
        narrows: share of the width of the interval that goes if the field is stated.
    """

    name: str
    assumed: str
    odds: float
    alternatives: tuple[Alternative, ...]
    narrows: float

    @property
    def sentence(self) -> str:
        """The assumption and what the likeliest other value would change, for one line."""
        other = max(self.alternatives, key=lambda one: one.odds, default=None)
        changed = "" if other is None else f"; if {other.value}: {_change(other.change)}"
        return f"{self.name} {self.assumed} ({self.odds:.0%} likely){changed}"

    @property
    def words(self) -> str:
        """The assumption and all other values, without the name."""
        others = "; ".join(f"{one.value} ({one.odds:.0%}): {_change(one.change)}" for one in self.alternatives)
        gain = f"; stating it narrows the interval by {percent(self.narrows)}" if self.narrows >= SMALLEST_GAIN else ""
        return f"{self.assumed} ({self.odds:.0%} likely); {others}{gain}"


def _change(ratio: float) -> str:
    if abs(ratio) < SMALLEST_CHANGE:
        return "same step"
    return f"step {percent(abs(ratio))} {'longer' if ratio > 0 else 'shorter'}"


def evidence_of_job(job: Job) -> Evidence:
    """Measured runs near a job, and how sure that makes its prediction.

    Raises:
        SpecError: no constants for the device.
    """
    reasons = None
    if job.level is None:
        reasons = why_wide(job.model, job.cluster, job.plan, job.effective_calibration, job.framework)
    return evidence(cell_of(job.model, job.cluster, job.plan, job.software.name), reasons=reasons)


def open_facts(job: Job) -> tuple[OpenFieldFacts, ...]:
    """The open fields of a job, the one that widens its interval most in front; none where its level or site was measured.

    Raises:
        SpecError: no constants for the device.
    """
    if job.level is not None or not job.open_fields:
        return ()
    stated = model_factors(job.model, job.cluster, job.plan, job.effective_calibration, job.framework)
    variance = float(np.var(np.log(stated))) + sum(one.sd**2 for one in job.open_fields)
    return tuple(_facts(one, variance) for one in job.open_fields)


def _facts(field: OpenField, variance: float) -> OpenFieldFacts:
    others = zip(field.values[1:], field.odds[1:], field.log_ratio[1:], strict=True)
    return OpenFieldFacts(
        name=field.name,
        assumed=_written(field.name, field.values[0]),
        odds=field.odds[0],
        alternatives=tuple(
            Alternative(_written(field.name, value), odds, exp(ratio) - 1.0) for value, odds, ratio in others
        ),
        narrows=1.0 - sqrt(max(0.0, 1.0 - field.sd**2 / variance)),
    )


def _written(name: str, value: Any) -> str:
    """Value in a job file; of a network that nobody describes, its bandwidth over that of the usual cluster of the device."""
    if name == NETWORK:
        return "the usual bandwidth between nodes" if value == 1.0 else f"{value:g} x that"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes on the pipeline stage that needs most; `headroom` is negative where they do not fit.

    Attributes:
        low, high: 90% interval of the peak that would be measured.
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

    @property
    def words(self) -> str:
        """Peak and capacity, and the 90% interval of the peak that would be measured."""
        total, low, high, capacity = (self._in_unit(size) for size in (self.total, self.low, self.high, self.capacity))
        unit = format_bytes(self.capacity).rpartition(" ")[2]
        return f"{total} of {capacity} {unit} on the fullest GPU (90% sure: {low} to {high} {unit})"

    def _in_unit(self, size: float) -> str:
        """Bytes in the unit in which the capacity reads best."""
        number = format_bytes(self.capacity, 6).rpartition(" ")[0]
        return f"{size / self.capacity * float(number):.3g}"


@dataclass(frozen=True)
class HostFacts:
    """Bytes of a node's main memory that the job keeps there.

    Attributes:
        rounding: by which pinned buffers are larger than what they hold.
        capacity: of the node; absent where it is not known.
    """

    total: float
    parameters: float
    gradients: float
    optimizer: float
    activations: float
    rounding: float
    capacity: Annotated[float | None, WHERE_KNOWN] = None

    @property
    def fits(self) -> bool:
        """Whether the node has as much; true where its memory is not known."""
        return self.capacity is None or self.total <= self.capacity

    @property
    def sentence(self) -> str:
        """Total, capacity and verdict, and the largest parts."""
        parts = sorted(((getattr(self, name), name) for name in HOST_PARTS), reverse=True)
        listed = ", ".join(f"{name} {format_bytes(size, 3)}" for size, name in parts if size > 0)
        verdict = "fits" if self.fits else "DOES NOT FIT"
        of = "memory of the node not stated (cluster.host_memory)" if self.capacity is None else verdict
        whole = "" if self.capacity is None else f" of {format_bytes(self.capacity, 3)}"
        return f"{format_bytes(self.total, 3)}{whole} per node: {of}; {listed}"


HOST_PARTS = ("parameters", "gradients", "optimizer", "activations", "rounding")


def host_facts(job: Job) -> HostFacts | None:
    """Memory that a job takes on its hosts; None: none."""
    found = job.host_memory
    if found is None:
        return None
    parts = {name: getattr(found, f"{name}_bytes") for name in HOST_PARTS}
    return HostFacts(found.total_bytes, **parts, capacity=found.capacity_bytes)


def states_words(job: Job) -> str:
    """The optimizer, and bytes of what it keeps per parameter before sharding; a model that says its own optimizer has none."""
    plan = job.plan
    if hasattr(job.model, "optimizer"):
        return ""
    has_copy = has_master(plan) and plan.sharding == "none"
    master = f"{updated_bytes(plan):g} master copy" if has_copy else "no master copy"
    kept = updated_bytes(plan) if plan.sharding != "none" else plan.element_bytes
    parts = (f"{kept:g} parameter", master, f"{moments_bytes(plan):.3g} moments")
    return f"{plan.optimizer}: {', '.join(parts)}; bytes per parameter before sharding, gradients not counted"


def recipe_notes(job: Job) -> tuple[str, ...]:
    """Note on the recipe of dtype fp8 (what shares a scale), where a job does not state it."""
    recipe = dict(job.filled).get("fp8_recipe")
    if job.plan.dtype != "fp8" or recipe is None or recipe != job.plan.fp8_recipe:
        return ()
    return (f"assumed plan.fp8_recipe: {recipe}; others are {', '.join(one for one in FP8_RECIPES if one != recipe)}",)


def expert_notes(job: Job) -> tuple[str, ...]:
    """Note on what is assumed of experts where a job does not state how they run, one sentence."""
    plan, moe, is_open = job.plan, getattr(job.model, "moe", None), job.open_software
    if moe is None:
        return ()
    parts: list[str] = []
    if plan.ep > 1 and "dispatcher" in is_open:
        parts.append(f"software.dispatcher {plan.software.dispatcher}")
    if plan.tp > 1 and plan.etp is None:
        parts.append(f"plan.etp {plan.expert_tp}")
    if moe.n_experts > plan.ep and "expert_products" in is_open:
        parts.append(f"software.expert_products {plan.software.expert_products}")
    if not moe.capacity_factor and "expert_counts" in is_open:
        waits = ", for whose loads the host waits in every layer" if plan.software.waits_for_counts else ""
        parts.append(f"no capacity_factor (dropless){waits}")
    return (f"assumed of experts: {'; '.join(parts)}",) if parts else ()


def host_notes(job: Job) -> tuple[str, ...]:
    """Note on what is assumed of an optimizer on the host."""
    share, plan = optimizer_on_host(job.plan), job.plan
    if not share:
        return ()
    threads = f"{counted(plan.host_threads, 'thread')} per process" if plan.host_threads else "all cores"
    when = "during the backward pass" if gradients_on_host(plan) else "after the backward pass"
    return (
        f"optimizer on the host: assumed {threads} (plan.host_threads), gradients leave {when} (plan.offload_gradients); "
        "pinned buffers rounded up to powers of two, by 44% in the mean",
    )


def memory_facts(job: Job, needed: MemoryBreakdown, *, stage: int | None = None) -> MemoryFacts:
    """Bytes on the fullest stage, the 90% interval of what would be measured, and the probability that it does not fit.

    Args:
        needed: memory of the job.
        stage: the fullest stage, where the report does not say it elsewhere.
    """
    law, has_experts = job.software.peak_law, job.model.has_experts
    low, high = law.interval_bytes(needed.total_bytes, has_experts)
    not_fit_prob = law.not_fit_prob(needed.total_bytes, needed.capacity_bytes, has_experts)
    uncertain = {"low": low, "high": high, "not_fit_prob": not_fit_prob, "stage": stage}
    return from_plain(MemoryFacts, {**needed.as_dict(), **uncertain})


def job_names(job: Job) -> dict[str, Any]:
    """Names, degrees and sizes of a job under the names of the fields that reports have for them."""
    plan = job.plan
    return {
        "name": job.name,
        "model": job.model.name,
        "cluster": job.cluster.name,
        "device": job.cluster.device.name,
        "variability": job.variability.name,
        "framework": job.software.name,
        "schedule": plan.schedule_name,
        "tokens_per_step": job.model.units_per_step(plan),
        "sample_unit": job.model.sample_unit,
        **{name: getattr(plan, name) for name in ("n_devices", "tp", "cp", "pp", "dp", "ep", "n_micro_batch")},
    }

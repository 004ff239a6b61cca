"""Result of a search in plain numbers: candidates, their plans, gain of the best, and the best of every size. No JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated

from ..core.report import WHERE_KNOWN
from ..plan.plan import ParallelPlan


@dataclass(frozen=True)
class SearchedPlan:
    """Fields of a plan that a search chooses, as a job file spells them.

    Attributes:
        overlap: axis -> whether its communication may hide behind compute.
    """

    tp: int
    pp: int
    dp: int
    cp: int
    ep: int
    virtual_stages: int
    schedule: str
    micro_batch: int
    sequence_parallel: bool
    recompute: str
    zero_stage: int
    sharding: str
    dp_shard: int | None
    overlap: Mapping[str, bool]
    n_micro_batch: int
    n_devices: int

    @property
    def degrees(self) -> str:
        """Degrees and pipeline: "tp 8 x pp 4 x dp 16, 1f1b"."""
        sizes = {"tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": self.dp}
        degrees = " x ".join(f"{axis} {n}" for axis, n in sizes.items() if n > 1) or "one device"
        pipeline = f", {self.schedule}" if self.pp > 1 else ""
        chunks = f" v {self.virtual_stages}" if self.virtual_stages > 1 else ""
        return degrees + (f", ep {self.ep}" if self.ep > 1 else "") + pipeline + chunks

    @property
    def in_short(self) -> str:
        """Degrees, pipeline and micro-batch."""
        return f"{self.degrees}, micro-batch {self.micro_batch}"

    @property
    def words(self) -> str:
        """The whole plan in one line."""
        parallel = ", sequence parallel" if self.sequence_parallel else ""
        return (
            f"{self.in_short} ({self.n_micro_batch} of them), recompute {self.recompute}, {self._states}{parallel}, "
            f"overlap {self._overlaps}"
        )

    @property
    def _states(self) -> str:
        """How parameters, gradients and optimizer states are kept."""
        if self.sharding == "none":
            return f"ZeRO-{self.zero_stage}" if self.zero_stage else "states replicated"
        return self.sharding + (f" in groups of {self.dp_shard}" if self.sharding == "hsdp" else "")

    @property
    def _overlaps(self) -> str:
        """Overlaps that are on; where an axis has one rank there is nothing to overlap."""
        return " ".join(axis for axis, on in self.overlap.items() if on and getattr(self, axis) > 1) or "nothing"


def plan_facts(plan: ParallelPlan) -> SearchedPlan:
    """Fields of a plan that a search chooses, as a job file spells them."""
    same = {field.name: getattr(plan, field.name) for field in fields(SearchedPlan)}
    return SearchedPlan(**same | {"schedule": plan.schedule_name, "overlap": asdict(plan.overlap)})


@dataclass(frozen=True)
class CandidateFigures:
    """A plan that reached the last round, in numbers.

    Attributes:
        step_s: without any variability.
        p50_s, p95_s, p99_s: quantiles of the step time, seconds.
        value_s, value_error_s: objective and its Monte Carlo standard error, in the unit of the objective.
        behind_s, behind_error_s: how far behind the best, on the same draws, and the standard error of that.
        prob_best: probability that it is the best of all finalists, given what the cost model does not know.
        memory_bytes: peak of the worst stage; memory_interval_bytes: 90% interval of what would be measured.
        not_fit_prob: probability that this exceeds the device's memory, 0-1.
        mfu: share of the devices' peak that the median step makes use of, 0-1.
        tokens_per_s_per_gpu: of the median step; samples where the model counts these.
    """

    step_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    value_s: float
    value_error_s: float
    behind_s: float
    behind_error_s: float
    prob_best: float
    memory_bytes: float
    memory_interval_bytes: tuple[float, float]
    not_fit_prob: float
    mfu: float
    tokens_per_s_per_gpu: float


@dataclass(frozen=True)
class ScreenedPlans:
    """Some of the plans that were simulated without variability, from the fastest to the slowest, for pictures.

    Attributes:
        memory_bytes, step_s: [plan] peak per device, and the step.
    """

    memory_bytes: tuple[float, ...]
    step_s: tuple[float, ...]


@dataclass(frozen=True)
class CandidateFacts(CandidateFigures):
    """A candidate compared with the job's own plan.

    Attributes:
        tied: whether the draws cannot tell it from the best.
        changes: overrides (`--set`) that make the job's own plan this one.
    """

    tied: bool
    changes: tuple[str, ...]
    plan: SearchedPlan


@dataclass(frozen=True)
class GainEstimate:
    """Gain of the best plan over the job's own, on draws that the search has not seen: 1 - objective / the own one.

    Attributes:
        base_s, best_s: objective of the job's own plan and of the best one.
        gain: share of the objective that is saved.
        gain_interval: 90% interval, Monte Carlo error alone.
        model_interval: 90% interval including model error, most of which both plans share.
        posterior_interval: 90% interval over posterior draws of a fit; None without one.
    """

    base_s: float
    best_s: float
    gain: float
    gain_interval: tuple[float, float]
    model_interval: tuple[float, float]
    posterior_interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class SizeFigures:
    """Best plan of one cluster size, per step, in numbers.

    Attributes:
        value_s: objective of the best plan, in its unit.
        n_devices: GPUs.
        memory_bytes: peak per device.
        energy_j: joules of all devices.
        cost: in the currency of the price; 0 without one.
        p50_s: median step.
    """

    value_s: float
    n_devices: int
    memory_bytes: float
    energy_j: float
    cost: float
    p50_s: float


@dataclass(frozen=True)
class SizeFacts(SizeFigures):
    """Best plan of one cluster size.

    Attributes:
        value_error_s: Monte Carlo standard error of `value_s`; absent from reports of older versions.
    """

    plan: SearchedPlan
    value_error_s: Annotated[float | None, WHERE_KNOWN] = None

"""Job: a model, a cluster, a plan, a variability and a framework that belong together; what nobody stated of it, with odds.

A field of the plan that a job file leaves out has the default that its page states; a fabric that nobody describes, and the
routing of a run's tokens, have none. In a table of measured jobs a blank says that nobody stated the field: precision,
recomputation and chunks per stage are open there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import exp
from typing import Annotated, Any

from ..calibration.calibration import Calibration, shipped
from ..calibration.key import CalibrationKey, LevelFactor
from ..calibration.open_fields import (
    IMBALANCE,
    NETWORK,
    USUAL_NETWORK,
    USUAL_ROUTING,
    VIRTUAL_STAGES,
    Odds,
    OpenField,
    imbalance_of,
    open_degrees,
    open_fields,
    usual_dtypes,
    usual_recompute,
    usual_software,
    usual_virtual_stages,
)
from ..core.content import ByContent
from ..cost.block_cost import BlockCostModel
from ..cost.efficiency import Efficiency
from ..cost.memory import MemoryBreakdown, memory as memory_of_plan
from ..cost.offload import HostMemory, host_memory
from ..framework.base import Framework, PlanDefaults
from ..framework.frameworks import FRAMEWORKS, framework_of
from ..framework.software import SOFTWARE_VALUES, Software
from ..plan.fields import PlanField
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..variability.tree import Variability
from ..workload.base.workload import Workload, completed_plan, n_body
from .rules import check_plan


@dataclass(frozen=True)
class Published:
    """Figures of the typical step, of one GPU where they are rates; they change no prediction.

    Attributes:
        step_s: seconds of a step.
        tflops_per_gpu: 10^12 FLOP/s, by whatever count.
        mfu: share of the peak, 0-1.
        tokens_per_s_per_gpu: tokens (samples) per second.
        source: where the figures are from.
    """

    step_s: Annotated[float | None, PlanField("seconds of a step", least=0.0)] = None
    tflops_per_gpu: Annotated[float | None, PlanField("10^12 FLOP/s of a GPU, by whatever count", least=0.0)] = None
    mfu: Annotated[float | None, PlanField("share of the peak, 0 to 1", least=0.0, most=1.0)] = None
    tokens_per_s_per_gpu: Annotated[float | None, PlanField("tokens or samples per second and GPU", least=0.0)] = None
    source: Annotated[str, PlanField("where the figures are from")] = ""

    @property
    def figures(self) -> dict[str, float]:
        """Figures that are stated and above zero, by name."""
        named = {name: getattr(self, name) for name in ("step_s", "tflops_per_gpu", "mfu", "tokens_per_s_per_gpu")}
        return {name: value for name, value in named.items() if value}


Filled = tuple[tuple[str, Any], ...]
_SOFTWARE = "software."  # in front of the names of filled fields of it


@dataclass(frozen=True, eq=False)
class Job(ByContent):
    """Model, cluster, plan and variability of one training step; equal and hashed by content, in every process, and picklable.

    Attributes:
        plan: fields that the given plan leaves open (None) hold what the framework does.
        framework: training software: a name in `framework.FRAMEWORKS`, or a `Framework` of the caller's own that is not among
            them; empty: not known, the population's average.
        calibration: corrections of the cost model by measured steps; None: the shipped calibration.
        level: how much longer steps take than the cost model says, by a log of this very job; None: nothing is known of that.
        open_plan: fields of the plan whose value nobody stated, with the odds of what they may be; the plan holds the first.
        published: figures that others measured of this job, for reports alone.
        called: the name that was written, where it is that of software which runs on the framework.
        filled: fields of the plan that were open, with what the framework put there. A copy of the job with another framework
            fills them in anew; a value that differs from this one was written, and stays.

    Raises:
        SpecError: unknown framework.
    """

    model: Workload
    cluster: Cluster
    plan: ParallelPlan
    variability: Variability
    name: str = "job"
    framework: str | Framework = ""
    calibration: Calibration | None = None
    level: LevelFactor | None = None
    open_plan: tuple[tuple[str, Odds], ...] = ()
    published: Published | None = field(default=None, repr=False, compare=False)
    called: str = field(default="", repr=False, compare=False)
    filled: Filled = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        own = framework_of(self.framework, self.plan.zero_stage, self.plan.sharding)
        if isinstance(self.framework, str) and self.framework not in ("", own.name):
            object.__setattr__(self, "called", self.framework)
        plan, filled = _completed(
            completed_plan(self.model, self.plan, self.cluster.node_size), own.plan_defaults, self.filled
        )
        stated = _stated(plan, self.model, dict(self.filled))
        plan, chosen = _with_software(plan, stated, own, self.cluster.device.generation)
        is_registered = own.name in FRAMEWORKS and FRAMEWORKS.named(own.name) == own
        object.__setattr__(self, "framework", own.name if is_registered else self.framework)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "filled", (*filled, *chosen))

    @cached_property
    def open_fields(self) -> tuple[OpenField, ...]:
        """Fields that nobody stated and their effect on the step, widest first; none at a site whose own runs were measured."""
        return self._open_fields_of(self._assumed())

    def blocks(self) -> BlockCostModel:
        """Returns a model of the cost of its blocks under its efficiency; the effect of open fields is found with the same model.

        Raises:
            SpecError: no constants for the device.
            PlanError: `layer_split` does not fit.
        """
        assumed = self._assumed()
        if "open_fields" not in vars(self):
            vars(self)["open_fields"] = self._open_fields_of(assumed)  # as the cached property keeps it
        return assumed.under(self.efficiency.correction)

    def _assumed(self) -> BlockCostModel:
        """Returns the cost model calibrated for the assumed software, without open fields and the level of a log."""
        return BlockCostModel(self.model, self.cluster, self.plan.computed, self._efficiency_under(self.plan.software))

    def _open_fields_of(self, assumed: BlockCostModel) -> tuple[OpenField, ...]:
        if self.effective_calibration.site is not None:
            return ()
        more = (*self.open_plan, *open_degrees(self.plan, self.model, self.framework))
        return open_fields(assumed, self.open_software, self.framework, self._efficiency_under, more)

    def _efficiency_under(self, software: Software) -> Efficiency:
        key = CalibrationKey.of(self.cluster.device, self.framework, software, self.model)
        return self.effective_calibration.efficiency(key)

    def at_mean_of_open(self, eff: Efficiency) -> Efficiency:
        """Returns `eff` under which steps stand at the mean over the unstated fields."""
        if not self.open_fields:
            return eff
        usual = exp(sum(one.mean for one in self.open_fields))
        return replace(eff, correction=eff.correction.scaled(usual))

    @property
    def open_software(self) -> tuple[str, ...]:
        """Fields of `plan.software` that nobody stated: they hold the framework's usual values."""
        return tuple(name.removeprefix(_SOFTWARE) for name, _ in self.filled if name.startswith(_SOFTWARE))

    @property
    def stated_plan(self) -> ParallelPlan:
        """The plan as it was written: fields that the framework filled in are open (None) again."""
        chosen = {name: None for name, _ in self.filled if not name.startswith(_SOFTWARE)}
        software = replace(self.plan.software, **dict.fromkeys(self.open_software))
        return replace(self.plan, software=software, **chosen)

    @property
    def software(self) -> Framework:
        """The framework as an object.

        Raises:
            SpecError: it is no longer known.
        """
        return framework_of(self.framework)

    @property
    def effective_calibration(self) -> Calibration:
        """Corrections of this job's cost by measured training steps: its own calibration, or the shipped one."""
        return shipped() if self.calibration is None else self.calibration

    @cached_property
    def efficiency(self) -> Efficiency:
        """Constants of the device under the job's software, as calibrated.

        Raises:
            SpecError: no constants for the device.
            PlanError: `layer_split` does not fit.
        """
        eff = self.effective_calibration.efficiency_of(self.model, self.cluster, self.plan, self.framework)
        eff = self.at_mean_of_open(eff)
        return eff if self.level is None else replace(eff, correction=eff.correction.scaled(self.level.factor))

    @cached_property
    def memory(self) -> MemoryBreakdown:
        """Peak memory of one device on every pipeline stage, in bytes, by the rules of the job's framework.

        Raises:
            PlanError: the plan contradicts the model or the cluster.
        """
        self.check()
        return memory_of_plan(self.model, self.cluster, self.plan, self.software.memory)

    @cached_property
    def host_memory(self) -> HostMemory | None:
        """Bytes that the job keeps in the main memory of a node; None: nothing."""
        return host_memory(self.model, self.cluster, self.plan, self.software.memory)

    @property
    def fits(self) -> bool:
        """Whether it fits into the memory of its devices, and of its nodes where that is known."""
        return self.memory.fits and (self.host_memory is None or self.host_memory.fits)

    def check(self) -> None:
        """Refuses a plan that is impossible for the model or the cluster; everything that simulates a job calls this first.

        Raises:
            PlanError: value, constraint, remedy.
        """
        check_plan(self.plan, self.model, self.cluster)


def _completed(plan: ParallelPlan, defaults: PlanDefaults, earlier: Filled) -> tuple[ParallelPlan, Filled]:
    """The plan without open fields, and those that were filled in; `earlier`: values that another framework put there."""
    before = dict(earlier)
    names = [one.name for one in fields(defaults)]
    is_open = [getattr(plan, name) in (None, before.get(name)) for name in names]
    filled = {name: getattr(defaults, name) for name, empty in zip(names, is_open, strict=True) if empty}
    if all(getattr(plan, name) == value for name, value in filled.items()):
        return plan, tuple(filled.items())
    return replace(plan, **filled), tuple(filled.items())


def _with_software(
    plan: ParallelPlan, stated: Software, framework: Framework, generation: str
) -> tuple[ParallelPlan, Filled]:
    """The plan with the usual software where none is stated, and the values put there."""
    full = usual_software(stated, framework, generation)
    filled = tuple((_SOFTWARE + name, getattr(full, name)) for name in stated.open_fields)
    return plan if full == plan.software else replace(plan, software=full), filled


def _stated(plan: ParallelPlan, model: Workload, before: dict[str, Any]) -> Software:
    """Returns the stated software: without values of another framework, with those that follow from plan and model."""
    given = plan.software
    put = {name: None for name in SOFTWARE_VALUES if before.get(_SOFTWARE + name) == getattr(given, name)}
    follows = {"attention": "fused_softmax"} if plan.attention == "unfused" else {}
    return replace(given, **put).filled(follows | dict(getattr(model, "sure_software", {})))


_FABRIC = ("preset", "like", "tiers", "network")  # any of them describes it
_ROUTING = ("imbalance", "capacity_factor", "routing")

Open = tuple[tuple[str, Odds], ...]


def open_in_file(data: Mapping[str, Any], model: Workload, cluster: Cluster) -> Open:
    """Fields of cluster and model that sections `data` leave out and that matter to a step, with their odds."""
    return tuple(_of_site(data, model, cluster))


def open_in_row(data: Mapping[str, Any], model: Workload, cluster: Cluster, plan: ParallelPlan, framework: Any) -> Open:
    """Returns the open fields of a row of a table of jobs: blanks of the plan are open too, stated values never."""
    return (*_of_site(data, model, cluster), *_of_plan(_section(data, "plan"), model, cluster, plan, framework))


def _of_site(data: Mapping[str, Any], model: Workload, cluster: Cluster) -> Iterator[tuple[str, Odds]]:
    given = data.get("cluster")
    is_described = not isinstance(given, Mapping) or any(name in given for name in _FABRIC)
    if not is_described and cluster.n_devices > cluster.node_size and len(cluster.tiers) > 1:
        yield NETWORK, USUAL_NETWORK
    routed = _section(_section(data, "model"), "moe")
    if imbalance_of(model) == 1.0 and not any(name in routed for name in _ROUTING):
        yield IMBALANCE, USUAL_ROUTING


def _of_plan(
    given: Mapping[str, Any], model: Workload, cluster: Cluster, plan: ParallelPlan, framework: Any
) -> Iterator[tuple[str, Odds]]:
    dtypes = usual_dtypes(cluster.device, plan.software.tuning)
    if "dtype" not in given and len(dtypes) > 1 and plan.dtype in dict(dtypes):
        yield "dtype", dtypes
    recomputed = usual_recompute(framework_of(framework).name)
    if "recompute" not in given and len(recomputed) > 1:
        yield "recompute", recomputed
    able = framework_of(framework).capabilities.schedules
    is_blank = "schedule" not in given and "virtual_stages" not in given
    chunks = usual_virtual_stages(n_body(model), plan) if is_blank and able and "interleaved" in able else ()
    if chunks:
        yield VIRTUAL_STAGES, chunks


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section, empty where it is left out or is a name."""
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}

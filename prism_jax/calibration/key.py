"""CalibrationKey: what the corrections of a job depend on, and the members of the levels that it belongs to.

A log of this very job says how long its steps take far better than a cost model does. Its `LevelFactor` scales every second
of the job, so that the typical predicted step is the typical measured one; how steps scatter around it is left as predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from ..framework.base import Framework
from ..framework.frameworks import framework_of, style_of
from ..framework.software import Software
from ..system.hardware import Device
from ..workload.base.workload import Workload
from ..workload.catalog import TRANSFORMER, kind_of


class Level(StrEnum):
    """Property that the members of a term share; the value is its name in files."""

    ALL = "all"
    GENERATION = "generation"
    DEVICE = "device"
    STYLE = "style"
    GENERATION_STYLE = "generation style"
    FRAMEWORK = "framework"
    ATTENTION = "attention kernel"
    NORM = "norm"
    COMPILE = "compile"
    GRAPHS = "cuda graphs"
    TUNING = "tuning"
    WORKLOAD = "workload"
    DATE = "date"  # a slope per year: its members are kinds of model


LEVELS = tuple(Level)
# A job without a member does not use it: nothing deviates.
USED_OR_NOT = (Level.NORM, Level.COMPILE, Level.GRAPHS, Level.WORKLOAD)
NOTHING_STATED = Software()
# What tables measured on the hardware replace: how it differs from presets, and how its kernels do.
OF_HARDWARE = (Level.GENERATION, Level.DEVICE, Level.GENERATION_STYLE, Level.ATTENTION)
STEP = "step"  # what whole steps deviate by: as much in every knob that is of seconds
# Years of software count from SINCE. What is older differs by what its own fields say (kernels, fusion): with a slope since 2021
# rows of left-out sources were 1.3 points worse, since 2024.5 as good as since 2025 but for the A100 rows of the reference (seen
# when it was chosen). A job without a date runs what the newest evidence ran; no slope goes further than a year beyond that.
SINCE, NEWEST, BEYOND = 2025.0, 2026.5, 1.0
UNDATED_SD = 0.5  # years, of software whose date is not stated
OLD_FRAMEWORKS = ("megatron-2021",)  # whose name dates them
UNLIKE_DEVICES = ("tpu",)  # generations whose name stands for a line of different chips; elsewhere devices share one


def years_of(date: str, framework: str = "") -> float:
    """Years of software after `SINCE`: of "2024-05" its middle, of "2024" its summer; see `SINCE` for what is not stated."""
    if not date:
        return 0.0 if framework in OLD_FRAMEWORKS else NEWEST - SINCE
    year, _, month = date.partition("-")
    stated = int(year) + ((int(month[:2]) - 0.5) / 12.0 if month else 0.5)
    return min(max(stated, SINCE), NEWEST + BEYOND) - SINCE


def workload_of(model: Workload) -> str:
    """Name of a kind of model in the calibration: empty for transformers, "other" for one that job files do not know."""
    own = getattr(model, "calibrated_as", None)
    if isinstance(own, str):  # a captured program says itself what it resembles
        return own
    kind = kind_of(model)
    return "" if kind is TRANSFORMER else kind.name if kind else "other"


class CalibrationKey(NamedTuple):
    """Facts about a job that its knobs depend on; empty where not known.

    Attributes:
        generation: of the device.
        framework: training software, a name in `framework.FRAMEWORKS`.
        device: name of the device.
        style: of the framework; None: as the framework of that name has it.
        software: which kernels run.
        likeness_sd: of a device that is only like the known one named `device`: log standard deviation of its step times.
        workload: kind of model; empty for transformers, which all other levels speak of.
        has_experts, has_adapters: of the model.
    """

    generation: str
    framework: str = ""
    device: str = ""
    style: str | None = None
    software: Software = Software()
    likeness_sd: float = 0.0
    workload: str = ""
    has_experts: bool = False
    has_adapters: bool = False

    @classmethod
    def of(
        cls,
        device: Device,
        framework: str | Framework = "",
        software: Software = NOTHING_STATED,
        model: Workload | None = None,
    ) -> CalibrationKey:
        """The setting of a device, a framework, what is known of its kernels, and a model; an empty framework is an unknown one.

        Raises:
            SpecError: no framework has that name.
        """
        own = framework_of(framework)
        of_device = device.like or device.name
        workload = "" if model is None else workload_of(model)
        experts = model is not None and model.has_experts
        has_adapters = getattr(model, "adapters", None) is not None
        kind = (workload, experts, has_adapters)
        return cls(device.generation, own.name, of_device, own.style, software, device.likeness_sd, *kind)

    @property
    def years(self) -> float:
        """Years of its software, see `years_of`."""
        return years_of(self.software.date, self.framework)

    def members(self) -> dict[str, str]:
        """The member of every level that it belongs to; empty where that is not known, or where a level has no members.

        Devices of one generation differ by their figures (peaks, bandwidths) and by nothing else: what the sites of one device
        have in common would otherwise make a device slower than another that is better in every figure.
        """
        style = style_of(self.framework) if self.style is None else self.style
        both = f"{self.generation} {style}" if style else ""
        device = self.device if self.generation in UNLIKE_DEVICES else ""
        named = ("all", self.generation, device, style, both, self.framework)
        dated = "experts" if self.has_experts else "dense"
        return dict(zip(LEVELS, (*named, *self._features(), self.workload, dated), strict=True))

    def _features(self) -> tuple[str, ...]:
        """Members of the levels of the software: kernels are a matter of the generation, too."""
        own = self.software
        attention = f"{self.generation} {own.attention}" if own.attention else ""
        norm = "eager" if own.is_eager("norm") else ""
        graphs = own.cuda_graphs if own.cuda_graphs != "none" else ""
        return attention, norm, "compiled" if own.compile else "", graphs or "", own.tuning or ""


@dataclass(frozen=True)
class MeasuredLevel:
    """Typical step in the log of one configuration.

    Attributes:
        step_s: typical step, seconds.
        is_mean: it is the mean of a step (logs of intervals over several steps), not the median.
        log_sd: standard deviation of its logarithm: of the steps that were sampled, and of one run against the next.
        n_steps, n_runs: logged.
        n_gpus: NaN where the log does not say.
        job: fields of the job that the head of the log states, "plan.tp=8 plan.pp=4"; empty where it has none.
    """

    step_s: float
    is_mean: bool
    log_sd: float
    n_steps: int
    n_runs: int
    n_gpus: float = np.nan
    job: str = ""


@dataclass(frozen=True)
class NoLevel:
    """Reason why a fit of step times gives no level of a job."""

    why: str


@dataclass(frozen=True)
class LevelFactor:
    """Measured over predicted typical step.

    Attributes:
        factor: of every second of the job.
        log_sd: standard deviation of its logarithm.
    """

    factor: float
    log_sd: float

    def quantile(self, score: float) -> float:
        """Quantile of the typical step over its estimate, at a normal score."""
        return float(np.exp(score * self.log_sd))

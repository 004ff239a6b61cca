"""ScalingReport: throughput, exposed communication, energy and money of a job from small clusters to large ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Annotated, ClassVar

from ...._core.content import ByContent
from ....study.figures import Figures
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True, eq=False)
class ScalingRow(ByContent):
    """One number of GPUs.

    Attributes:
        settings: field -> value of the best plan, along what may vary.
        figures: None where no plan is possible.
        problem: why.
        per_gpu_change: of tokens/s/GPU from the smallest possible size.
        marginal_return: d ln(tokens/s) / d ln GPUs from the size before.
        energy_change: of tokens per joule from the smallest possible size.
    """

    n_devices: int
    settings: Mapping[str, str]
    figures: Figures | None
    problem: str
    per_gpu_change: float = nan
    marginal_return: float = nan
    energy_change: float = nan


@dataclass(frozen=True)
class OnsetFacts:
    """Where the communication of sharded parameters stops hiding behind the compute of a layer, in one pass.

    Attributes:
        window_s: compute of a layer that it may run beside; comm_s: what it takes on the job's own number of GPUs.
        ring, tree: GPUs at which it shows, in closed form; law: under the network's own law. NaN: never.
    """

    name: str
    window_s: float
    comm_s: float
    ring: float = nan
    tree: float = nan
    law: float = nan


@dataclass(frozen=True)
class TargetFacts:
    """The smallest size that meets a target.

    Attributes:
        n_devices: None if no size meets it more likely than not.
        prob: that this size meets it, given what the cost model does not know.
    """

    target: str
    n_devices: int | None
    prob: float


@dataclass(frozen=True)
class ScalingReport(Report):
    """A job on several numbers of GPUs.

    Attributes:
        mode: weak (batch grows with the GPUs) or strong (batch stays).
        stop_size: first size whose marginal return is below `threshold`; None if there is none.
        onset_step: GPUs at which data-parallel communication shows with 5 % of a step without variability; knee: first of the
            sizes at which it does in the simulation.
    """

    kind: ClassVar[str] = "scaling"
    picture: ClassVar[str] = "prism_jax.plot.studies.scaling:draw"
    renderer: ClassVar[str] = "studies.scaling"

    job: str
    mode: str
    objective: str
    threshold: float
    rows: tuple[ScalingRow, ...]
    stop_size: int | None
    onsets: tuple[OnsetFacts, ...]
    knee: int | None
    target: TargetFacts | None
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
    onset_step: float = nan

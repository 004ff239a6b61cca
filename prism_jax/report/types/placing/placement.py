"""PlacementReport: which measured node sits where, and what that is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....partition.chunks import Splits
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True)
class PlacedJob:
    """The job whose nodes were placed."""

    name: str
    n_devices: int
    node_size: int


@dataclass(frozen=True)
class SlotFacts:
    """[slot] lowest and highest pipeline stage and replica of the GPUs of every slot."""

    stage: tuple[int, ...]
    replica: tuple[int, ...]
    last_stage: tuple[int, ...]
    last_replica: tuple[int, ...]


@dataclass(frozen=True)
class PlacementReport(Report):
    """What every method of placing nodes reaches, what the chosen one is worth, and where the nodes went.

    Attributes:
        objective: what was minimised.
        value, value_error: method -> the objective that it reaches on draws that chose nothing, in its unit, and its Monte Carlo
            error.
        p50_s, p95_s, p99_s, cvar95_s: method -> step time on draws that chose nothing; `*_error_s` their Monte Carlo error.
        gain, gain_interval, gain_error: seconds of the objective against the nodes as given.
        gain_over_best_baseline, gain_over_best_baseline_interval: against the best method that moves nodes only.
        chosen_from: method whose assignment was chosen.
        assignment: [slot] node; `as_given` before. Slot s holds the ranks from `s * node_size` on, in the plan's axis order.
        left_out: nodes without a slot.
        hosts: [slot] name of its node, the number of the node where the table has no names.
        spare_hosts: names of the nodes without a slot.
        node_slowdown: [node] factor of its slowest GPU.
        splits: None where splits were not free.
    """

    kind: ClassVar[str] = "placement"
    picture: ClassVar[str] = "prism_jax.plot.placing.placement:draw"

    job: PlacedJob
    objective: str
    objective_unit: str
    value: Mapping[str, float]
    value_error: Mapping[str, float]
    p50_s: Mapping[str, float]
    p50_error_s: Mapping[str, float]
    p95_s: Mapping[str, float]
    p95_error_s: Mapping[str, float]
    p99_s: Mapping[str, float]
    p99_error_s: Mapping[str, float]
    cvar95_s: Mapping[str, float]
    cvar95_error_s: Mapping[str, float]
    gain: float
    gain_interval: tuple[float, float]
    gain_error: float
    best_baseline: str
    gain_over_best_baseline: float
    gain_over_best_baseline_interval: tuple[float, float]
    chosen_from: str
    assignment: tuple[int, ...]
    left_out: tuple[int, ...]
    hosts: tuple[str, ...]
    spare_hosts: tuple[str, ...]
    as_given: tuple[int, ...]
    slots: SlotFacts
    node_slowdown: tuple[float, ...]
    splits: Splits | None
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    @property
    def methods(self) -> tuple[str, ...]:
        """Everything that was tried."""
        return tuple(self.value)

    def lines(self) -> list[str]:
        from ...text.placing.placement import lines

        return lines(self)

"""MeasuredTables: what tables of kernels, collectives and overlap, measured on the user's hardware, say in place of the presets.

A table replaces constants of the device (`Efficiency`) or the seconds of collectives (`MeasuredCollectives`), and with them the
part of the calibration's correction that stands for the same hardware: the deviation of its generation from presets. What only
whole steps show (all devices alike, style and framework of the software, `in_step`) stays on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._core.content import ByContent
from ..system.hardware import Cluster
from ..system.network import MeasuredCollectives
from .efficiency import Efficiency


@dataclass(frozen=True, eq=False)
class MeasuredCost(ByContent):
    """Constants and collectives as measured, or as one posterior draw has them.

    Attributes:
        constants: fields of `Efficiency` with their values; what is not among them keeps the preset.
        collectives: None: those of the cluster's own network.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    collectives: MeasuredCollectives | None = None

    def constants_of(self, preset: Efficiency) -> Efficiency:
        """The preset with what was measured."""
        return replace(preset, **self.constants)

    def on(self, cluster: Cluster) -> Cluster:
        """The cluster with what was measured of its collectives."""
        return cluster if self.collectives is None else replace(cluster, measured=self.collectives)

    def over(self, under: MeasuredCost) -> MeasuredCost:
        """Both; these where both say something."""
        both = under.collectives if self.collectives is None else self.collectives.over(under.collectives)
        return MeasuredCost({**under.constants, **self.constants}, both)


@dataclass(frozen=True, eq=False)
class MeasuredTables(ByContent):
    """Everything that was measured, with what it leaves open.

    Attributes:
        mean: what predictions use.
        draws: of the posterior; equally many of every table.
        knobs: fields of `CostCorrection` whose hardware part is replaced.
        covers: what was measured, in words.
        notes: what was not, or only nearly, in sentences.
    """

    mean: MeasuredCost
    draws: tuple[MeasuredCost, ...]
    knobs: frozenset[str] = frozenset()
    covers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def over(self, under: MeasuredTables | None) -> MeasuredTables:
        """Both; tables are independent, so their draws meet in any order.

        Notes: `covers` and `notes` are of one table each, and are not kept.
        """
        if under is None:
            return replace(self, covers=(), notes=())
        draws = [own.over(other) for own, other in zip(self.draws, under.draws, strict=True)]
        return MeasuredTables(self.mean.over(under.mean), tuple(draws), self.knobs | under.knobs)

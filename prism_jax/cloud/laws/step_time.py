"""LadderLaw: seconds of a step against the batch on one instance, for models that nobody described."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._core.content import ByContent
from ..._typing import Floats
from ...errors import Problem, SpecError
from ...workload.ladder.spec import LadderSpec


@dataclass(frozen=True, eq=False)
class LadderLaw(ByContent):
    """t(b) = floor + seconds per sample x b, in draws of what is not known, [draw].

    Attributes:
        floor_s: that no batch is small enough to save: launches, data, the optimizer.
        s_per_sample: of a sample more.
        noise: scale of the logarithm of a single step.
        batches: smallest and largest that was measured.
        source: what was measured.

    Raises:
        SpecError: arrays differ in length or hold what is no positive number.
    """

    floor_s: Floats
    s_per_sample: Floats
    noise: Floats
    batches: tuple[float, float]
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("floor_s", "s_per_sample", "noise"):
            value = getattr(self, name)
            if value.shape != self.floor_s.shape or value.ndim != 1 or not len(value):
                raise SpecError.of(
                    Problem(name, f"shape {value.shape}, but it must be that of floor_s, [draw]"), "ladder"
                )
            if not (np.isfinite(value) & (value >= 0.0)).all():
                raise SpecError.of(Problem(name, "holds what is no number of at least 0"), "ladder")

    def seconds(self, batch: float) -> Floats:
        """Seconds of a step of `batch` samples on one instance, [draw].

        Raises:
            SpecError: the batch is not positive.
        """
        if not 0.0 < batch < np.inf:
            raise SpecError.of(Problem("batch", f"{batch:g}, but it must be above 0 and finite"), "ladder")
        return self.floor_s + self.s_per_sample * batch

    def model(self, name: str, measured_on: str, n_parameters: int) -> LadderSpec:
        """The model of which this is all that is known, for jobs of any kind.

        Args:
            name: in reports. measured_on: device of the ladder. n_parameters: that ranks exchange and checkpoints hold.

        Raises:
            SpecError: no such device, or no parameters.
        """
        floor_s, s_per_sample = float(np.median(self.floor_s)), float(np.median(self.s_per_sample))
        most = int(self.batches[1])
        return LadderSpec(name, floor_s, s_per_sample, measured_on, n_parameters, most, source=self.source)

    def interval(self, batch: float) -> tuple[float, float, float]:
        """Seconds of a step: 5 %, median and 95 % of what is not known of the mean step."""
        low, middle, high = np.quantile(self.seconds(batch), [0.05, 0.5, 0.95])
        return float(low), float(middle), float(high)

    def extrapolates(self, batch: float) -> bool:
        """Whether a batch lies outside of what was measured."""
        return not self.batches[0] <= batch <= self.batches[1]

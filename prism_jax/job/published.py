"""Published: step times that somebody else measured or announced of the same job, to stand next to predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..plan.fields import PlanField


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

"""Peak memory of one device, by component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated

from ..codec import WHERE_KNOWN


@dataclass(frozen=True)
class MemoryFacts:
    """Bytes on the pipeline stage that needs most; `headroom` is negative where they do not fit.

    Attributes:
        low, high: 90 % interval of the peak that would be measured.
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

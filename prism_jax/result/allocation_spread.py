"""AllocationSpread: what the step time varies by within one allocation of GPUs, and from one allocation to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class AllocationSpread:
    """Both spreads of the step time.

    Attributes:
        std_s: standard deviation over allocations and steps, seconds.
        share: share of the variance that lies between allocations; not cut off, so that it may pass 1 by its error.
        share_error: Monte Carlo standard error of the share.
        p95_s: p95 of the steps within a typical allocation (one whose mean step is close to the median), seconds.
        p95_error_s: its Monte Carlo standard error, seconds.
    """

    std_s: float
    share: float
    share_error: float
    p95_s: float
    p95_error_s: float

    @property
    def between_s(self) -> float:
        """Standard deviation of an allocation's mean step over allocations, seconds."""
        return self.std_s * float(np.sqrt(np.clip(self.share, 0.0, 1.0)))

    @property
    def within_s(self) -> float:
        """Standard deviation from step to step within one allocation, seconds: root mean square over allocations."""
        return self.std_s * float(np.sqrt(np.clip(1.0 - self.share, 0.0, 1.0)))

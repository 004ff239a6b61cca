"""Priors that models share: weakly informative on the log scale, each number with its reason.

A model's own numbers stand in its file. `Scale` is the law of a spread (a standard deviation of log durations): log-normal, since
spreads of measured fleets lie within a few powers of ten and never at zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpyro.distributions as dist


@dataclass(frozen=True)
class Scale:
    """Log-normal law of a spread: `median` (a fraction of the duration) and `factor`, one standard deviation as a factor."""

    median: float
    factor: float

    def law(self) -> dist.LogNormal:
        """The NumPyro distribution."""
        return dist.LogNormal(math.log(self.median), math.log(self.factor))


# GPUs of one model: 1.6-14 % GEMM spread over 20,000 GPUs (arXiv 2510.15596), 0.7-2 % on small fleets: 0.15-7 % within two
# factors.
GPU_SPREAD = Scale(0.010, 2.7)
# Nodes share power, cooling and a host: a fifth of the chips' spread, but all of it where one job spans the node (two factors
# up).
NODE_SPREAD = Scale(0.002, 4.0)
# A kernel's own response of a chip, beyond the score it shares with the other kernels of that chip.
KERNEL_SPREAD = Scale(0.003, 3.0)
# Repeats on one GPU: 0.1 % for medians of 100 calls, 1-6.5 % for single calls (arXiv 2510.15596).
RUN_SPREAD = Scale(0.004, 4.0)

# A kernel's typical time is set by the data: 0.5 in log, around the measured median, is no constraint.
LOCATION_SD = 0.5
# Slow chips: one in twenty expected, never half of a fleet (the bulk is what most chips do).
SLOW_PROB = (1.0, 9.0)  # Beta, times one half
# Their distance from the bulk in bulk spreads, either way (a fleet may hold a fast batch): 4 covers 7 % slow at 1.6 % spread.
SLOW_SHIFT_SD = 4.0
# Their own spread, in bulk spreads.
SLOW_SPREAD = Scale(1.5, 2.0)
# Nodes that lie far from the others: their spread over that of the others, less one; from twice to ten times. Share: as slow
# chips.
FAR_ABOVE = Scale(2.0, 2.5)
# Change of log time per unit of log clock, log power or 10 K within one GPU: between -1 (compute bound) and a little.
SLOPE_SD = 1.0

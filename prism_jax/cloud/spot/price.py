"""How a spot price moves: log price returns to its mean, and jumps now and then.

d log p = -return_per_s log p dt + sd sqrt(2 return_per_s) dW + jumps of Normal(0, jump_sd) at jumps_per_s
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._typing import Floats
from ...errors import Problem, SpecError


@dataclass(frozen=True)
class PriceLaw:
    """Log price as an autoregression with jumps, relative to its mean.

    Attributes:
        sd: standard deviation of log price in the long run, jumps aside.
        return_per_s: rate at which it returns to its mean.
        jumps_per_s, jump_sd: of jumps of log price.
        start: log price over its mean now.

    Raises:
        SpecError: a figure is negative or not finite.
    """

    sd: float = 0.0
    return_per_s: float = 0.0
    jumps_per_s: float = 0.0
    jump_sd: float = 0.0
    start: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sd", "return_per_s", "jumps_per_s", "jump_sd"):
            if not 0.0 <= getattr(self, name) < 100.0:
                raise SpecError.of(Problem(name, f"{getattr(self, name):g}, but it must be from 0 to 100"), "price")

    def path(self, until_s: Floats, rng: np.random.Generator) -> Floats:
        """Price over that of now in the pieces that end at `until_s`, at their starts, [piece, world]; 1 in the first."""
        if self.sd == 0.0 and self.jumps_per_s == 0.0 and self.start == 0.0:
            return np.ones(until_s.shape)
        steps = np.diff(np.minimum(until_s, 1e10), axis=0, prepend=0.0)
        keep = np.exp(-self.return_per_s * steps)
        noise = self.sd * np.sqrt(-np.expm1(-2.0 * self.return_per_s * steps)) * rng.standard_normal(steps.shape)
        jumps = np.sqrt(rng.poisson(np.minimum(self.jumps_per_s * steps, 1e6))) * self.jump_sd
        noise = noise + jumps * rng.standard_normal(steps.shape)
        at = np.full(until_s.shape[1], self.start)
        out = np.empty(until_s.shape)
        for piece in range(len(steps)):
            out[piece] = at
            at = keep[piece] * at + noise[piece]
        return np.exp(out - self.start)


STEADY = PriceLaw()
"""A price that does not move."""

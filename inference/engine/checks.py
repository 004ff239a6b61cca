"""Whether a fitted model brings forth data like those it was fitted to: measured values against replicated ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import kstest

LEVELS = (0.5, 0.9)


@dataclass(frozen=True)
class Checks:
    """Measured values and draws of what the model would have measured in their place.

    Attributes:
        measured: [obs].
        predicted: [draw, obs].
        what: what an observation is, with its unit.
    """

    measured: np.ndarray
    predicted: np.ndarray
    what: str

    def __post_init__(self) -> None:
        if self.measured.ndim != 1 or self.predicted.shape[1:] != self.measured.shape:
            raise ValueError(f"replicated {self.predicted.shape} against measured {self.measured.shape}")

    @property
    def pit(self) -> np.ndarray:
        """Probability integral transform [obs]: share of draws below each measured value, ties halved; uniform if calibrated."""
        below = (self.predicted < self.measured).mean(axis=0)
        ties = (self.predicted == self.measured).mean(axis=0)
        return below + 0.5 * ties

    def coverage(self, level: float) -> float:
        """Share of measured values inside their central `level` interval."""
        low, high = np.quantile(self.predicted, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return float(np.mean((self.measured >= low) & (self.measured <= high)))

    def crps(self) -> float:
        """Mean continuous ranked probability score, in the unit of the values.

        Source: Gneiting and Raftery, JASA 102 (2007), equation 21, by sorted draws.
        """
        ordered = np.sort(self.predicted, axis=0)
        n = len(ordered)
        weight = (2.0 * np.arange(1, n + 1) - n - 1.0) / n**2
        return float((np.abs(self.predicted - self.measured).mean(axis=0) - weight @ ordered).mean())

    def as_dict(self) -> dict[str, object]:
        """Figures, for JSON; `crps_of_median` is the mean absolute error of the median, which a useful spread undercuts."""
        median = np.median(self.predicted, axis=0)
        found = kstest(self.pit, "uniform")
        return {
            "what": self.what,
            "n": len(self.measured),
            "pit_ks": float(found.statistic),
            "pit_ks_p_value": float(found.pvalue),
            **{f"coverage_{int(100 * level)}": self.coverage(level) for level in LEVELS},
            "crps": self.crps(),
            "crps_of_median": float(np.abs(median - self.measured).mean()),
        }

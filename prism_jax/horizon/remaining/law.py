"""DriftLaw: how far the mean of a run's later steps lies from the level of its first ones.

    ln(later mean / first level) = μ + w stalls + s u,    w = n / (n + k)
    s² = drift² + sampling² + (c_stalls stalls)² + (c_change change)²
    drift = τ (spread / 0.3 %)^γ (later steps / (9 first steps))^h

What persists is in the level; what drifts is `drift`, which no number of steps averages out; stalls that were seen go on as far
as n entries outweigh k of other runs. `sampling` is the error of both means under the log's own spread and correlation. u
follows the errors of runs of sources that were left out of the fit, so that it holds what differs from source to source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..._typing import Floats
from ...system.names import load_toml
from .traits import Traits

TYPICAL_SD = 0.003  # spread of steps for which `drift` is stated
HORIZON = 9.0  # later steps over first ones for which it is stated


class Variances(NamedTuple):
    """What the variance of the logarithm of the later mean is made of; each a number or [log]."""

    drift: Any
    steps: Any
    stalls: Any
    change: Any


@dataclass(frozen=True)
class DriftLaw:
    """The law above.

    Attributes:
        shift: μ.
        stalls_of_others: k, entries.
        drift: τ, standard deviation of the logarithm, before u.
        drift_power, horizon_power: γ and h.
        stalls_doubt, change_doubt: c_stalls and c_change.
        levels, errors: u at these probabilities, both increasing.
        source: where it is from.
    """

    shift: float
    stalls_of_others: float
    drift: float
    drift_power: float
    horizon_power: float
    stalls_doubt: float
    change_doubt: float
    levels: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    source: str = "stated"

    def location(self, traits: Traits) -> Any:
        """Middle of the logarithm of the later mean over the level."""
        return self.shift + traits.n / (traits.n + self.stalls_of_others) * traits.stalls

    def variances(self, traits: Traits, n_later: Any) -> Variances:
        """Variances of that logarithm, for u of variance one.

        Args:
            n_later: later entries: steps over the steps that an entry is a mean of.
        """
        ratio = n_later / (HORIZON * traits.n)
        drift = self.drift * (traits.log_sd / TYPICAL_SD) ** self.drift_power * ratio**self.horizon_power
        inflation = (1.0 + traits.ar1) / (1.0 - traits.ar1)
        steps = traits.log_sd**2 * (np.minimum(inflation / traits.n, 1.0) + np.minimum(inflation / n_later, 1.0))
        stalls, change = self.stalls_doubt * traits.stalls, self.change_doubt * traits.change
        return Variances(drift**2, steps, stalls**2, change**2)

    def error(self, level: Floats) -> Floats:
        """u at probabilities; beyond the outermost it stays there."""
        return np.interp(level, self.levels, self.errors)


@cache
def shipped_law() -> DriftLaw:
    """The law of measured runs, `presets/drift.toml`."""
    entry: dict[str, Any] = load_toml(__name__.rpartition(".")[0], "drift.toml")["runs"]
    entry |= {name: tuple(entry[name]) for name in ("levels", "errors")}
    return DriftLaw(**entry)

"""Predicts the seconds that the next steps of a run take, from the steps that are logged: level, scatter, stalls, a change.

How far the mean of later steps lies from the level of the first ones is the drift law:

    ln(later mean / first level) = μ + w stalls + s u,    w = n / (n + k)
    s² = drift² + sampling² + (c_stalls stalls)² + (c_change change)²
    drift = τ (spread / 0.3%)^γ (later steps / (9 first steps))^h

What persists is in the level; what drifts is `drift`, which no number of steps averages out; stalls that were seen go on as far
as n entries outweigh k of other runs. `sampling` is the error of both means under the log's own spread and correlation. u
follows the errors of runs of sources that were left out of the fit, so that it holds what differs from source to source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Floats, Ints
from ..core.errors import DataError
from ..system.catalog import load_toml
from ..trace.detector import StepNoise

ORDINARY_SDS = 3.0  # from the median: farther steps do not move the level
LONGEST_STALL = 2.0  # times the level: what is longer counts as that long


class Traits(NamedTuple):
    """Traits of a log, or [log] of several.

    Attributes:
        n: entries.
        level_s: mean seconds of ordinary steps.
        log_sd, ar1: robust spread of ordinary steps, a share, and their lag-1 correlation.
        stalls: what steps longer than ordinary ones add to the mean, logarithm.
        change: between the level of the first half and that of the second, logarithm, without sign.
    """

    n: Floats | float
    level_s: Floats | float
    log_sd: Floats | float
    ar1: Floats | float
    stalls: Floats | float
    change: Floats | float

    @classmethod
    def of(cls, step_s: Floats) -> Traits:
        """Traits of one log.

        Args:
            step_s: [entry] seconds per step, warm-up left out; two at least.
        """
        log_s = np.log(step_s)
        noise = StepNoise.learnt(log_s)
        log_level = float(np.log(np.exp(_ordinary(log_s, noise)).mean()))
        stalls = float(np.log(np.minimum(np.exp(log_s - log_level), LONGEST_STALL).mean()))
        half = max(-(-len(log_s) // 2), min(3, len(log_s)))
        change = abs(float(_ordinary(log_s[:half], noise).mean() - _ordinary(log_s[-half:], noise).mean()))
        return cls(float(len(log_s)), float(np.exp(log_level)), noise.log_sd, noise.ar1, max(stalls, 0.0), change)

    @classmethod
    def stacked(cls, logs: list[Traits]) -> Traits:
        """Traits of several logs; every attribute is [log]."""
        return cls(*np.array(logs).T)


def _ordinary(log_s: Floats, noise: StepNoise) -> Floats:
    """Logarithms with those of other than ordinary steps moved to the edge."""
    middle, reach = np.median(log_s), ORDINARY_SDS * noise.log_sd
    return np.clip(log_s, middle - reach, middle + reach)


TYPICAL_SD = 0.003  # spread of steps for which `drift` is stated
HORIZON = 9.0  # later steps over first ones for which it is stated


class Variances(NamedTuple):
    """Parts of the variance of the logarithm of the later mean; each a number or [log]."""

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


FEWEST = 3  # entries that say anything
MOST_STEPS = 10**12
LEVELS = 0.05, 0.5, 0.95


@dataclass(frozen=True)
class TimeLeft:
    """Seconds of the steps to come; interruptions and evaluations are not in it.

    Attributes:
        n_steps: steps to come.
        p5_s, p50_s, p95_s: quantiles.
        variance_shares: what the interval is made of: drift (of a run's level), steps (their scatter), stalls, change (between
            the halves of the log); sums to one.
        independent_p5_s, independent_p95_s: if steps were independent draws, which is too narrow.
        law: where the drift is from.
    """

    n_steps: int
    p5_s: float
    p50_s: float
    p95_s: float
    variance_shares: Mapping[str, float]
    independent_p5_s: float
    independent_p95_s: float
    law: str


def time_left(step_s: Floats, n_per_entry: Ints, n_steps: int, law: DriftLaw | None = None) -> TimeLeft:
    """Quantiles of the time of the next `n_steps` steps.

    Args:
        step_s: [entry] seconds per step, warm-up left out.
        n_per_entry: [entry] steps that an entry is a mean of.
        law: of drift; None: the shipped one.

    Raises:
        DataError: too few entries, or a number of steps out of range.

    Example:
        >>> steps = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98])
        >>> bool(900.0 < time_left(steps, np.ones(6, int), 1000).p50_s < 1100.0)
        True
    """
    if len(step_s) < FEWEST:
        raise DataError(f"{len(step_s)} step times, but the time left needs {FEWEST} at least. Give a longer log.")
    if not 1 <= n_steps <= MOST_STEPS:
        raise DataError(f"{n_steps:,} steps left, but it must be between 1 and {MOST_STEPS:,}")
    chosen = shipped_law() if law is None else law
    traits, per_entry = Traits.of(step_s), float(np.median(n_per_entry))
    n_later = n_steps / per_entry
    variances = chosen.variances(traits, n_later)
    sd = sum(variances) ** 0.5
    from scipy.special import ndtri  # a quarter of a second, which those who ask for phases alone do not pay

    log_s = float(np.log(traits.level_s) + chosen.location(traits)) + sd * chosen.error(np.array(LEVELS))
    low_s, middle_s, high_s = (n_steps * np.exp(log_s)).tolist()
    mean_s, sd_s = n_steps * float(step_s.mean()), n_steps * float(step_s.std(ddof=1)) / n_later**0.5
    return TimeLeft(
        n_steps=n_steps,
        p5_s=low_s,
        p50_s=middle_s,
        p95_s=high_s,
        variance_shares={name: float(part / sum(variances)) for name, part in variances._asdict().items()},
        independent_p5_s=float(mean_s + sd_s * ndtri(LEVELS[0])),
        independent_p95_s=float(mean_s + sd_s * ndtri(LEVELS[-1])),
        law=chosen.source,
    )

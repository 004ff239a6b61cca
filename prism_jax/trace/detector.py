"""`SlowPhaseDetector`: on-line change points of the logarithm of step times, one step at a time.

Model of x_t = log(step time) - level: ordinary steps scatter around the level by a Student-t with a first-order autoregression
(`StepNoise`); stalls are rare, longer by anything, and come in short runs (a chain of two states, whose rates are learnt:
`_StallCounts`). A change sets a new level that lasts. Hypotheses are "no change" and "changed at step tau" for the last `LONGEST`
steps, weighted by Bayes' rule (Adams and MacKay, 2007): the first step of a new level has the density `_any_level`, later ones
that of the noise around the mean of those before. So three stalls of unlike length are stalls, three alike are a change.

A change is told when `confirm` steps in a row are off on one side by `smallest` at least, and either its probability exceeds
`certainty`, or all of them are off by `LARGE` and `LARGE_SDS`: in measured logs, runs of stalls like that are rarer than changes,
however unlike the steps are. The work and memory per step are constant.

The level and the spread are learnt from the first `N_LEARN` steps and follow slow drift; a change moves the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..core.arrays import Floats
from ..core.robust import robust_sd

N_LEARN = 20  # steps
SETTLING_SIZE = 0.10  # of the step; the first ones after a restart or an evaluation are 2-5% off (compilation, caches)
LARGE, LARGE_SDS = 0.09, 3.0  # logarithm of a change, and in spreads, that so many steps in a row prove
LONG = 1.5  # times the level: a step that holds an evaluation or a checkpoint
N_SMALL = 8  # after which a change too small to tell moves the level
LONGEST = 24  # steps that a change may take to be told
TAILS = 4.0  # degrees of freedom of the Student-t: two components or a Student-t fit measured steps best
_T_NORM = math.exp(math.lgamma(2.5) - math.lgamma(2.0)) / math.sqrt(TAILS * math.pi)
_MEAN = 1.2533  # sd over mean absolute deviation, of a normal law


@dataclass(frozen=True)
class StepNoise:
    """Scatter of the steps of one level; shares of the step time.

    Attributes:
        log_sd: robust spread of ordinary steps.
        ar1: autocorrelation of successive ordinary steps, 0-1.
        stall_size: median excess of a stall.
    """

    log_sd: float
    ar1: float = 0.0
    stall_size: float = 0.055  # the presets of variability: 0.05498

    @classmethod
    def learnt(cls, log_s: Floats) -> StepNoise:
        """The noise of the first steps, drawn towards a spread of half a percent as far as they are few.

        Args:
            log_s: [step] logarithm of step times.
        """
        x = log_s - np.median(log_s)
        n = len(x)
        spread = max(robust_sd(x, 0.0), _MEAN * float(np.minimum(np.abs(x), MOST_COUNTED).mean()))
        sd = math.sqrt((n * spread**2 + N_PRIOR * PRIOR_SD**2) / (n + N_PRIOR))
        kept = np.clip(x, -3.0 * sd, 3.0 * sd)
        power = float(kept[:-1] @ kept[:-1])
        ar1 = float(kept[1:] @ kept[:-1]) / power - SURE_AR1 / math.sqrt(n) if power > 0 else 0.0
        return cls(max(sd, LEAST_SD), min(max(ar1, 0.0), MOST_AR1))


SURE_AR1 = 1.64  # standard errors that the autocorrelation must exceed zero by
N_PRIOR, PRIOR_SD = 5, 0.005  # steps that the prior counts for; median spread of measured runs
LEAST_SD, MOST_AR1 = 0.003, 0.8
MOST_COUNTED = 0.05  # of a deviation, so that a stall does not make the spread

NEW_SD, NEW_SHARE = 0.005, 0.1  # how much further a new level may scatter: a share of the step, and of the change
NEW_STALL = 0.1  # share of stalls in a slow phase: what is slow is often unsteady


class _StallCounts(NamedTuple):
    """Counts of how often stalls begin and go on: prior from all logs, and what this one has shown.

    Attributes:
        n_step, n_run: steps, and runs of stalls among them.
        n_stall, n_again: stalled steps, and those that followed another.
    """

    n_step: float = 500.0
    n_run: float = 3.4  # .0068 a step: the presets of variability
    n_stall: float = 5.0
    n_again: float = 1.0

    @property
    def prob(self) -> float:
        """Probability that an ordinary step is followed by a stall."""
        return self.n_run / self.n_step

    @property
    def again(self) -> float:
        """Probability that a stall is followed by another."""
        return self.n_again / self.n_stall

    def seen(self, first: float, more: float) -> _StallCounts:
        """Counts after one more step, which began or continued a run of stalls with these probabilities."""
        return _StallCounts(self.n_step + 1.0, self.n_run + first, self.n_stall + first + more, self.n_again + more)


class ChangePoint(NamedTuple):
    """A new level of the step time.

    Attributes:
        onset: index of its first step.
        told: index of the step at which it was told.
        log_size: logarithm of the new level over the old one.
        log_before: logarithm of the old level.
        prob: probability of a change, given the steps so far.
    """

    onset: int
    told: int
    log_size: float
    log_before: float
    prob: float


@dataclass
class SlowPhaseDetector:
    """Change points of a stream of step times; `update` takes one step and says whether the level has changed.

    Attributes:
        smallest: smallest change of level, a share of the step time.
        certainty: probability from which a change is told.
        confirm: steps of the new level that a change needs.
        rate: changes per step expected beforehand.
        n_learn: first steps, from which level and spread are learnt.
        settling: steps after a restart, an evaluation or a checkpoint that do not count if off by `SETTLING_SIZE` or less.
        settled: indices of such steps that were more than two standard deviations off.
        noise: None until it is learnt.
        log_level: logarithm of the present level, seconds.
    """

    smallest: float = 0.03
    certainty: float = 0.9
    confirm: int = 3
    rate: float = 1e-3
    n_learn: int = N_LEARN
    settling: int = 3
    settled: list[int] = field(default_factory=list)
    _unsettled: int = 0
    noise: StepNoise | None = None
    log_level: float = 0.0
    _n: int = 0
    _far: tuple[float, ...] = ()
    _stalls: _StallCounts = field(default_factory=lambda: _StallCounts())
    _first: list[float] = field(default_factory=list)
    _before: float = 0.0
    _calm: Floats = field(default_factory=lambda: np.array([1.0, 0.0]))
    _weight: Floats = field(default_factory=lambda: np.zeros(0))
    _mean: Floats = field(default_factory=lambda: np.zeros(0))
    _count: Floats = field(default_factory=lambda: np.zeros(0))
    _onset: Floats = field(default_factory=lambda: np.zeros(0, int))

    def update(self, seconds: float, *, restarted: bool = False) -> ChangePoint | None:
        """The change that `seconds`, the time of the next step, makes certain; None if there is none.

        Args:
            restarted: whether the job was restarted before this step.
        """
        index, self._n = self._n, self._n + 1
        log_s = math.log(seconds)
        if self.noise is None:
            self._learn(log_s)
            return None
        x = log_s - self.log_level
        if self._settles(x, index, restarted, self.noise):
            return None
        self._weigh(x, index, self.noise)
        self._count_far(x)
        change = self._told(index, self.noise)
        if change is None:
            self._follow(x, self.noise)
        return change

    def _learn(self, log_s: float) -> None:
        self._first.append(log_s)
        if len(self._first) == self.n_learn:
            first = np.array(self._first)
            self.log_level, self.noise = float(np.median(first)), StepNoise.learnt(first)
            self._before, self._first = 0.0, []

    def _settles(self, x: float, index: int, restarted: bool, noise: StepNoise) -> bool:
        """Whether the step is one of the first after an interruption, and not far from the others."""
        if restarted:
            self._unsettled = self.settling
        settles = self._unsettled > 0 and 2.0 * noise.log_sd < abs(x) <= SETTLING_SIZE
        self._unsettled = self.settling if x > math.log(LONG) else max(self._unsettled - 1, 0)
        if settles:
            self.settled.append(index)
        return settles

    def _weigh(self, x: float, index: int, noise: StepNoise) -> None:
        """Bayes' rule for one step: hypotheses get the probability of `x`."""
        sd = noise.log_sd * math.sqrt(1.0 - noise.ar1**2)
        ordinary = _student(x - noise.ar1 * self._before, sd)
        stalled = _stall(x, noise)
        to_stall, again = self._stalls.prob, self._stalls.again
        calm, stall = self._calm
        begun = self.rate * _any_level(x, self.smallest, noise)
        first, more = calm * to_stall * stalled, stall * again * stalled
        self._calm = np.array([(calm * (1 - to_stall) + stall * (1 - again)) * ordinary, first + more])
        away = x - self._mean
        wide = np.sqrt(noise.log_sd**2 + NEW_SD**2 + (NEW_SHARE * self._mean) ** 2)
        wide = wide * np.sqrt(1.0 + 1.0 / np.maximum(self._count, 1.0))
        core = (1 - NEW_STALL) * _student(away, wide)
        likely = core + NEW_STALL * _stall(away, noise)
        share = core / likely  # that the step is an ordinary one of the new level
        count = self._count + share
        mean = self._mean + share * away / np.maximum(count, 1.0)
        keep = slice(max(0, len(mean) - LONGEST + 1), None)
        self._weight = np.append((self._weight * likely)[keep], begun)
        self._mean, self._count = np.append(mean[keep], x), np.append(count[keep], 1.0)
        self._onset = np.append(self._onset[keep], index)
        total = self._calm.sum() + self._weight.sum()
        self._calm, self._weight = self._calm / total, self._weight / total
        self._before = float(np.clip(x, -3.0 * noise.log_sd, 3.0 * noise.log_sd))
        self._stalls = self._stalls.seen(first / total, more / total)

    def _count_far(self, x: float) -> None:
        """Counts steps in a row, up to this one, that are beyond the smallest change on the same side."""
        is_far = abs(x) >= self.smallest
        goes_on = is_far and bool(self._far) and (x > 0) == (self._far[-1] > 0)
        self._far = (*(self._far[1 - self.confirm :] if goes_on else ()), x) if is_far else ()

    def _told(self, index: int, noise: StepNoise) -> ChangePoint | None:
        """First change whose posterior is above the threshold, or whose steps are all beyond the range of stalls."""
        age = index + 1 - self._onset
        ready = (age > 1) & (np.abs(self._mean) >= self.smallest)
        prob = float(self._weight[ready].sum())
        if len(self._far) < self.confirm:
            if not self._far:
                self._absorb(age)
            return None
        if prob >= self.certainty:
            best = int(np.argmax(np.where(ready, self._weight, 0.0)))
            return self._move(int(self._onset[best]), index, float(self._mean[best]), prob)
        if min(map(abs, self._far)) >= max(LARGE, LARGE_SDS * noise.log_sd):
            return self._move(index + 1 - self.confirm, index, float(np.median(self._far)), prob)
        return None

    def _move(self, onset: int, index: int, size: float, prob: float) -> ChangePoint:
        """Sets the new level."""
        change = ChangePoint(onset, index, size, self.log_level, prob)
        self.log_level += size
        self._forget()
        return change

    def _absorb(self, age: Floats) -> None:
        """A change that is sure but too small to tell moves the level."""
        small = (age >= N_SMALL) & (np.abs(self._mean) < self.smallest)
        if float(self._weight[small].sum()) > 0.5:
            self.log_level += float(self._mean[int(np.argmax(np.where(small, self._weight, 0.0)))])
            self._forget()

    def _forget(self) -> None:
        self._far = ()
        self._calm, self._before = np.array([1.0, 0.0]), 0.0
        self._weight, self._mean, self._count, self._onset = (np.zeros(0),) * 3 + (np.zeros(0, int),)

    def _follow(self, x: float, noise: StepNoise) -> None:
        """Slow drift of level and spread, from steps that are ordinary."""
        same = float(self._calm.sum()) if len(self._far) < 2 else 0.0  # of a change that shows, nothing is learnt
        step = float(np.clip(x, -2.0 * noise.log_sd, 2.0 * noise.log_sd)) * FOLLOW * float(self._calm[0])
        self.log_level += step
        spread = _MEAN * min(abs(x), 5.0 * noise.log_sd)
        log_sd = noise.log_sd + FOLLOW_SD * same * (spread - noise.log_sd)
        self.noise = replace(noise, log_sd=max(log_sd, LEAST_SD))
        self._mean = self._mean - step
        self._before -= step


FOLLOW, FOLLOW_SD = 0.03, 0.02  # share of the distance to the last step


def _student(x: Floats | float, sd: Floats | float) -> Floats | float:
    """Density of a Student-t whose robust spread is `sd`."""
    scale = sd / 1.098  # MAD of a Student-t of 4 degrees of freedom: .7407 of its scale
    return _T_NORM / scale * (1.0 + (x / scale) ** 2 / TAILS) ** (-0.5 * (TAILS + 1.0))


def _stall(x: Floats | float, noise: StepNoise) -> Floats | float:
    """Density of a stalled step: a half Cauchy of median `stall_size` upwards, a tenth of it downwards."""
    c = noise.stall_size
    side = np.where(np.asarray(x) > 0, 0.9, 0.1)
    return side * 2.0 / (math.pi * c * (1.0 + (x / c) ** 2))


def _any_level(x: float, smallest: float, noise: StepNoise) -> float:
    """Density of the first step of a new level, whatever it is: half a Cauchy law each way beyond the smallest change."""
    c = 0.15
    near = 1.0 / (1.0 + math.exp(-(abs(x) - smallest) / max(0.25 * smallest, noise.log_sd)))
    return near / (math.pi * c * (1.0 + (x / c) ** 2))

"""Predicts the distribution of the steps that were not recorded, how sure it is, and when not to trust it.

Two questions have two answers. *What is the p95 of this job?* The median of the p95 over refits, with an interval of the refits.
*What p95 will the next n steps show?* A sample of n steps scatters too, so the answer is the median p95 of samples of n drawn
steps, with a wider interval; that one is to be compared with the p95 of n measured steps.

Estimate and interval are quantiles of the same values, so an estimate never lies outside its interval. A mean would: where one
refit in forty gives a rare step much weight, it is larger than nearly all of the values.

Scores of predictions and replays against recorded steps are plain data, no JAX. A prediction is not to be trusted where it
contradicts itself (an estimate outside its own interval) or the recording (a quantile where no recorded step is), or asks more
of the recorded steps than so many can tell.

From recorded step times alone the smoothed Bayesian bootstrap draws. Redrawing recorded steps repeats their values, so no drawn
step is longer than the longest one, though of two equal samples one has the longest step of both half of the time: intervals of a
p95 would be too short. So every refit gives random weights (Dirichlet, all ones) to the n + 1 intervals between and beyond the n
sorted log step times, and draws evenly within them. Beyond the longest and the shortest step the excess is exponential, its scale
the mean excess of the sqrt(n) outermost steps over the next one.

Source: Rubin, "The Bayesian Bootstrap", 1981; smoothed as in Banks, "Histospline Smoothing the Bayesian Bootstrap", 1988; tail as
in Hill, "A Simple General Approach to Inference About the Tail of a Distribution", 1975.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import ceil
from typing import Any

import numpy as np

from ..core.arrays import Floats
from ..core.readable import short_numbers
from ..core.units import format_s
from ..result.distribution import Guarantee, SampleStatistics, check_prob, refit_bound
from .report import QUANTILES, HeldOutScore, Quantiles, SplitScore


@dataclass(frozen=True)
class TracePrediction(SampleStatistics):
    """Predicted steps.

    Attributes:
        step_s: [refit, draw] step times, seconds; refits differ by how the recorded steps are weighted.
    """

    step_s: Floats

    @property
    def samples_s(self) -> Floats:
        """All draws, sorted: the predictive distribution."""
        return np.sort(self.step_s, axis=None)

    @property
    def by_fleet_s(self) -> Floats:
        """[refit, draw] step times, seconds: of the one recorded fleet, each row as one reweighting of its steps sees it.

        Draws of a refit are independent of each other: the recorded order of steps is not kept.
        """
        return self.step_s

    def quantile(self, p: float) -> float:
        """Long-run quantile: median over refits, seconds."""
        return float(np.median(np.quantile(self.step_s, check_prob(p), axis=1)))

    def interval(self, p: float, level: float = 0.9) -> tuple[float, float]:
        """Interval of the long-run quantile from the few recorded steps, seconds."""
        return _central(np.quantile(self.step_s, check_prob(p), axis=1), check_prob(level, "level"))

    def mc_error(self, p: float) -> float:
        """Standard error of `quantile(p)` from the finite number of refits and draws, seconds.

        Half the distance of the order statistics one binomial standard deviation to either side of the median.
        """
        found = np.quantile(self.step_s, check_prob(p), axis=1)
        off = 0.5 / np.sqrt(len(found))
        low, high = np.quantile(found, [max(0.5 - off, 0.0), min(0.5 + off, 1.0)])
        return float(high - low) / 2.0

    def guarantee(self, p: float = 0.95, confidence: float = 0.99) -> Guarantee:
        """Upper confidence bound of the long-run quantile, from the spread over refits."""
        return refit_bound(np.quantile(self.step_s, check_prob(p), axis=1), p, check_prob(confidence, "confidence"))

    def expected(self, p: float, n_step: int) -> float:
        """Median prediction of the p-quantile of the next `n_step` steps, seconds."""
        return float(np.median(self._of_samples(p, n_step)))

    def expected_interval(self, p: float, n_step: int, level: float = 0.9) -> tuple[float, float]:
        """Interval that contains the p-quantile of the next `n_step` steps with probability `level`, seconds."""
        return _central(self._of_samples(p, n_step), level)

    def _of_samples(self, p: float, n_step: int) -> Floats:
        n_refit, n_draw = self.step_s.shape
        n_step = min(n_step, n_draw)
        n_sample = n_draw // n_step
        return np.quantile(
            self.step_s[:, : n_sample * n_step].reshape(n_refit * n_sample, n_step), check_prob(p), axis=1
        )


LEVELS = np.round(np.linspace(0.005, 0.995, 45), 4)
MOST_MEASURED = 100  # steps in a picture


@dataclass(frozen=True)
class PredictedCurve:
    """A prediction and the steps that it is held against, as a picture needs them; seconds.

    Attributes:
        level: probabilities, ascending.
        middle_s, low_s, high_s: quantiles of the prediction, and their interval.
        marks_s: p50, p95, p99.
        n_band: steps of the samples that the interval is of; 0: it is that of the long run.
        measured_s: ascending; of many steps quantiles at evenly spaced probabilities.
        n_measured: how many they were.
    """

    level: tuple[float, ...]
    middle_s: tuple[float, ...]
    low_s: tuple[float, ...]
    high_s: tuple[float, ...]
    marks_s: Quantiles
    n_band: int
    measured_s: tuple[float, ...]
    n_measured: int


def predicted_curve(prediction: TracePrediction, measured_s: Floats, n_band: int = 0) -> PredictedCurve:
    """Reads the curve off a prediction.

    Args:
        measured_s: [step] seconds.
        n_band: steps of the samples that the interval is of; 0: of the long run.
    """
    tail = (1.0 - LEVEL) / 2.0
    by_refit = np.quantile(prediction.step_s, LEVELS, axis=1)  # [level, refit]
    n = min(n_band, prediction.step_s.shape[1])
    samples = prediction.step_s[:, : prediction.step_s.shape[1] // n * n].reshape(-1, n) if n else None
    by_sample = by_refit if samples is None else np.quantile(samples, LEVELS, axis=1)
    low, high = np.quantile(by_sample, [tail, 1.0 - tail], axis=1)
    ordered = np.sort(measured_s)
    if len(ordered) > MOST_MEASURED:
        ordered = np.quantile(ordered, (np.arange(MOST_MEASURED) + 0.5) / MOST_MEASURED)
    middle, lower, upper = (short_numbers(values) for values in (np.median(by_refit, axis=1), low, high))
    level = tuple(map(float, LEVELS))
    return PredictedCurve(
        level, middle, lower, upper, Quantiles.of(prediction.quantile), n_band, short_numbers(ordered), len(measured_s)
    )


def _central(values: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


def ks_distance(a: Floats, b: Floats) -> float:
    """Largest difference between the empirical distribution functions of two samples, 0-1."""
    a, b = np.sort(a, axis=None), np.sort(b, axis=None)
    x = np.concatenate([a, b])
    above = np.searchsorted(a, x, side="right") / a.size - np.searchsorted(b, x, side="right") / b.size
    return float(np.abs(above).max())


LEVEL = 0.9  # of the intervals


@dataclass(frozen=True)
class MomentMatch:
    """Factors that make drawn steps agree with recorded ones: of their mean, and of their deviations from it."""

    mean: float = 1.0
    spread: float = 1.0

    def applied(self, step_s: Floats) -> Floats:
        """Drawn step times that agree."""
        mean = step_s.mean()
        return self.mean * mean + self.spread * (step_s - mean)


def mean_of_splits(scores: Sequence[SplitScore]) -> HeldOutScore:
    """Averages over splits, field by field."""
    return _mean([split.score for split in scores])


def _mean(values: list[Any]) -> Any:
    first = values[0]
    if is_dataclass(first) and not isinstance(first, type):
        return type(first)(**{item.name: _mean([getattr(one, item.name) for one in values]) for item in fields(first)})
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(_mean([value[index] for value in values]) for index in range(len(first)))
    return float(np.mean(values))


FAR = 1.25  # times the longest recorded step; a p95 beyond it is said to be
ALIKE = 0.5  # correlation of neighbouring steps that is worth a word
FEWEST = 10  # steps of which that correlation is judged


def doubts(prediction: TracePrediction, recorded_s: Floats, *, as_recorded: bool) -> tuple[str, ...]:
    """One sentence per reason, the gravest first; none for a prediction that can be taken as it stands.

    Args:
        prediction: of unrecorded steps.
        recorded_s: [step] the steps that it was made from, seconds, in the order of time.
        as_recorded: whether it is one of the recorded job, so that recorded steps may contradict it.
    """
    found = _outside_own_interval(prediction)
    if as_recorded:
        found += _unlike_recorded(prediction, recorded_s)
    return (*found, *_too_few(len(recorded_s)), *_in_a_row(recorded_s))


def _outside_own_interval(prediction: TracePrediction) -> list[str]:
    found = []
    for name, p in QUANTILES.items():
        value, (low, high) = prediction.quantile(p), prediction.interval(p, LEVEL)
        if not low <= value <= high:
            found.append(
                f"the {name} of {format_s(value)} lies outside its own interval, {format_s(low)} to {format_s(high)}"
            )
    return found


def _unlike_recorded(prediction: TracePrediction, recorded_s: Floats) -> list[str]:
    found = []
    low, high = np.quantile(recorded_s, [0.05, 0.95])
    p50, p95, longest = prediction.quantile(0.5), prediction.quantile(0.95), recorded_s.max()
    if not low <= p50 <= high:
        found.append(
            f"the p50 of {format_s(p50)} is not among the recorded steps, of which 90% take {format_s(low)} to {format_s(high)}"
        )
    if p95 > FAR * longest:
        found.append(
            f"the p95 of {format_s(p95)} is {p95 / longest:.3g} times the longest recorded step, {format_s(longest)}"
        )
    return found


def _too_few(n_step: int) -> list[str]:
    """Notes on quantiles beyond the steps: the longest of n stands for the n/(n+1) quantile on average; none was seen beyond."""
    beyond = [name for name, p in QUANTILES.items() if p > n_step / (n_step + 1)]
    if not beyond:
        return []
    needed = ceil(max(1.0 / (1.0 - QUANTILES[name]) for name in beyond) - 1e-9)
    steps = "step" if n_step == 1 else "steps"
    return [
        f"{n_step} recorded {steps} cannot show a {' or '.join(beyond)}: it rests on the model alone. "
        f"Record {needed} or more to see it"
    ]


def _in_a_row(recorded_s: Floats) -> list[str]:
    n_step = len(recorded_s)
    if n_step < FEWEST or recorded_s.std() == 0:
        return []
    alike = float(np.corrcoef(recorded_s[1:], recorded_s[:-1])[0, 1])
    if alike < max(ALIKE, 2.0 / np.sqrt(n_step)):
        return []
    worth = max(round(n_step * (1.0 - alike) / (1.0 + alike)), 1)
    return [
        f"neighbouring steps are alike (correlation {alike:.2f}), so {n_step} of them tell about as much as {worth} independent "
        "ones: intervals hold for other steps of the recorded stretch, and are too short for another hour"
    ]


FEWEST_OUTERMOST = 3


def resampled(step_s: Floats, *, n_refit: int, per_refit: int, seed: int) -> Floats:
    """Step times of the same law as the recorded ones.

    Args:
        step_s: [step] recorded step times, positive, seconds.
        n_refit: reweightings of the recorded steps.
        per_refit: draws of each.
        seed: same seed, same answer.

    Returns:
        [refit, draw] seconds. Equal recorded steps are repeated exactly.
    """
    log_s = np.sort(np.log(step_s))
    n, rng = len(log_s), np.random.default_rng(seed)
    upper, lower = _tail(log_s), _tail(-log_s[::-1])
    cuts = np.concatenate([[-np.inf], log_s, [np.inf]])
    rows = []
    for weight in rng.dirichlet(np.ones(n + 1), n_refit):
        cell = rng.choice(n + 1, size=per_refit, p=weight)
        below, above = cuts[cell], cuts[cell + 1]
        inside = np.where(np.isfinite(below), below, log_s[0])
        width = np.where(np.isfinite(above), above, log_s[-1]) - inside
        drawn = inside + width * rng.random(per_refit)
        excess = rng.exponential(size=per_refit)
        drawn += np.where(cell == n, upper * excess, 0.0) - np.where(cell == 0, lower * excess, 0.0)
        rows.append(np.exp(drawn))
    return np.stack(rows)


def _tail(log_s: Floats) -> float:
    """Mean excess of the highest of sorted values over the next one below them."""
    n_outermost = min(max(FEWEST_OUTERMOST, round(len(log_s) ** 0.5)), len(log_s) - 1)
    return float((log_s[-n_outermost:] - log_s[-n_outermost - 1]).mean()) if n_outermost else 0.0

"""Statistics of step times: mean, quantiles, and the mean of the slowest steps, of equally likely or weighted samples.

Quantiles interpolate linearly between sorted samples: sample k of n (from 0) stands at probability k / (n - 1). Of weighted
samples sample k stands at the middle of its share of the cumulated weight, and the scale is stretched so that the first stands at
0 and the last at 1; equal weights give the same.

    cvar_p = 1 / (1 - p) * integral of quantile(u) du from p to 1

is integrated over the empirical distribution, in which sample k covers its own share of probability: the sample at the boundary
counts with that part of its share that lies beyond p (Rockafellar and Uryasev 2002; Acerbi and Tasche 2002).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from .outcome import Array, Outcome

SMOOTHING = 0.02  # width of the smoothed quantile in probability: a fifth of steps beyond p90 share the gradient


def mean(outcome: Outcome) -> Array:
    """Mean step time, seconds."""
    samples, weight = outcome.samples_s, outcome.weight
    return samples.mean(axis=-1) if weight is None else (samples * weight).sum(axis=-1) / weight.sum(axis=-1)


@dataclass(frozen=True)
class Quantile:
    """Step time that a fraction `p` of steps does not exceed, seconds."""

    p: float

    def __call__(self, outcome: Outcome) -> Array:
        if outcome.weight is not None:
            return self._weighted(outcome)
        return weighted_order(outcome, self.weights(outcome.samples_s.shape[-1]))

    def weights(self, n: int) -> list[float]:
        """Weights of `n` sorted samples; they add up to one."""
        place = self.p * (n - 1)
        low, weight = int(place), [0.0] * n
        weight[low] = 1.0 - (place - low)
        weight[min(low + 1, n - 1)] += place - low
        return weight

    def _weighted(self, outcome: Outcome) -> Array:
        xp = outcome.xp
        samples, upper, own = _sorted_shares(outcome)
        if samples.shape[-1] == 1:
            return samples[..., 0]
        middle = upper - 0.5 * own
        place = (middle - middle[..., :1]) / (middle[..., -1:] - middle[..., :1])
        low = xp.clip((place <= self.p).sum(axis=-1, keepdims=True) - 1, 0, samples.shape[-1] - 2)
        (a, b), (x, y) = ([xp.take_along_axis(z, low + i, axis=-1)[..., 0] for i in (0, 1)] for z in (place, samples))
        return x + (y - x) * (self.p - a) / xp.where(b > a, b - a, 1.0)


@dataclass(frozen=True)
class SmoothQuantile:
    """A quantile whose weight is spread over neighbours in rank, so that more than one step has a gradient."""

    p: float

    def __call__(self, outcome: Outcome) -> Array:
        n, width = outcome.samples_s.shape[-1], min(SMOOTHING, 1.0 - self.p)
        weight = [exp(-0.5 * (((k + 0.5) / n - self.p) / width) ** 2) for k in range(n)]
        total = sum(weight)
        return weighted_order(outcome, [w / total for w in weight])


@dataclass(frozen=True)
class Cvar:
    """Mean of the slowest `1 - p` of steps (conditional value at risk, expected shortfall), seconds."""

    p: float

    def __call__(self, outcome: Outcome) -> Array:
        if outcome.weight is None:
            return weighted_order(outcome, self.weights(outcome.samples_s.shape[-1]))
        xp = outcome.xp
        samples, upper, own = _sorted_shares(outcome)
        beyond = xp.clip(upper, self.p, 1.0) - xp.clip(upper - own, self.p, 1.0)
        return (samples * beyond).sum(axis=-1) / beyond.sum(axis=-1)

    def weights(self, n: int) -> list[float]:
        """Weights of `n` sorted samples; they add up to one."""
        share = (1.0 - self.p) * n  # samples beyond p, not a whole number
        beyond = [min(max((k + 1 - self.p * n) / share, 0.0), 1.0 / share) for k in range(n)]
        total = sum(beyond)
        return [b / total for b in beyond]


def weighted_order(outcome: Outcome, weight: Sequence[float]) -> Array:
    """Weighted sum [...] of sorted samples; only those with a weight are read."""
    xp, samples = outcome.xp, outcome.samples_s
    some = [k for k, w in enumerate(weight) if w > 0.0]
    first, last = some[0], some[-1] + 1
    ordered = xp.sort(samples, axis=-1)[..., first:last]
    own = xp.asarray(weight[first:last], dtype=samples.dtype)
    return (ordered * own.reshape((1,) * (samples.ndim - 1) + own.shape)).sum(axis=-1)


def _sorted_shares(outcome: Outcome) -> tuple[Array, Array, Array]:
    """Samples in increasing order, and the cumulated and the own share of each in the weight [..., sample]."""
    xp = outcome.xp
    order = xp.argsort(outcome.samples_s, axis=-1)
    weight = xp.broadcast_to(outcome.weight, outcome.samples_s.shape)
    samples, own = (xp.take_along_axis(x, order, axis=-1) for x in (outcome.samples_s, weight))
    own = own / own.sum(axis=-1, keepdims=True)
    return samples, xp.cumsum(own, axis=-1), own

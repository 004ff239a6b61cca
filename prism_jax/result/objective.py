"""Objective: a number of an outcome, smaller is better: mean, quantiles, mean of the slowest steps, GPU time or money per token.

Samples are equally likely or weighted. Quantiles interpolate linearly between sorted samples: sample k of n (from 0) stands at
probability k / (n - 1). Of weighted samples sample k stands at the middle of its share of the cumulated weight, and the scale is
stretched so that the first stands at 0 and the last at 1; equal weights give the same.

    cvar_p = 1 / (1 - p) * integral of quantile(u) du from p to 1

is integrated over the empirical distribution, in which sample k covers its own share of probability: the sample at the boundary
counts with that part of its share that lies beyond p (Rockafellar and Uryasev 2002; Acerbi and Tasche 2002). What training costs
per token follows from the mean step, which decides the total of many steps. No NumPy is imported: `show` lists the objectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Any

from ..core.errors import DataError
from ..core.registry import Registry
from ..plan.plan import ParallelPlan

# Arrays are those of NumPy or of JAX, whichever the samples are: an objective runs on the host and inside jitted code.
Array = Any


@dataclass(frozen=True)
class PlanFacts:
    """Facts about a plan besides its step time: numbers, or arrays [plan]; None where not known.

    Attributes:
        n_devices: GPUs that the plan occupies.
        samples_per_step: training samples (sequences) of a step.
        tokens_per_step: tokens of a step; of a model without tokens its samples or images.
        price_per_gpu_hour: price of one GPU for an hour, in any currency.
    """

    n_devices: Array | None = None
    samples_per_step: Array | None = None
    tokens_per_step: Array | None = None
    price_per_gpu_hour: Array | None = None


@dataclass(frozen=True)
class Outcome:
    """Step times of a plan, or of several along leading axes.

    Attributes:
        samples_s: [..., sample] step times, seconds, in any order.
        weight: [..., sample] or [sample] weights of the samples, not negative, in any scale; None if they are equally likely.
        plan: what else is known of the plan.
    """

    samples_s: Array
    weight: Array | None = None
    plan: PlanFacts = field(default_factory=PlanFacts)

    @property
    def xp(self) -> Any:
        """The array module of the samples: `numpy` or `jax.numpy`."""
        return self.samples_s.__array_namespace__()

    def known(self, fact: str) -> Array:
        """A field of `plan` that an objective cannot do without.

        Raises:
            DataError: it is not known.
        """
        value = getattr(self.plan, fact)
        if value is None:
            raise DataError(f"the objective needs {fact}, which is not given")
        return value


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


@dataclass(frozen=True)
class Objective:
    """Objective that a search minimises.

    Attributes:
        name: how `search` and `place` are asked for it.
        about: what it is, for people.
        of: its value [...] of an outcome [..., sample], by functions of `outcome.xp` alone, so that it runs on the host and
            in jitted code and can be differentiated. Positive; it must not fall where a step takes longer, and of one sample it
            is the value of a step that always takes as long: a search leaves plans out on these grounds.
        smooth: stand-in with a gradient in more samples, for searches that follow gradients; `of` if not given.
        needs: fields of `PlanFacts` that it cannot do without, checked before anything is simulated.
        unit: of the value.

    Example:
        >>> import numpy as np
        >>> spread = Objective("mean_2sd", "mean plus two sd", lambda o: o.samples_s.mean(-1) + 2 * o.samples_s.std(-1))
        >>> float(spread.of(Outcome(np.array([1.0, 3.0]))))
        4.0
    """

    name: str
    about: str
    of: Callable[[Outcome], Array]
    smooth: Callable[[Outcome], Array] | None = None
    needs: tuple[str, ...] = ()
    unit: str = "s"

    def smoothed(self, outcome: Outcome) -> Array:
        """`smooth` where there is one, else `of`."""
        return self.of(outcome) if self.smooth is None else self.smooth(outcome)


S_PER_HOUR = 3600.0
MILLION = 1e6
GPU_HOURS_NEED = ("n_devices", "tokens_per_step")


def gpu_hours_per_million_tokens(outcome: Outcome) -> Array:
    """GPU-hours that a million tokens take on average.

    Raises:
        DataError: number of devices or tokens per step are not known.
    """
    hours = mean(outcome) / S_PER_HOUR * outcome.known("n_devices")
    return hours / outcome.known("tokens_per_step") * MILLION


def cost_per_million_tokens(outcome: Outcome) -> Array:
    """Price of a million tokens on average, in the currency of the price per GPU-hour.

    Raises:
        DataError: number of devices, tokens per step or the price are not known.
    """
    return gpu_hours_per_million_tokens(outcome) * outcome.known("price_per_gpu_hour")


QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def _shipped() -> Iterator[Objective]:
    yield Objective("mean", "mean step time", mean)
    for name, p in QUANTILES.items():
        about = "median step time" if p == 0.5 else f"step time that {100 * p:g} % of steps do not exceed"
        yield Objective(name, about, Quantile(p), SmoothQuantile(p))
    yield Objective("cvar95", "mean of the slowest 5% of steps", Cvar(0.95))
    yield Objective(
        "gpu_hours_per_mtoken",
        "GPU-hours per million tokens",
        gpu_hours_per_million_tokens,
        needs=GPU_HOURS_NEED,
        unit="GPU-hours",
    )
    yield Objective(
        "cost_per_mtoken",
        "price of a million tokens; needs a price per GPU-hour",
        cost_per_million_tokens,
        needs=(*GPU_HOURS_NEED, "price_per_gpu_hour"),
        unit="money",
    )


OBJECTIVES: Registry[Objective] = Registry("objective", _shipped, error=DataError)


@dataclass(frozen=True)
class PlanObjective:
    """An objective asked of plans that share `facts`; hashable if its parts are, so that jitted code takes it as static.

    Attributes:
        objective: what is asked.
        facts: what is known of every plan.
    """

    objective: Objective
    facts: PlanFacts = field(default_factory=PlanFacts)

    @property
    def name(self) -> str:
        """Name of the objective."""
        return self.objective.name

    @property
    def unit(self) -> str:
        """Unit of its values."""
        return self.objective.unit

    @property
    def text(self) -> str:
        """Text that identifies the question in every process; a function is known by its objective's name and `about`."""
        return repr((self.objective.name, self.objective.about, self.facts))

    def of(self, samples_s: Array, n_devices: Array | None = None) -> Array:
        """Value [...] of equally likely samples [..., sample], seconds; `n_devices` [...] where plans differ in it."""
        return self.objective.of(Outcome(samples_s, plan=self._facts(n_devices)))

    def smoothed(self, samples_s: Array) -> Array:
        """Value of the objective's stand-in with a smooth gradient."""
        return self.objective.smoothed(Outcome(samples_s, plan=self.facts))

    def _facts(self, n_devices: Array | None) -> PlanFacts:
        return self.facts if n_devices is None else replace(self.facts, n_devices=n_devices)


def plan_objective(
    objective: str | Objective, plan: ParallelPlan, units_per_step: int, price_per_gpu_hour: float | None = None
) -> PlanObjective:
    """An objective, by name or as it is, of plans with the batch of `plan`.

    Args:
        units_per_step: tokens or samples of a step of the model under that plan (`Workload.units_per_step`).

    Raises:
        DataError: unknown name, a price that is not positive, or an objective that needs the price without one.
    """
    if price_per_gpu_hour is not None and not price_per_gpu_hour > 0.0:
        raise DataError(f"price_per_gpu_hour = {price_per_gpu_hour:g}, but a price must be positive")
    chosen = OBJECTIVES.named(objective) if isinstance(objective, str) else objective
    facts = PlanFacts(plan.n_devices, plan.global_batch, units_per_step, price_per_gpu_hour)
    for fact in chosen.needs:
        if getattr(facts, fact) is None:
            raise DataError(f"objective {chosen.name!r} needs {fact}, which is not given")
    return PlanObjective(chosen, facts)

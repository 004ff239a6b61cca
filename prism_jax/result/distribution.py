"""StepTimeDistribution: what `predict` returns (seconds): quantiles with their Monte Carlo error, probabilities, a guarantee.

`samples_s` is the flat, sorted view. `by_fleet_s` keeps what a run of many steps needs: row by row the steps of one fleet, in the
order of time. The steps of a row share what persists (which GPUs and nodes the fleet has) and follow each other, so that a row
may be summed up; different rows are different fleets. Where a method draws another fleet for every step there is one step per
row, and sums over steps cannot be made of it. `StepTimes` is what every distribution answers, however it was made.

The Monte Carlo error of a quantile is first one of its level: with F_b(t) the share of randomisation b's samples up to t,

    s(p)^2 = mean over levels p' near p of  var_b F_b(q(p')) / n_b

and the quantile function of all samples turns a level p +- 2 s into seconds. Shares are sums over what was drawn, so that their
variance is right however few samples lie beyond the quantile, where quantiles of single randomisations are cut off; between
distant levels the quantile function is smooth, where the density at one point is not. A few levels are averaged because strata
meet single levels exactly: half of all Sobol points lie below the median in every randomisation. Source: Woodruff, Confidence
intervals for medians and other position measures, JASA 47 (1952).

A guarantee that is stated holds as often as it says, or is refused. From n independent draws of steps (brute force, measured
steps) an order statistic bounds the quantile without any assumption: the k-th smallest of n is at least the p-quantile with
probability P(Binomial(n, p) < k). From a few independent randomisations of a weighted estimate there are no independent
steps, and Student's t on their shares bounds the quantile's level. Refits to reweighted data are draws of the quantile
itself: their spread bounds it, not that of their mean. Of the first two, half of the allowed misses is spent on the draws.
The other half is left for what neither knows of: shares of few randomisations are not quite normal, and between columns and
strata one interpolates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, stdtrit

from ..core.arrays import Float, Floats
from ..core.errors import DataError
from ..core.readable import short_numbers
from ..core.report import shown
from ..core.units import format_s


@dataclass(frozen=True)
class MedianInterval:
    """Median and 90% interval."""

    median: float
    p5: float
    p95: float


def check_prob(p: float, name: str = "p") -> float:
    """The probability itself.

    Raises:
        DataError: it is not between 0 and 1; percent are named as such.
    """
    if not 0.0 <= p <= 1.0:
        percent = f" The {p:g}th percentile is {name} = {p / 100:g}." if 1.0 < p <= 100.0 else ""
        raise DataError(f"{name} = {p:g}, but it is a probability, between 0 and 1.{percent}")
    return p


SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")  # samples that are equal count half
NEAR = np.linspace(-0.1, 0.1, 5)  # of p (1 - p): levels whose variances are averaged
REACH = 2.0  # level errors to either side at which the quantile function is read
INTERPOLATION = 3e-4  # of the distance from the median, or of the spread: what maps of scores and grids leave
DEGREES = 2  # of freedom per randomisation but one: levels that are averaged err in part by themselves
TWO_SIDED, NORMAL = 0.975, 1.959964  # the probability for which errors are calibrated, and its normal score


def quantile(samples_s: Float[np.ndarray, " sample"], p: ArrayLike) -> Floats:
    """Quantiles of equally likely samples, sorted; sample i of n stands at level (i - 1/2) / n, as strata do."""
    n = len(samples_s)
    place = np.clip(np.asarray(p, dtype=np.float64) * n - 0.5, 0.0, n - 1.0)
    low = np.minimum(place.astype(np.intp), max(n - 2, 0))
    step = samples_s[np.minimum(low + 1, n - 1)] - samples_s[low]
    return samples_s[low] + (place - low) * step


def level_error(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float
) -> float:
    """Standard error s(p) of the level at which the quantile `p` of all samples lies; all are sorted."""
    times_s = quantile(samples_s, p + NEAR * p * (1.0 - p))
    ends = [np.searchsorted(batch, times_s, side) for side in SIDES for batch in batches_s]
    share = np.reshape(ends, (len(SIDES), len(batches_s), -1)).mean(axis=0) / batches_s.shape[1]
    return float(np.sqrt(share.var(axis=0, ddof=1).mean() / len(batches_s)))


def quantile_error(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float
) -> float:
    """Standard error of the quantile `p` of all samples, in their unit."""
    error = level_error(samples_s, batches_s, p)
    low, high = max(p - REACH * error, 0.0), min(p + REACH * error, 1.0)
    if high == low:
        return 0.0
    return error * float(quantile(samples_s, high) - quantile(samples_s, low)) / (high - low)


def half_width(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float, prob: float
) -> float:
    """Distance of the quantile from the truth that is exceeded at most with probability `prob` on either side: Student's t."""
    degrees = DEGREES * (len(batches_s) - 1)
    return float(stdtrit(degrees, prob)) * quantile_error(samples_s, batches_s, p)


def stated_error(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float
) -> float:
    """Error such that the truth lies within 1.96 of it as often as within a known standard error: in 95% of repeats.

    Notes:
        Randomisations are few, so that theirs is a Student interval; where hardly anything is drawn at random, interpolation is
        the larger part.
    """
    drawn = half_width(samples_s, batches_s, p, TWO_SIDED) / NORMAL
    low, middle, high, here = quantile(samples_s, [0.16, 0.5, 0.84, p])
    return float(np.hypot(drawn, INTERPOLATION * max(abs(here - middle), 0.5 * (high - low))))


OF_DRAWS = 0.5  # of the allowed misses
FARTHEST = 0.1  # of the tail beyond p may lie beyond the level that bounds p; farther out randomisations say too little


@dataclass(frozen=True)
class Guarantee:
    """Guarantee that with `confidence` at least a fraction `p` of steps takes at most `bound_s`."""

    p: float
    confidence: float
    bound_s: float
    kind: str  # order_statistic | randomisations | refits | systems

    @shown
    def sentence(self) -> str:
        """The guarantee in words."""
        return (
            f"with {100 * self.confidence:.6g}% confidence at least {100 * self.p:.6g}% of steps "
            f"take at most {format_s(self.bound_s)} under this model{self._scope}"
        )

    @property
    def _scope(self) -> str:
        return ", on an unmeasured system" if self.kind == "systems" else ""


def order_statistic_bound(samples_s: Float[np.ndarray, " sample"], p: float, confidence: float) -> Guarantee:
    """Distribution-free bound from independent samples.

    Raises:
        DataError: too few samples; names how many are needed.
    """
    n = len(samples_s)
    needed = smallest_sample(p, confidence)
    if n < needed:
        raise DataError(f"{n} samples cannot bound the {p:g} quantile with confidence {confidence:g}; {needed} can")
    k = np.arange(1, n + 1)
    # P(X_(k) >= q_p) = P(fewer than k of n fall below q_p) = bdtr(k - 1, n, p)
    first = int(k[np.searchsorted(bdtr(k - 1, n, p), confidence)])
    return Guarantee(p, confidence, float(np.sort(samples_s)[first - 1]), "order_statistic")


def smallest_sample(p: float, confidence: float) -> int:
    """Fewest independent samples whose maximum bounds the p-quantile: 1 - p^n >= confidence."""
    return int(np.ceil(np.log1p(-confidence) / np.log(p)))


def independent_bound(samples_s: Float[np.ndarray, " sample"], p: float, confidence: float) -> Guarantee:
    """Bound by order statistic with a margin for what is not quite independent draws: strata, stalls integrated.

    Raises:
        DataError: too few samples; names how many are needed.
    """
    bound_s = order_statistic_bound(samples_s, p, _sure(confidence)).bound_s
    return Guarantee(p, confidence, bound_s, "order_statistic")


def randomised_bound(
    samples_s: Float[np.ndarray, " sample"],
    batches_s: Float[np.ndarray, "batch batch_sample"],
    p: float,
    confidence: float,
) -> Guarantee:
    """Quantile at the level that Student's t on the randomisations' shares puts above `p`.

    Raises:
        DataError: the level lies so far out in the tail that the randomisations say little of it.
    """
    n = len(batches_s)
    level = p + float(stdtrit(n - 1, _sure(confidence))) * level_error(samples_s, batches_s, p)
    if level > 1.0 - FARTHEST * (1.0 - p):
        raise DataError(
            f"{n} randomisations differ too much to bound the {p:g} quantile at confidence {confidence:g}; simulate more"
        )
    return Guarantee(p, confidence, float(quantile(samples_s, level)), "randomisations")


def _sure(confidence: float) -> float:
    """Confidence of which half of the misses are left over."""
    return 1.0 - OF_DRAWS * (1.0 - confidence)


def refit_bound(quantiles_s: Float[np.ndarray, " refit"], p: float, confidence: float) -> Guarantee:
    """One-sided Student bound of a quantile of which every refit to reweighted data gives one draw."""
    n = len(quantiles_s)
    spread = quantiles_s.std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
    return Guarantee(p, confidence, float(quantiles_s.mean() + stdtrit(n - 1, confidence) * spread), "refits")


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table; every text is escaped.

    Args:
        caption: above the table.
        head: headings of the columns.
        rows: texts of the cells.
        notes: sentences below the table.
    """
    parts = [f"<caption>{escape(caption)}</caption>", f"<thead>{_row(head, 'th')}</thead>"]
    parts.append("<tbody>" + "".join(_row(row, "td") for row in rows) + "</tbody>")
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><table>{''.join(parts)}</table>{below}</div>"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


QUANTILES = (0.05, 0.5, 0.95, 0.99)  # that a notebook shows


@runtime_checkable
class Sampled(Protocol):
    """Protocol of anything with sorted samples: of less than `StepTimes`, whose statistics ask for it."""

    @property
    def samples_s(self) -> Floats:
        """[sample] equally likely step times, seconds, sorted."""
        ...


@runtime_checkable  # the type checker of the tests asks
class StepTimes(Protocol):
    """A distribution of step times."""

    @property
    def samples_s(self) -> Floats:
        """[sample] equally likely step times, seconds, sorted."""
        ...

    @property
    def by_fleet_s(self) -> Floats:
        """[fleet, step] step times, seconds: each row the steps of one fleet in the order of time."""
        ...

    @property
    def mean_s(self) -> float:
        """Mean step time, seconds."""
        ...

    @property
    def std_s(self) -> float:
        """Standard deviation of the step time, seconds."""
        ...

    def quantile(self, p: float) -> float:
        """Step time that a fraction `p` of steps does not exceed, seconds."""
        ...

    def mc_error(self, p: float) -> float:
        """Monte Carlo standard error of `quantile(p)`, seconds."""
        ...

    def interval(self, p: float, level: float = 0.9) -> tuple[float, float]:
        """Interval of the quantile `p`, seconds: of what the method does not know about it."""
        ...

    def prob_above(self, time_s: float) -> float:
        """P(step > time_s)."""
        ...

    def prob_slower(self, fraction: float) -> float:
        """P(step > (1 + fraction) x median)."""
        ...

    def guarantee(self, p: float = 0.95, confidence: float = 0.99) -> Guarantee:
        """Upper confidence bound of the quantile `p`."""
        ...


class SampleStatistics:
    """The answers that follow from the samples alone, for classes that have them."""

    @property
    def mean_s(self: Sampled) -> float:
        """Mean step time, seconds."""
        return float(self.samples_s.mean())

    @property
    def std_s(self: Sampled) -> float:
        """Standard deviation of the step time, seconds."""
        return float(self.samples_s.std())

    def prob_above(self: Sampled, time_s: float) -> float:
        """P(step > time_s)."""
        return float((self.samples_s > time_s).mean())

    def prob_slower(self: StepTimes, fraction: float) -> float:
        """P(step > (1 + fraction) x median)."""
        return self.prob_above((1.0 + fraction) * self.quantile(0.5))

    def _repr_html_(self: StepTimes) -> str:
        """A small table for notebooks."""
        rows = [(f"p{100 * p:g}", format_s(self.quantile(p)), f"± {format_s(self.mc_error(p))}") for p in QUANTILES]
        rows.append(("mean", format_s(self.mean_s), ""))
        return html_table(type(self).__name__, ("", "step time", "Monte Carlo error"), rows, getattr(self, "notes", ()))


@dataclass(frozen=True)
class StepTimeDistribution(SampleStatistics):
    """Distribution of the step time over fleets and steps.

    Attributes:
        samples_s: [sample] equally likely step times, sorted.
        batches_s: [batch, batch_sample] the same from independent randomisations, each sorted, for the Monte Carlo error.
        deterministic_s: step time without any variability.
        method: "symmetric" or "brute_force".
        n_samples: simulated columns (symmetric) or steps (brute force).
        tail_columns: effective number of simulated columns (or steps) beyond the p95; how much the upper quantiles rest on.
        notes: what the user should know about how this was computed.
        fleets_s: [fleet, step] steps of the same fleets in the order of time, of methods that know which steps belong together.
    """

    samples_s: Float[np.ndarray, " sample"]
    batches_s: Float[np.ndarray, "batch batch_sample"]
    deterministic_s: float
    method: str
    n_samples: int
    tail_columns: float
    notes: tuple[str, ...] = field(default=())
    fleets_s: Float[np.ndarray, "fleet step"] | None = None

    @property
    def by_fleet_s(self) -> Float[np.ndarray, "fleet step"]:
        """Step times, seconds: each row the steps of one fleet in the order of time.

        One step per fleet, which tells nothing of sums over steps, unless `predict` was asked for several (`steps_per_fleet`).
        """
        return self.samples_s[:, None] if self.fleets_s is None else self.fleets_s

    def quantile(self, p: float) -> float:
        """Step time that a fraction `p` of steps does not exceed, seconds.

        Raises:
            DataError: `p` is not between 0 and 1.
        """
        return float(quantile(self.samples_s, check_prob(p)))

    def mc_error(self, p: float) -> float:
        """Standard error of `quantile(p)` from independent randomisations, seconds; 95% of repeats lie within 1.96 of it."""
        return stated_error(self.samples_s, self.batches_s, check_prob(p))

    def interval(self, p: float, level: float = 0.9) -> tuple[float, float]:
        """Interval of the quantile `p` of the modelled distribution, seconds: Monte Carlo error alone."""
        half = half_width(self.samples_s, self.batches_s, check_prob(p), 0.5 + 0.5 * check_prob(level, "level"))
        return self.quantile(p) - half, self.quantile(p) + half

    def guarantee(self, p: float = 0.95, confidence: float = 0.99) -> Guarantee:
        """Upper confidence bound of a quantile of the *modelled* distribution.

        By order statistic where steps are independent (brute force), else from what the randomisations differ by.

        Raises:
            DataError: there are too few of them to bound the quantile; the remedy is more samples.
        """
        check_prob(p)
        check_prob(confidence, "confidence")
        if self.method == "brute_force" and self.by_fleet_s.shape[1] == 1:
            return independent_bound(self.samples_s, p, confidence)
        return randomised_bound(self.samples_s, self.batches_s, p, confidence)


LEVELS = np.round(np.concatenate([np.linspace(0.001, 0.99, 200), np.linspace(0.99, 0.9995, 40)[1:], [0.5, 0.95]]), 6)
ROUNDING = 1e-6  # relative; a smaller range is float32 noise


@dataclass(frozen=True)
class StepCurve:
    """Quantiles of the step time, as a picture needs them.

    Attributes:
        level: probabilities, ascending.
        time_s, error_s: quantiles and their Monte Carlo standard errors.
        deterministic_s: the step without variability.
        bound: of the p95; None where too little was simulated for one.
    """

    level: tuple[float, ...]
    time_s: tuple[float, ...]
    error_s: tuple[float, ...]
    deterministic_s: float
    bound: Guarantee | None = None

    @property
    def is_constant(self) -> bool:
        """Whether every step takes the same time."""
        return self.time_s[-1] - self.time_s[0] <= ROUNDING * self.time_s[0]

    def at(self, p: float) -> float:
        """The quantile `p`, between levels linear."""
        return float(np.interp(p, self.level, self.time_s))

    def error_at(self, p: float) -> float:
        """The standard error of the quantile `p`, between levels linear."""
        return float(np.interp(p, self.level, self.error_s))


def step_curve(distribution: StepTimeDistribution, bound: Guarantee | None = None) -> StepCurve:
    """Reads the curve off a distribution.

    Args:
        distribution: what `predict` returns.
        bound: in the place of the distribution's own guarantee.
    """
    level = np.unique(LEVELS)
    if bound is None:
        try:
            bound = distribution.guarantee()
        except DataError:  # too few samples for one
            bound = None
    times, errors = zip(*((distribution.quantile(p), distribution.mc_error(p)) for p in level), strict=True)
    return StepCurve(
        tuple(map(float, level)), short_numbers(times), short_numbers(errors), distribution.deterministic_s, bound
    )

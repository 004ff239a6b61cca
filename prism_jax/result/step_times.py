"""StepTimes: what every distribution of step times answers, however it was made.

`samples_s` is the flat, sorted view. `by_fleet_s` keeps what a run of many steps needs: row by row the steps of one fleet, in the
order of time. The steps of a row share what persists (which GPUs and nodes the fleet has) and follow each other, so that a row
may be summed up; different rows are different fleets. Where a method draws another fleet for every step there is one step per
row, and sums over steps cannot be made of it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .._typing import Floats
from ..units import format_s
from .guarantee import Guarantee
from .html_table import html_table

QUANTILES = (0.05, 0.5, 0.95, 0.99)  # that a notebook shows


@runtime_checkable
class Sampled(Protocol):
    """Anything with sorted samples."""

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

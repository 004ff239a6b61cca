"""Capacity: what a fleet makes of some days, or how long it takes for some tokens, what that costs, and which to choose.

    tokens per day = 86,400 s x tokens per step x goodput / (mean step x factor)

The factor is what the cost model does not know, on draws that all fleets share (`calibration/band.py`); steps of a run of days
average out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from ..core.arrays import Floats
from ..core.content import ByContent
from .figures import JobFigures
from .table import paired_values, prob_least, prob_less

DAY_S, DAY_H = 86_400.0, 24.0
SURE = 0.95


@dataclass(frozen=True)
class Span:
    """Span that is asked for: so many days, or so many tokens, perhaps within `deadline_days`; the others are None."""

    days: float | None = None
    tokens: float | None = None
    deadline_days: float | None = None


@dataclass(frozen=True)
class FleetCurve:
    """Seconds per token as they would be measured, failures included, as a picture needs them.

    Attributes:
        level: probabilities, ascending.
        token_s: quantiles, seconds.
    """

    level: tuple[float, ...]
    token_s: tuple[float, ...]


LEVELS = np.linspace(0.002, 0.998, 67)  # of a curve: beyond stand few draws


@dataclass(frozen=True, eq=False)
class Capacity(ByContent):
    """One fleet; NaN where nothing is known.

    Attributes:
        goodput: share of the time that goes into steps; 1 where no failure rates are stated.
        tokens_per_day: predicted.
        tokens_p50, tokens_p95: tokens done with probability 50 and 95%.
        days_p50, days_p95: days within which they are done with probability 50 and 95%.
        money_p50, money_p95: of these days.
        energy_kwh_p50: of the GPUs alone.
        deadline_prob: that the tokens are done within the deadline.
    """

    goodput: float
    tokens_per_day: float
    tokens_p50: float
    tokens_p95: float
    days_p50: float
    days_p95: float
    money_p50: float = nan
    money_p95: float = nan
    energy_kwh_p50: float = nan
    deadline_prob: float = nan


@dataclass(frozen=True)
class Capacities:
    """Fleets that can run the job.

    Attributes:
        prob_faster, prob_cheaper: [fleet, other] that it does more tokens per day, or takes less money per token; the latter is
            empty where a price is missing.
        prob_fastest, prob_cheapest: [fleet] of all.
        curves: [fleet].
    """

    fleets: tuple[Capacity, ...]
    prob_faster: tuple[tuple[float, ...], ...]
    prob_fastest: tuple[float, ...]
    prob_cheaper: tuple[tuple[float, ...], ...]
    prob_cheapest: tuple[float, ...]
    curves: tuple[FleetCurve, ...]


def capacities(
    figures: Sequence[JobFigures],
    goodput: Sequence[float],
    prices: Sequence[float],
    factors: Floats,
    span: Span,
    seed: int = 0,
) -> Capacities:
    """Capacities of fleets over a span.

    Args:
        figures: of the job on every fleet, with the mean step as objective.
        prices: of a GPU-hour; NaN where it is not known.
        factors: [draw, fleet] of the step time.
    """
    per_token_s = [own.mean_s / own.tokens_per_step / share for own, share in zip(figures, goodput, strict=True)]
    errors = [own.value_error / own.value * s for own, s in zip(figures, per_token_s, strict=True)]
    measured_s = paired_values(per_token_s, errors, factors, seed)
    found = tuple(
        _capacity(own, share, price, s, measured_s[:, k], span)
        for k, (own, share, price, s) in enumerate(zip(figures, goodput, prices, per_token_s, strict=True))
    )
    money = measured_s * [own.n_devices * price for own, price in zip(figures, prices, strict=True)]
    priced = bool(np.isfinite(money).all())
    return Capacities(
        found,
        _rows(prob_less(measured_s)),
        tuple(prob_least(measured_s).tolist()),
        _rows(prob_less(money)) if priced else (),
        tuple(prob_least(money).tolist()) if priced else (),
        tuple(
            FleetCurve(tuple(LEVELS.tolist()), tuple(own.tolist())) for own in np.quantile(measured_s, LEVELS, axis=0).T
        ),
    )


def chosen_fleet(fleets: Sequence[Capacity], n_devices: Sequence[int], span: Span) -> tuple[int, str]:
    """Chooses a fleet, and says why: its position, and a phrase.

    Of those that keep the deadline with 95% it is the one that costs least at the median or, without prices, has the fewest
    GPUs; if none does, the one that most probably keeps it. Without a deadline it is the one that costs least per token or,
    without prices, does most per day.

    Args:
        fleets: as `capacities` has them.
        n_devices: [fleet].
        span: what was asked.
    """
    per_token = [one.money_p50 / one.tokens_p50 for one in fleets]
    priced = bool(np.isfinite(per_token).all())
    every, rate = range(len(fleets)), [one.tokens_per_day for one in fleets]
    if span.deadline_days is None:
        if priced:
            return min(every, key=lambda k: per_token[k]), "least money per token"
        return max(every, key=lambda k: rate[k]), "most per day"
    within = f"done within {span.deadline_days:.4g} days"
    on_time = [k for k in every if fleets[k].deadline_prob >= SURE]
    if not on_time:
        best = max(every, key=lambda k: (fleets[k].deadline_prob, rate[k]))
        return best, f"no fleet is {within} with probability {100 * SURE:g}%; this one most probably"
    told = f"of those {within} with probability {100 * SURE:g}%"
    if priced:
        return min(on_time, key=lambda k: per_token[k]), f"least money {told}"
    return min(on_time, key=lambda k: (n_devices[k], -rate[k])), f"fewest GPUs {told}"


def _capacity(
    own: JobFigures, goodput: float, price: float, per_token_s: float, measured_s: Floats, span: Span
) -> Capacity:
    middle_s, slow_s = (float(x) for x in np.quantile(measured_s, (0.5, SURE)))
    if span.tokens is None:
        days = slow_days = span.days or nan
        tokens, sure_tokens = days * DAY_S / middle_s, days * DAY_S / slow_s
    else:
        tokens = sure_tokens = span.tokens
        days, slow_days = tokens * middle_s / DAY_S, tokens * slow_s / DAY_S
    hours = own.n_devices * DAY_H  # of devices, a day
    asked = span.tokens is not None and span.deadline_days is not None
    return Capacity(
        goodput=goodput,
        tokens_per_day=DAY_S / per_token_s,
        tokens_p50=tokens,
        tokens_p95=sure_tokens,
        days_p50=days,
        days_p95=slow_days,
        money_p50=hours * price * days,
        money_p95=hours * price * slow_days,
        energy_kwh_p50=own.gpu_watts / 1e3 * hours * days,
        deadline_prob=float((tokens * measured_s <= (span.deadline_days or nan) * DAY_S).mean()) if asked else nan,
    )


def _rows(probs: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, probs.tolist()))

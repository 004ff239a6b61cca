"""Latency and bandwidth of collectives by least squares of log seconds: two numbers where they will do, else the whole law.

    log seconds of a cell = log(latency + bytes / bandwidth) + what is left

A fabric measured at one scale has the two numbers; cells have their `trust` as weight, so that single slow sizes count little.
They will do where they leave less than `MOST_LEFT` of the seconds; else, and for
fabrics of several scales, the law of size and scale (`laws`) is fitted, from the medians of its priors. Priors count as one row
each, so that what a log does not tell (the latency, of one size) stays at its median and is as unsure as that; fewer than
`FEWEST` sizes tell no spread, which is then taken as `MOST_LEFT`. What a law leaves is alike at neighbouring sizes: of n cells
only n (1 - r) / (1 + r) say something of their own, with r the correlation of neighbours, and the intervals are as much wider.

As a method of `fit` this needs no sampling: parameters are drawn around the estimate with its covariance, spreads are those of
what is left and of the repeats, what one log cannot tell (how they grow with scale) is drawn from its prior, and residuals are
drawn as for every other method. The verdict says what the law leaves, and fails above `MOST_LEFT_BY_LAW`. One size alone, or two
and three huge ones, tell the bandwidth or the latency: a number of which the data say less than its prior stays open, and the
verdict names the other one only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import least_squares, minimize
from scipy.special import gammaln, stdtrit

from prism_jax.core.arrays import Floats
from prism_jax.core.units import format_bytes
from prism_jax.fits.report import Verdict

from . import laws
from .data import CollectivesData
from .laws import DF, FEWEST, SMALLEST_SPREAD, Ints, doublings

MOST_LEFT, MOST_LEFT_BY_LAW = 0.05, 0.10  # of log seconds: of two numbers, and of the whole law
ROUNDS = 3  # of the fit and the spread that it leaves
FIRST_SPREAD = 0.1  # of log seconds
MOST_ALIKE = 0.9
SIDE = 1e-30  # step along the imaginary axis: derivatives without cancellation (Squire and Trapp, SIAM Review 40, 1998)
N_DRAW = 1000  # behind the intervals
SEED = 0
SHORT_BYTES = 1024.0  # the message whose time is called latency: short on any link, and in nearly every log


@dataclass(frozen=True)
class FittedLaw:
    """The law of one fabric.

    Attributes:
        held: its parameters as `laws.from_reference` takes them, in the order of `laws.priors` [parameter].
        covariance: of these [parameter, parameter].
        spread: what the law leaves, of log seconds.
        alike: correlation of what it leaves at neighbouring sizes.
        n_numbers: how many were fitted.
    """

    held: Floats
    covariance: Floats
    spread: float
    alike: float
    n_numbers: int

    @property
    def is_good(self) -> bool:
        """Whether it says of every size how long it takes, but for a little."""
        return self.spread <= (MOST_LEFT if self.n_numbers == 2 else MOST_LEFT_BY_LAW)


def fit_laws(law: str, data: CollectivesData) -> list[FittedLaw]:
    """The whole law of every fabric."""
    return [_fit(law, data, fabric) for fabric in range(len(data.fabrics))]


def fit_least(law: str, data: CollectivesData) -> list[FittedLaw]:
    """Two numbers of every fabric where they will do, else the whole law."""
    found = []
    for fabric in range(len(data.fabrics)):
        two = fit_two_numbers(law, data, fabric) if _is_at_one_scale(data, fabric) else None
        found.append(two if two is not None and two.is_good else _fit(law, data, fabric))
    return found


def are_two_numbers_enough(law: str, data: CollectivesData) -> bool:
    """Whether every fabric was measured at one scale in one setting, and two numbers say how long its sizes take."""
    alone = len(data.configs) == len(data.fabrics)
    every = range(len(data.fabrics))
    return alone and all(_is_at_one_scale(data, i) and fit_two_numbers(law, data, i).is_good for i in every)


def _is_at_one_scale(data: CollectivesData, fabric: int) -> bool:
    return int((data.curve_fabric == fabric).sum()) == 1


def _rate(data: CollectivesData, fabric: int) -> str:
    """Name of the law's bandwidth that long messages of a fabric run at: of the network, or inside the node."""
    return "log_net_bytes_per_s" if data.reference.net_hops[fabric] > 0 else "log_bytes_per_s"


def _of_each_cell(spread: float, alike: float) -> float:
    """Spread at which cells count as if each said something of its own, of those whose neighbours are alike."""
    return spread * np.sqrt((1.0 + alike) / (1.0 - alike))


NEVER = -30.0  # log bytes of a knee, below which the law's middle part is nothing


def fit_two_numbers(law: str, data: CollectivesData, fabric: int) -> FittedLaw:
    """Latency and bandwidth of a fabric that was measured at one scale, as values of the law without its middle part."""
    here = np.flatnonzero(data.curve_fabric[data.curve] == fabric)
    known = laws.priors(law)
    at = laws.Reference(*(values[fabric] for values in data.reference))
    median = {name: prior.median for name, prior in known.items()} | {"log_knee_bytes": NEVER, "knee_network": 0.0}
    width = np.array([np.hypot(prior.sd, prior.between) for prior in known.values()])
    held = np.array([float(one) for one in laws.to_reference({n: median[n] for n in known}, at).values()])
    two = [list(known).index("log_base_s"), list(known).index(_rate(data, fabric))]
    log_bytes, log_s, trust = data.log_bytes[here], data.log_s[here], data.trust[here]

    def left(values: Floats, spread: float) -> Floats:
        of_cells = np.sqrt(trust) * (log_s - np.logaddexp(values[0], log_bytes - values[1])) / spread
        return np.concatenate([of_cells, (values - held[two]) / width[two]])

    values, spread, free = held[two], FIRST_SPREAD, max(len(here) - 2, 1)
    for _ in range(ROUNDS):
        values = least_squares(left, values, args=(spread,)).x
        rest = log_s - np.logaddexp(values[0], log_bytes - values[1])
        spread = max(float(np.sqrt(np.sum(trust * rest**2) / np.sum(trust) * len(here) / free)), SMALLEST_SPREAD)
        spread = spread if len(here) >= FEWEST else max(spread, MOST_LEFT)
    alike = _alike(np.sqrt(trust) * rest, data.curve[here], data.config[here], log_bytes)
    each = _of_each_cell(spread, alike)
    jacobian = least_squares(left, values, args=(each,), max_nfev=1).jac
    covariance = np.diag(np.where(np.array(list(known)) == "log_knee_bytes", 0.0, width**2))
    covariance[np.ix_(two, two)] = np.linalg.inv(jacobian.T @ jacobian)
    held[two] = values
    return FittedLaw(held, covariance, spread, alike, 2)


def drawn(
    law: str, data: CollectivesData, fabric: int, found: FittedLaw, n_draw: int = N_DRAW, seed: int = SEED
) -> dict[str, Floats]:
    """Parameters of the law [draw] as unsure as the fit is; the first draw is the estimate."""
    rng = np.random.default_rng(seed)
    apart = rng.multivariate_normal(np.zeros(len(found.held)), found.covariance, n_draw - 1)
    held = found.held + np.vstack([np.zeros((1, len(found.held))), apart])
    at = laws.Reference(*(values[fabric] for values in data.reference))
    p = laws.from_reference(dict(zip(laws.priors(law), held.T, strict=True)), at)
    return {name: np.asarray(value) for name, value in p.items()} | {"two_node": np.zeros(len(held))}


def latency_and_bandwidth(law: str, p: laws.Parameters, data: CollectivesData, curve: int) -> tuple[Any, Any]:
    """Seconds of a short message and bus bytes per second of a very long one [draw], by the law alone."""
    where = laws.Places(*(float(value[curve]) for value in data.curve_where))
    latency = np.exp(laws.log_seconds(law, p, where, SHORT_BYTES))
    return latency, where.bus / laws.wire_s_per_byte(p, where)


def _fit(law: str, data: CollectivesData, fabric: int) -> FittedLaw:
    here = np.flatnonzero(data.curve_fabric[data.curve] == fabric)
    known = laws.priors(law)
    at = laws.Reference(*(values[fabric] for values in data.reference))
    where = laws.Places(*(value[here] for value in data.where))
    median = np.array([prior.median for prior in known.values()])
    width = np.array([np.hypot(prior.sd, prior.between) for prior in known.values()])
    size, log_s, root = np.exp(data.log_bytes[here]), data.log_s[here], np.sqrt(data.trust[here])

    def left(held: Any, spread: float) -> Any:
        p = laws.from_reference(dict(zip(known, held, strict=True)), at) | {"two_node": 0.0}
        of_cells = root * (log_s - laws.log_seconds(law, p, where, size)) / spread
        of_priors = (np.stack([p[name] for name in known]) - median) / width
        return np.concatenate([of_cells, of_priors])

    def slope(held: Floats, spread: float) -> Floats:
        return np.stack([left(held + side, spread).imag for side in SIDE * 1j * np.eye(len(held))], axis=1) / SIDE

    held = np.array([float(one) for one in laws.to_reference(dict(zip(known, median, strict=True)), at).values()])
    spread, alike = FIRST_SPREAD, 0.0
    for _ in range(ROUNDS):
        each = _of_each_cell(spread, alike)
        jacobian: Any = partial(slope, spread=each)  # SciPy's type allows names alone
        best = least_squares(partial(left, spread=each), held, jac=jacobian, x_scale="jac")
        held = best.x
        rest = best.fun[: len(here)] * each
        spread = max(float(np.sqrt(np.mean(rest**2))), SMALLEST_SPREAD)
        alike = _alike(rest, data.curve[here], data.config[here], data.log_bytes[here])
    jacobian = slope(held, _of_each_cell(spread, alike))
    return FittedLaw(held, np.linalg.inv(jacobian.T @ jacobian), spread, alike, len(known))


def _alike(rest: Floats, curve: Ints, config: Ints, log_bytes: Floats) -> float:
    """Correlation of neighbours in size on one curve; no less than none."""
    order = np.lexsort((log_bytes, config, curve))
    same = (np.diff(curve[order]) == 0) & (np.diff(config[order]) == 0)
    if not same.any():
        return 0.0
    one, other = rest[order][:-1][same], rest[order][1:][same]
    found = float(one @ other / max(float(np.sqrt((one @ one) * (other @ other))), 1e-300))
    return float(np.clip(found, 0.0, MOST_ALIKE))


def draws_and_verdict(
    law: str, data: CollectivesData, spreads: Mapping[str, tuple[float, float]], n_draw: int, rng: np.random.Generator
) -> tuple[dict[str, Floats], Verdict]:
    """Draws [draw, ...] of the sites that predictions read, without residuals, and what to think of them.

    Args:
        spreads: mean and standard deviation of what one log cannot tell, by site.
    """
    found = fit_least(law, data)
    by_fabric = [drawn(law, data, i, one, n_draw, int(rng.integers(2**31))) for i, one in enumerate(found)]
    out = {name: np.stack([one[name] for one in by_fabric], axis=1) for name in by_fabric[0]}
    prior = {name: mean + sd * rng.standard_normal(n_draw) for name, (mean, sd) in spreads.items()}
    out |= {"uneven_growth": prior["uneven_growth"], "noise_growth": prior["noise_growth"]}
    out |= {name: np.exp(prior[f"log_{name}"]) for name in ("step_scale", "across_scale")}
    left = np.array([one.spread for one in found])
    out["curve_scale"] = np.full(n_draw, float(left.max()))
    out["in_place"] = np.full(n_draw, float(np.median(_in_place(data))))
    level = np.log(left)
    out |= {
        "uneven_level": _at_reference(data, level, out["uneven_growth"]),
        "log_uneven": np.full(n_draw, level.mean()),
    }
    noise, df = _noise(data, out["in_place"][0])
    unsure = rng.standard_normal(n_draw)[:, None] / np.sqrt(2.0 * max(len(data.repeat), 1))
    out["noise_level"] = _at_reference(data, noise, out["noise_growth"]) + unsure
    out |= {"log_noise": np.full(n_draw, noise.mean()), "noise_df": np.full(n_draw, df)}
    out["profile"] = np.zeros((n_draw, len(data.knots)))
    if data.n_deviation:
        out["deviation"] = np.zeros((n_draw, data.n_deviation, len(data.knots)))
    return out, _verdict(law, found, data, n_draw)


def _in_place(data: CollectivesData) -> Floats:
    """Log seconds in place over out of place, of cells with both; none: no difference."""
    both = np.abs(data.repeat_in_place) > 0
    return data.repeat[both] / data.repeat_in_place[both] if both.any() else np.zeros(1)


def _noise(data: CollectivesData, in_place: float) -> tuple[Floats, float]:
    """Log scale of the repeats of every fabric, and degrees of freedom of all together, by maximum likelihood."""
    rest = data.repeat - in_place * data.repeat_in_place
    if len(rest) < 3 or not np.ptp(rest) > 0:
        return np.full(len(data.fabrics), np.log(SMALLEST_SPREAD)), DF
    df = float(np.clip(_freedom(rest), 1.3, 50.0))
    scales = []
    for fabric in range(len(data.fabrics)):
        own = rest[data.repeat_fabric == fabric]
        middle = np.median(np.abs(own if len(own) > 2 else rest)) / stdtrit(df, 0.75)
        scales.append(np.log(max(float(middle), SMALLEST_SPREAD)))
    return np.array(scales), df


def _freedom(rest: Floats) -> float:
    """Degrees of freedom of a Student-t law around zero, by maximum likelihood."""

    def energy(logs: Floats) -> float:
        df, scale = np.exp(np.clip(logs, -50.0, 50.0))
        constant = gammaln(0.5 * df) - gammaln(0.5 * (df + 1.0)) + 0.5 * np.log(df) + np.log(scale)
        return float(len(rest) * constant + 0.5 * (df + 1.0) * np.log1p((rest / scale) ** 2 / df).sum())

    begin = np.log([3.0, float(np.median(np.abs(rest))) + SMALLEST_SPREAD])
    return float(np.exp(minimize(energy, begin, method="Nelder-Mead").x[0]))


def _at_reference(data: CollectivesData, level: Floats, growth: Floats) -> Floats:
    """Levels [draw, fabric] on the reference number of GPUs, of those where every fabric was measured."""
    scale = [float(np.mean(doublings(data.curve_gpus[data.curve_fabric == i]))) for i in range(len(data.fabrics))]
    return level - growth[:, None] * np.array(scale)


def _verdict(law: str, found: list[FittedLaw], data: CollectivesData, n_draw: int) -> Verdict:
    worst = int(np.argmax([one.spread for one in found]))
    one = found[worst]
    numbers = (
        "a latency and a bandwidth" if one.n_numbers == 2 else f"the law of size and scale ({one.n_numbers} numbers)"
    )
    n_cells = int((data.curve_fabric[data.curve] == worst).sum())
    where = f" of {data.fabrics[worst]}" if len(found) > 1 else ""
    fact = f"least squares, {numbers}, leave {one.spread:.1%} of the seconds of {n_cells} sizes{where}"
    if n_cells < FEWEST:
        seconds = "its seconds" if n_cells == 1 else "the seconds of each"
        sizes = "1 size" if n_cells == 1 else f"{n_cells} sizes"
        fact = f"least squares, {numbers} of {sizes}{where}, {seconds} taken as good to {one.spread:.0%}"
    if one.is_good:
        unknown = _open(law, found, data)
        known = "".join(
            f"{told} only{where}: {sizes} {'leaves' if sizes == 'one size' else 'leave'} the {left} open; "
            for (told, left, sizes), where in unknown.items()
        )
        return Verdict(True, f"{known or 'good: '}{fact}", np.nan, float(n_draw), "", 0, np.nan)
    return Verdict(
        False, f"failed: {fact}, more than {MOST_LEFT_BY_LAW:.0%}", np.nan, float(n_draw), "", 0, np.nan, "law"
    )


OPEN = 0.5  # share of the prior's variance that is left, from which on the sizes say less of a number than the prior


def left_open(law: str, found: Sequence[FittedLaw], data: CollectivesData) -> list[str]:
    """Notes on what the measured sizes leave open: latency or bandwidth, of which fabrics."""
    return [
        f"{left}{where}: not known from {sizes}; what is shown of it is the prior of the law"
        for (_, left, sizes), where in _open(law, found, data).items()
    ]


def _open(law: str, found: Sequence[FittedLaw], data: CollectivesData) -> dict[tuple[str, str, str], str]:
    """Fabrics in brackets (where there are several) by (known parameter, unknown parameter, sizes in words)."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for fabric, one in enumerate(found):
        size = np.exp(np.unique(data.log_bytes[data.curve_fabric[data.curve] == fabric]))
        latency, rate = _share_of_prior(law, data, fabric, one)
        if max(latency, rate) < OPEN and len(size) > 1:
            continue
        known, left = ("bandwidth", "latency") if latency > rate else ("latency", "bandwidth")
        ends = dict.fromkeys(format_bytes(n_bytes) for n_bytes in (size[0], size[-1]))
        words = "one size" if len(size) == 1 else f"{len(size)} sizes from {' to '.join(ends)}"
        names.setdefault((known, left, words), []).append(data.fabrics[fabric])
    return {what: f" ({', '.join(fabrics)})" if len(found) > 1 else "" for what, fabrics in names.items()}


def _share_of_prior(law: str, data: CollectivesData, fabric: int, found: FittedLaw) -> tuple[float, float]:
    """Variance of log latency and of log bandwidth that the fit leaves, over that of the prior: of the scale that says most."""
    width = np.array([np.hypot(prior.sd, prior.between) for prior in laws.priors(law).values()])
    blank = replace(found, covariance=np.diag(np.where(np.diag(found.covariance) > 0.0, width**2, 0.0)))
    shares = []
    for curve in np.flatnonzero(data.curve_fabric == fabric):
        left, prior = (
            np.log(latency_and_bandwidth(law, drawn(law, data, fabric, one), data, int(curve))).var(axis=1)
            for one in (found, blank)
        )
        shares.append(left / prior)
    latency, rate = np.min(shares, axis=0)
    return float(latency), float(rate)

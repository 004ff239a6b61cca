"""Error of predicted collectives on groups that were left out, beside fits made on those very groups.

The error is the mean over rows of |predicted / measured - 1| (MAPE), with the median of the prediction. `mape_alpha_beta` and
`mape_sigmoid` are *in-sample*: two and four parameters fitted by least squares of log seconds to each left-out curve (one
configuration, scale and direction), on the very rows on which the error is taken. `mape_nearest` is the trivial prediction, the
measured curve at the nearest scale that was not left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
import pandas as pd
from jax import Array
from scipy.optimize import least_squares

from prism_jax._typing import Floats

from ...model import Draws, Score
from .columns import floats, plain_rows
from .data import CollectivesData, named
from .knots import steps
from .predict import Place, log_centre, noise

MIN_SIZES = 6  # of a curve, for four parameters to be an in-sample fit and not an interpolation


def score(
    law: str, data: CollectivesData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
) -> list[Score]:
    """One score per value of `column`; groups without a usable row have none."""
    rows, _ = plain_rows(left_out)
    rows = named(rows)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return [_score(_named(name), group, law, data, draws, rng) for name, group in rows.groupby(column, sort=True)]


def _score(
    name: str, rows: pd.DataFrame, law: str, data: CollectivesData, draws: Draws, rng: np.random.Generator
) -> Score:
    keys = ["op", "fabric", "of_config", "n_gpus", "n_nodes"]
    parts = [curve_figures(curve, law, data, draws, rng) for _, curve in rows.groupby(keys, sort=True)]
    every = pd.concat(parts)
    measured, low, high = (floats(every, name) for name in ("measured", "low", "high"))
    error = floats(every, "predicted") - measured
    relative = np.abs(np.expm1(error))
    extra = {"mape": float(relative.mean()), "median_ape": float(np.median(relative))}
    extra["log_error"] = float(np.abs(error).mean())
    extra |= {f"mape_{fit}": _mape(every, fit) for fit in ("alpha_beta", "sigmoid", "nearest")}
    extra["width_90"] = float(np.median(np.expm1(high - low)))
    inside = (measured >= low) & (measured <= high)
    return Score(
        name,
        ks=_distance_from_uniform(floats(every, "pit")),
        coverage_90=float(inside.mean()),
        extra=extra | {"n_rows": len(every)},
    )


def curve_figures(
    rows: pd.DataFrame, law: str, data: CollectivesData, draws: Draws, rng: np.random.Generator
) -> pd.DataFrame:
    """Per row of one configuration at one scale: log seconds measured, predicted (median, 5 %, 95 %) and by simple fits."""
    first = rows.iloc[0]
    place = Place(
        str(first["op"]),
        float(first["n_gpus"]),
        float(first["n_nodes"]),
        _position(data.fabrics, first["fabric"]),
        _position(data.configs, first["of_config"]),
    )
    size, measured = floats(rows, "message_bytes"), np.log(floats(rows, "duration_s"))
    drawn = log_centre(law, data, draws, place, size, rng)
    drawn += draws["in_place"][:, None] * floats(rows, "in_place") + noise(data, draws, place, size, rng)
    low, centre, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=0)
    table = pd.DataFrame({"measured": measured, "predicted": centre, "low": low, "high": high}, index=rows.index)
    table["pit"] = (drawn <= measured).mean(axis=0)
    table["nearest"] = nearest_scale(data, place, size)
    for fit in (alpha_beta, sigmoid):
        table[fit.__name__] = np.nan
        for side in (0.0, 1.0):
            here = floats(rows, "in_place") == side
            if len(np.unique(size[here])) >= MIN_SIZES:
                bus = 2.0 * (place.n_gpus - 1.0) / place.n_gpus
                table.loc[here, fit.__name__] = fit(size[here], measured[here], bus)
    return table


def alpha_beta(size: Floats, log_s: Floats, bus: float = 1.0) -> Floats:
    """Log seconds of alpha + beta size, fitted to these points by least squares of log seconds."""
    last = int(np.argmax(size))
    starts = [
        (float(log_s.min()) + a, float(log_s[last] - np.log(size[last])) + b) for a in (0.0, 0.3) for b in (0.0, 0.5)
    ]
    return _fitted(lambda p: np.logaddexp(p[0], p[1] + np.log(size)), log_s, starts)


def sigmoid(size: Floats, log_s: Floats, bus: float = 1.0) -> Floats:
    """The same of log10(bus bandwidth) = L / (1 + exp(-k (log2 size - x0))) + b, four parameters."""
    octave, log_bus = np.log2(size), np.log(bus * size)
    decades = (log_bus - log_s) / np.log(10.0)

    def curve(p: Floats) -> Floats:
        return log_bus - np.log(10.0) * (p[3] + p[0] / (1.0 + np.exp(np.clip(-p[1] * (octave - p[2]), -500, 500))))

    starts = [(np.ptp(decades), k, x0, decades.min()) for k in (0.2, 0.5) for x0 in (14.0, 17.0, 20.0)]
    return _fitted(curve, log_s, starts)


def nearest_scale(data: CollectivesData, place: Place, size: Floats) -> Floats:
    """Log seconds of the same configuration (else its fabric) at the nearest measured scale; NaN where none is measured."""
    same = data.config == place.config
    same = same if same.any() else data.config_fabric[data.config] == place.fabric
    if not same.any():
        return np.full(len(size), np.nan)
    doubled, across = steps(data.n_gpus, data.n_nodes, place.n_gpus, place.n_nodes)
    apart = doubled + across  # from one node to several counts as one doubling more
    here = same & (apart <= apart[same].min() + 1e-9)
    bytes_here = np.unique(data.log_bytes[here])
    median = [np.median(data.log_s[here & (data.log_bytes == one)]) for one in bytes_here]
    return np.interp(np.log(size), bytes_here, np.array(median))


def _fitted(curve: Callable[[Floats], Floats], log_s: Floats, starts: Sequence[tuple[float, ...]]) -> Floats:
    fits = [least_squares(lambda p: curve(p) - log_s, start) for start in starts]
    return curve(min(fits, key=lambda fit: fit.cost).x)


def _mape(every: pd.DataFrame, column: str) -> float:
    error = np.abs(np.expm1(floats(every, column) - floats(every, "measured")))
    return float(np.nanmean(error)) if not np.isnan(error).all() else np.nan


def _distance_from_uniform(pit: Floats) -> float:
    """Kolmogorov-Smirnov distance of the rows' places in their predictions from a uniform distribution."""
    ordered, n = np.sort(pit), len(pit)
    return float(np.maximum(np.arange(1, n + 1) / n - ordered, ordered - np.arange(n) / n).max())


def _position(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else -1


def _named(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

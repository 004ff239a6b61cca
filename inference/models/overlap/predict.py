"""Slowdown of kernels in a job, from an overlap fit: draws, point predictions, and the scores of kernels left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike

from ...model import Draws, Score
from . import mixture as mixture
from .data import COUNTERS, REFERENCE_S, OverlapData, raw_features, standardised

SITES = (
    *(
        "base_logit",
        "base_log_extra",
        "kernel_logit_scale",
        "kernel_extra_scale",
        "slope_logit_scale",
        "slope_extra_scale",
    ),
    *("slope_logit_raw", "slope_extra_raw", "shape_above_one", "shift", "log_noise", "noise_slope", "tail_above_one"),
    *("kernel_logit", "kernel_extra"),
)
# [draw, row] arrays stay small; a 5 % quantile of 1,000 draws has a standard error of 0.7 % in probability.
MOST_DRAWS = 1000


def slowdown(
    data: OverlapData,
    draws: Draws,
    *,
    kernel: Sequence[str],
    overlap_ratio: ArrayLike,
    duration_s: ArrayLike,
    counters: Mapping[str, ArrayLike] | None = None,
    noisy: bool = False,
    key: Array,
) -> np.ndarray:
    """Factors time under overlap / time alone, [draw, row], at least 1.

    Args:
        kernel: names, [row]; a name of the fit has that kernel's own effect, any other is a new kernel.
        overlap_ratio: share of the run beside communication, 0-1, [row] or one for all.
        duration_s: seconds alone, [row] or one for all.
        counters: hardware counters in percent by column name; what is missing counts as average.
        noisy: whether to predict single measurements (which may fall below 1, and whose spread holds whatever the decision
            was) instead of the factor to multiply a duration with.

    Notes:
        Where features did not carry over to kernels left out (`data.beats` is false), new kernels are predicted without
        slowdown: exactly 1 in every draw. `noisy` draws still say how far off that may be.
    """
    index = _index(data, kernel)
    ratio = np.broadcast_to(np.asarray(overlap_ratio, dtype=np.float64), index.shape)
    log_duration = np.broadcast_to(np.log(np.asarray(duration_s, dtype=np.float64) / REFERENCE_S), index.shape)
    features = standardised(raw_features(log_duration, counters or {}), data.centre, data.spread)
    factors = np.array(_factors(draws, index, ratio, log_duration, features, noisy, key))
    if not noisy and not data.beats:
        factors[:, index < 0] = 1.0
    return factors


def point(factors: np.ndarray) -> np.ndarray:
    """One factor per row from draws [draw, row]: the one with the smallest expected relative error, never below 1."""
    return np.maximum(mixture.best_for_mape(factors), 1.0)


def _index(data: OverlapData, kernel: Sequence[str]) -> np.ndarray:
    place = {name: i for i, name in enumerate(data.kernels)}
    return np.array([place.get(str(name), -1) for name in kernel], dtype=np.int64)


def _factors(
    draws: Draws,
    index: np.ndarray,
    ratio: np.ndarray,
    log_duration: np.ndarray,
    features: np.ndarray,
    noisy: bool,
    key: Array,
) -> Array:
    n_draw = len(draws["base_logit"])
    keep = np.unique(np.linspace(0, n_draw - 1, min(n_draw, MOST_DRAWS)).round().astype(int))
    chosen = {name: np.asarray(draws[name])[keep] for name in SITES}
    return _draw(chosen, index, ratio, log_duration, features, noisy, jax.random.split(key, len(keep)))


@partial(jax.jit, static_argnames="noisy")
def _draw(
    sites: dict[str, Array], index: Array, ratio: Array, log_duration: Array, features: Array, noisy: bool, keys: Array
) -> Array:
    """Factors [draw, row]. Every row of a new kernel has its own draw of the kernel's effects: rows are predicted one by one."""

    def one(site: Mapping[str, Array], key: Array) -> Array:
        k_logit, k_extra, k_factor = jax.random.split(key, 3)
        logit = jnp.where(index < 0, jax.random.normal(k_logit, index.shape), site["kernel_logit"][index])
        extra = jnp.where(index < 0, jax.random.normal(k_extra, index.shape), site["kernel_extra"][index])
        at = mixture.terms(site, features, log_duration, logit, extra)
        return mixture.draw_factor(k_factor, ratio, at, index.shape, noisy)

    return jax.vmap(one)(sites, keys)


def scores(data: OverlapData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
    """One score per group, over its rows with overlap; groups without any have none."""
    beside = left_out.loc[left_out["overlap_ratio"] > 0.0]
    if len(beside) == 0:
        return []
    k_point, k_interval = jax.random.split(key)
    measured = beside["overlapped_s"].to_numpy(dtype=np.float64) / beside["duration_s"].to_numpy(dtype=np.float64)
    error = np.abs(point(_of_rows(data, draws, beside, False, k_point)) / measured - 1.0)
    low, high = np.quantile(_of_rows(data, draws, beside, True, k_interval), [0.05, 0.95], axis=0)
    covered = (measured >= low) & (measured <= high)
    names = beside[column].astype(str).to_numpy()
    out = []
    for group in np.unique(names):
        of = names == group
        extra = {
            "mape": float(error[of].mean()),
            "mape_no_slowdown": float(np.abs(1.0 / measured[of] - 1.0).mean()),
            "n_rows": float(of.sum()),
        }
        out.append(Score(group=str(group), coverage_90=float(covered[of].mean()), extra=extra))
    return out


def _of_rows(data: OverlapData, draws: Draws, rows: pd.DataFrame, noisy: bool, key: Array) -> np.ndarray:
    return slowdown(
        data,
        draws,
        kernel=rows["kernel"].astype(str).tolist(),
        overlap_ratio=rows["overlap_ratio"].to_numpy(),
        duration_s=rows["duration_s"].to_numpy(),
        counters={c.name: rows[c.name].to_numpy() for c in COUNTERS if c.name in rows},
        noisy=noisy,
        key=key,
    )


def measured_factors(data: OverlapData, draws: Draws, rows: np.ndarray, key: Array) -> np.ndarray:
    """Factors [draw, row] of measured rows, each by its own kernel's effect, without the noise of timing."""
    args = (data.kernel[rows], data.overlap_ratio[rows], data.log_duration[rows], data.features[rows])
    return np.asarray(_factors(draws, *args, False, key))


def by_kernel(data: OverlapData, draws: Draws, key: Array) -> dict[str, dict[str, float]]:
    """Median and 5-95 % factors of the measured kernels as they were overlapped, those held up most first."""
    beside = np.flatnonzero(data.overlap_ratio > 0.0)
    factors = measured_factors(data, draws, beside, key)
    out = {}
    for k in np.unique(data.kernel[beside]):
        low, mid, high = np.quantile(factors[:, data.kernel[beside] == k], [0.05, 0.5, 0.95])
        measured = float(np.exp(np.median(data.log_factor[beside][data.kernel[beside] == k])))
        out[data.kernels[k]] = {"measured": measured, "median": float(mid), "p5": float(low), "p95": float(high)}
    return dict(sorted(out.items(), key=lambda item: -item[1]["measured"]))


def sentence(data: OverlapData) -> str:
    """What the decision was and why."""
    if not np.isfinite(data.gain):
        return f"too few kernels under overlap ({data.n_judged}) to ask whether features carry over: no slowdown for others"
    figures = f"{data.mape_model:.1%} against {data.mape_none:.1%} error on {data.n_judged} kernels left out in turn"
    error = f"difference {data.gain:.2%}, standard error {data.gain_error:.2%}"
    if data.beats:
        return f"features predict kernels that were not measured better than no slowdown: {figures} ({error})"
    return f"does not beat no slowdown on kernels that were not measured: {figures} ({error}); those get no slowdown"


def interval(values: np.ndarray) -> dict[str, float]:
    """Median and 5-95 % of draws."""
    low, mid, high = np.quantile(values, [0.05, 0.5, 0.95])
    return {"median": float(mid), "p5": float(low), "p95": float(high)}

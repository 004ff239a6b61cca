"""Slowdown of kernels in a job, from an overlap fit: draws, point predictions, and the scores of kernels left out.

Seconds that compute loses per second of communication at the same time, from an overlap fit: the cost model's `overlap_slowdown`.

    slowdown = sum_k d_k (f_k - 1) / sum_k r_k d_k f_k

over the measured kernels that ran during communication: d seconds alone, f the fitted factor, r the share of the run that
communication overlaps. Each kernel counts as often as it was measured, so a table of whole steps has the mix of a step.

Slowdown of compute kernels under communication, from kernel features, with an honest answer for kernels never measured.

A mixture by row (`overlap_mixture`) with kernel effects and features. Known kernels are predicted by their own effects. For
others the fit asks itself (`overlap_rule`) whether features carry over to a kernel left out; if not, they get "no slowdown".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike

from prism_jax.core.errors import DataError
from prism_jax.cost.efficiency import MeasuredCost, MeasuredTables
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster, Device

from . import overlap_data
from .engine.model import Draws, GroupScore, Model, interval
from .engine.program import generator
from .overlap_data import COLUMNS, COUNTERS, FEATURES, REFERENCE_S, OverlapData, from_frame, raw_features, standardised


class OverlapPrior(NamedTuple):
    """Law of a site, where a fit begins, and "feature" or "kernel" where there is one for each."""

    law: Any
    begin: float
    each: str = ""


PRIORS = {
    # Odds of a call being held up: 1 in 5, 1 in 50 to 4 in 5 within two standard deviations.
    "base_logit": OverlapPrior(dist.Normal(-1.5, 1.2), -1.5),
    # A call that is held up takes exp(0.4) = 1.5 times as long, 1.1 to 5 times within two standard deviations.
    "base_log_extra": OverlapPrior(dist.Normal(-0.9, 0.7), -0.9),
    # Kernels differ by up to this much (standard deviations of logit and log extra): anything from alike to unrelated.
    "kernel_logit_scale": OverlapPrior(dist.HalfNormal(1.5), 0.7),
    "kernel_extra_scale": OverlapPrior(dist.HalfNormal(0.7), 0.4),
    # Features by one standard deviation: odds by at most a factor exp(0.5) or so, unless the data insist; extra by half of that.
    "slope_logit_scale": OverlapPrior(dist.HalfNormal(0.5), 0.2),
    "slope_extra_scale": OverlapPrior(dist.HalfNormal(0.25), 0.1),
    "slope_logit_raw": OverlapPrior(dist.Normal(), 0.0, "feature"),
    "slope_extra_raw": OverlapPrior(dist.Normal(), 0.0, "feature"),
    # Log of shape - 1: coefficient of variation 0.5 to 0.9; above 1, so that no mass sits at zero
    "shape_above_one": OverlapPrior(dist.LogNormal(0.0, 0.7), 1.0),
    "shift": OverlapPrior(dist.HalfNormal(0.01), 0.002),  # kernels "not held up" may still take 1% longer
    "log_noise": OverlapPrior(
        dist.Normal(-4.2, 1.0), -4.2
    ),  # log 0.015: repeats of one kernel under a profiler agree to 0.5-4%
    "noise_slope": OverlapPrior(
        dist.Normal(-0.3, 0.3), -0.3
    ),  # short kernels are timed less well; -0.5 is independent noise per second
    "tail_above_one": OverlapPrior(
        dist.LogNormal(0.7, 0.7), 2.0
    ),  # log of (degrees of freedom - 1): 2 to 9, heavy but with a mean
    "kernel_logit": OverlapPrior(dist.Normal(), 0.0, "kernel"),
    "kernel_extra": OverlapPrior(dist.Normal(), 0.0, "kernel"),
}
# [draw, row] arrays stay small; a 5% quantile of 1,000 draws has a standard error of 0.7% in probability.
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
        overlap_ratio: share of the run during communication, 0-1, [row] or one for all.
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
    return np.maximum(overlap_data.best_for_mape(factors), 1.0)


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
    chosen = {name: np.asarray(draws[name])[keep] for name in PRIORS}
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
        at = overlap_data.terms(site, features, log_duration, logit, extra)
        return overlap_data.draw_factor(k_factor, ratio, at, index.shape, noisy)

    return jax.vmap(one)(sites, keys)


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
    """Median and 5-95% factors of the measured kernels as they were overlapped, those held up most first."""
    beside = np.flatnonzero(data.overlap_ratio > 0.0)
    factors = measured_factors(data, draws, beside, key)
    out = {}
    for k in np.unique(data.kernel[beside]):
        low, mid, high = np.quantile(factors[:, data.kernel[beside] == k], [0.05, 0.5, 0.95])
        measured = float(np.exp(np.median(data.log_factor[beside][data.kernel[beside] == k])))
        out[data.kernels[k]] = {"measured": measured, "median": float(mid), "p5": float(low), "p95": float(high)}
    return dict(sorted(out.items(), key=lambda item: -item[1]["measured"]))


def sentence(data: OverlapData) -> str:
    """Sentence on the decision whether features carry over, and why."""
    if not np.isfinite(data.gain):
        return f"too few kernels under overlap ({data.n_judged}) to ask whether features carry over: no slowdown for others"
    figures = f"{data.mape_model:.1%} against {data.mape_none:.1%} error on {data.n_judged} kernels left out in turn"
    error = f"difference {data.gain:.2%}, standard error {data.gain_error:.2%}"
    if data.beats:
        return f"features predict kernels that were not measured better than no slowdown: {figures} ({error})"
    return f"does not beat no slowdown on kernels that were not measured: {figures} ({error}); those get no slowdown"


def measured_slowdown(
    data: OverlapData, draws: Draws, device: Device, n_draw: int, rng: np.random.Generator
) -> MeasuredTables:
    """The constant with draws.

    Raises:
        DataError: no kernel ran during communication, or all did on another device.
    """
    unnamed = not data.gpus
    if not all(catalog.is_called(gpu, device) for gpu in data.gpus):
        raise DataError(
            f"kernels of {', '.join(data.gpus)}, but the job runs on {device.name}. Fit kernels that were measured on "
            f"{device.name} (`prism-jax fit overlap TABLE --where gpu=NAME`)."
        )
    beside = np.flatnonzero(data.overlap_ratio > 0.0)
    if not len(beside):
        raise DataError("no kernel of this fit ran during communication (overlap_ratio is 0 everywhere).")
    factors = measured_factors(data, draws, beside, jax.random.key(int(rng.integers(2**31))))
    alone_s = REFERENCE_S * np.exp(data.log_duration[beside])
    lost_s = (alone_s * (factors - 1.0)).sum(axis=1)
    slowdown = np.maximum(lost_s / (data.overlap_ratio[beside] * alone_s * factors).sum(axis=1), 0.0)
    pick = np.linspace(0, len(slowdown) - 1, n_draw).round().astype(int)
    note = f"the table names no GPU: taken as measured on {device.name}"
    return MeasuredTables(
        MeasuredCost({"overlap_slowdown": float(slowdown.mean())}),
        tuple(MeasuredCost({"overlap_slowdown": float(one)}) for one in slowdown[pick]),
        covers=("slowdown of compute during communication",),
        notes=(note,) if unnamed else (),
    )


class OverlapModel(Model[OverlapData]):
    """The model by the name "overlap"."""

    name = "overlap"
    columns = COLUMNS
    reported = ("base_logit", "base_log_extra", "kernel_logit_scale", "log_noise")
    no_variability = (
        "an overlap fit describes a cost (how much longer kernels take during communication), not a variability. "
        "`Fit.measured_cost` is that cost, `inference.overlap.slowdown` that of single kernels."
    )

    def prepare(self, frame: pd.DataFrame) -> OverlapData:
        """Rows, standardised features, and whether the model beats "no slowdown" on kernels left out."""
        return overlap_data.decide(from_frame(frame), self.program, self.start)

    def program(self, data: OverlapData) -> None:
        """Priors on the log scale, non-centred effects (most kernels have one row), and the mixture."""
        n = {"feature": data.features.shape[1], "kernel": len(data.kernels)}
        site = {
            name: numpyro.sample(name, prior.law.expand([n[prior.each]]) if prior.each else prior.law)
            for name, prior in PRIORS.items()
        }
        effects = (jnp.asarray(site[name])[data.kernel] for name in ("kernel_logit", "kernel_extra"))
        at = overlap_data.terms(site, data.features, data.log_duration, *effects)
        density = overlap_data.log_density(jnp.asarray(data.log_factor), jnp.asarray(data.overlap_ratio), at)
        numpyro.factor("log_factor", jnp.where(data.used, density, 0.0).sum())

    def start(self, data: OverlapData) -> dict[str, Any]:
        """Prior centres; noise from the quartiles of rows that took no more than a tenth longer."""
        calm = data.log_factor[np.abs(data.log_factor) < 0.1]
        spread = float(np.subtract(*np.quantile(calm, [0.75, 0.25]))) / 1.35 if len(calm) > 3 else 0.0
        shape = {"": (), "feature": data.features.shape[1:], "kernel": (len(data.kernels),)}
        begin = {name: np.full(shape[prior.each], prior.begin) for name, prior in PRIORS.items()}
        return begin | {"log_noise": np.asarray(np.log(max(spread, 0.002)))}

    def describe(self, data: OverlapData, draws: Draws) -> dict[str, Any]:
        """Effect sizes, whether "no slowdown" is beaten, kernels that are held up, and the sentence that says so."""
        slopes = np.asarray(draws["slope_logit_scale"])[:, None] * np.asarray(draws["slope_logit_raw"])
        odds = np.exp(np.quantile(slopes, [0.05, 0.5, 0.95], axis=0))
        return {
            "n_rows": len(data.kernel),
            "n_overlapped": int((data.overlap_ratio > 0.0).sum()),
            "n_kernels": len(data.kernels),
            "held_up_prob": interval(1.0 / (1.0 + np.exp(-np.asarray(draws["base_logit"])))),
            "noise": interval(np.exp(np.asarray(draws["log_noise"]))),
            "odds_per_standard_deviation": {name: odds[:, i].tolist() for i, name in enumerate(FEATURES)},
            "slowdown_by_kernel": by_kernel(data, draws, jax.random.key(0)),
            "leave_one_kernel_out": {
                "mape": data.mape_model,
                "mape_no_slowdown": data.mape_none,
                "gain": data.gain,
                "gain_error": data.gain_error,
                "n_kernels": data.n_judged,
            },
            "beats_no_slowdown": data.beats,
            "verdict": sentence(data),
        }

    def measured_cost(
        self, data: OverlapData, draws: Draws, cluster: Cluster, dtype: str, n_draw: int, key: Array
    ) -> MeasuredTables:
        """Slowdown of compute during communication."""
        rng = generator(key)
        return measured_slowdown(data, draws, cluster.device, n_draw, rng)

    def score(
        self, data: OverlapData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
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
            out.append(GroupScore(group=str(group), coverage_90=float(covered[of].mean()), extra=extra))
        return out

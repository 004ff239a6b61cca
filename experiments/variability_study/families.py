"""Section 5: which family predicts GPUs that were left out.

Per GPU the mean of log seconds over undisturbed runs. Half of the GPUs are drawn 20 times; a family is fitted to the
others by maximum likelihood and its distribution function held against the left-out half (Kolmogorov-Smirnov
distance; smaller is better). "Other half" is the distance between the two halves themselves, which nothing that knows
only the measured values beats by much. The fleet model's halves are the same ones (`inference.fitting.holdout` draws them
from the same key); it also knows nodes and repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import ndtr
from scipy.stats import gamma, ks_2samp, norm, t

import inference
from experiments.variability_study.gpu_spread import KERNELS, Found, measured
from inference.fleet.data import labelled
from prism_jax.core.picture import GREY, INDIGO, PURPLE, ROSE, SAND, TEAL, style

Cdf = Callable[[np.ndarray], np.ndarray]  # of log seconds
N_SPLIT = 20
SMALLEST_SD = 1e-4  # of a mixture component, log seconds: one chip does not become a spike of its own
COLOURS = {
    "Normal": GREY,
    "LogNormal": SAND,
    "Gamma": PURPLE,
    "Student-t": TEAL,
    "mixture": ROSE,
    "fleet model": INDIGO,
}
BARS = {"SGEMM": 0.078, "ResNet": 0.085, "BERT": 0.107}


def normal(log_s: np.ndarray) -> Cdf:
    s = np.exp(log_s)
    law = norm(s.mean(), s.std())
    return lambda x: law.cdf(np.exp(x))


def log_normal(log_s: np.ndarray) -> Cdf:
    return norm(log_s.mean(), log_s.std()).cdf


def gamma_family(log_s: np.ndarray) -> Cdf:
    """Scaled to a median of one, which leaves shape and fit unchanged and the solver well conditioned."""
    middle = float(np.median(log_s))
    shape, _, scale = gamma.fit(np.exp(log_s - middle), floc=0.0)
    return lambda x: gamma.cdf(np.exp(x - middle), shape, scale=scale)


def student_t(log_s: np.ndarray) -> Cdf:
    """Location, scale and degrees of freedom (at least one half)."""
    middle, spread = float(np.median(log_s)), float(np.diff(np.quantile(log_s, [0.16, 0.84]))[0] / 2.0)
    x = (log_s - middle) / spread

    def loss(p: np.ndarray) -> float:
        return -float(t.logpdf(x, 0.5 + np.exp(p[2]), p[0], np.exp(p[1])).sum())

    best = min((minimize(loss, [0.0, 0.0, start], method="Nelder-Mead") for start in (0.0, 2.0)), key=lambda f: f.fun)
    at, scale, dof = best.x[0], np.exp(best.x[1]), 0.5 + np.exp(best.x[2])
    return lambda y: t.cdf((y - middle) / spread, dof, at, scale)


def mixture(log_s: np.ndarray) -> Cdf:
    """Two normal components of log seconds by expectation-maximisation, the likeliest of six starts."""
    fits = [_em(log_s, cut) for cut in (0.05, 0.15, 0.35, 0.65, 0.85, 0.95)]
    weight, mean, sd, _ = max(fits, key=lambda fit: fit[3])
    return lambda x: ndtr((x[:, None] - mean) / sd) @ weight


def _em(x: np.ndarray, cut: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Weights, means, sds and log likelihood, begun with the components split at a quantile."""
    above = x > np.quantile(x, cut)
    member = np.stack([~above, above], axis=1).astype(float)
    weight, mean, sd, likelihood = np.zeros(2), np.zeros(2), np.ones(2), -np.inf
    for _ in range(2000):
        n = member.sum(axis=0) + 1e-9
        weight, mean = n / n.sum(), x @ member / n
        sd = np.maximum(np.sqrt((member * (x[:, None] - mean) ** 2).sum(axis=0) / n), SMALLEST_SD)
        each = np.log(weight) + norm.logpdf(x[:, None], mean, sd)
        total = np.logaddexp(each[:, 0], each[:, 1])
        member = np.exp(each - total[:, None])
        if total.sum() - likelihood < 1e-8 * abs(total.sum()):
            break
        likelihood = float(total.sum())
    return weight, mean, sd, likelihood


FAMILIES: dict[str, Callable[[np.ndarray], Cdf]] = {
    "Normal": normal,
    "LogNormal": log_normal,
    "Gamma": gamma_family,
    "Student-t": student_t,
    "mixture": mixture,
}


def study(folder: Path, n_split: int, *, fleet: bool) -> tuple[Found, Figure]:
    """Median KS distance over the splits by kernel and family, with the 5 and 95% quantiles over splits."""
    found: Found = {}
    for name in KERNELS:
        rows = measured(folder, name)
        scores = split_scores(rows.frame, n_split)
        if fleet:
            left_out = inference.holdout(
                rows, model="fleet", column="gpu", key=jax.random.key(0), method="svi", n_split=n_split
            )
            scores["fleet model"] = [score.ks for score in left_out.scores]
            scores["fleet model, coverage"] = [score.coverage_90 for score in left_out.scores]
        for family, values in scores.items():
            low, high = np.quantile(values, [0.05, 0.95])
            found[f"{name}.{family}"] = (float(np.median(values)), float(low), float(high))
        print(f"  {name}: " + ", ".join(f"{k} {np.median(v):.3f}" for k, v in scores.items()), flush=True)
    return found, picture(found)


def split_scores(frame: pd.DataFrame, n_split: int) -> dict[str, list[float]]:
    """KS distance of every family and split."""
    rows = labelled(frame)
    means: Any = rows[~rows["disturbed"]].groupby("gpu")["log_s"].mean()
    names = np.array(sorted(rows["gpu"].unique()))
    rng = np.random.default_rng(
        np.asarray(jax.random.key_data(jax.random.key(0)), dtype=np.uint32)
    )  # as `inference.fitting.holdout`
    scores: dict[str, list[float]] = {family: [] for family in (*FAMILIES, "other half")}
    for _ in range(n_split):
        out = means.index.isin(rng.permutation(names)[: len(names) // 2])
        known, left = means[~out].to_numpy(), np.sort(means[out].to_numpy())
        for family, fit in FAMILIES.items():
            scores[family].append(ks_distance(left, fit(known)(left)))
        halves: Any = ks_2samp(known, left)
        scores["other half"].append(float(halves.statistic))
    return scores


def ks_distance(left: np.ndarray, cdf: np.ndarray) -> float:
    """Largest distance between the steps of sorted values and a distribution function there."""
    n = len(left)
    return float(max((np.arange(1, n + 1) / n - cdf).max(), (cdf - np.arange(n) / n).max()))


def picture(found: Found) -> Figure:
    """A group per kernel, a point per family with its range over splits; dashed: the bar."""
    with style():
        figure = Figure(figsize=(9.0, 3.6), layout="constrained")
        ax = figure.subplots()
        for i, name in enumerate(KERNELS):
            here = [family for family in COLOURS if f"{name}.{family}" in found]
            for j, family in enumerate(here):
                value, low, high = found[f"{name}.{family}"]
                at = i + 0.12 * (j - 0.5 * (len(here) - 1))
                span = [[value - low], [high - value]]
                ax.errorbar(
                    [at],
                    [value],
                    span,
                    fmt="o",
                    color=COLOURS[family],
                    markersize=6,
                    capsize=2,
                    label=family if i == 0 else None,
                )
            value = found[f"{name}.other half"][0]
            ax.hlines(
                value,
                i - 0.42,
                i + 0.42,
                color="#444444",
                linewidth=1.0,
                linestyle=":",
                label="other half, median" if i == 0 else "",
            )
            if name in BARS:
                ax.hlines(
                    BARS[name],
                    i - 0.42,
                    i + 0.42,
                    color="#444444",
                    linewidth=1.2,
                    linestyle="--",
                    label="bar of this project" if i == 0 else "",
                )
        ax.set_xticks(range(len(KERNELS)), list(KERNELS))
        ax.set(ylabel="KS distance of GPUs left out", ylim=(0.0, None))
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        ax.grid(True, axis="y")
    return figure

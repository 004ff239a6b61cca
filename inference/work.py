"""The work of micro-batches: lengths of documents, and how unevenly routers load experts.

*Lengths.* Log-normal; documents that a corpus cuts off at its longest length are known to be at least as long:

    ln tokens ~ Normal(level, spread)

*Routing.* Tokens of the E experts of a layer, in a step or micro-batch, out of N that were routed there:

    share ~ Dirichlet(a, ..., a)        tokens ~ Multinomial(N, share)

with the shares integrated out; the concentration a is a Gini coefficient (`prism_jax.workload.transformer.routing`). Rows of
one layer are taken to be independent from step to step: where popularity stays, the interval is too narrow, and a note says so.
How much of it a step replaces follows from moments, the lag-1 covariance of shares over their variance without that of sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from jax.scipy.special import gammaln, log_ndtr
from scipy.special import ndtr

from prism_jax.core.errors import DataError
from prism_jax.job.read_tables import NAMES, lengths_of_family, tokens_by_group
from prism_jax.plan.packing import Lengths
from prism_jax.workload.transformer.routing import LEAST_DRIFT, LEAST_GINI, MOST_GINI, ExpertRouting, gini_of

from .data.checks import groups_of, texts_of
from .data.columns import ModelColumn
from .engine.diagnostics import Checks
from .engine.model import Draws, GroupScore, Model, interval
from .engine.program import Scale, generator

# pyright: reportArgumentType=false, reportCallIssue=false
# (of pandas without stubs, every expression may be of any type)

LEVEL = (log(500.0), 2.0)  # of log tokens: from a sentence to a book
SPREAD = Scale(1.0, 2.0)  # of log tokens
CUT_SHARE = 0.005  # of documents that are exactly as long as the longest: more are no chance
FAR = 0.1  # Kolmogorov-Smirnov distance from which on a family is no likeness
CONCENTRATION = Scale(10.0, 5.0)  # Gini coefficients of .03 to .6
MOST_SHOWN, MOST_GROUPS, N_REPLICATED = 400, 64, 200  # values and groups that are replicated for a picture; how often
LOADS = "tokens of an expert, over the mean of its layer"
MOST_OUTSIDE = 0.6  # share of values outside of their 90% band; of data of the law itself up to 0.44 in 30 tables
STAYS = 0.2  # share of the variance of loads that is shared by the steps of a layer, from which on it is said
NO_VARIABILITY = (
    "a fit of the work of micro-batches says what batches hold (data.lengths, moe.routing), not how GPUs vary."
)


@dataclass(frozen=True)
class LengthsData:
    """Documents.

    Attributes:
        mean, square: of log tokens of those that are whole, and of its deviation.
        n_whole, n_cut: how many are whole, and cut off.
        log_cut: tokens at which these are, as a logarithm.
        tokens, count: lengths, increasing, and how many have each, [length].
    """

    mean: Annotated[np.ndarray, ""]
    square: Annotated[np.ndarray, ""]
    n_whole: Annotated[np.ndarray, ""]
    n_cut: Annotated[np.ndarray, ""]
    log_cut: Annotated[np.ndarray, ""]
    tokens: Annotated[np.ndarray, "length"]
    count: Annotated[np.ndarray, "length"]


class LengthsModel(Model[LengthsData]):
    """The model by the name "lengths"."""

    name = "lengths"
    columns = (
        ModelColumn(
            "tokens",
            ("n_tokens", "length", "num_tokens", "seq_len"),
            required=True,
            strict=True,
            least=1.0,
            each_counts=True,
        ),
        ModelColumn("documents", ("count", "n"), strict=True, least=0.0),
        ModelColumn("source", ("corpus", "subset", "language"), text=True),
    )
    reported = ("level", "spread")
    default_method = "map"
    no_variability = NO_VARIABILITY

    def prepare(self, frame: pd.DataFrame) -> LengthsData:
        """Documents of a checked table.

        Raises:
            DataError: all have one length.
        """
        tokens = frame["tokens"].to_numpy(dtype=float)
        weight = frame["documents"].to_numpy(dtype=float) if "documents" in frame else np.ones(len(tokens))
        unlike, which = np.unique(tokens, return_inverse=True)
        count = np.bincount(which, weight)
        if len(unlike) < 3:
            raise DataError(
                f"{len(unlike)} unlike lengths. Write data.lengths: {unlike.astype(int).tolist()} in the job."
            )
        is_cut = (
            np.arange(len(unlike)) == len(unlike) - 1
            if count[-1] > CUT_SHARE * count.sum()
            else np.zeros(len(unlike), bool)
        )
        own, logs = count * ~is_cut, np.log(unlike)
        mean = float(own @ logs / own.sum())
        numbers = (mean, own @ (logs - mean) ** 2, own.sum(), count[is_cut].sum(), logs[-1])
        return LengthsData(*(np.asarray(one, dtype=float) for one in numbers), unlike, count)

    def program(self, data: LengthsData) -> None:
        """Whole documents by their sufficient statistics; those that are cut off by the chance to be longer."""
        level = jnp.asarray(numpyro.sample("level", dist.Normal(*LEVEL)))
        spread = jnp.asarray(numpyro.sample("spread", SPREAD.law()))
        whole = (
            -data.n_whole * jnp.log(spread) - 0.5 * (data.square + data.n_whole * (data.mean - level) ** 2) / spread**2
        )
        numpyro.factor("documents", whole + data.n_cut * log_ndtr((level - data.log_cut) / spread))

    def start(self, data: LengthsData) -> dict[str, Any]:
        """Moments of the whole documents."""
        return {"level": data.mean, "spread": np.sqrt(data.square / data.n_whole)}

    def describe(self, data: LengthsData, draws: Draws) -> dict[str, Any]:
        """Mean tokens and coefficient of variation, and what to write into a job."""
        level, spread = (np.asarray(draws[name]) for name in ("level", "spread"))
        mean, cv = np.exp(level + 0.5 * spread**2), np.sqrt(np.expm1(spread**2))
        distance = _distance(data, level, spread)
        told = {
            "n_documents": float(data.count.sum()),
            "n_cut": float(data.n_cut),
            "mean_tokens": interval(mean),
            "cv": interval(cv),
            "ks": distance,
            "data.lengths": self._written(draws),
        }
        far = "a log-normal family is unlike these lengths. Give the job the table itself: data.lengths: FILE:tokens"
        unlike = _unlike(self.replicate(data, draws, jax.random.key(0)))
        return told | unlike | ({"notes": [far]} if distance > FAR or unlike else {})

    def replicate(self, data: LengthsData, draws: Draws, key: Array) -> Checks:
        """Documents at even quantiles of the table against as many of the family, cut off where the table is."""
        n = int(min(data.count.sum(), MOST_SHOWN))
        at = np.searchsorted(np.cumsum(data.count) / data.count.sum(), (np.arange(n) + 0.5) / n)
        level, spread = (np.asarray(draws[name])[:N_REPLICATED, None] for name in ("level", "spread"))
        drawn = np.maximum(np.rint(np.exp(level + spread * generator(key).standard_normal((len(level), n)))), 1.0)
        longest = np.exp(data.log_cut) if data.n_cut > 0 else np.inf
        return Checks(data.tokens[at], np.minimum(drawn, longest), "tokens of a document")

    def law(self, data: LengthsData, draws: Draws) -> Lengths:
        """Lengths of the family, as `data.lengths` has them."""
        return lengths_of_family(self._written(draws))

    @staticmethod
    def _written(draws: Draws) -> dict[str, Any]:
        level, spread = (float(np.median(draws[name])) for name in ("level", "spread"))
        cv, mean = float(np.sqrt(np.expm1(spread**2))), float(np.exp(level + 0.5 * spread**2))
        return {"kind": "log_normal", "cv": round(cv, 4), "mean": round(mean, 1)}

    def score(
        self, data: LengthsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Distances of the documents of a source from the fit, and from all others."""
        out = []
        level, spread = (np.asarray(draws[name]) for name in ("level", "spread"))
        pooled = np.cumsum(data.count) / data.count.sum()
        for name, rows in groups_of(left_out, column):
            new = self.prepare(rows)
            below = np.cumsum(new.count) / new.count.sum()
            at = np.searchsorted(data.tokens, new.tokens, side="right")
            others = float(np.abs(below - np.append(0.0, pooled)[at]).max())
            out.append(GroupScore(group=name, ks=_distance(new, level, spread), ks_empirical=others))
        return out


def _distance(data: LengthsData, level: np.ndarray, spread: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance of whole documents from the median of the fit."""
    below = np.cumsum(data.count) / data.count.sum()
    fitted = ndtr((np.log(data.tokens) - np.median(level)) / np.median(spread))
    last = len(below) - 1 if data.n_cut > 0 else len(below)
    return float(np.maximum(np.abs(below - fitted), np.abs(np.append(0.0, below[:-1]) - fitted))[:last].max())


@dataclass(frozen=True)
class RoutingData:
    """Counts.

    Attributes:
        layers: names.
        layer: of each group, [group]; a layer's groups in the order of their steps.
        step: number of each group's step, its place where steps have none, [group].
        tokens: of experts, [group, expert].
    """

    layers: Annotated[tuple[str, ...], "layer"]
    layer: Annotated[np.ndarray, "group -> layer"]
    step: Annotated[np.ndarray, "group"]
    tokens: Annotated[np.ndarray, "group expert"]


class RoutingModel(Model[RoutingData]):
    """The model by the name "routing"."""

    name = "routing"
    columns = (
        ModelColumn("expert", NAMES["expert"], required=True, text=True),
        ModelColumn("tokens", NAMES["tokens"], required=True, strict=True, least=0.0),
        ModelColumn("layer", NAMES["layer"], text=True),
        ModelColumn("step", NAMES["step"], text=True),
    )
    reported = ("concentration",)
    default_method = "map"
    no_variability = NO_VARIABILITY

    def prepare(self, frame: pd.DataFrame) -> RoutingData:
        """A group per layer and step.

        Raises:
            DataError: one expert, no tokens, or more groups than fit.
        """
        step, layer, expert = (
            np.unique(np.array(texts_of(frame, name)), return_inverse=True) for name in ("step", "layer", "expert")
        )
        found = tokens_by_group(step, layer, expert, frame["tokens"].to_numpy(dtype=float))
        number = np.array([_number(name) for name in found.steps])
        number = number if np.isfinite(number).all() else np.arange(len(number), dtype=float)
        return RoutingData(found.layers, found.layer, number[found.step], found.tokens)

    def program(self, data: RoutingData) -> None:
        """Dirichlet-multinomial counts."""
        a = jnp.asarray(numpyro.sample("concentration", CONCENTRATION.law()))
        tokens = jnp.asarray(data.tokens)
        n, n_expert = tokens.sum(axis=1), tokens.shape[1]
        experts = (gammaln(a + tokens) - gammaln(a)).sum()
        numpyro.factor("counts", (gammaln(n_expert * a) - gammaln(n_expert * a + n)).sum() + experts)

    def start(self, data: RoutingData) -> dict[str, Any]:
        """The concentration whose shares have the variance of the counts, that of sampling taken off."""
        n, n_expert = data.tokens.sum(axis=1, keepdims=True), data.tokens.shape[1]
        mean = 1.0 / n_expert
        variance = ((data.tokens / n - mean) ** 2).mean() - (mean * (1.0 - mean) / n).mean()
        a = (mean * (1.0 - mean) / max(float(variance), 1e-12) - 1.0) / n_expert
        return {"concentration": np.asarray(np.clip(a, 0.01, 1e5))}

    def describe(self, data: RoutingData, draws: Draws) -> dict[str, Any]:
        """Gini coefficient of the loads, and what to write into a job."""
        gini, stays, drift = self._gini(data, draws), _stays(data), _drift(data)
        told = {
            "n_layers": len(data.layers),
            "n_groups": len(data.tokens),
            "n_experts": data.tokens.shape[1],
            "gini": interval(gini),
            "share_that_stays": stays,
            **({} if drift is None else {"drift": drift}),
            "model.moe.routing": {
                "gini": round(float(np.median(gini)), 4),
                **({} if drift is None else {"drift": drift}),
            },
        }
        unlike = _unlike(self.replicate(data, draws, jax.random.key(0)))
        narrow = f"{stays:.0%} of the variance of loads stays from step to step of a layer: the interval of gini is too narrow"
        far = "a Dirichlet law is unlike these loads. Give the job the table itself: model.moe.routing: FILE"
        notes = [*([narrow] if stays > STAYS else []), *([far] if unlike else [])]
        return told | unlike | ({"notes": notes} if notes else {})

    def replicate(self, data: RoutingData, draws: Draws, key: Array) -> Checks:
        """Loads of experts over their mean in some groups, against as many of the Dirichlet distribution."""
        n_expert, rng = data.tokens.shape[1], generator(key)
        some = np.linspace(0, len(data.tokens) - 1, min(len(data.tokens), MOST_GROUPS)).astype(int)
        tokens, a = data.tokens[some], np.ravel(draws["concentration"])[:N_REPLICATED, None, None]
        n, shown = tokens.sum(axis=1).astype(np.int64), np.linspace(0, tokens.size - 1, min(tokens.size, MOST_SHOWN))
        share = rng.standard_gamma(a, (len(a), *tokens.shape))
        drawn = rng.multinomial(n, share / share.sum(axis=-1, keepdims=True))
        measured, replicated = (own / n[:, None] * n_expert for own in (tokens, drawn))
        at = shown.astype(int)
        return Checks(measured.ravel()[at], replicated.reshape(len(a), -1)[:, at], LOADS)

    def law(self, data: RoutingData, draws: Draws) -> ExpertRouting:
        """Routing as `model.moe.routing` has it."""
        return ExpertRouting(float(np.clip(np.median(self._gini(data, draws)), LEAST_GINI, MOST_GINI)), _drift(data))

    @staticmethod
    def _gini(data: RoutingData, draws: Draws) -> np.ndarray:
        n_expert = data.tokens.shape[1]
        return np.array([gini_of(float(a), n_expert) for a in np.ravel(draws["concentration"])])

    def score(
        self, data: RoutingData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """Whether the mean Gini coefficient of a layer that was left out lies in the interval of as many groups."""
        rng, out = np.random.default_rng(0), []
        a, n_expert = np.ravel(draws["concentration"])[:200], data.tokens.shape[1]
        for name, rows in groups_of(left_out, column):
            new = self.prepare(rows).tokens
            drawn = [sample_gini(rng.multinomial(new[0].sum(), rng.dirichlet(np.full(n_expert, one)))) for one in a]
            low, high = np.quantile(drawn, [0.05, 0.95])
            found = np.array([sample_gini(tokens) for tokens in new])
            out.append(GroupScore(group=name, coverage_90=float(((found >= low) & (found <= high)).mean())))
        return out


def _unlike(checks: Checks) -> dict[str, str]:
    """Tells of values most of which lie outside of the band of replicated ones; empty of others."""
    low, high = np.quantile(np.sort(checks.predicted, axis=1), [0.05, 0.95], axis=0)
    measured = np.sort(checks.measured)
    outside = float(((measured < low) | (measured > high)).mean())
    told = f"{outside:.0%} of the measured values lie outside of the 90% band of the fit"
    return {"unlike": told} if outside > MOST_OUTSIDE else {}


def sample_gini(tokens: np.ndarray) -> float:
    """Gini coefficient of counts [expert]."""
    ordered, n = np.sort(tokens), len(tokens)
    return float((ordered * (2.0 * np.arange(1, n + 1) - n - 1.0)).sum() / (n * ordered.sum()))


def _stays(data: RoutingData) -> float:
    """Share of the variance of loads that steps of one layer have in common."""
    load = data.tokens / data.tokens.sum(axis=1, keepdims=True)
    within, freedom = 0.0, 0
    for layer in range(len(data.layers)):
        own = load[data.layer == layer]
        if len(own) > 1:
            within, freedom = within + float(((own - own.mean(axis=0)) ** 2).sum()), freedom + len(own) - 1
    total = float(((load - load.mean()) ** 2).sum() / len(load))
    return 0.0 if not freedom or total == 0.0 else float(np.clip(1.0 - within / freedom / total, 0.0, 1.0))


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return np.nan


def _drift(data: RoutingData) -> float | None:
    """Share of the popularity that a step replaces; None where little stays, or no two steps of a layer are known."""
    n, n_expert = data.tokens.sum(axis=1, keepdims=True), data.tokens.shape[1]
    off, mean = data.tokens / n - 1.0 / n_expert, 1.0 / n_expert
    variance = float((off**2).mean() - (mean * (1.0 - mean) / n).mean())
    pair = np.flatnonzero(np.diff(data.layer) == 0)
    if not len(pair) or variance <= 0.0:
        return None
    stays = min(float((off[pair] * off[pair + 1]).mean()) / variance, 1.0)
    steps = float(np.median(np.diff(data.step)[pair]))  # from one that was logged to the next
    return float(f"{np.clip(1.0 - stays ** (1.0 / steps), LEAST_DRIFT, 1.0):.3g}") if stays > STAYS else None

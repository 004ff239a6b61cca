"""Pairs of measured rows of one source, balanced over sources, and the reliability of probabilities stated of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log

import numpy as np

from prism_jax.core.arrays import Floats
from prism_jax.validation.score import MeasuredRow

TIE = 0.01  # pairs whose measurements are that near are left out, logarithms
BINS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0])  # of the probability of the favourite
MOST_OF_SOURCE = 20_000  # pairs that are looked at


@dataclass(frozen=True)
class Pair:
    """Two rows of a source; `same_size`: of the same tokens per step and number of GPUs."""

    first: MeasuredRow
    second: MeasuredRow
    same_size: bool

    @property
    def log_ratio(self) -> float:
        """Logarithm of the first's measured GPU-seconds per token over the second's."""
        return log(per_token(self.first, self.first.measured_s or np.nan)) - log(
            per_token(self.second, self.second.measured_s or np.nan)
        )


def per_token(row: MeasuredRow, seconds: float) -> float:
    """GPU-seconds per token of a step that takes `seconds`."""
    model, _, plan = row.job
    return seconds * plan.n_devices / model.units_per_step(plan)


def picked(rows: Sequence[MeasuredRow], n: int, seed: int) -> list[Pair]:
    """`n` pairs: source after source gives one at random until there are enough.

    A source gives pairs of the same size where it has any that differ, else pairs of any.
    """
    rng = np.random.default_rng(seed)
    left = {
        source: list(rng.permutation(np.array(found, dtype=object))) for source, found in _by_source(rows, rng).items()
    }
    found: list[Pair] = []
    while len(found) < n and left:
        for source in rng.permutation(sorted(left)):
            found.append(left[source].pop())
            if not left[source]:
                del left[source]
    return found[:n]


def _by_source(rows: Sequence[MeasuredRow], rng: np.random.Generator) -> dict[str, list[Pair]]:
    of_source: defaultdict[str, list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        if row.model is not None and row.measured_s and not row.defect:
            of_source[row.source].append(row)
    found = {source: _pairs(own, rng) for source, own in sorted(of_source.items())}
    return {source: pairs for source, pairs in found.items() if pairs}


def _pairs(rows: Sequence[MeasuredRow], rng: np.random.Generator) -> list[Pair]:
    """Pairs of a source, in random order of their rows."""
    every = list(combinations(rows, 2))
    if len(every) > MOST_OF_SOURCE:
        every = [every[k] for k in rng.choice(len(every), MOST_OF_SOURCE, replace=False)]
    turned = [(a, b) if turn else (b, a) for (a, b), turn in zip(every, rng.integers(2, size=len(every)), strict=True)]
    pairs = [Pair(a, b, _size(a) == _size(b)) for a, b in turned]
    pairs = [pair for pair in pairs if abs(pair.log_ratio) > TIE]
    return [pair for pair in pairs if pair.same_size] or pairs


def _size(row: MeasuredRow) -> tuple[int, int]:
    model, _, plan = row.job
    return model.units_per_step(plan), plan.n_devices


@dataclass(frozen=True)
class Reliability:
    """How probabilities of favourites (at least one half) went.

    Attributes:
        count, stated, right: [bin] pairs, their mean probability, and the share in which the favourite was better.
        reliability: mean over pairs of |stated - right| of their bin.
        noise: what chance alone makes of it where every probability is right.
        brier: mean squared error of the probabilities; a coin has .25.
    """

    count: Floats
    stated: Floats
    right: Floats
    reliability: float
    noise: float
    brier: float

    def figures(self) -> Mapping[str, float]:
        """As `expected.json` has them."""
        return {
            "reliability": self.reliability,
            "brier": self.brier,
            "right": float(np.average(self.right, weights=self.count)),
        }


def reliability(prob: Floats, better: Floats, seed: int = 0, n_noise: int = 2000) -> Reliability:
    """Of probabilities [pair] that the first is better, and whether it was [pair]."""
    favourite = np.maximum(prob, 1.0 - prob)
    right = np.where(prob > 0.5, better, np.where(prob < 0.5, 1.0 - better, 0.5))
    at = np.clip(np.searchsorted(BINS, favourite, side="right") - 1, 0, len(BINS) - 2)
    rng = np.random.default_rng(seed)
    chance = [_apart(at, favourite, rng.random(len(prob)) < favourite)[-1] for _ in range(n_noise)]
    count, stated, share, apart = _apart(at, favourite, right)
    return Reliability(count, stated, share, apart, float(np.mean(chance)), float(np.mean((prob - better) ** 2)))


def _apart(at: np.ndarray, favourite: Floats, right: np.ndarray) -> tuple[Floats, Floats, Floats, float]:
    n_bin = len(BINS) - 1
    count = np.bincount(at, minlength=n_bin).astype(float)
    stated, share = (np.bincount(at, x, minlength=n_bin) / np.maximum(count, 1.0) for x in (favourite, right))
    return count, stated, share, float(np.average(np.abs(stated - share), weights=count))

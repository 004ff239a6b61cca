"""What is promised: finalists on fresh draws, each with its own mean step and its own doubts, and the gain of the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..._typing import Floats
from .candidate import Candidate
from .outcome import Outcome
from .wish import Wish
from .worlds import Worlds

N_RESAMPLED = 400
MOST_TRIED = 6
Refine = Callable[[Candidate], tuple[float, Floats]]
"""Of a candidate: mean step over the noise-free one, and [draw] what is not known of its step, sorted."""


@dataclass(frozen=True)
class Gain:
    """The best against a reference in the same fresh worlds.

    Attributes:
        saved_usd, saved_s: [world].
        share, share_interval: of the mean cost that is saved, and its 90 % interval over samples of the worlds.
    """

    reference: Outcome
    saved_usd: Floats
    saved_s: Floats
    share: float
    share_interval: tuple[float, float]


class Fresh:
    """Fresh worlds, in which candidates are run as they are promised."""

    def __init__(self, wish: Wish, refine: Refine) -> None:
        self._wish, self._refine = wish, refine
        self._ranks = np.random.default_rng([wish.seed, 1, 7]).random(wish.n_worlds)
        self._worlds = Worlds(wish, np.ones(1), fresh=1)
        self._kept: dict[int, Outcome] = {}

    def outcome(self, candidate: Candidate) -> Outcome:
        """The candidate with its own factors; the same rank of them in every world for all candidates."""
        if id(candidate) not in self._kept:
            ratio, level = self._refine(candidate)
            self._kept[id(candidate)] = self._run(candidate, ratio * np.quantile(level, self._ranks))
        return self._kept[id(candidate)]

    def _run(self, candidate: Candidate, factors: Floats) -> Outcome:
        mean = float(factors.mean())
        longer = replace(candidate, task=replace(candidate.task, work_s=candidate.task.work_s * mean))
        return Outcome.of(longer, self._worlds.run(longer, factors / mean))


def promised(candidates: Sequence[Candidate], fresh: Fresh, wish: Wish) -> Outcome | None:
    """The first of some candidates, best first, that keeps what is asked on fresh draws, too."""
    found = (fresh.outcome(one) for one in candidates[:MOST_TRIED])
    return next((one for one in found if one.keeps(wish)), None)


def gain_of(best: Outcome, reference: Outcome, seed: int) -> Gain:
    """Both in the same worlds."""
    saved = reference.cost_usd - best.cost_usd
    rng = np.random.default_rng([seed, 2])
    n = len(saved)
    rows = rng.integers(0, n, (N_RESAMPLED, min(n, 2000)))
    shares = np.sort(saved[rows].mean(axis=1) / reference.cost_usd[rows].mean(axis=1))
    scale = (rows.shape[1] / n) ** 0.5  # of the spread of fewer worlds
    share = float(saved.mean() / reference.cost_usd.mean())
    low, high = (share + scale * (float(np.quantile(shares, p)) - share) for p in (0.05, 0.95))
    return Gain(reference, saved, reference.time_s - best.time_s, share, (low, high))

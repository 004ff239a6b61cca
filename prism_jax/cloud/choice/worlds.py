"""Worlds of candidates: paths of spot capacity and factors on the step time, the same for all that are compared."""

from __future__ import annotations

from math import ceil, isinf, log2
from zlib import crc32

import jax
import numpy as np

from ..._typing import Floats
from ..availability.base import Availability
from ..completion.simulate import Ran, simulate
from ..paths import Paths
from .candidate import Candidate
from .wish import Wish

MOST_STRETCH = 4.0  # of the work, that paths are drawn for where there is no deadline
BEYOND = 1.25  # of the deadline
LEAST_S = 3 * 86_400.0  # so that short jobs outlast the gaps between spells
KEPT = 4  # sets of paths


class Worlds:
    """Draws of one seed.

    Args:
        level: [draw] equally likely factors on the step time: what is not known of it.
        fresh: another number gives other worlds.
    """

    def __init__(self, wish: Wish, level: Floats, fresh: int = 0) -> None:
        self._wish, self._seed = wish, (wish.seed, fresh)
        rng = np.random.default_rng([*self._seed, crc32(b"level")])
        self.factors = np.quantile(level, rng.random(wish.n_worlds))
        self._key = jax.random.key(wish.seed * 1009 + fresh)
        self._always = Paths.always(1, wish.n_worlds)
        self._paths: dict[tuple[Availability, int, int], Paths] = {}

    def run(self, candidate: Candidate, factors: Floats | None = None) -> Ran:
        """The candidate in all worlds."""
        own = self.factors if factors is None else factors
        paths = self._always if candidate.law is None else self._of_law(candidate.law, candidate)
        return simulate(candidate.task, paths, candidate.policy, own, self._wish.deadline_s, key=self._key)

    def _of_law(self, law: Availability, candidate: Candidate) -> Paths:
        """Paths up to a power of the root of two, in seconds, so that many candidates share them."""
        work_s = (
            candidate.task.work_s * float(self.factors.max()) + candidate.task.n_interval * candidate.task.blocking_s
        )
        deadline_s = self._wish.deadline_s
        needed_s = MOST_STRETCH * work_s if isinf(deadline_s) else max(BEYOND * deadline_s, work_s)
        power = ceil(2.0 * log2(max(needed_s, LEAST_S)))
        key = (law, candidate.count, power)
        if key not in self._paths:
            while len(self._paths) >= KEPT:
                self._paths.pop(next(iter(self._paths)))
            rng = np.random.default_rng([*self._seed, crc32(law.name.encode())])
            self._paths[key] = law.draw(candidate.count, self._wish.n_worlds, 2.0 ** (power / 2.0), rng)
        return self._paths[key]

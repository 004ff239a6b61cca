"""StartUpLaw: seconds from asking for a machine until it runs, in parts that follow each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._core.content import ByContent
from ..._typing import Floats
from ...errors import Problem, SpecError

PARTS = ("provisioning", "staging", "booting")


@dataclass(frozen=True, eq=False)
class StartUpLaw(ByContent):
    """Seconds of single starts, drawn: what is not known of a region and how starts differ together, [draw, part].

    Attributes:
        part_s: of `PARTS`.
        source: what was measured.

    Raises:
        SpecError: it is no table of positive seconds.
    """

    part_s: Floats
    source: str = ""

    def __post_init__(self) -> None:
        if self.part_s.ndim != 2 or self.part_s.shape[1] != len(PARTS) or not len(self.part_s):
            raise SpecError.of(
                Problem("part_s", f"shape {self.part_s.shape}, but it must be [draw, {len(PARTS)}]"), "start-up"
            )
        if not (np.isfinite(self.part_s) & (self.part_s > 0.0)).all():
            raise SpecError.of(Problem("part_s", "holds what is no positive number of seconds"), "start-up")

    @property
    def seconds(self) -> Floats:
        """Of a whole start, [draw]."""
        return self.part_s.sum(axis=1)

    def quantile(self, q: float) -> float:
        """Of a single start."""
        return float(np.quantile(self.seconds, q))

    def last_of(self, n_nodes: int, rng: np.random.Generator, n_worlds: int = 2000) -> Floats:
        """Seconds until the last of `n_nodes` machines that were asked for together runs, [world].

        Raises:
            SpecError: no node.
        """
        if n_nodes < 1:
            raise SpecError.of(Problem("n_nodes", f"{n_nodes}, but there must be at least 1"), "start-up")
        seconds = np.sort(self.seconds)
        rank = (
            np.ceil(len(seconds) * rng.random(n_worlds) ** (1.0 / n_nodes)).astype(int) - 1
        )  # of the largest of n_nodes
        return seconds[np.clip(rank, 0, len(seconds) - 1)]

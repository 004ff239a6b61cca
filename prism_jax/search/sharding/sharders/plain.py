"""Sharders that look at no costs: random, in turn, in runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ..task import ShardingTask


@dataclass(frozen=True)
class Random:
    """Every piece on a random rank."""

    name: str = "random"
    about: str = "every table on a random GPU"

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> Int[np.ndarray, " piece"]:
        """Codes of the pieces."""
        return rng.integers(task.n_ranks, size=len(task.pieces))


@dataclass(frozen=True)
class InTurn:
    """Table i on rank i mod n."""

    name: str = "naive"
    about: str = "tables in turn: table i on GPU i mod n"

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> Int[np.ndarray, " piece"]:
        """Codes of the pieces."""
        return np.arange(len(task.pieces)) % task.n_ranks


@dataclass(frozen=True)
class Chunks:
    """Runs of consecutive tables, as long as each other to within one."""

    name: str = "chunk"
    about: str = "runs of consecutive tables, equally many per GPU"

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> Int[np.ndarray, " piece"]:
        """Codes of the pieces."""
        return np.arange(len(task.pieces)) * task.n_ranks // len(task.pieces)

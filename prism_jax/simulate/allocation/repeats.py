"""Repeats: replica columns, each drawn for several steps on the same GPUs, at network factors close to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np
from jax import Array
from scipy.special import ndtr, ndtri

from ..._typing import Floats
from ..columns import column_times
from ..inputs import shared_of
from ..predict import DEFAULT_COLUMNS, ReplicaColumns, replica_columns
from ..program import Program
from ..replica_maximum import Shared, interpolation, maximum_quantile

N_DESIGN = 2  # of as many columns as a prediction has, so that both run the same compiled code
N_REPEAT = 4  # steps of every column
N_TIME = 64  # of the grid on which distributions are integrated
N_FINER = 2  # interpolated network factors from one carried score to the next
N_STRATUM = 4096  # of the network score
LARGEST_SCORE = 4.5  # of the grid of times


@dataclass(frozen=True, eq=False)
class Repeats:
    """Steps of replica columns.

    Attributes:
        time_s: [repeat, node, randomisation, column] seconds at the nodes of the network factor.
        weight: [randomisation, column] importance weights.
        factor: [node] network factors, increasing.
        chance: [node] weight of each node in a mean over steps.
        n: replicas whose maximum is a step.
        shared: what the replicas of a step share.
    """

    time_s: Floats
    weight: Floats
    factor: Floats
    chance: Floats
    n: int
    shared: Shared

    def thresholds(self) -> Floats:
        """Increasing times [time], seconds, that span the maximum of `n` columns at every node, evenly on its normal score."""
        mass = np.broadcast_to(self.weight, self.time_s[:, 0].shape).ravel()
        level = ndtr(np.linspace(-LARGEST_SCORE, LARGEST_SCORE, N_TIME))
        flat = self.time_s.transpose(1, 0, 2, 3).reshape(len(self.factor), -1)
        every = np.stack([maximum_quantile(own, mass, self.n, level) for own in flat])
        return np.quantile(every, np.linspace(0.0, 1.0, N_TIME))

    def carried(self) -> tuple[Floats, Floats]:
        """Times [score, column] of all repeats at the carried network scores, and weights [column]."""
        time_s = self.time_s[:, :: N_FINER if len(self.factor) > 1 else 1].transpose(1, 0, 2, 3)
        return time_s.reshape(len(time_s), -1), np.tile(self.weight.ravel(), len(self.time_s))

    def without(self, i: int) -> Repeats:
        """All randomisations but one."""
        return replace(self, time_s=np.delete(self.time_s, i, axis=2), weight=np.delete(self.weight, i, axis=0))

    def groups(self, n_group: int) -> list[Repeats]:
        """Independent groups of the randomisations, for Monte Carlo errors."""
        parts = np.array_split(np.arange(len(self.weight)), n_group)
        return [replace(self, time_s=self.time_s[:, :, own], weight=self.weight[own]) for own in parts]


def repeated_columns(program: Program, key: Array, n_samples: int = DEFAULT_COLUMNS) -> Repeats:
    """Replica columns of `N_DESIGN` designs with `n_samples` each, every column drawn for `N_REPEAT` steps."""
    keys = jax.random.split(key, N_DESIGN)
    designs = [replica_columns(program, own, n_samples) for own in keys]
    time_s = np.concatenate([_drawn(columns, own) for columns, own in zip(designs, keys, strict=True)], axis=2)
    shared = shared_of(program, designs[0].scores)
    carried = shared.factor(shared.scores)
    factor, chance = _nodes(shared, carried)
    return Repeats(
        time_s=_at_nodes(time_s, carried, factor),
        weight=np.concatenate([columns.weight for columns in designs]),
        factor=factor,
        chance=chance,
        n=program.n_replica,
        shared=shared,
    )


def _drawn(columns: ReplicaColumns, key: Array) -> Floats:
    """Times [repeat, score, randomisation, column]: the persistent factors of a chunk are those of its `fleet`."""
    n_chunk, found = len(columns.chunks.index), []
    for repeat in range(N_REPEAT):
        chunks = replace(columns.chunks, index=columns.chunks.index + repeat * n_chunk)
        time_s = np.asarray(column_times(columns.inputs, key, chunks, columns.width), dtype=np.float64)
        found.append(columns.by_randomisation(time_s).transpose(1, 0, 2))
    return np.stack(found)


def _nodes(shared: Shared, carried: Floats) -> tuple[Floats, Floats]:
    """Network factors [node], and how much each counts in a mean over network scores."""
    if len(carried) == 1:
        return carried, np.ones(1)
    grid = np.interp(np.arange(N_FINER * (len(carried) - 1) + 1) / N_FINER, np.arange(len(carried)), carried)
    low, share = interpolation(shared.factor(ndtri((np.arange(N_STRATUM) + 0.5) / N_STRATUM)), grid)
    total = np.bincount(low, 1.0 - share, len(grid)) + np.bincount(low + 1, share, len(grid))
    return grid, total / N_STRATUM


def _at_nodes(time_s: Floats, carried: Floats, factor: Floats) -> Floats:
    """Times [repeat, node, randomisation, column] of times at the carried scores."""
    if len(factor) == 1:
        return time_s
    low, share = interpolation(factor, carried)
    return time_s[:, low] + share[:, None, None] * (time_s[:, low + 1] - time_s[:, low])

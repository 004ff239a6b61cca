"""Replicas that hold a known GPU: they are no longer like the others and get columns of their own.

    P(step <= t | g) = F(t | g)^(n - k)  prod_(r known) F_r(t | g)

A prediction draws every one of them. An explanation compares many predictions, and draws those alone that may be the slowest of
a step: a pilot of few columns tells which, by the mean and the spread of every replica's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..graph.draws import folded, on_host
from ..plan.plan import ParallelPlan, replicas_with
from .columns import Chunk, KnownLinks, column_times
from .inputs import KnownGpus, column_inputs, regime_factors
from .links import ReplicaLinks
from .program import Program
from .work import with_plain_work

CHUNK_COLUMNS = 256  # at most
TOTAL_COLUMNS = 8192  # of a prediction, shared by the known replicas, at least 1024 each
EXPLAINED_COLUMNS = (64, 512)  # of a replica, between
PILOT_COLUMNS = 32
REACH_SD = 6.0  # of a replica's own spread; further behind, it is not the slowest of a step


@dataclass(frozen=True, eq=False)
class KnownReplicas:
    """Replicas with known GPUs, and how many columns those have that may decide the step.

    Attributes:
        gpus: persistent slowdowns of known GPUs.
        replicas: simulated ones.
        n_column: of each; up to 256, or a multiple of it.
        n_known: replicas that hold a known GPU; those of them that are not simulated are never the slowest.
    """

    gpus: KnownGpus
    replicas: NDArray[np.intp]
    n_column: int
    n_known: int

    def chunks(self, program: Program) -> tuple[Chunk, int]:
        """Chunks of columns, those of a replica one after another, and their width.

        Notes: draws follow the number of the replica, whichever others are simulated, so that predictions can be compared.
        """
        width = min(self.n_column, CHUNK_COLUMNS)
        n = self.n_column // width
        factors = self.gpus.by_replica(program.job.plan)[..., self.replicas]
        factors = np.repeat(np.moveaxis(factors, -1, 0), n, axis=0)
        index = (self.replicas[:, None] * n + np.arange(n)).ravel()
        known = np.broadcast_to(on_host(factors)[..., None], (*factors.shape, width))
        replica = np.broadcast_to(np.repeat(self.replicas, n)[:, None], (len(index), width))
        chunk = Chunk(index=index, known=known, links=links_of(program, self.gpus, replica))
        return with_plain_work(chunk, program.work, width), width

    def by_replica(self, time_s: Floats) -> Floats:
        """Times [replica, score, column] of those of the chunks [chunk, score, column]."""
        n_score = time_s.shape[1]
        shape = (len(self.replicas), -1, n_score, time_s.shape[2])
        return time_s.reshape(shape).transpose(0, 2, 1, 3).reshape(len(self.replicas), n_score, -1)

    def without(self, devices: Iterable[int]) -> KnownReplicas:
        """Returns the same replicas with the given GPUs unknown, so that they are drawn."""
        return replace(self, gpus=self.gpus.without(devices))

    def fewer(self, most: int) -> KnownReplicas:
        """Returns the same with at most so many columns of each replica."""
        return replace(self, n_column=min(self.n_column, most))

    def only(self, replicas: NDArray[np.intp]) -> KnownReplicas:
        """Returns the same with only some of the replicas."""
        return replace(self, replicas=replicas)


def links_of(program: Program, gpus: KnownGpus, replica: NDArray[np.intp]) -> KnownLinks | None:
    """Links of columns [chunk, column] that are replicas; None where no link is known."""
    return None if gpus.links is None else ReplicaLinks.of(program, gpus.links).columns(replica)


def every_known_replica(gpus: KnownGpus, plan: ParallelPlan) -> KnownReplicas:
    """All replicas that hold a known GPU, 1024 columns each or more."""
    found = gpus.replicas(plan)
    n_column = max(1024, TOTAL_COLUMNS // len(found)) // CHUNK_COLUMNS * CHUNK_COLUMNS
    return KnownReplicas(gpus, found, n_column, len(found))


def known_times(program: Program, known: KnownReplicas, key: Array, scores: Floats) -> Floats:
    """Times of the known replicas' own columns, seconds [replica, score, column]; `program` has one factor per compute class."""
    if not len(known.replicas):
        return np.zeros((0, len(scores), known.n_column))
    chunks, width = known.chunks(program)
    inputs = column_inputs(program, regime_factors(program, scores), explicit=True)
    return known.by_replica(column_times(inputs, key_of_known(key), chunks, width))


def key_of_known(key: Array) -> Array:
    """Key of the known replicas' columns."""
    return folded(key, 7)


def contenders(program: Program, gpus: KnownGpus, key: Array, listed: Sequence[int] = ()) -> KnownReplicas:
    """Replicas with known GPUs that may be the slowest of a step.

    Args:
        program: lowered job, one factor per compute class.
        gpus: known ones.
        key: typed PRNG key.
        listed: devices that are going to be replaced, some or all: the replicas that hold them are kept, and the others are
            held against what is left without them.
    """
    plan = program.job.plan
    every = gpus.replicas(plan)
    pilot = KnownReplicas(gpus, every, PILOT_COLUMNS, len(every)).without(listed)
    time_s = known_times(program, pilot, folded(key, 8), np.zeros(1))[:, 0]
    mean_s, sd_s = time_s.mean(axis=1), time_s.std(axis=1)
    slowest = mean_s.argmax()
    near = mean_s + REACH_SD * sd_s >= mean_s[slowest] - sd_s[slowest]
    held = replicas_with(plan, listed)[every]
    kept = every[near | held]
    few, many = EXPLAINED_COLUMNS
    n_column = int(np.clip(1 << int(np.log2(TOTAL_COLUMNS / len(kept))), few, many))
    return KnownReplicas(gpus, kept, n_column, len(every))

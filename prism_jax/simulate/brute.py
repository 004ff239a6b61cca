"""Brute force: every GPU of every replica of every step. The oracle, and the method of last resort."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtri

from .._typing import Floats
from ..graph.random import MAX_COLUMNS, key_words
from ..progress import Progress, silent
from ..result import StepTimeDistribution
from .columns import Chunk, column_times
from .inputs import column_inputs, deterministic, regime_factors, shared_of
from .known import KnownGpus
from .program import Program
from .replica_maximum import Shared, before_stalls, draw_stalls, with_stalls

N_COLUMN = 512  # of a chunk: the state of a scan still fits the second-level cache, and levels cost little beside draws
CHUNKS_PER_CALL = 32
COLUMNS_PER_CALL = CHUNKS_PER_CALL * N_COLUMN
N_BATCH = 16
FEWEST_LEVELS = 1024  # of a batch whose stalls are integrated
TAIL_PROB = 0.95  # what lies beyond this quantile is the tail


def brute_force(
    program: Program,
    key: Array,
    n_steps: int,
    known: KnownGpus | None = None,
    progress: Progress = silent,
    *,
    explicit: bool = True,
    steps_per_fleet: int = 1,
) -> StepTimeDistribution:
    """`n_steps` steps of 16 fleets or more, each the maximum over all its replicas' columns.

    Args:
        program: lowered job.
        key: typed PRNG key.
        n_steps: of the sample, rounded up to whole fleets; the error comes from sixteenths of the fleets.
        known: persistent slowdowns of GPUs that were measured; all others are drawn.
        progress: called with the share that is done.
        explicit: draw the residual of every member of however large a group; otherwise large groups draw their maximum directly.
        steps_per_fleet: steps that follow each other on one fleet; with one, all steps are independent.
    """
    n_fleet = max(-(-n_steps // steps_per_fleet), N_BATCH)
    rng = np.random.default_rng(np.asarray(key_words(key)).tolist())
    network_u = rng.random((n_fleet, steps_per_fleet))
    core = replica_maxima(program, key, network_u, known, progress, explicit)
    shared = shared_of(program, np.zeros(1))
    scores = ndtri(network_u.ravel())
    end_s = shared.end_s[0] * regime_factors(program, scores)[:, -1] / regime_factors(program, np.zeros(1))[0, -1]
    end_s = end_s.reshape(core.shape)
    usable = n_fleet - n_fleet % N_BATCH
    batches = [
        _batch(part, end, shared, rng)
        for part, end in zip(*(x[:usable].reshape(N_BATCH, -1, steps_per_fleet) for x in (core, end_s)), strict=True)
    ]
    samples, unstalled = _sorted_steps(core, end_s, shared, rng)
    return StepTimeDistribution(
        samples_s=samples,
        batches_s=np.stack(batches),
        deterministic_s=deterministic(program),
        method="brute_force",
        n_samples=core.size,
        tail_columns=core.size * (1.0 - TAIL_PROB),
        fleets_s=draw_stalls(unstalled, shared, rng),
    )


def _sorted_steps(core_s: Floats, end_s: Floats, shared: Shared, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Sorted step times [sample], and the same without stalls in their places [fleet, step]."""
    unstalled = before_stalls(core_s, end_s, shared, rng)
    return with_stalls(np.sort(unstalled, axis=None), shared), unstalled


def _batch(core_s: Floats, end_s: Floats, shared: Shared, rng: np.random.Generator) -> Floats:
    """Sorted step times of a few steps; where stalls are integrated at more levels than there are steps."""
    steps_s = np.sort(before_stalls(core_s, end_s, shared, rng), axis=None)
    finer = -(-FEWEST_LEVELS // steps_s.size) if shared.stalls else 1
    return with_stalls(np.repeat(steps_s, finer), shared)


def replica_maxima(
    program: Program, key: Array, network_u: Floats, known: KnownGpus | None, progress: Progress, explicit: bool
) -> Floats:
    """Slowest replica of every step, seconds [fleet, step]; `network_u` is the step's network score as a probability.

    Columns are replicas of fleets, side by side in blocks; chunks are a block at one step, blocks counting fastest.
    """
    n_fleet, n_step = network_u.shape
    n_cell = n_fleet * program.n_replica
    n_block = -(-n_cell // N_COLUMN)
    n_chunk = n_block * n_step
    per_call = min(CHUNKS_PER_CALL, n_chunk + n_chunk % 2)
    factors = _regime(program, network_u) if program.varying_regime else None
    inputs = column_inputs(program, np.ones((1, len(program.regime))), explicit=explicit)
    times = []
    for first in range(0, n_chunk, per_call):
        index = np.arange(first, first + per_call)
        step, block = np.minimum(index // n_block, n_step - 1), index % n_block
        cell = block[:, None] * N_COLUMN + np.arange(N_COLUMN)
        fleet = np.minimum(cell // program.n_replica, n_fleet - 1)
        regime = None if factors is None else jnp.asarray(factors[fleet, step[:, None]].transpose(0, 2, 1), float)
        of_fleet = None if n_step == 1 else jnp.asarray(block)
        chunks = Chunk(jnp.asarray(index), None, regime, _known_columns(program, known, cell), of_fleet)
        times.append(np.asarray(column_times(inputs, key, chunks, N_COLUMN), dtype=np.float64).reshape(per_call, -1))
        progress(min(1.0, (first + per_call) / n_chunk))
    of_step = np.concatenate(times)[:n_chunk].reshape(n_step, -1)[:, :n_cell]
    return of_step.reshape(n_step, n_fleet, program.n_replica).max(axis=-1).T


def _regime(program: Program, network_u: Floats) -> Floats:
    """Regime factors [fleet, step, axis] of network scores that are given as probabilities [fleet, step]."""
    scores = ndtri(np.clip(network_u, 1e-12, 1 - 1e-12))
    return regime_factors(program, scores.ravel()).reshape(*scores.shape, -1)


def _known_columns(program: Program, known: KnownGpus | None, cell: NDArray[np.int64]) -> Array | None:
    """Known factors [chunk, class, member, lane, column] of the replicas that the cells [chunk, column] are."""
    if known is None:
        return None
    replica = cell % program.n_replica
    return jnp.asarray(np.moveaxis(known.by_replica(program.job.plan)[..., replica], -2, 0), float)


assert N_COLUMN <= MAX_COLUMNS

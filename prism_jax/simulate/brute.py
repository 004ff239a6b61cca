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
from .replica_maximum import finish

N_COLUMN = 512  # of a chunk: the state of a scan still fits the second-level cache, and levels cost little beside draws
CHUNKS_PER_CALL = 32
COLUMNS_PER_CALL = CHUNKS_PER_CALL * N_COLUMN
N_BATCH = 8
TAIL_PROB = 0.95  # what lies beyond this quantile is the tail


def brute_force(
    program: Program,
    key: Array,
    n_steps: int,
    known: KnownGpus | None = None,
    progress: Progress = silent,
    *,
    explicit: bool = True,
) -> StepTimeDistribution:
    """`n_steps` independent steps, at least 16, each the maximum over all its replicas' columns.

    Args:
        program: lowered job.
        key: typed PRNG key.
        n_steps: of the sample; the error comes from its eighths.
        known: persistent slowdowns of GPUs that were measured; all others are drawn.
        progress: called with the fraction done.
        explicit: draw the residual of every member of however large a group; otherwise large groups draw their maximum directly.
    """
    n_steps = max(n_steps, 2 * N_BATCH)
    rng = np.random.default_rng(np.asarray(key_words(key)).tolist())
    network_u = rng.random(n_steps)
    core = replica_maxima(program, key, network_u, known, progress, explicit)
    shared = shared_of(program, np.zeros(1))
    scores = ndtri(network_u)
    end_s = shared.end_s[0] * regime_factors(program, scores)[:, -1] / regime_factors(program, np.zeros(1))[0, -1]
    usable = n_steps - n_steps % N_BATCH
    batches = [
        finish(part, end, shared, rng)
        for part, end in zip(
            core[:usable].reshape(N_BATCH, -1), end_s[:usable].reshape(N_BATCH, -1), strict=True
        )
    ]  # fmt: skip
    return StepTimeDistribution(
        samples_s=finish(core, end_s, shared, rng),
        batches_s=np.stack(batches),
        deterministic_s=deterministic(program),
        method="brute_force",
        n_samples=n_steps,
        tail_columns=n_steps * (1.0 - TAIL_PROB),
    )


def replica_maxima(
    program: Program, key: Array, network_u: Floats, known: KnownGpus | None, progress: Progress, explicit: bool
) -> Floats:
    """Slowest replica of every step, seconds [step]; `network_u` [step] is the step's network score as a probability."""
    n_steps = len(network_u)
    total = n_steps * program.n_replica
    n_chunk = -(-total // N_COLUMN)
    per_call = min(CHUNKS_PER_CALL, n_chunk + n_chunk % 2)
    factors = regime_factors(program, ndtri(np.clip(network_u, 1e-12, 1 - 1e-12))) if program.varying_regime else None
    inputs = column_inputs(program, np.ones((1, len(program.regime))), explicit=explicit)
    times = []
    for first in range(0, n_chunk, per_call):
        index = np.arange(first, first + per_call)
        step = np.minimum((index[:, None] * N_COLUMN + np.arange(N_COLUMN)) // program.n_replica, n_steps - 1)
        regime = None if factors is None else jnp.asarray(factors[step].transpose(0, 2, 1), float)
        chunks = Chunk(jnp.asarray(index), regime=regime, known=_known_columns(program, known, index))
        times.append(np.asarray(column_times(inputs, key, chunks, N_COLUMN), dtype=np.float64).ravel())
        progress(min(1.0, (first + per_call) / n_chunk))
    return np.concatenate(times)[:total].reshape(n_steps, program.n_replica).max(axis=1)


def _known_columns(program: Program, known: KnownGpus | None, index: NDArray[np.int64]) -> Array | None:
    """Known factors [chunk, class, member, lane, column] of the replicas in some chunks."""
    if known is None:
        return None
    replica = (index[:, None] * N_COLUMN + np.arange(N_COLUMN)) % program.n_replica
    return jnp.asarray(np.moveaxis(known.by_replica(program.job.plan)[..., replica], -2, 0), float)


assert N_COLUMN <= MAX_COLUMNS

"""How a quantile of the step time answers to the hardware: a differentiable function of peaks, bandwidths and latencies.

    q(hardware) = sum_i k_i T_(i)(hardware)

T_(i) are the sorted step times of the symmetric method, on random numbers and importance weights that stay as they are for the
job as it stands; k_i weighs the samples around the wanted probability (Epanechnikov's kernel). One order statistic alone would
give the derivative of one or two columns; the average over its neighbours differs from it by a few parts in ten thousand, and its
derivative by far less Monte Carlo error. The derivative is exact for q: columns are piecewise smooth in every duration, and the
weights of the sorted columns do not move with the hardware.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ..._core.arrays import Values
from ..._typing import Floats
from ...cost.efficiency import Efficiency
from ...errors import DataError
from ...job import Job
from ...system.hardware import Cluster
from ..columns import one_chunk
from ..explicit import unit_step
from ..inputs import regime_factors, shared_of
from ..predict import DEFAULT_COLUMNS, N_RANDOMISATION, N_STEP_SAMPLES, ReplicaColumns, replica_columns
from ..replica_maximum import step_samples
from .retimed import Numbers, RetimedJob, exchange_s, numbers_of, on_device

HALF_WIDTH = 0.02  # in probability, of the samples that a quantile averages over


@dataclass(frozen=True, eq=False)
class StepQuantile:
    """A quantile of a job's step time as a function of the hardware; made by `step_quantile`.

    Attributes:
        lowered: the job, its graph made once.
        columns: replica columns as the job stands.
        p: probability of the quantile.
        key: of the draws.
    """

    lowered: RetimedJob
    columns: ReplicaColumns
    p: float
    key: Array

    def __call__(self, cluster: Cluster, eff: Efficiency | None = None) -> Float[Array, ""]:
        """Seconds that a fraction `p` of steps does not exceed on `cluster`; differentiable in its numbers.

        Args:
            cluster: the job's cluster with other peaks, bandwidths or latencies; they may be traced.
            eff: the job's constants with other numbers; None: as calibrated for the job.

        Raises:
            DataError: another number of tiers than the job's cluster has.
        """
        return self._compiled(on_device(numbers_of(cluster, eff)))

    @cached_property
    def _compiled(self) -> Callable[[Numbers], Float[Array, ""]]:
        return jax.jit(lambda numbers: self.quantile(*self.column_times(numbers)))

    def column_times(self, numbers: Numbers) -> tuple[Float[Array, "batch score column"], Float[Array, " score"]]:
        """Times of the columns of every randomisation, and the exchange that ends the step, seconds.

        Args:
            numbers: of the hardware, as in `numbers_of`.
        """
        program, columns = self.lowered.program, self.columns
        arrays = self.lowered.arrays(numbers)
        inputs = eqx.tree_at(lambda i: i.graph, columns.inputs, arrays)

        @jax.checkpoint
        def times(chunk: Any) -> Array:
            return one_chunk(inputs, self.key, chunk, columns.width)

        time_s = columns.by_randomisation(lax.map(times, columns.chunks))
        return time_s, exchange_s(arrays) * regime_factors(program, columns.scores)[:, -1]

    def quantile(self, time_s: Float[Array, "batch score column"], end_s: Float[Array, " score"]) -> Float[Array, ""]:
        """The quantile from the columns of all randomisations together, seconds."""
        pooled_s, weight = self.columns.pooled(time_s), self.columns.weight.ravel()
        return self._quantile(pooled_s, weight, end_s, N_STEP_SAMPLES)

    def quantiles(
        self, time_s: Float[Array, "batch score column"], end_s: Float[Array, " score"]
    ) -> Float[Array, " batch"]:
        """The quantile from the columns of each randomisation, seconds; for the Monte Carlo error."""
        one = functools.partial(self._quantile, end_s=end_s, n=N_STEP_SAMPLES // N_RANDOMISATION)
        return jax.vmap(one)(time_s, jnp.asarray(self.columns.weight, float))

    def _quantile(self, time_s: Values, weight: Values, end_s: Values, n: int) -> Values:
        """From columns [score, column] by `n` steps, drawn alike in every call."""
        shared = replace(shared_of(self.lowered.program, self.columns.scores), end_s=end_s)
        rng = np.random.default_rng(self.columns.seed)
        samples = step_samples(time_s, weight, self.lowered.program.n_replica, shared, n, rng)
        return (samples * kernel_weights(n, self.p)).sum()


def step_quantile(job: Job, p: float = 0.95, *, key: Array, n_samples: int = DEFAULT_COLUMNS) -> StepQuantile:
    """The p-quantile of the step time as a function of the hardware that JAX can differentiate.

    Args:
        job: as it stands: its schedule, and where columns are put, stay as they are here.
        p: between 0 and 1.
        key: typed PRNG key; with the key of a prediction, its quantile up to the average over neighbours.
        n_samples: replica columns.

    Returns:
        A function of a `Cluster` (and an `Efficiency`), seconds.

    Raises:
        DataError: `p` is not between 0 and 1.
        PlanError: the plan is impossible for the model or the cluster.

    Notes:
        By the symmetric method alone; where `predict` falls back to brute force, this does not.

    Example:
        p95 = step_quantile(job, 0.95, key=jax.random.key(0))

        def seconds(bandwidth):
            return p95(replace(job.cluster, device=replace(job.cluster.device, hbm_bytes_per_s=bandwidth)))

        jax.grad(seconds)(3.35e12)
    """
    if not 0.0 < p < 1.0:
        raise DataError(f"p = {p}, but a quantile needs a probability between 0 and 1")
    lowered = RetimedJob.of(job)
    return StepQuantile(lowered, replica_columns(lowered.program, key, n_samples), p, key)


def noise_free_step(job: Job) -> Callable[..., Float[Array, ""]]:
    """The step time without any variability as a function of the hardware that JAX can differentiate.

    Args:
        job: as it stands; its schedule stays as it is here.

    Returns:
        A function of a `Cluster` (and an `Efficiency`), seconds.

    Raises:
        PlanError: the plan is impossible for the model or the cluster.
    """
    lowered = RetimedJob.of(job)
    seconds = jax.jit(lambda numbers: unit_step(lowered.arrays(numbers)))
    return lambda cluster, eff=None: seconds(on_device(numbers_of(cluster, eff)))


def kernel_weights(n: int, p: float) -> Floats:
    """[sample] weights of n sorted samples around probability `p`, that sum to one; narrower near the ends."""
    width = max(min(HALF_WIDTH, 0.5 * p, 0.5 * (1.0 - p)), 1.0 / n)
    weight = np.maximum(1.0 - (((np.arange(n) + 0.5) / n - p) / width) ** 2, 0.0)
    return weight / weight.sum()

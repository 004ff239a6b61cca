"""Known GPUs: replicas that hold one are no longer like the others and get columns of their own.

    P(step <= t | g) = F(t | g)^(n - k)  prod_(r known) F_r(t | g)

A few known replicas cost a few more columns; where most replicas hold known GPUs, every replica is simulated (brute force).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from .._typing import Floats
from ..errors import DataError
from ..hints import did_you_mean
from ..kernels import COMPUTE_CLASSES
from ..plan.plan import ParallelPlan
from .columns import Chunk, column_times
from .inputs import column_inputs, regime_factors
from .layout import device_layout
from .program import Program

MAX_KNOWN_REPLICAS = 32
N_COLUMN = 256
TOTAL_COLUMNS = 8192  # shared by the known replicas, at least 1024 each


@dataclass(frozen=True)
class KnownGpus:
    """Persistent slowdown factors of known GPUs.

    Attributes:
        factor: [compute_class, device] with NaN where a GPU is unknown; devices along the plan's axis order.
    """

    factor: Floats

    def by_replica(self, plan: ParallelPlan) -> Floats:
        """[compute_class, member, lane, replica]."""
        return self.factor[:, device_layout(plan)]

    def replicas(self, plan: ParallelPlan) -> NDArray[np.intp]:
        """Replicas that hold at least one known GPU."""
        return np.flatnonzero(np.isfinite(self.by_replica(plan)).any(axis=(0, 1, 2)))


def known_gpus(
    slowdown: Mapping[str, Mapping[int, float]], n_devices: int, classes: Sequence[str] = COMPUTE_CLASSES
) -> KnownGpus:
    """From kernel class (or "all") -> device -> factor.

    Args:
        classes: compute classes of the model (`Workload.kernel_classes`).

    Raises:
        DataError: unknown class, device out of range, or a factor that is not a positive number.
    """
    factor = np.full((len(classes), n_devices), np.nan)
    for name, values in slowdown.items():
        if name != "all" and name not in classes:
            raise DataError(f"slowdowns: unknown kernel class {name!r}{did_you_mean(name, ('all', *classes))}")
        rows = slice(None) if name == "all" else classes.index(name)
        for device, value in values.items():
            if not 0 <= device < n_devices:
                raise DataError(f"slowdowns: GPU {device}, but the job has GPUs 0 to {n_devices - 1}")
            if not (np.isfinite(value) and value > 0):
                raise DataError(
                    f"slowdowns: factor {value} of GPU {device}, but it must be a positive number (1.05 = 5 % slower)"
                )
            factor[rows, device] = value
    return KnownGpus(factor)


def known_times(program: Program, known: KnownGpus, key: Array, scores: Floats) -> Floats:
    """Times of the known replicas' own columns, seconds [replica, score, column]; `program` has one factor per compute class."""
    plan = program.job.plan
    chosen = known.replicas(plan)
    per_replica = max(1024, TOTAL_COLUMNS // len(chosen)) // N_COLUMN
    factors = np.repeat(np.moveaxis(known.by_replica(plan)[..., chosen], -1, 0), per_replica, axis=0)
    chunks = Chunk(
        index=jnp.arange(len(factors)),
        known=jnp.asarray(np.broadcast_to(factors[..., None], (*factors.shape, N_COLUMN)), float),
    )
    inputs = column_inputs(program, regime_factors(program, scores), explicit=True)
    times = np.asarray(column_times(inputs, jax.random.fold_in(key, 7), chunks, N_COLUMN), dtype=np.float64)
    return times.reshape(len(chosen), per_replica, len(scores), N_COLUMN).transpose(0, 2, 1, 3).reshape(
        len(chosen), len(scores), -1
    )  # fmt: skip

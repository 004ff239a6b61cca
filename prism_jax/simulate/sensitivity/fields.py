"""hardware_sensitivity: what one per cent more of a peak, a bandwidth or a latency does to a quantile of the step time.

The quantile is that of `quantile.step_quantile`. There are few fields, so its derivatives are taken forwards; the Monte Carlo
error is the spread of the derivatives over independent randomisations of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._typing import Floats
from ...cost.step import step_cost
from ...cost.step_cost import StepCost
from ...job import Job
from ...system.hardware import Cluster
from ..predict import DEFAULT_COLUMNS, N_RANDOMISATION
from .quantile import step_quantile
from .retimed import Numbers, numbers_of, on_device, with_numbers

PROBED = 0.01  # change of a field that tells whether the step depends on it at all


@dataclass(frozen=True)
class FieldSensitivity:
    """What one number of the hardware is worth.

    Attributes:
        change: d log(quantile) / d log(field): -0.3 says that 1 % more shortens the step by 0.3 %.
        error: Monte Carlo standard error of it.
    """

    change: float
    error: float


def hardware_sensitivity(
    job: Job, p: float = 0.95, *, key: Array, n_samples: int = DEFAULT_COLUMNS
) -> dict[str, FieldSensitivity]:
    """Which part of the hardware the p-quantile of the step time depends on, largest first.

    Args:
        job: model, cluster, plan and variability.
        p: between 0 and 1.
        key: typed PRNG key.
        n_samples: replica columns.

    Returns:
        field -> sensitivity, for the peaks in use ("peak bf16"), the device memory's bandwidth ("hbm"), and the bandwidth and
        latency of every tier ("nvlink bandwidth", "nvlink latency"). Fields that the step does not depend on are left out.

    Raises:
        DataError: `p` is not between 0 and 1.
        PlanError: the plan is impossible for the model or the cluster.
    """
    quantile = step_quantile(job, p, key=key, n_samples=n_samples)
    fields = [field for field in _fields(job.cluster) if _matters(job, field)]
    if not fields:
        return {}

    def log_quantiles(log_factor: Array) -> Array:
        numbers = on_device(numbers_of(job.cluster))
        for field, own in zip(fields, log_factor, strict=True):
            numbers = field.scaled(numbers, jnp.exp(own))
        times = quantile.column_times(numbers)
        return jnp.log(jnp.append(quantile.quantiles(*times), quantile.quantile(*times)))

    slopes = np.asarray(jax.jit(jax.jacfwd(log_quantiles))(jnp.zeros(len(fields))), dtype=np.float64)
    errors = slopes[:-1].std(axis=0, ddof=1) / np.sqrt(N_RANDOMISATION)
    found = {
        field.name: FieldSensitivity(float(change), float(error))
        for field, change, error in zip(fields, slopes[-1], errors, strict=True)
    }
    return dict(sorted(found.items(), key=lambda item: -abs(item[1].change)))


@dataclass(frozen=True)
class _Field:
    """One number of the hardware: its name for people, and where it stands in `Numbers`."""

    name: str
    path: tuple[Any, ...]

    def scaled(self, numbers: Numbers, factor: Any) -> Numbers:
        """The numbers with this one times `factor`."""
        return eqx.tree_at(self._of, numbers, self._of(numbers) * factor)

    def _of(self, numbers: Numbers) -> Any:
        value: Any = numbers
        for step in self.path:
            value = value[step]
        return value


def _fields(cluster: Cluster) -> list[_Field]:
    peaks = [_Field(f"peak {dtype}", ("peak_flops_per_s", dtype)) for dtype in cluster.device.peak_flops_per_s]
    tiers = [
        _Field(f"{tier.name} {name}", ("tiers", index, field))
        for index, tier in enumerate(cluster.tiers)
        for name, field in (("bandwidth", "bytes_per_s"), ("latency", "latency_s"))
    ]
    return [*peaks, _Field("hbm", ("hbm_bytes_per_s",)), *tiers]


def _matters(job: Job, field: _Field) -> bool:
    """Whether any second of the step changes with the field; told from the cost, on the host."""
    numbers = numbers_of(job.cluster)
    costs = []
    for own in (numbers, field.scaled(numbers, 1.0 + PROBED)):
        cluster, eff = with_numbers(job.cluster, job.efficiency, own)
        costs.append(step_cost(job.model, cluster, job.plan, eff))
    return any(np.any(a != b) for a, b in zip(*map(_seconds, costs), strict=True))


def _seconds(cost: StepCost) -> tuple[Floats, ...]:
    return cost.compute_s, cost.comm_s, cost.p2p_s, cost.end_compute_s, cost.end_comm_s

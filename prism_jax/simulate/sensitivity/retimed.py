"""A job lowered once, and its seconds computed again from other numbers of the same hardware, traced or not.

What the schedule decides stays as it is: levels, predecessors, signatures of ops, which axes communicate. So do decisions that
the job as it stands has made for the sampler: where columns are put, and the shape of the residuals' mix. What follows the
hardware is every second of every op, and how much of it varies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.arrays import Values
from ...cost.correction import CostCorrection
from ...cost.efficiency import Efficiency
from ...cost.step import step_cost
from ...errors import DataError
from ...graph.levels import LevelTable, level_table
from ...graph.propagate import GraphArrays
from ...graph.seconds import GraphSeconds, graph_seconds
from ...graph.signatures import Signatures, signatures
from ...job import Job
from ...system.hardware import Cluster
from ..program import Program, by_factor, end_by_class, factor_groups, lower, order_of
from ..residuals import comm_families, compute_families, op_sd

Numbers = Mapping[str, Any]
"""Numbers of hardware by field name, nested as the types are; a pytree."""


@dataclass(frozen=True, eq=False)
class RetimedJob:
    """A job whose graph is made once.

    Attributes:
        job: as it stands; its own hardware is nominal.
        program: the job lowered with that hardware.
    """

    job: Job
    program: Program

    @classmethod
    def of(cls, job: Job) -> RetimedJob:
        """Lowers `job`.

        Raises:
            PlanError: the plan is impossible for the model or the cluster.
            SpecError: no constants for the device.
        """
        return cls(job, lower(job))

    def arrays(self, numbers: Numbers) -> GraphArrays:
        """The graph on the device with the seconds that these numbers give; as `numbers_of`."""
        cluster, eff = with_numbers(self.job.cluster, self.job.efficiency, numbers)
        cost = step_cost(self.job.model, cluster, self.job.plan, eff)
        return self._placed(graph_seconds(cost, *self._places))

    @cached_property
    def _places(self) -> tuple[Signatures, LevelTable]:
        order = order_of(self.job.plan)
        table = level_table(order)
        return signatures(order, table), table

    def _placed(self, seconds: GraphSeconds) -> GraphArrays:
        """Device form of the seconds, one factor per group of kernel classes."""
        program, tree = self.program, self.job.variability
        groups = factor_groups(tree, program.classes)
        comm_s = jnp.concatenate([seconds.comm_s, seconds.send_s[..., None]], axis=-1)
        own = {
            "compute_s": by_factor(seconds.compute_s, groups),
            "call_sd": op_sd(compute_families(tree, program.cost), seconds.compute_s),
            "comm_s": comm_s[..., np.array(program.arrays.axes, dtype=int)],
            "comm_sd": op_sd(comm_families(tree, program.cost), comm_s),
            "lag_s": seconds.lag_s,
            "end_compute_s": by_factor(end_by_class(seconds.end_compute_s, seconds.compute_s.shape[-1]), groups),
            "end_comm_s": seconds.end_comm_s,
        }
        return replace(program.arrays, **{name: jnp.asarray(value, float) for name, value in own.items()})


def numbers_of(cluster: Cluster, eff: Efficiency | None = None) -> Numbers:
    """Every number of the hardware that time depends on; those of `eff` where it is given.

    Args:
        cluster: its peaks, bandwidths and latencies may be traced.
        eff: constants of the device, which may be traced.
    """
    device = cluster.device
    found: dict[str, Any] = {
        "peak_flops_per_s": dict(device.peak_flops_per_s),
        "hbm_bytes_per_s": device.hbm_bytes_per_s,
        "tiers": [{name: getattr(tier, name) for name in _TIER} for tier in cluster.tiers],
    }
    if eff is not None:
        found["efficiency"] = {name: getattr(eff, name) for name in _EFFICIENCY}
        found["correction"] = {name: getattr(eff.correction, name) for name in _CORRECTION}
    return found


def on_device(numbers: Numbers) -> Numbers:
    """The same numbers as arrays of JAX, so that a compiled function does not depend on their values."""
    return jax.tree.map(lambda value: jnp.asarray(value, float), numbers)


def with_numbers(cluster: Cluster, eff: Efficiency, numbers: Numbers) -> tuple[Cluster, Efficiency]:
    """The same hardware with other numbers; what `numbers` leaves out stays.

    Raises:
        DataError: another number of tiers than the cluster has.
    """
    tiers = numbers["tiers"]
    if len(tiers) != len(cluster.tiers):
        raise DataError(f"the hardware has {len(tiers)} tiers, but the job was lowered on {len(cluster.tiers)}")
    device = replace(
        cluster.device, peak_flops_per_s=numbers["peak_flops_per_s"], hbm_bytes_per_s=numbers["hbm_bytes_per_s"]
    )
    changed = tuple(replace(tier, **own) for tier, own in zip(cluster.tiers, tiers, strict=True))
    if "efficiency" in numbers:
        eff = replace(eff, correction=CostCorrection(**numbers["correction"]), **numbers["efficiency"])
    return replace(cluster, device=device, tiers=changed), eff


_TIER = ("bytes_per_s", "latency_s", "oversubscription")
_CORRECTION = tuple(item.name for item in fields(CostCorrection))
_EFFICIENCY = tuple(
    item.name for item in fields(Efficiency) if item.name not in ("gemm_tiles", "attention_kernels", "correction")
)


def exchange_s(arrays: GraphArrays) -> Values:
    """Exposed communication that ends the step, of the busiest lane, seconds."""
    return arrays.end_comm_s.max()

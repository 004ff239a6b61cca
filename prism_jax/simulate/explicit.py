"""step_time: the step under slowdowns that the caller gives, GPU by GPU. Pure, jitted, batched, differentiable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ..errors import DataError
from ..graph.members import ExplicitMembers
from ..graph.propagate import GraphArrays, Network, propagate
from ..hints import did_you_mean
from ..job import Job
from ..kernels import NETWORK_AXES
from .layout import device_layout
from .program import Program, by_class, lower

Slowdown = Float[Array | np.ndarray, "device sample"]


def step_time(job: Job, slowdown: Slowdown | Mapping[str, Slowdown]) -> Float[Array, " sample"]:
    """Step time of every sample, seconds, for given slowdowns of every GPU.

    Args:
        job: model, cluster and plan; its variability is not used.
        slowdown: [device, sample] factor of every GPU's compute (1 = nominal, 1.05 = 5 % slower), or a mapping from kernel class
            (gemm, attention, memory, and others that the model uses) to such an array; classes left out run at 1. Devices count
            along the plan's axis order, the first axis fastest.

    Raises:
        PlanError: the plan is impossible for the model or the cluster.
        DataError: unknown kernel class, or a shape that does not match the job.

    Notes:
        Nothing is drawn: communication and residuals are at their means. Differentiable in every slowdown.
    """
    program = lower(job)
    given = slowdown if isinstance(slowdown, Mapping) else dict.fromkeys(program.classes, slowdown)
    given = {name: jnp.asarray(value) for name, value in given.items()}
    _check(given, job.plan.n_devices, program.classes)
    arrays = _class_arrays(program)
    place = jnp.asarray(device_layout(job.plan))
    ones = jnp.ones_like(next(iter(given.values())))
    stacked = jnp.stack([given.get(name, ones) for name in program.classes])
    return _step_time(arrays, stacked.astype(arrays.compute_s.dtype), place)


def _check(given: Mapping[str, Array], n_devices: int, classes: Sequence[str]) -> None:
    if not given:
        raise DataError(f"slowdown: no kernel class given; give at least one of {', '.join(classes)}")
    for name, value in given.items():
        if name not in classes:
            raise DataError(f"slowdown: unknown kernel class {name!r}{did_you_mean(name, classes)}")
        if value.ndim != 2 or value.shape[0] != n_devices:
            raise DataError(f"slowdown[{name}] has shape {value.shape}, but the job needs [{n_devices}, sample]")
    n_sample = {name: value.shape[1] for name, value in given.items()}
    if len(set(n_sample.values())) > 1:
        raise DataError(f"slowdown: every class needs as many samples as the others, got {n_sample}")


@lru_cache(maxsize=32)
def _class_arrays(program: Program) -> GraphArrays:
    return by_class(program).arrays


@jax.jit
def _step_time(
    arrays: GraphArrays, slowdown: Float[Array, "factor device sample"], place: Int[Array, "member lane replica"]
) -> Float[Array, " sample"]:
    """Slowest replica of every sample; `place` is the device that plays each part."""
    n_member, n_lane, n_replica = place.shape
    chip = slowdown[:, place]  # [factor, member, lane, replica, sample]
    n_column = n_replica * slowdown.shape[-1]
    chip = chip.reshape(slowdown.shape[0], n_member, n_lane, n_column)
    times = propagate(arrays, ExplicitMembers(chip), unit_network(n_lane, n_column, chip.dtype), None)
    return times[0].reshape(n_replica, -1).max(axis=0)


def unit_network(n_lane: int, n_column: int, dtype: jnp.dtype) -> Network:
    """Communication at its mean."""
    n_axis = len(NETWORK_AXES)
    return Network(jnp.ones((n_axis, n_lane, n_column), dtype), jnp.ones((1, n_axis), dtype))


@eqx.filter_jit
def unit_step(arrays: GraphArrays) -> Float[Array, ""]:
    """Step time with every factor one, seconds."""
    _, n_lane, n_factor = arrays.compute_s.shape
    chip = jnp.ones((n_factor - 1, 1, n_lane, 1), arrays.compute_s.dtype)
    return propagate(arrays, ExplicitMembers(chip), unit_network(n_lane, 1, chip.dtype), None)[0, 0]

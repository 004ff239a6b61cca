"""Inputs of the samplers that are taken from a program, in the samplers' own terms; which GPUs are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..core.arrays import Float, Floats
from ..core.errors import DataError
from ..core.kernels import COMPUTE_CLASSES, LINKS, NETWORK_AXES
from ..core.registry import did_you_mean
from ..graph.draws import on_host
from ..graph.members import ExplicitMembers
from ..graph.propagate import CommFactors, GraphArrays, propagate
from ..graph.step_graph import noise_free_s
from ..plan.plan import ParallelPlan, device_layout
from ..variability.score_map import NormalScoreMap
from .columns import ColumnInputs
from .links import ReplicaLinks
from .program import Program
from .replica_maximum import Shared


def unit_network(n_lane: int, n_column: int, dtype: jnp.dtype) -> CommFactors:
    """Returns factors of 1: communication at its mean."""
    n_axis = len(NETWORK_AXES)
    return CommFactors(jnp.ones((n_axis, n_lane, n_column), dtype), jnp.ones((1, n_axis), dtype))


@jax.jit
def unit_step(arrays: GraphArrays) -> Float[Array, ""]:
    """Step time with every factor one, seconds."""
    _, n_lane, n_factor = arrays.compute_s.shape
    chip = jnp.ones((n_factor - 1, 1, n_lane, 1), arrays.compute_s.dtype)
    return propagate(arrays, ExplicitMembers(chip), unit_network(n_lane, 1, chip.dtype), None)[0, 0]


def regime_factors(program: Program, scores: Floats) -> Floats:
    """Regime factors of every network axis, [score, axis]."""
    return np.stack([NormalScoreMap.from_family(f)(scores) for f in program.regime], axis=-1)


def column_inputs(program: Program, regime: Floats, *, explicit: bool = False) -> ColumnInputs:
    """Traced inputs of the column sampler."""
    return ColumnInputs(
        graph=program.arrays,
        gpu=program.gpu,
        node=program.node,
        link=program.link,
        regime=on_host(regime),
        compute=program.compute_residual,
        comm=program.comm_residual,
        work=None if program.work is None else program.work.terms,
        n_member=program.n_member,
        n_node=program.n_node,
        node_size=program.job.cluster.node_size,
        explicit=explicit,
        varying_links=program.varying_links,
    )


def shared_of(program: Program, scores: Floats, known: KnownGpus | None = None) -> Shared:
    """Returns the parts of a step that its replicas share, including slow links at its end."""
    tree = program.job.variability
    exposed = exposed_by_axis(program)
    end_comm_s = program.graph.end_comm_s
    if known is not None and known.links is not None:
        slowest = ReplicaLinks.of(program, known.links).end
        end_comm_s = end_comm_s * np.where(slowest > 0.0, slowest, 1.0)
    end_s = end_comm_s.max() * regime_factors(program, scores)[:, -1]
    return Shared(
        scores=scores,
        regime=tuple(zip(program.regime, exposed, strict=True)),
        step=tree.step,
        stalls=tree.stalls,
        n_devices=program.job.plan.n_devices,
        end_s=end_s,
        end_call=program.end_call,
        step_ar1=tree.step_ar1,
        popularity=None if program.work is None else program.work.popularity,
    )


def exposed_by_axis(program: Program) -> list[float]:
    """Exposed seconds of a lane on average per network axis, for weighting the regime."""
    graph = program.graph
    inside = graph.comm_s.sum(axis=(0, 1)) / graph.n_lane
    lag = np.where(graph.dep_level >= 0, graph.lag_s, 0.0).sum() / graph.n_lane
    return [*inside.tolist(), float(lag + graph.send_s.sum() / graph.n_lane), float(graph.end_comm_s.mean())]


def deterministic(program: Program) -> float:
    """Step time with every factor one, seconds."""
    return noise_free_s(program.graph, program.dtype)


MAX_KNOWN_REPLICAS = 32


@dataclass(frozen=True)
class KnownGpus:
    """Persistent slowdown factors of known GPUs and of their links.

    Attributes:
        factor: [compute_class, device] with NaN where a GPU is unknown; devices along the plan's axis order.
        links: [2, device] of links within the node and of the port to others, NaN where unknown; None where none is known.
    """

    factor: Floats
    links: Floats | None = None

    @property
    def devices(self) -> NDArray[np.intp]:
        """Numbers of the GPUs of which a factor is known, of their own or of their links."""
        return np.flatnonzero(np.isfinite(self.every).any(axis=0))

    @property
    def every(self) -> Floats:
        """Factors [.., device] of GPUs and of links."""
        return self.factor if self.links is None else np.concatenate([self.factor, self.links])

    def without(self, devices: Iterable[int]) -> KnownGpus:
        """Returns the same with the given GPUs and their links unknown."""
        factor, links, some = self.factor.copy(), None if self.links is None else self.links.copy(), list(devices)
        for known in (factor, links):
            if known is not None:
                known[:, some] = np.nan
        return KnownGpus(factor, links)

    @property
    def filled(self) -> Floats:
        """Factors [compute_class, device] with one, the mean of those that are drawn, where none is known."""
        return np.where(np.isnan(self.factor), 1.0, self.factor)

    def by_replica(self, plan: ParallelPlan) -> Floats:
        """Returns the known factors as [compute_class, member, lane, replica]."""
        return self.factor[:, device_layout(plan)]

    def replicas(self, plan: ParallelPlan) -> NDArray[np.intp]:
        """Replicas that hold at least one known GPU."""
        return np.flatnonzero(np.isfinite(self.every[:, device_layout(plan)]).any(axis=(0, 1, 2)))


def known_gpus(
    slowdown: Mapping[str, Mapping[int, float]], n_devices: int, classes: Sequence[str] = COMPUTE_CLASSES
) -> KnownGpus:
    """Makes known GPUs from kernel class (or "all", "link", "nic") -> device -> factor.

    Args:
        classes: compute classes of the model (`Workload.kernel_classes`).

    Raises:
        DataError: unknown class, device out of range, or a factor that is not a positive number.
    """
    every = np.full((len(classes) + len(LINKS), n_devices), np.nan)
    known = ("all", *classes, *LINKS)
    for name, values in slowdown.items():
        if name not in known:
            raise DataError(f"slowdowns: unknown kernel class {name!r}{did_you_mean(name, known)}")
        rows = slice(len(classes)) if name == "all" else known.index(name) - 1
        for device, value in values.items():
            if not 0 <= device < n_devices:
                raise DataError(f"slowdowns: GPU {device}, but the job has GPUs 0 to {n_devices - 1}")
            if not (np.isfinite(value) and value > 0):
                raise DataError(
                    f"slowdowns: factor {value} of GPU {device}, but it must be a positive number (1.05 = 5% slower)"
                )
            every[rows, device] = value
    has_links = not set(LINKS).isdisjoint(slowdown)
    return KnownGpus(every[: len(classes)], every[len(classes) :] if has_links else None)

"""Cost of known slowdowns of GPUs, node by node, and the gain from replacing the slowest.

A node that is replaced gets other GPUs, drawn like the rest of the fleet. Its replicas alone are simulated again, with the draws
that they had, so that differences of a few tenths of a percent are visible. Two nodes that are equally slow cost nothing one by
one, since the other is still there: so costs stand next to what all nodes down to that one cost together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax import Array

from ..graph.members import ExplicitMembers
from ..graph.propagate import CommFactors, propagate
from ..plan.plan import device_layout, replicas_with
from ..simulate.inputs import KnownGpus
from ..simulate.known_replicas import known_times
from ..simulate.links import late_of_links, link_factors
from ..simulate.predict import ReplicaTimes, replica_times
from ..simulate.program import Program
from ..simulate.step_time import step_time
from .owners import fall
from .types import GivenSlowdowns, SlowNode

MOST_NODES = 8  # whose cost is told
P = 0.95


@dataclass(frozen=True)
class KnownNode:
    """A node with known GPUs.

    Attributes:
        node: number, from 0.
        devices: its known GPUs.
        slowest: known GPU whose work takes longest beyond its nominal time.
        slowdown: its factor, kernel classes weighed by their seconds on its stage.
        link_slowdown: of the slowest known link or NIC of the node, 1 where none is known.
    """

    node: int
    devices: tuple[int, ...]
    slowest: int
    slowdown: float
    link_slowdown: float


def slowest_nodes(program: Program, gpus: KnownGpus) -> list[KnownNode]:
    """The slowest nodes with known GPUs, slowest first: by how much longer the work of their slowest GPU takes, in seconds.

    Notes: communication over known links is work of the GPU, too.
    """
    size, plan = program.job.cluster.node_size, program.job.plan
    stage = np.empty(plan.n_devices, dtype=int)
    layout = device_layout(plan)
    stage[layout] = np.arange(layout.shape[1])[None, :, None]
    seconds = program.graph.compute_s.sum(axis=0)[stage].T  # [class, device]
    late_s = (seconds * (gpus.filled - 1.0)).sum(axis=0)
    known = gpus.devices
    slower_s = late_s if gpus.links is None else late_s + late_of_links(program, gpus.links)
    ranked = known[np.argsort(-slower_s[known], kind="stable")]
    first = np.unique(ranked // size, return_index=True)[1]
    nodes = []
    for slowest in ranked[np.sort(first)][:MOST_NODES]:
        devices = known[known // size == slowest // size]
        factor = 1.0 + late_s[slowest] / seconds[:, slowest].sum()
        link = 1.0 if gpus.links is None else float(np.nan_to_num(gpus.links[:, devices], nan=1.0).max())
        nodes.append(KnownNode(int(slowest // size), tuple(devices.tolist()), int(slowest), float(factor), link))
    return nodes


def given_slowdowns(gpus: KnownGpus, nodes: Sequence[KnownNode], times: ReplicaTimes, key: Array) -> GivenSlowdowns:
    """Explains the effect of known slowdowns on a job.

    Args:
        gpus: known ones.
        nodes: whose costs are asked for, slowest first.
        times: columns of the replicas, those of all `nodes` among them.
        key: of `times`.
    """
    program = times.program
    plan, size = program.job.plan, program.job.cluster.node_size
    before, layout = times.steps(), device_layout(plan)
    costs = [fall(before, _without(times, own.devices, key).steps(), P) for own in nodes]
    together = []
    for k in range(len(nodes)):
        devices = [device for own in nodes[: k + 1] for device in own.devices]
        together.append(fall(before, _without(times, devices, key).steps(), P) if k else costs[0])
    rows = []
    for own, cost, slower in zip(nodes, costs, together, strict=True):
        _, stage, replica = np.nonzero(np.isin(layout, own.devices))
        rows.append(
            SlowNode(
                own.node,
                "",
                own.slowest - own.node * size,
                own.slowdown,
                tuple(np.unique(stage).tolist()),
                tuple(np.unique(replica).tolist()),
                *cost,
                *slower,
                link_slowdown=own.link_slowdown,
            )
        )
    known = gpus.devices
    n_drawn = int(np.isnan(gpus.factor).any(axis=0).sum())
    return GivenSlowdowns(len(known), len(np.unique(known // size)), n_drawn, _step_s(program, gpus), tuple(rows))


def _step_s(program: Program, gpus: KnownGpus) -> float:
    """Seconds of the step with known factors, all others at one and nothing else varying."""
    if gpus.links is None:
        classes = {name: row[:, None] for name, row in zip(program.classes, gpus.filled, strict=True)}
        return float(step_time(program.job, classes)[0])
    dtype, (slowest, edge) = program.dtype, link_factors(program.job, *np.where(np.isnan(gpus.links), 1.0, gpus.links))
    chip = gpus.filled[:, device_layout(program.job.plan)].astype(dtype)
    network = CommFactors(slowest.astype(dtype), np.ones((1, len(slowest)), dtype), edge.astype(dtype))
    return float(propagate(program.arrays, ExplicitMembers(chip), network, None).max())


def _without(times: ReplicaTimes, devices: Sequence[int], key: Array) -> ReplicaTimes:
    """Simulates again the replicas that hold some GPUs, with other GPUs in their place; the columns are the same.

    Notes: all replicas wait for a slow link at the end of the step, so that all are where links are known.
    """
    known, known_s = times.known, times.known_s
    assert known is not None
    if known.gpus.links is not None:
        return replica_times(times.program, key, times.columns.weight.size, known.without(devices))
    held = replicas_with(times.program.job.plan, devices)
    touched = np.flatnonzero(held[known.replicas])
    other = known.without(devices)
    again_s = known_times(times.program, other.only(known.replicas[touched]), key, times.columns.scores)
    changed_s = known_s.copy()
    changed_s[touched] = again_s
    return replace(times, known=other, known_s=changed_s)

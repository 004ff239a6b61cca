"""Slow links of nodes: which devices communicate with which, and the factor that each lane's communication takes from them.

A node has links within (NVLink) and ports to other nodes (NICs, one per GPU). A group that stays inside one domain of the
innermost tier goes over links, one that leaves it over NICs; both are as slow as the slowest of their members': rings, trees and
hierarchies pass every byte by every node, and libraries split a message evenly over the NICs of a node (NCCL), whose slowest then
ends last. Only a group that holds the GPU next to a slow NIC sees that NIC.

Members of a lane wait for each other inside every op, so that a lane takes the slowest of its groups. All replicas meet in the
groups at the end of the step. A hand-over takes the slower of its two ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..core.arrays import Flags, Floats, Positions, Values, namespace
from ..core.kernels import NETWORK_AXES
from ..graph.draws import on_host
from ..graph.propagate import HAND_OVER
from ..job.job import Job
from ..plan.plan import ParallelPlan, device_layout
from .columns import KnownLinks
from .program import Program

END = NETWORK_AXES.index("end")


@lru_cache(maxsize=8)
def axis_groups(plan: ParallelPlan) -> dict[str, Positions]:
    """Devices [group, rank] of every group that communicates on a network axis, whose groups are disjoint and hold all devices.

    Notes: "dp" are the ranks that gather sharded parameters, "ep" those that share out experts, "end" those that hold the same
    parameters, copies of a sharding group included. Stages hand over in pairs: "pp" is not among them.
    """
    tp, cp, dp, pp = (np.arange(plan.n_devices) // plan.stride(a) % getattr(plan, a) for a in ("tp", "cp", "dp", "pp"))
    inner_cp = plan.stride("cp") < plan.stride("dp")
    data = dp * plan.cp + cp if inner_cp else cp * plan.dp + dp  # rank among those that share parameters
    order = np.lexsort((np.arange(plan.n_devices), pp))
    rank = np.empty_like(order)
    rank[order] = np.arange(plan.n_devices) % (plan.n_devices // plan.pp)  # within the stage
    split = plan.expert_tp
    expert = (tp, data // plan.ep) if split == plan.tp else (rank % split, rank // (split * plan.ep))
    of_axis = {
        "tp": (pp, dp, cp),
        "cp": (pp, dp, tp),
        "ep": (pp, *expert),
        "dp": (pp, tp, data // plan.shard_group),
        "end": (pp, tp),
    }
    return {axis: _grouped(keys) for axis, keys in of_axis.items()}


def _grouped(keys: tuple[Positions, ...]) -> Positions:
    """Devices [group, rank] that have the same keys [device]."""
    number = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].ravel()
    return np.argsort(number, kind="stable").reshape(number.max() + 1, -1)


class LinkFactors(NamedTuple):
    """Factors by which slow links lengthen communication; the trailing axes are those of the links.

    Attributes:
        slowest: [axis, lane, replica, ...] over `NETWORK_AXES`; of hand-overs zero.
        edge: [lane, replica, ...] of the hand-over between a lane and the one before it, the last before the first.
    """

    slowest: Values
    edge: Values


class Routes(NamedTuple):
    """Ports that the communication of every device uses.

    Attributes:
        layout: [member, lane, replica] devices.
        groups: axis -> devices [group, rank].
        leaves: axis -> [device] whether its group leaves the node.
        edge_leaves: [member, lane, replica] whether the hand-over from the lane before does.
    """

    layout: Positions
    groups: Mapping[str, Positions]
    leaves: Mapping[str, Flags]
    edge_leaves: Flags


def routes(job: Job) -> Routes:
    """Returns the routes of a job; they do not depend on the rates of its network, which may be traced."""
    fabric, layout, groups = job.cluster.fabric, device_layout(job.plan).astype(np.intp), axis_groups(job.plan)
    leaves = np.array([fabric.leaves_node(distance) for distance in range(fabric.n_distance)])
    of_axis = {}
    for axis, members in groups.items():
        first = np.broadcast_to(members[:, :1], members.shape)
        far = leaves[fabric.distances(first.ravel(), members.ravel())].reshape(members.shape).max(axis=1)
        of_axis[axis] = np.empty(members.size, dtype=bool)
        of_axis[axis][members] = far[:, None]
    before = np.roll(layout, 1, axis=1)
    edge = leaves[fabric.distances(before.ravel(), layout.ravel())].reshape(layout.shape)
    return Routes(layout, groups, of_axis, edge)


def link_factors(job: Job, link: Values, nic: Values) -> LinkFactors:
    """Factors of communication from those of links; zero where no device of a group has one.

    Args:
        job: cluster and plan.
        link: [device, ...] factor of the links of the device within its node, zero where it is not known; may be traced.
        nic: [device, ...] the same of its port to other nodes.
    """
    layout, groups, leaves, edge_leaves = routes(job)
    xp, slowest = namespace(link, nic), []
    for axis, members in groups.items():
        of_device = _chosen(leaves[axis], nic, link)
        group = np.empty(members.size, dtype=np.intp)
        group[members] = np.arange(len(members))[:, None]
        ranks = members.astype(np.int32)  # anew: JAX keeps what it makes of an index in the precision of then
        slowest.append(of_device[ranks].max(axis=1)[group[layout]].max(axis=0))
    slowest.insert(HAND_OVER, xp.zeros_like(slowest[0]))
    own, other = (_chosen(edge_leaves, nic[at], link[at]) for at in (layout, np.roll(layout, 1, axis=1)))
    return LinkFactors(xp.stack(slowest), xp.maximum(own, other).max(axis=0))


def _chosen(leaves: Flags, nic: Values, link: Values) -> Values:
    """`nic` where a group leaves the node, `link` where it does not; trailing axes are those of the links."""
    where = leaves.reshape(leaves.shape + (1,) * (nic.ndim - leaves.ndim))
    return namespace(nic, link).where(where, nic, link)


def late_of_links(program: Program, links: Floats) -> Floats:
    """Seconds [device] by which known links [2, device] slow a step's communication of a device, bubbles left out."""
    found, graph, factors = routes(program.job), program.graph, np.where(np.isnan(links), 1.0, links)
    stage = np.empty(program.job.plan.n_devices, dtype=np.intp)
    stage[found.layout] = np.arange(found.layout.shape[1])[:, None]
    comm_s = dict(zip(NETWORK_AXES, graph.comm_s.sum(axis=0).T, strict=False)) | {"end": graph.end_comm_s}
    link, nic = factors - 1.0
    late_s = sum(comm_s[axis][stage] * _chosen(leaves, nic, link) for axis, leaves in found.leaves.items())
    handed_s = (graph.send_s + np.where(graph.dep_level >= 0, graph.lag_s, 0.0).sum(axis=-1)).sum(axis=0)
    leaves = np.empty(len(stage), dtype=bool)
    leaves[found.layout] = found.edge_leaves
    return late_s + handed_s[stage] * _chosen(leaves, nic, link)


@dataclass(frozen=True, eq=False)
class ReplicaLinks:
    """Known links of a job, by replica; as in `KnownLinks` of the sampler."""

    slowest: Floats
    n_drawn: Floats
    edge: Floats

    @classmethod
    def of(cls, program: Program, links: Floats) -> ReplicaLinks:
        """Makes the factors of replicas from factors [2, device] of links and NICs, NaN where unknown."""
        found, (layout, _, leaves, edge) = link_factors(program.job, *np.nan_to_num(links)), routes(program.job)
        link, nic = np.isfinite(links)
        known = [_chosen(own, nic, link)[layout].mean(axis=0) for own in leaves.values()]
        both = (_chosen(own, nic[layout], link[layout]) for own in (edge, np.roll(edge, -1, axis=1)))
        known.insert(HAND_OVER, np.logical_and(*both).mean(axis=0))
        idle = ((0, program.n_lane - program.n_stage), (0, 0))
        n_drawn = program.n_node * (1.0 - np.stack(known))
        return cls(
            np.pad(found.slowest, ((0, 0), *idle)), np.pad(n_drawn, ((0, 0), *idle)), np.pad(found.edge, idle, "wrap")
        )

    @property
    def end(self) -> Floats:
        """Factor of the communication that ends the step, which all replicas share, [lane]."""
        return self.slowest[END, :, 0]

    def columns(self, replica: Positions) -> KnownLinks:
        """Links of columns [..., column] that are replicas."""
        parts = (np.moveaxis(part[..., replica], (0, 1), (-3, -2)) for part in (self.slowest, self.n_drawn))
        slowest, n_drawn = map(on_host, parts)
        return KnownLinks(slowest, n_drawn, on_host(np.moveaxis(self.edge[:, replica], 0, -2)))

    def alike(self, n_chunk: int, n_column: int, n_node: int) -> KnownLinks:
        """Links of columns of replicas that hold none that is known: they see those of the others at the end of the step."""
        slowest = np.zeros_like(self.slowest[..., 0])
        slowest[END] = self.end
        shape = (n_chunk, *slowest.shape, n_column)
        every = np.broadcast_to(on_host(slowest)[..., None], shape)
        return KnownLinks(every, np.full(shape, n_node, every.dtype), np.zeros_like(every[:, 0]))

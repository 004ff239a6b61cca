"""A fleet of which is stated how slow its GPUs are: replicas that are alike, nodes that are, and the times of such replicas.

Replicas meet at the end of the step alone. Those with the same stated slowdowns are of one kind: so many columns serve for all of
them, and they share a number of micro-batches, or differ in it by one where their sum does not divide. Replicas without a known
GPU are drawn as in any prediction, by importance-sampled columns. Nodes with the same slowdowns on the same stages share a cap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

import numpy as np
from jax import Array, lax

from ..core.arrays import Floats, Positions, Values, namespace
from ..core.kernels import COMPUTE_CLASSES
from ..cost.step import StepCost
from ..graph.step_graph import noise_free_s
from ..job.job import Job
from ..job.rules import problems
from ..placement.splits import with_micro_batches
from ..plan.plan import device_layout
from ..simulate.columns import Chunk, column_times, one_chunk
from ..simulate.inputs import KnownGpus, column_inputs, known_gpus, regime_factors
from ..simulate.known_replicas import KnownReplicas, key_of_known, known_times
from ..simulate.links import ReplicaLinks
from ..simulate.predict import ReplicaColumns, replica_columns
from ..simulate.program import Program
from ..simulate.replica_maximum import AlikeReplicas
from ..simulate.sensitivity import RetimedJob

FEWEST, MOST = 0.25, 4.0  # micro-batches of a replica, of those that it has
N_SHOWN = 3  # runs of numbers in a label


class ReplicaPart(NamedTuple):
    """Replicas of one kind with equally many micro-batches."""

    kind: int
    micro_batches: int
    n: int


class KnownColumns(NamedTuple):
    """Draws of replicas that hold a known GPU, a chunk for each, `width` columns wide."""

    chunks: Chunk
    width: int
    key: Array


@dataclass(frozen=True, eq=False)
class StatedFleet:
    """Stated slowdowns of a job's GPUs, by kinds of replicas and of nodes, both numbered as they first appear.

    Attributes:
        job: as it stands.
        gpus: known slowdowns; None where there are none.
        kind: [replica] its kind.
        node_kind: [device] the kind of its node.
    """

    job: Job
    gpus: KnownGpus | None
    kind: Positions
    node_kind: Positions

    @classmethod
    def of(cls, job: Job, slowdowns: Mapping[str, Mapping[int, float]]) -> StatedFleet:
        """Makes a fleet from kernel class (or "all", "link", "nic") -> device -> factor.

        Raises:
            DataError: unknown class, device out of range, or a factor that is not a positive number.
        """
        plan = job.plan
        if not any(slowdowns.values()):
            return cls(job, None, np.zeros(plan.n_replica, np.intp), np.zeros(plan.n_devices, np.intp))
        gpus, layout = known_gpus(slowdowns, plan.n_devices, job.model.kernel_classes), device_layout(plan)
        stage = np.empty(plan.n_devices)
        stage[layout] = np.arange(plan.pp)[None, :, None]
        said = np.nan_to_num(gpus.every)
        node = np.arange(plan.n_devices) // job.cluster.node_size
        by_node = np.pad(np.vstack([stage[None], said]), ((0, 0), (0, -plan.n_devices % job.cluster.node_size)))
        by_node = by_node.reshape(len(by_node), -1, job.cluster.node_size)
        node_kind = _alike(np.moveaxis(by_node, 1, 0))[node]
        by_replica = np.vstack([said, node_kind[None].astype(float)])[:, layout]
        return cls(job, gpus, _alike(np.moveaxis(by_replica, -1, 0)), node_kind)

    @cached_property
    def n_of_kind(self) -> Positions:
        """Number of replicas of each kind, [kind]."""
        return np.bincount(self.kind)

    @cached_property
    def first(self) -> Positions:
        """One replica of each kind, [kind]."""
        return np.unique(self.kind, return_index=True)[1]

    @cached_property
    def drawn(self) -> int | None:
        """The largest kind without a known GPU; None where every replica holds one."""
        holds = np.zeros(len(self.kind), dtype=bool)
        if self.gpus is not None:
            holds[self.gpus.replicas(self.job.plan)] = True
        free = np.where(holds[self.first], 0, self.n_of_kind)
        return int(free.argmax()) if free.any() else None

    @property
    def others(self) -> list[int]:
        """Kinds that have columns of their own."""
        return [kind for kind in range(len(self.n_of_kind)) if kind != self.drawn]

    @property
    def links(self) -> Floats | None:
        """Factors of links, [2, device], as `KnownGpus` has them."""
        return None if self.gpus is None else self.gpus.links

    def replica_labels(self) -> tuple[str, ...]:
        """Names the replicas of each kind, [kind]."""
        return tuple(_numbers("replica", np.flatnonzero(self.kind == k)) for k in range(len(self.n_of_kind)))

    def node_labels(self) -> tuple[str, ...]:
        """Names the nodes of each kind, [node kind]."""
        by_node = self.node_kind[:: self.job.cluster.node_size]
        return tuple(_numbers("node", np.flatnonzero(by_node == k)) for k in range(int(by_node.max()) + 1))

    @property
    def place(self) -> Positions:
        """Kind of the node that every GPU of a replica stands in, [kind, member, lane]."""
        return np.moveaxis(self.node_kind[device_layout(self.job.plan)[..., self.first]], -1, 0)

    @cached_property
    def unit(self) -> int | None:
        """Micro-batches that a replica may have more or less, at the least; None where none may."""
        own = self.job.plan.n_micro_batch
        return next((n for n in range(1, self.job.plan.pp + 1) if self._possible(own + n)), None)

    @cached_property
    def fewest(self) -> int:
        """Micro-batches that a replica must have."""
        least, unit = self.job.plan.n_micro_batch, self.unit or self.job.plan.n_micro_batch
        while least - unit >= max(1, FEWEST * self.job.plan.n_micro_batch) and self._possible(least - unit):
            least -= unit
        return least

    def _possible(self, n: int) -> bool:
        job = with_micro_batches(self.job, n)
        return not any(problems(job.plan, job.model, job.cluster))

    def lowered(self, n_micro_batch: int) -> RetimedJob:
        """The job as replicas with so many micro-batches see it."""
        if n_micro_batch not in self._lowered:
            job = with_micro_batches(self.job, n_micro_batch)
            self._lowered[n_micro_batch] = RetimedJob.of(job, every_class=self.gpus is not None)
        return self._lowered[n_micro_batch]

    @cached_property
    def _lowered(self) -> dict[int, RetimedJob]:
        return {}

    def parts(self, share: Values) -> Iterator[ReplicaPart]:
        """Replicas by kind and by micro-batches, at a share of the job's own number [kind]; whole units."""
        own, unit = self.job.plan.n_micro_batch, self.unit or 1
        for kind, (n, each) in enumerate(zip(self.n_of_kind, np.broadcast_to(share, len(self.n_of_kind)), strict=True)):
            whole, more = divmod(round(float(each) * own * n / unit), int(n))
            yield from (ReplicaPart(kind, (whole + k) * unit, m) for k, m in ((0, int(n) - more), (1, more)) if m)

    def slower(self, slower: Values) -> tuple[Values, Values]:
        """Factors on the compute of lanes [kind, lane, class], and on top of these of known GPUs [kind, class, member, lane].

        Args:
            slower: [lane, class], or [kind, member, lane, class] where GPUs differ.
        """
        xp, plan = namespace(slower), self.job.plan
        every = xp.broadcast_to(slower, (len(self.n_of_kind), plan.n_member, *slower.shape[-2:]))
        of_lane = every.max(axis=1)
        return of_lane, xp.moveaxis(every / of_lane[:, None], -1, 1)

    @cached_property
    def growth(self) -> Floats:
        """Growth of a replica's time, [kind], for every share of the job's micro-batches that it has more; noise-free."""
        n, unit, plan = self.job.plan.n_micro_batch, self.unit or 1, self.job.plan
        known = np.ones((len(self.job.model.kernel_classes), plan.n_member, plan.pp, len(self.kind)))
        known = known if self.gpus is None else np.nan_to_num(self.gpus.by_replica(plan), nan=1.0)
        of_lane = np.moveaxis(known[..., self.first].max(axis=1), (-1, 0), (0, -1))
        ends_s = [[_alone_s(self.lowered(m).program, own) for m in (n, n + unit)] for own in of_lane]
        return np.array([(more_s / own_s - 1.0) * n / unit for own_s, more_s in ends_s])

    def late(self, program: Program) -> Values:
        """Factor of slow links on the communication that ends the step, [lane]."""
        if self.links is None:
            return np.ones(1)
        slowest = ReplicaLinks.of(program, self.links).end
        return np.where(slowest > 0.0, slowest, 1.0)

    def columns(self, n_column: int, key: Array) -> KnownColumns | None:
        """Draws of a replica of every other kind, for so many columns of each; None where all replicas are drawn alike."""
        if self.gpus is None or not self.others:
            return None
        known = KnownReplicas(self.gpus, self.first[self.others], n_column, len(self.others))
        return KnownColumns(*known.chunks(self.lowered(self.job.plan.n_micro_batch).program), key_of_known(key))

    def traced(self, columns: KnownColumns, cost: StepCost, slower: Values, scores: Floats) -> Values:
        """Times of the columns of the other kinds [other, score, column], seconds; may be differentiated.

        Args:
            columns: of this fleet, of at most 256 columns.
            cost: with the job's own micro-batches.
            slower: as `slower` takes it.
            scores: network scores of the columns.
        """
        lowered = self.lowered(self.job.plan.n_micro_batch)
        of_lane, over = (part[np.array(self.others)] for part in self.slower(slower))
        inputs = column_inputs(lowered.program, regime_factors(lowered.program, scores), explicit=True)

        def times(own: tuple[Chunk, Values, Values]) -> Values:
            chunk, lane, gpu = own
            chunk = replace(chunk, known=chunk.known * gpu[..., None])
            return one_chunk(replace(inputs, graph=lowered.arrays_of(cost, lane)), columns.key, chunk, columns.width)

        return lax.map(times, (columns.chunks, of_lane, over))

    def exact(
        self, part: ReplicaPart, cost: StepCost, slower: Values, key: Array, columns: ReplicaColumns, n_known: int
    ) -> AlikeReplicas:
        """Times of the columns of some replicas with the micro-batches that they have, seconds.

        Args:
            part: which replicas.
            cost: with these micro-batches.
            slower: as `slower` takes it.
            key: of the draws.
            columns: of replicas that are drawn, with the job's own micro-batches.
            n_known: columns of replicas with known GPUs.
        """
        lowered = self.lowered(part.micro_batches)
        of_lane, over = (own[part.kind] for own in self.slower(slower))
        graph = lowered.arrays_of(cost, of_lane)
        if part.kind == self.drawn or self.gpus is None:
            if part.micro_batches != self.job.plan.n_micro_batch:
                columns = replica_columns(lowered.program, key, columns.weight.size, self.links)
            inputs = replace(columns.inputs, graph=graph)
            time_s = columns.by_randomisation(column_times(inputs, key, columns.chunks, columns.width))
            return AlikeReplicas(columns.pooled(time_s), columns.weight.ravel(), part.n)
        factor, replica = self.gpus.factor.copy(), self.first[part.kind]
        factor[:, device_layout(self.job.plan)[..., replica]] *= over
        known = KnownReplicas(replace(self.gpus, factor=factor), np.array([replica]), n_known, 1)
        time_s = known_times(replace(lowered.program, arrays=graph), known, key, columns.scores)[0]
        return AlikeReplicas(time_s, np.ones(time_s.shape[-1]), part.n)


def _alike(rows: Floats) -> Positions:
    """Number of the kind of every entry, [n], of rows [n, ...]; kinds count as they first appear."""
    _, first, number = np.unique(rows.reshape(len(rows), -1), axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.ravel()]


def _alone_s(program: Program, slower: Floats) -> float:
    """Seconds of a replica alone without noise, compute of its lanes `slower` [lane, class] times."""
    graph = program.graph
    end_s = graph.end_compute_s * slower[:, COMPUTE_CLASSES.index("memory")]
    return noise_free_s(replace(graph, compute_s=graph.compute_s * slower, end_compute_s=end_s), program.dtype)


def _numbers(name: str, numbers: Positions) -> str:
    """Such as: replicas 0-2, 5."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers.tolist()), lambda at: at[1] - at[0])]
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:N_SHOWN])
    rest = f" ... ({len(numbers)})" if len(runs) > N_SHOWN else ""
    return f"{name}{'s' if len(numbers) > 1 else ''} {shown}{rest}"

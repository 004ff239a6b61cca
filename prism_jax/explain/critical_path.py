"""Critical path: the share of each class of work in the slowest replica's step.

A step is a maximum of sums of durations: those on one path, back from the end of the step through whatever decided when an op
starts. The paths of a few columns are walked back on the host (`decide`), on the draws that the scan over levels would make.
The seconds of an op are those of its slowest member; of a large group, whose maximum is drawn directly, they are divided as those
of the member with the slowest persistent factor. Averaged over draws, weighted by the probability that a column is the slowest of
its step, they are the expected seconds of each class on the critical path. With n replicas that are alike, and known ones r,

    P(column i is the slowest) ~ w_i F(t_i)^(n-1) prod_r F_r(t_i)      P(column j of r) ~ F(t_j)^n prod_(other) F_other(t_j) / m
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..core.arrays import Floats, Positions, Values
from ..core.kernels import NETWORK_AXES
from ..graph.draws import Words, both, exponential_pairs, host_key, normal_pairs, on_host, word_pairs
from ..graph.members import ExplicitMembers, Members, MemberTable
from ..graph.propagate import HAND_OVER, CommFactors
from ..graph.step_graph import Decided, StepGraph, decide
from ..simulate.columns import Chunk, ColumnInputs, link_factors, members_of, named, persistent_factors
from ..simulate.importance import Design
from ..simulate.inputs import column_inputs, regime_factors
from ..simulate.known_replicas import key_of_known
from ..simulate.predict import ReplicaTimes, column_design
from ..simulate.program import Program, by_class
from .types import Shares

Singles = NDArray[np.float32]
N_CRITICALITY_COLUMN = 64
AXIS_NAMES = {axis: f"{axis} communication" for axis in NETWORK_AXES} | {"end": "gradient and parameter exchange"}


def criticality(program: Program, key: Array, times: ReplicaTimes | None = None) -> Shares:
    """Share of the critical path by class of work; sums to one.

    Args:
        program: lowered job.
        key: typed PRNG key.
        times: with known GPUs, columns of all replicas that may be the slowest.
    """
    own, (design, chunk) = by_class(program), first_columns(program, N_CRITICALITY_COLUMN, 0)
    columns = HostColumns.of(own, key, chunk, N_CRITICALITY_COLUMN)
    groups = [(*columns.seconds(), design.weight[0], program.n_replica if times is None else times.n_alike)]
    if times is not None and times.known is not None and len(times.known.replicas):
        groups = [*(groups if times.n_alike else []), *_known_groups(own, key, times)]
    names = [*program.classes, "optimizer", *(AXIS_NAMES[NETWORK_AXES[a]] for a in columns.inputs.graph.axes)]
    names += [AXIS_NAMES["pp"], AXIS_NAMES["end"]]
    whole, *parts = (
        _by_name(names, critical_seconds(groups, some))
        for some in (slice(None), *(slice(k, None, N_PART) for k in range(N_PART)))
    )
    kept = sorted((name for name, value in whole.items() if value > 0), key=lambda name: -whole[name])
    errors = {name: float(np.std([part[name] for part in parts], ddof=1) / np.sqrt(N_PART)) for name in kept}
    return Shares({name: whole[name] for name in kept}, errors)


N_PART = 4  # of the columns, whose scatter is the error
MOST_CRITICAL_REPLICAS = 32  # with known GPUs: those most often the slowest


Columns = tuple[Floats, Floats, Floats, int]
"""Paths of replicas that are alike: step times [column], seconds [column, class] on critical paths, weights, their number."""


def critical_seconds(groups: Sequence[Columns], some: slice = slice(None)) -> Floats:
    """Seconds of each class [class] on the slowest replica's critical path, expected, by some of the columns."""
    weights = slowest_weights([(time_s[some], weight[some], n) for time_s, _, weight, n in groups])
    return np.sum([weight @ seconds[some] for weight, (_, seconds, *_) in zip(weights, groups, strict=True)], axis=0)


def _by_name(names: Sequence[str], seconds: Floats) -> dict[str, float]:
    """Shares by name; entries of one name are one."""
    shares: dict[str, float] = {}
    for name, value in zip(names, seconds / seconds.sum(), strict=True):
        shares[name] = shares.get(name, 0.0) + float(value)
    return shares


def _known_groups(program: Program, key: Array, times: ReplicaTimes) -> list[Columns]:
    """Columns of the known replicas that are most often the slowest, a group each."""
    assert times.known is not None
    middle_s = times.known_s[:, len(times.columns.scores) // 2]
    weights = slowest_weights([(own_s, np.ones(own_s.size), 1) for own_s in middle_s])
    chance = np.array([own.sum() for own in weights])
    most = np.sort(np.argsort(-chance)[:MOST_CRITICAL_REPLICAS])
    own = replace(times.known.only(times.known.replicas[most]), n_column=N_CRITICALITY_COLUMN)
    chunks, _ = own.chunks(program)
    ones, of_known = np.ones(N_CRITICALITY_COLUMN), key_of_known(key)
    every = (HostColumns.of(program, of_known, chunks.at(k), len(ones), explicit=True) for k in range(len(most)))
    return [(*columns.seconds(), ones, 1) for columns in every]


def first_columns(program: Program, n_column: int, seed: int) -> tuple[Design, Chunk]:
    """Importance-sampled columns, and the chunk of the first randomisation."""
    design = column_design(program, n_column, seed)
    peak, work = on_host(design.peak_score[0]), None if design.work is None else design.work[0]
    return design, Chunk(np.zeros((), np.int32), peak if program.has_persistent else None, work=work)


MOST_KEPT = 1 << 22  # ops times columns that are run at once
MOST_DRAWN = 1 << 17  # members, lanes and columns of some levels that are drawn at once, so that a cache holds them


@dataclass(frozen=True, eq=False)
class HostRun:
    """Ops of a few columns, seconds.

    Attributes:
        ops: starts and ends.
        slow: [level, lane, column] slowest member of the ops.
        compute_s: [level, lane, column] its part of the ops.
        residual: [level, lane, column] factor of communication.
        transfer: [level, lane, dep or 1, column] factor of lags.
        last_s, exchange_s: [lane, column] work and communication that follow the last op.
    """

    ops: Decided
    slow: NDArray[np.integer]
    compute_s: Singles
    residual: Singles
    transfer: Singles
    last_s: Singles
    exchange_s: Singles

    @property
    def end_of_lane_s(self) -> Singles:
        """End of every lane, [lane, column]."""
        return self.ops.end_s[-1] + self.last_s + self.exchange_s


@dataclass(frozen=True, eq=False)
class HostColumns:
    """Columns of one chunk on the host, with the draws made once for each.

    Attributes:
        inputs: lowered job, every compute class a factor of its own.
        graph: its graph.
        words: key of the calls.
        chip: [class, member, lane, column] persistent factors.
        members: factors of groups, as in `Members`.
        network: [axis, lane, column] factors of the seconds of communication, blocking sends among them.
        lag: [level, lane, dep or 1, column] factors of the seconds of lags.
        work: [row, column] factors of the work of micro-batches less one; None where they are alike.
        n_pair: pairs of columns in the chunk.
        pair: pairs that are here, all or some.
    """

    inputs: ColumnInputs
    graph: StepGraph
    words: Words
    chip: Singles
    members: Members
    network: Singles
    lag: Singles
    work: Singles | None
    n_pair: int
    pair: Positions

    @classmethod
    def of(cls, program: Program, key: Array, chunk: Chunk, n_column: int, *, explicit: bool = False) -> HostColumns:
        """Columns of a chunk of a program by class; `explicit`: draw every member."""
        inputs = column_inputs(program, regime_factors(program, np.zeros(1)), explicit=explicit)
        own, n_pair = host_key(key, int(chunk.index)), n_column // 2
        chip = persistent_factors(inputs, own, chunk, n_column)
        regime = np.broadcast_to(inputs.regime[0, :, None], (inputs.regime.shape[1], n_column))
        link, edge = link_factors(inputs, own, replace(chunk, regime=regime), n_column)
        network = CommFactors(link, inputs.regime, edge)
        lag = network.handed(np.moveaxis(program.graph.dep_lane, 2, 1))
        lag = lag[:, None] if edge is None else np.moveaxis(lag, 1, 2)
        link[HAND_OVER] = network.sent()
        words, members = named(own, "call"), members_of(inputs, chip)
        drawn = chip, members, link, lag, chunk.work
        return cls(inputs, program.graph, words, *drawn, n_pair, np.arange(n_pair))

    def seconds(self) -> tuple[Floats, Floats]:
        """Step times [column] and the seconds of each class [column, class] on every column's critical path."""
        most = max(1, MOST_KEPT // (2 * self.graph.op.size))
        parts = [self.only(pair) for pair in np.split(self.pair, range(most, self.n_pair, most))]
        found = [own._walked(own.run()) for own in parts]
        order = np.argsort(np.concatenate([[*own.pair, *own.pair + self.n_pair] for own in parts]))
        time_s, seconds = (np.concatenate(part).astype(float)[order] for part in zip(*found, strict=True))
        return time_s, seconds

    def mean_op_s(self) -> Floats:
        """Mean seconds of every op over the columns, [level, lane]."""
        most = max(1, MOST_KEPT // (2 * self.graph.op.size))
        parts = [self.only(pair) for pair in np.split(self.pair, range(most, self.n_pair, most))]
        whole = sum((own.ops.end_s - own.ops.start_s).sum(axis=-1, dtype=float) for own in (one.run() for one in parts))
        return np.asarray(whole) / (2 * self.n_pair)

    def only(self, pair: Positions) -> HostColumns:
        """Returns some pairs of the columns: the first of all, then the second."""
        column = np.concatenate([pair, pair + self.n_pair])
        some = {name: getattr(self, name) for name in ("chip", "members", "network", "lag", "work")}
        return replace(self, pair=pair, **jax.tree.map(lambda x: x[..., column], some))

    def run(self) -> HostRun:
        """All ops of all columns, at once."""
        arrays = self.inputs.graph
        slow, compute_s, score = self._ops()
        if self.work is not None and self.inputs.work is not None:
            row, share = self.inputs.work
            compute_s *= 1.0 + sum(share[..., k, None] * self.work[row[..., k]] for k in range(row.shape[-1]))
        residual, transfer = (1.0 + sd * score for sd in (arrays.comm_sd[..., None], arrays.p2p_sd))
        comm_s = residual * np.einsum("tlu,ulc->tlc", arrays.comm_s, self.network[list(arrays.axes)])
        transfer = transfer[:, :, None] * self.lag
        last_s = self._slowest(arrays.end_compute_s[None])[1][0]
        exchange_s = arrays.end_comm_s[:, None] * self.network[-1]
        ops = decide(self.graph, compute_s + comm_s, transfer)
        return HostRun(ops, slow, compute_s, residual, transfer, last_s, exchange_s)

    def _walked(self, run: HostRun) -> tuple[Singles, Singles]:
        """Returns step times [column] and seconds of each class [column, class] by walking back every column's path."""
        arrays, column = self.inputs.graph, np.arange(2 * len(self.pair))
        final = run.end_of_lane_s.argmax(axis=0)
        level, lane, by = run.ops.path(self.graph, final)
        at, runs = (level, lane, column), level >= 0
        parts = arrays.compute_s[level, lane, :-1].transpose(2, 0, 1) * self.chip[:, run.slow[at], lane, column]
        whole = parts.sum(axis=0)
        scale = runs * run.compute_s[at] / np.where(whole > 0.0, whole, 1.0)
        axes = self.network[list(arrays.axes)][:, lane, column]
        comm_s = arrays.comm_s[level, lane].transpose(2, 0, 1) * axes * (runs * run.residual[at])
        slot = np.minimum(by - 1, run.transfer.shape[2] - 1)
        transfer = run.transfer[level, lane, slot, column]
        lag_s = arrays.lag_s[level, lane, by - 1] * (runs * (by > 0) * transfer)
        rows = [(parts * scale).sum(axis=1), run.last_s[final, column], comm_s.sum(axis=1), lag_s.sum(axis=0)]
        return run.end_of_lane_s.max(axis=0), np.vstack([*rows, run.exchange_s[final, column]]).T

    def _ops(self) -> tuple[NDArray[np.integer], Singles, Singles]:
        """Slowest member of every op [level, lane, column], its seconds of compute, and the score of the communication."""
        inputs, (_, n_member, n_lane, n_column) = self.inputs, self.chip.shape
        n_draw = 0 if inputs.compute is None else self.members.n_draw
        slow = np.empty((self.graph.n_level, n_lane, n_column), np.min_scalar_type(n_member))
        compute_s, score = np.zeros((2, *slow.shape), self.network.dtype)
        step = max(1, MOST_DRAWN // (self.members.n_draw * n_lane * n_column))
        for first in range(0, len(slow), step):
            here = np.arange(first, min(first + step, len(slow)))
            n_row = n_draw + (inputs.comm is not None)
            words = word_pairs(self.words, here[:, None, None, None], n_row, n_lane, self.n_pair)[..., self.pair]
            if inputs.comm is not None:
                score[here] = inputs.comm(both(normal_pairs(words[:, -1])))
            noise = (inputs.graph.call_sd[here], words[:, :n_draw]) if n_draw else None
            slow[here], compute_s[here] = self._slowest(inputs.graph.compute_s[here], noise)
        return slow, compute_s, score

    def _slowest(self, compute_s: Values, noise: tuple[Values, Values] | None = None) -> tuple[Positions, Singles]:
        """Slowest member of ops [level, lane, column] and its seconds; of a large group that with the slowest factor.

        Args:
            compute_s: [level, lane, part] noise-free seconds.
            noise: standard deviation of the calls [level, lane], and random words [level, word, lane, pair].
        """
        own, residual = self.members, self.inputs.compute
        if isinstance(own, MemberTable):
            drawn = None if noise is None else both(exponential_pairs(noise[1][:, 0]))
            seconds = own.slowest(compute_s.sum(axis=-1)[..., None], drawn)
            of_lane = self.inputs.graph.compute_s[..., :-1].sum(axis=0)  # classes are weighed as the lane uses them
            return np.einsum("lk,kmlc->mlc", of_lane, self.chip).argmax(axis=0), seconds
        parts, sd, score = np.moveaxis(compute_s, 2, 0)[:, :, None, :, None], None, None
        if noise is not None and residual is not None:
            sd, score = noise[0][:, None, :, None], residual(both(normal_pairs(noise[1])))
        each = ExplicitMembers.each(self.chip[:, None], parts, sd, score)
        slow = each.argmax(axis=1)
        return slow, np.take_along_axis(each, slow[:, None], axis=1)[:, 0]


def slowest_weights(groups: Sequence[tuple[Floats, Floats, int]]) -> list[Floats]:
    """Probability that each column is the slowest of its step; all sum to one.

    Args:
        groups: times [column], importance weights [column], and the number of replicas of every kind.

    Notes: a column is the slowest where all others of its kind, and all replicas of other kinds, are faster.
    """
    logs = []
    tables = [_log_below(time_s, weight) for time_s, weight, _ in groups]
    for k, (time_s, weight, _) in enumerate(groups):
        own = np.log(np.maximum(weight / weight.sum(), SMALLEST_PROB))
        for other, ((at_s, log_below), (_, _, n)) in enumerate(zip(tables, groups, strict=True)):
            count = n - (other == k)
            own = own + count * np.interp(time_s, at_s, log_below, left=np.log(SMALLEST_PROB), right=0.0)
        logs.append(own + np.log(max(groups[k][2], SMALLEST_PROB)))
    top = max(own.max() for own in logs)
    total = sum(np.exp(own - top).sum() for own in logs)
    return [np.exp(own - top) / total for own in logs]


SMALLEST_PROB = 1e-12


def _log_below(time_s: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Increasing times, and the log of the probability that a column is below each: at mid-weights."""
    order = np.argsort(time_s)
    mass = weight[order] / weight.sum()
    return time_s[order], np.log(np.maximum(np.cumsum(mass) - 0.5 * mass, SMALLEST_PROB))

"""Draws of the work that micro-batches hold, and their importance sampling.

A source of work (lengths of sequences, routing of tokens) is a table of equally likely factors, from the least work to the most:
a uniform 16-bit number finds its row. A column (a replica's step) has a draw per micro-batch, for routing per micro-batch and
model chunk; where ranks with data of their own synchronise inside every op, it has the heaviest of them.

Replicas with much work in all of their micro-batches make the tail of a step. Columns that importance sampling shifts draw from
tilted tables,

    q(x) = p(x) exp(theta load(x)) / M(theta)

with theta such that the sum of loads lies as far out as it does in the slowest of all replicas: theta E_q[load] - log M(theta),
over all draws, is half of the square of a shift of a normal score (`importance.py`). Of several columns that last nearly as long
one is kept: draws are cheap compared with running a column, and steps are then stratified.

Where the popularity of experts is that of a step, all replicas and micro-batches have it in common: noise-free steps under the
loads of many steps are a factor of whole steps, and columns draw what micro-batches scatter around it.

Everything is drawn on the host, from a stream of its own: the draws of all else stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..core.arrays import Floats, Positions
from ..core.kernels import COMPUTE_CLASSES
from ..cost.step import StepCost, step_cost
from ..graph.build import Portion, WorkTerms, work_terms
from ..graph.draws import on_host
from ..graph.levels import level_table
from ..graph.step_graph import StepGraph, decide
from ..job.job import Job
from ..plan.packing import N_ROW, Data, MicroBatchLaw, law_of
from ..plan.plan import ParallelPlan
from ..schedule.order import ScheduleOrder
from ..variability.score_map import TOLERANCE, NormalScoreMap, fit_knots
from ..workload.base.workload import Workload
from ..workload.transformer.op_lists import expert_group
from ..workload.transformer.routing import ExpertGroup, StepLoads, loads_of_layers, loads_of_steps
from ..workload.transformer.sizes import MoESpec
from ..workload.transformer.spec import TransformerSpec
from .columns import Chunk
from .replica_maximum import StepFactor

LENGTHS, ROUTING = "lengths of sequences", "routing of tokens"
STREAM = crc32(b"work")
N_PILOT = 1024  # columns whose scatter tells how much work matters
MOST_CANDIDATES, MOST_CELLS = 8, 1 << 16  # of a column that is kept; draws of a set of columns
N_PROBE = 8  # lengths of padded sequences that are costed
N_KNOTS = 33  # of the factor of popularity
MOST_OPS = 1 << 20  # ops times steps that are run at once, so that a cache holds them
N_STEP, MOST_RUN = (1 << 11, 1 << 14), 1 << 24  # steps that are run for the factor; ops of all of them
PROBE = 0.1  # by which the load of the busiest rank is raised to see what goes with it

Singles = NDArray[np.float32]
Draws = NDArray[np.uint16]  # rows of a table [unit, column]
Tilted = tuple[NDArray[np.uint16], float]  # rows that are equally likely under a tilt [table], log M(theta)


@dataclass(frozen=True, eq=False)
class WorkSource:
    """One source of work.

    Attributes:
        name: of it.
        row: [unit, entry] rows of the factors that the draw of a unit sets: of a micro-batch (perhaps of one chunk) its own, of a
            replica that has its share of a step those of all its micro-batches.
        excess: [drawn, entry] factors less one; equally likely, `N_ROW` of them or fewer.
        load: [table] what they add to a step, relatively; increasing.
        n_fill: micro-batches that the time in which a pipeline fills and drains is worth, of the one with most work.
    """

    name: str
    row: Positions
    excess: Singles
    load: Floats
    n_fill: float = 0.0

    @property
    def n_unit(self) -> int:
        """Number of draws per column."""
        return len(self.row)

    def factors(self, at: Draws) -> Singles:
        """Factors less one [unit, entry, column] of draws at rows [unit, column] of the table."""
        drawn = (at.astype(np.uint32) * np.uint32(len(self.excess))) // np.uint32(N_ROW)
        return np.swapaxes(self.excess[drawn], 1, 2)

    def of_step(self, at: Draws) -> tuple[Floats, Floats]:
        """Sum of the loads of draws at rows [unit, column] of the table, and the relative time they add to a step [column]."""
        load = self.load.astype(np.float32)[at]
        total = load.sum(axis=0, dtype=np.float64)
        if self.n_fill == 0.0:
            return total, total
        return total, (total + self.n_fill * load.max(axis=0)) * (self.n_unit / (self.n_unit + self.n_fill))

    def rate(self, theta: float) -> float:
        """Relative entropy of tilted draws of a column to plain ones."""
        weight = np.exp(theta * (self.load - self.load[-1]))
        log_mean = np.log(weight.mean()) + theta * self.load[-1]
        return self.n_unit * float(theta * (weight @ self.load) / weight.sum() - log_mean)

    def tilted(self, theta: float) -> Tilted:
        """Rows that are equally likely under the tilt, and log M(theta), [table]."""
        weight = np.exp(theta * (self.load - self.load[-1]))
        below = np.cumsum(weight) / weight.sum()
        at = np.minimum(np.searchsorted(below, (np.arange(N_ROW) + 0.5) / N_ROW), N_ROW - 1)
        return at.astype(np.uint16), float(np.log(weight.mean()) + theta * self.load[-1])


@dataclass(frozen=True, eq=False)
class Work:
    """Parts of a program that depend on the work of micro-batches.

    Attributes:
        terms: which factors every op goes with, and by how much, in the places of the program's ops.
        n_row: factors.
        sources: of which the factors are drawn.
        of_steps: [step, replica, row] of the first rows, of whole steps, where replicas depend on each other (single columns are
            replicas of unlike steps); None where they do not.
        popularity: factor of whole steps by the experts that are popular in them; None where micro-batches have their own.
    """

    terms: WorkTerms
    n_row: int
    sources: tuple[WorkSource, ...]
    of_steps: Singles | None = None
    popularity: StepFactor | None = None

    @property
    def sd(self) -> float:
        """Standard deviation of the time that work adds to a replica's step, relatively."""
        return self._sd

    @cached_property
    def _sd(self) -> float:
        rng = np.random.default_rng(STREAM)
        drawn = [rng.integers(N_ROW, size=(one.n_unit, N_PILOT), dtype=np.uint16) for one in self.sources]
        return float(np.std(sum(one.of_step(at)[1] for one, at in zip(self.sources, drawn, strict=True))))

    @cached_property
    def _tilts(self) -> dict[float, tuple[float, list[Tilted]]]:
        """theta and the tilted tables by the length of the shift."""
        return {}

    @property
    def names(self) -> list[str]:
        """Names of the sources that vary."""
        own = [source.name for source in self.sources if source.load.any()]
        return list(dict.fromkeys([*own, ROUTING] if self.popularity is not None else own))

    def without(self, name: str) -> Work:
        """Returns the same with mean work in the place of one source: alike in all shapes and other draws."""
        calm = (
            replace(one, excess=0.0 * one.excess, load=0.0 * one.load) if one.name == name else one
            for one in self.sources
        )
        steps = None if self.of_steps is None else self.of_steps * (name != LENGTHS)
        popularity = None if name == ROUTING else self.popularity
        return replace(self, sources=tuple(calm), of_steps=steps, popularity=popularity)

    def plain(self, n_column: int, *seed: int) -> Singles:
        """Factors less one of columns without tilt, [row, column]."""
        rng = np.random.default_rng([STREAM, *seed])
        return self._excess([rng.integers(N_ROW, size=(one.n_unit, n_column), dtype=np.uint16) for one in self.sources])

    def tilted(self, is_tilted: NDArray[np.bool_], length: float, seed: int) -> tuple[Singles, Floats]:
        """Factors less one [row, column] of a set of columns, and log of their tilted over their plain probability [column].

        Args:
            is_tilted: [column] which are.
            length: of the shift of a normal score that is as unlikely.
            seed: of the set.
        """
        n, n_unit = len(is_tilted), sum(source.n_unit for source in self.sources)
        n_like = int(np.clip(MOST_CELLS // max(n_unit * n, 1), 1, MOST_CANDIDATES))
        if length not in self._tilts:
            theta = self._theta(length)
            self._tilts[length] = theta, [source.tilted(theta) for source in self.sources]
        rng = np.random.default_rng([STREAM, seed])
        rows, of_step, log_ratio = self._rows(rng, np.repeat(is_tilted, n_like), *self._tilts[length])
        kept = np.empty(n, np.intp)
        for some in (np.flatnonzero(is_tilted), np.flatnonzero(~is_tilted)):
            of_some = (some[:, None] * n_like + np.arange(n_like)).ravel()
            like = of_some[np.argsort(of_step[of_some])].reshape(len(some), n_like)
            kept[rng.permutation(some)] = like[np.arange(len(some)), rng.integers(n_like, size=len(some))]
        return self._excess([at[:, kept] for at in rows]), log_ratio[kept]

    def of_whole_steps(self, replica: Positions, step: Positions, *seed: int) -> Singles:
        """Factors less one, [row, column], of columns that are replicas [column] of steps [column]."""
        excess = self.plain(len(replica), *seed)
        if self.of_steps is not None:
            excess[: self.of_steps.shape[-1]] = self.of_steps[step % len(self.of_steps), replica].T
        return excess

    def _theta(self, length: float) -> float:
        """Tilt under which a column is as unlikely as a normal score that is shifted by `length`."""
        low, high, wanted = 0.0, 1.0, 0.5 * length**2
        while self._rate(high) < wanted and high < 1e9:
            low, high = high, 4.0 * high
        for _ in range(20):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._rate(middle) < wanted else (low, middle)
        return low

    def _rate(self, theta: float) -> float:
        return sum(source.rate(theta) for source in self.sources)

    def _rows(
        self, rng: np.random.Generator, is_tilted: NDArray[np.bool_], theta: float, tilts: Sequence[Tilted]
    ) -> tuple[list[Draws], Floats, Floats]:
        """Rows [source][unit, column] of the tables, the time they add to steps, log of the tilted over the plain probability."""
        found, of_step, log_ratio = [], np.zeros(len(is_tilted)), np.zeros(len(is_tilted))
        for source, (rows, log_mean) in zip(self.sources, tilts, strict=True):
            at = rng.integers(N_ROW, size=(source.n_unit, len(is_tilted)), dtype=np.uint16)
            at[:, is_tilted] = rows[at[:, is_tilted]]
            total, step = source.of_step(at)
            log_ratio += theta * total - source.n_unit * log_mean
            of_step += step
            found.append(at)
        return found, of_step, log_ratio

    def _excess(self, rows: Sequence[Draws]) -> Singles:
        """Factors less one [row, column] at rows [source][unit, column] of the tables."""
        excess = np.zeros((self.n_row, rows[0].shape[1]), np.float32)
        for source, at in zip(self.sources, rows, strict=True):
            excess[source.row] = source.factors(at)
        return excess


def with_plain_work(chunks: Chunk, work: Work | None, n_column: int) -> Chunk:
    """Returns the same chunks with untilted draws of work, by their indices."""
    if work is None:
        return chunks
    return replace(chunks, work=np.stack([work.plain(n_column, int(index)) for index in chunks.index]))


class WorkCosts(NamedTuple):
    """Costs of a plan from which the parts that depend on the work of its micro-batches follow.

    Attributes:
        compute_s: [kind, chunk, class] of the passes.
        passes_s: compute and collectives of all passes.
        of_length: `passes_s` where all sequences hold so many tokens.
        heavier_s: `compute_s` where the busiest rank of the experts has more load, by the share `PROBE`.
    """

    compute_s: Floats
    passes_s: float
    of_length: Callable[[int], float]
    heavier_s: Callable[[], Floats]


class WorkParts(NamedTuple):
    """Portions of the compute of a plan that depend on work, and sources of their factors; fields as those of `Work`.

    `steps` are loads of experts that all of a step has in common.
    """

    portions: list[Portion]
    n_row: int
    sources: tuple[WorkSource, ...]
    of_steps: Singles | None
    steps: StepLoads | None

    def popularity(self, m: int, step_s: Callable[[Singles], Floats], most: int) -> StepFactor | None:
        """Noise-free steps under the loads of steps, over that under the mean; None where these are not of steps.

        Args:
            m: micro-batches; rows of chunks are the last ones.
            step_s: seconds of the step without noise [column] under factors less one [row, column].
            most: columns that are run at once.
        """
        if self.steps is None:
            return None
        excess = np.zeros((self.n_row, len(self.steps.mean)), np.float32)
        excess[self.n_row - m * self.steps.mean.shape[1] :] = np.repeat(self.steps.mean.T, m, axis=0)
        most = max(1, most)
        parts = [step_s(own) for own in np.split(excess, range(most, excess.shape[1], most), axis=1)]
        factor = np.sort(np.concatenate(parts)) / step_s(0.0 * excess[:, :1])
        z = ndtri((np.arange(len(factor)) + 0.5) / len(factor))
        knots, values = fit_knots(z, factor, N_KNOTS, TOLERANCE)
        score_map = NormalScoreMap(tuple(knots.tolist()), tuple(values.tolist()))
        return StepFactor(score_map, float(factor.std()), self.steps.ar1)


def work_of(job: Job, cost: StepCost, schedule: ScheduleOrder, graph: StepGraph) -> Work | None:
    """Returns the parts of a program that depend on the work of micro-batches; None where they all hold the same work.

    Args:
        cost: of the job.
        schedule: of its plan.
        graph: of both, padded or not.
    """

    def at(n: int) -> float:
        plan = replace(job.plan, seq_len=n, data=Data())
        return _passes_s(step_cost(job.model, job.cluster, plan, job.efficiency))

    def heavier_s() -> Floats:
        return step_cost(with_busier_rank(job.model), job.cluster, job.plan, job.efficiency).compute_s

    found = work_parts(job.model, job.plan, WorkCosts(cost.compute_s, _passes_s(cost), at, heavier_s))
    if found is None:
        return None
    terms = work_terms(schedule, level_table(schedule), cost, found.portions)
    more = [(0, a - b) for a, b in zip(graph.op.shape, terms.row.shape, strict=False)]
    row, share = (np.pad(np.asarray(part), (*more, (0, 0))) for part in terms)
    used = share.any(axis=(0, 1))
    terms = WorkTerms(row[..., used].astype(np.int32), on_host(share[..., used]))
    popularity = found.popularity(job.plan.n_micro_batch, partial(_with_work, graph, terms), MOST_OPS // graph.op.size)
    return Work(terms, found.n_row, found.sources, found.of_steps, popularity)


def work_parts(model: Workload, plan: ParallelPlan, costs: WorkCosts) -> WorkParts | None:
    """Returns the parts of a plan that depend on the work of its micro-batches; None where they all hold the same work."""
    law = law_of(plan) if plan.data.is_drawn else None
    routed = _routed(model, plan, costs)
    portions, sources, first = list[Portion](), list[WorkSource](), 0
    m, of_steps = plan.n_micro_batch, None
    if law is not None and law.varies:
        seconds, excess = _of_lengths(plan, costs, law)
        portions.append(Portion(seconds))
        first = m
        if law.squares.ndim > 1:  # replicas depend on each other
            of_replica = excess.reshape(len(excess), plan.n_replica, plan.tied, m).max(axis=2)
            of_steps = on_host(of_replica)
        weight, n_fill = float(seconds.sum()) / (costs.passes_s * m), (plan.pp - 1) / plan.virtual_stages
        if of_steps is None:
            sources.append(replace(_source(LENGTHS, np.arange(m), excess, weight, plan.tied), n_fill=n_fill))
        else:
            sources.append(_source_of_replicas(np.arange(m), of_steps.reshape(-1, m), weight, n_fill))
    if routed is not None:
        seconds, layers = routed.seconds, routed.layers
        portions.append(Portion(seconds, by_chunk=True))
        row = first + np.arange(plan.n_chunk * m).reshape(plan.n_chunk, m)
        first += row.size
        for n in sorted(set(layers) - {0}):
            which = np.array(layers) == n
            weight = float(seconds[:, which].sum()) / (costs.passes_s * which.sum() * m)
            sources.append(_source(ROUTING, row[which].ravel(), routed.loads(n), weight, routed.n_group))
    steps = None if routed is None else routed.steps
    return WorkParts(portions, first, tuple(sources), of_steps, steps) if portions else None


def _with_work(graph: StepGraph, terms: WorkTerms, excess: Singles) -> Floats:
    """Seconds of the step without noise [column] under factors less one [row, column]."""
    more = sum(terms.share[..., k, None] * excess[terms.row[..., k]] for k in range(terms.row.shape[-1]))
    op_s = on_host(graph.compute_s.sum(axis=-1, keepdims=True)) * (1.0 + more)
    op_s += on_host(graph.comm_s.sum(axis=-1, keepdims=True) + graph.send_s[..., None])
    end_s = decide(graph, op_s, np.ones((1, 1, 1))).end_s[-1]
    return (end_s + (graph.end_compute_s + graph.end_comm_s)[:, None]).max(axis=0)


def _source(name: str, row: Positions, excess: Floats, weight: float, n_alike: int) -> WorkSource:
    """A source whose draws are the heaviest of `n_alike` equally likely ones [table]."""
    at = np.minimum(((np.arange(N_ROW) + 0.5) / N_ROW) ** (1.0 / n_alike) * N_ROW, N_ROW - 1.0).astype(np.intp)
    return WorkSource(name, row[:, None], on_host(excess[at])[:, None], weight * excess[at])


def _source_of_replicas(row: Positions, excess: Singles, weight: float, n_fill: float) -> WorkSource:
    """A source whose draws are the micro-batches of whole replicas, [replica, row], as even as their step has made them."""
    load = weight * (excess.sum(axis=1) + n_fill * excess.max(axis=1)) * (len(row) / (len(row) + n_fill))
    order = np.argsort(load, kind="stable")
    drawn = order[(np.arange(min(len(order), N_ROW)) * len(order)) // min(len(order), N_ROW)]
    of_table = drawn[(np.arange(N_ROW) * len(drawn)) // N_ROW]
    return WorkSource(LENGTHS, row[None], excess[drawn], load[of_table].astype(np.float64))


def _of_lengths(plan: ParallelPlan, costs: WorkCosts, law: MicroBatchLaw) -> tuple[Floats, Floats]:
    """Seconds [kind, chunk] that vary with lengths, and their factors less one.

    Padded sequences are costed at some lengths, and between them on straight lines: a short one lasts no less than the host takes
    to start its kernels. What their collectives take more or less is counted with compute.
    """
    if not law.tokens.any():
        return costs.compute_s[..., COMPUTE_CLASSES.index("attention")], law.squares
    tokens = law.seq_len * (1.0 + law.tokens)
    least = plan.tp * plan.cp  # every rank has a token
    probed = np.unique(least * np.maximum(1, np.geomspace(tokens.min(), tokens.max(), N_PROBE) // least).astype(int))
    more_s = np.array([costs.of_length(int(n)) for n in probed]) - costs.passes_s
    compute_s = costs.compute_s.sum(axis=-1)
    return compute_s, np.interp(tokens, probed, np.maximum.accumulate(more_s)) / float(compute_s.sum())


def _passes_s(cost: StepCost) -> float:
    """Compute and collectives of all passes."""
    return float(cost.compute_s.sum() + cost.comm_s.sum())


class RoutedCompute(NamedTuple):
    """Compute that waits for the busiest rank of an expert-parallel group.

    Attributes:
        seconds: [kind, chunk] that go with its load.
        layers: with experts [chunk].
        n_group: groups that synchronise inside every op.
        loads: its loads over their mean, less one [table], as means over so many layers.
        steps: loads of steps, around which these scatter; None where popularity is not that of steps.
    """

    seconds: Floats
    layers: tuple[int, ...]
    n_group: int
    loads: Callable[[int], Floats]
    steps: StepLoads | None


def _routed(model: Workload, plan: ParallelPlan, costs: WorkCosts) -> RoutedCompute | None:
    """Returns the compute that waits for the busiest rank; None where its load is not drawn."""
    if not isinstance(model, TransformerSpec) or model.moe is None or model.moe.routing is None:
        return None
    group = expert_group(model, plan.computed)
    if group.ep == 1 or model.moe.capacity_factor:
        return None
    seconds = (costs.heavier_s() - costs.compute_s).sum(axis=-1) / PROBE
    one = seconds.sum(axis=0)
    layers = np.rint(one / one.sum() * model.moe.n_layers_of(model.n_layers)).astype(int)
    n_group = max(1, plan.n_member // (plan.ep * plan.expert_tp))
    routing, layers = model.moe.routing, tuple(layers.tolist())
    n_step = int(np.clip(MOST_RUN // (2 * plan.pp * plan.n_micro_batch * plan.virtual_stages), *N_STEP))
    steps = loads_of_steps(routing, group, layers, n_step) if routing.of_steps else None
    return RoutedCompute(seconds, layers, n_group, partial(loads_of_layers, routing, group), steps)


class BusierExperts(MoESpec):
    """Experts whose busiest rank has more load, by the share `PROBE`."""

    def busiest(self, group: ExpertGroup) -> float:
        return super().busiest(group) * (1.0 + PROBE)


def with_busier_rank(model: Workload) -> TransformerSpec:
    """A transformer with experts whose busiest rank has more load, by the share `PROBE` of it."""
    assert isinstance(model, TransformerSpec)
    assert model.moe is not None
    own = {field.name: getattr(model.moe, field.name) for field in fields(MoESpec)}
    return replace(model, moe=BusierExperts(**own))

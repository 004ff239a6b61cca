"""Sobol indices of the step time: how its variance divides among independent sources, and how much they only cause together.

    S_i  = Var(E[T | x_i]) / Var(T)          first order: what source i explains alone
    ST_i = E[Var(T | x_others)] / Var(T)     total order: what it has a part in, alone or with others

Sources are what the model draws independently: scores of GPUs, of nodes, of links, residuals of calls, the network's score of a
step, factors of whole steps, stalls, the work of micro-batches. Kernel classes that share a score are one source: a slow chip is
slow in all of them; `shapley.py` divides the p95 among classes.

Two independent draws A and B of every source, and A with one source of B (Saltelli 2010, Jansen 1999; common random numbers):

    S_i = mean f(B) (f(AB_i) - f(A)) / Var f      ST_i = mean (f(A) - f(AB_i))^2 / (2 Var f)

Replica columns carry both draws, importance sampled where either may be the slowest (balance heuristic); a step is the slowest of
n columns drawn by their weights, the same ones for A, B and every AB_i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtri

from ..core.arrays import Floats, Positions
from ..core.errors import DataError
from ..graph.draws import Words, fold_in, host_key, on_host, seed_of
from ..simulate.columns import (
    Chunk,
    ColumnInputs,
    DrawnColumns,
    factors_of,
    link_factors,
    members_of,
    named,
    persistent_scores,
    times_of_drawn,
)
from ..simulate.inputs import column_inputs, regime_factors, shared_of
from ..simulate.predict import CHUNK_COLUMNS, N_RANDOMISATION, REGIME_SCORES, persistent_proposal
from ..simulate.program import Program
from ..simulate.replica_maximum import Shared, interpolation, latin_hypercube, stratified
from ..simulate.work import ROUTING
from ..variability.score_map import NormalScoreMap
from .owners import OF_WHOLE_STEPS, student_error
from .types import SobolIndices

GPUS, NODES, CALLS, COMM_CALLS, LINKS, REGIME = "gpu", "node", "compute_calls", "comm_calls", "links", "network_regime"
STEP, STALLS = OF_WHOLE_STEPS
N_COLUMN = 1024  # of a randomisation
N_STEP = 4096  # of a randomisation
LEFT_OUT = 20.0  # columns that are the slowest of a step with probability exp(-20) are not looked at
ROWS = 512  # steps that are put together at once


def first_and_total(f_a: Floats, f_b: Floats, f_ab: Floats) -> tuple[Floats, Floats]:
    """Estimates first- and total-order indices.

    Args:
        f_a, f_b: [sample] values at two independent draws.
        f_ab: [source, sample] values at the first draw with one source of the second.

    Returns:
        Both [source]; zero where nothing varies.

    Source: Saltelli et al., Computer Physics Communications 181 (2010) 259, table 2 (b) and (f).
    """
    mean, variance = np.mean([f_a, f_b]), np.var([f_a, f_b])
    if variance == 0.0:
        return np.zeros(len(f_ab)), np.zeros(len(f_ab))
    first = ((f_b - mean) * (f_ab - f_a)).mean(axis=1) / variance
    return first, 0.5 * ((f_a - f_ab) ** 2).mean(axis=1) / variance


def step_sobol(
    program: Program, key: Array, p: float = 0.95, *, n_column: int = N_COLUMN, n_step: int = N_STEP
) -> tuple[SobolIndices, SobolIndices]:
    """Estimates the indices of the step time, and of whether a step takes longer than the p-quantile.

    Args:
        program: lowered job.
        key: typed PRNG key.
        p: probability of the quantile.
        n_column, n_step: replica columns and steps of each of eight randomisations, whose scatter is the error.

    Raises:
        DataError: replicas share out the documents of a step, so that they are not independent.
    """
    if program.work is not None and program.work.of_steps is not None:
        raise DataError(
            "data.packing = balanced: replicas of a step depend on each other. Attribute the job with packing = packed"
        )
    names = sources(program)
    if not names:
        nothing = SobolIndices({}, {}, {}, {}, 0.0, 0.0, 0.0)
        return nothing, nothing
    shared = shared_of(program, REGIME_SCORES if program.varying_regime else np.zeros(1))
    designs = _designs(program, n_column, seed_of(key))
    found = []
    for k, design in enumerate(designs):
        columns = paired_columns(program, host_key(key, k), design, shared.scores, names)
        found.append(
            _steps(columns, names, program.n_replica, shared, n_step, np.random.default_rng([seed_of(key), k]))
        )
    f_a, f_b, f_ab = (np.stack(part) for part in zip(*found, strict=True))  # [randomisation, (source,) step]
    slow_s = float(np.quantile([f_a, f_b], p))
    return (
        indices(names, f_a, f_b, f_ab),
        indices(names, *(np.asarray(part > slow_s, float) for part in (f_a, f_b, f_ab))),
    )


def indices(names: Sequence[str], f_a: Floats, f_b: Floats, f_ab: Floats) -> SobolIndices:
    """Puts the indices of all randomisations together, with the errors that their scatter shows.

    Args:
        names: of the sources.
        f_a, f_b: [randomisation, sample], as those of `first_and_total`.
        f_ab: [randomisation, source, sample].
    """
    each = [first_and_total(*own) for own in zip(f_a, f_b, f_ab, strict=True)]
    first, total = first_and_total(f_a.ravel(), f_b.ravel(), f_ab.transpose(1, 0, 2).reshape(len(names), -1))
    firsts, totals = (np.stack(part) for part in zip(*each, strict=True))

    order = [int(k) for k in np.argsort(-total, kind="stable")]

    def by_name(values: Floats) -> Mapping[str, float]:
        return {names[k]: float(values[k]) for k in order}

    return SobolIndices(
        first=by_name(first),
        first_error=by_name(student_error(firsts)),
        total=by_name(total),
        total_error=by_name(student_error(totals)),
        remainder=1.0 - float(first.sum()),
        remainder_error=float(student_error(firsts.sum(axis=1))),
        sd=float(np.std([f_a, f_b])),
    )


def sources(program: Program) -> list[str]:
    """Names of what varies independently in a job's step."""
    tree, work, graph = program.job.variability, program.work, program.graph
    exchange = program.end_call.cv > 0 and bool(graph.end_comm_s.any())
    has = {
        GPUS: any(tree.of(name).gpu.cv > 0 for name in program.classes),
        NODES: any(tree.of(name).node.cv > 0 for name in program.classes),
        CALLS: program.compute_residual is not None,
        COMM_CALLS: program.comm_residual is not None or exchange,
        LINKS: program.varying_links,
        REGIME: program.varying_regime,
        STEP: tree.step.cv > 0,
        STALLS: any(stall.mean_fraction > 0 and stall.prob(program.job.plan.n_devices) > 0 for stall in tree.stalls),
    }
    return [*(name for name, varies in has.items() if varies), *([] if work is None else work.names)]


@dataclass(frozen=True)
class PairedColumns:
    """Columns of one randomisation, each drawn twice.

    Attributes:
        time_s: draw -> times [score, column]: of "a", of "b", and of "a" with one source of "b", by the name of the source.
        weight: [column] importance weights of both draws together.
    """

    time_s: Mapping[str, Floats]
    weight: Floats


Pair = tuple[Floats, Floats]


def _designs(program: Program, n_column: int, seed: int) -> list[tuple[Pair | None, Floats]]:
    """Peak scores [2, lane, column] of both draws, and their weights [column], of every randomisation.

    In half of the columns the first draw is importance sampled and the second plain, in the others the second.
    """
    if not program.has_persistent:
        return [(None, np.ones(n_column))] * N_RANDOMISATION
    designs, half = [persistent_proposal(program, n_column // 2, 2 * seed + k) for k in range(2)], n_column // 2
    rng, found = np.random.default_rng(seed), []
    for k in range(N_RANDOMISATION):
        shifted = [own.peak_score[k] for own in designs]
        plain = ndtri(np.stack([_plain(shifted[0].shape, rng) for _ in range(2)]))
        a, b = np.concatenate([shifted[0], plain[0]], axis=-1), np.concatenate([plain[1], shifted[1]], axis=-1)
        weight = 1.0 / sum(0.5 / designs[0].weight_of(own) for own in (a, b))
        found.append(((a, b), weight))
    assert half * 2 == n_column
    return found


def _plain(shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    return latin_hypercube(int(np.prod(shape[:-1])), shape[-1], rng).reshape(shape)


def paired_columns(
    program: Program, words: Words, design: tuple[Pair | None, Floats], scores: Floats, names: Sequence[str]
) -> PairedColumns:
    """Runs columns of one randomisation with both draws and with single sources exchanged.

    Args:
        program: lowered job.
        words: key of the randomisation.
        design: peak scores of both draws, and weights.
        scores: network scores that columns carry.
        names: of the sources.
    """
    inputs, (peak, weight) = column_inputs(program, regime_factors(program, scores)), design
    width = min(CHUNK_COLUMNS, len(weight))
    chunks = []
    for k, first in enumerate(range(0, len(weight), width)):
        some = None if peak is None else tuple(on_host(own[..., first : first + width]) for own in peak)
        chunks.append(_run(program, inputs, fold_in(words, k), some, width, names))
    return PairedColumns({name: np.concatenate([own[name] for own in chunks], axis=-1) for name in chunks[0]}, weight)


def _run(
    program: Program,
    inputs: ColumnInputs,
    words: Words,
    peak: Sequence[Floats] | None,
    width: int,
    names: Sequence[str],
) -> Mapping[str, Floats]:
    """Times [score, column] of a chunk by draw."""
    keys, work = [fold_in(words, side) for side in range(2)], program.work
    chunk = [Chunk(np.zeros((), np.int32), None if peak is None else peak[side]) for side in range(2)]
    pairs = list(zip(keys, chunk, strict=True))
    scores = [persistent_scores(inputs, *own, width) for own in pairs] if inputs.gpu else None
    links = [link_factors(inputs, *own, width)[0] for own in pairs]
    lumps = None if work is None else [work.plain(width, *(int(word) for word in own)) for own in keys]

    def members(gpu: int, node: int) -> object:
        chip = (
            np.ones((0, inputs.n_member, inputs.n_lane, width), inputs.graph.compute_s.dtype)
            if scores is None
            else factors_of(inputs, scores[gpu][0], scores[node][1])
        )
        return members_of(inputs, chip)

    def times(plain: int, changed: str = "") -> Floats:
        def side(name: str) -> int:
            return 1 - plain if name == changed else plain

        excess = None
        if work is not None and lumps is not None:
            excess = lumps[plain].copy()
            for one in work.sources:
                excess[one.row] = lumps[side(one.name)][one.row]
        drawn = DrawnColumns(
            members(side(GPUS), side(NODES)),  # pyright: ignore
            links[side(LINKS)],
            None,
            named(keys[side(CALLS)], "call"),
            excess,
            named(keys[side(COMM_CALLS)], "comm"),
        )
        return times_of_drawn(inputs, drawn)

    changing = [name for name in names if name not in (REGIME, STEP, STALLS)]
    return {"a": times(0), "b": times(1)} | {name: times(0, name) for name in changing}


def _steps(
    columns: PairedColumns,
    names: Sequence[str],
    n_replica: int,
    shared: Shared,
    n_step: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats]:
    """Step times of A, of B [step], and of A with one source of B [source, step]."""
    whole = [_WholeSteps.drawn(shared, n_step, rng) for _ in range(2)]
    picked = _slowest_candidates(columns, n_replica, n_step, rng)

    def of(draw: str, step: _WholeSteps) -> Floats:
        core_s = _slowest(columns.time_s[draw], *picked, shared, step.factor)
        return step.times(core_s, shared)

    def mixed(name: str) -> Floats:
        own = whole[0].with_source(name, whole[1])
        return of(name if name in columns.time_s else "a", own)

    return of("a", whole[0]), of("b", whole[1]), np.stack([mixed(name) for name in names])


@dataclass(frozen=True)
class _WholeSteps:
    """Draws of what all replicas of a step share, each a uniform [step].

    Attributes:
        u: source -> uniforms [number, step].
        factor: mean regime factor of the network [step].
    """

    u: Mapping[str, Floats]
    factor: Floats

    @classmethod
    def drawn(cls, shared: Shared, n: int, rng: np.random.Generator) -> _WholeSteps:
        """Draws Latin hypercubes."""
        sizes = {REGIME: 1, COMM_CALLS: 1, STEP: 1, ROUTING: 1, STALLS: len(shared.stalls)}
        u = latin_hypercube(sum(sizes.values()), n, rng)
        ends = np.cumsum(list(sizes.values()))[:-1]
        return cls._of(dict(zip(sizes, np.split(u, ends), strict=True)), shared)

    @classmethod
    def _of(cls, u: Mapping[str, Floats], shared: Shared) -> _WholeSteps:
        n = u[REGIME].shape[1]
        return cls(u, shared.factor(ndtri(u[REGIME][0])) if len(shared.scores) > 1 else np.ones(n))

    def with_source(self, name: str, other: _WholeSteps) -> _WholeSteps:
        """Exchanges one source for that of another draw."""
        if name not in self.u:
            return self
        return _WholeSteps({**self.u, name: other.u[name]}, other.factor if name == REGIME else self.factor)

    def times(self, core_s: Floats, shared: Shared) -> Floats:
        """Step times from the slowest replicas."""
        time_s = core_s
        if shared.end_call.cv > 0:
            end_s = np.interp(self.factor, shared.carried, np.asarray(shared.end_s))
            time_s = time_s + end_s * (NormalScoreMap.from_family(shared.end_call)(ndtri(self.u[COMM_CALLS][0])) - 1.0)
        if shared.step.cv > 0:
            time_s = time_s * NormalScoreMap.from_family(shared.step)(ndtri(self.u[STEP][0]))
        if shared.popularity is not None:
            time_s = time_s * shared.popularity.score_map(ndtri(self.u[ROUTING][0]))
        for stall, u in zip(shared.stalls, self.u[STALLS], strict=True):
            prob = stall.prob(shared.n_devices)
            extra = -np.log(np.minimum(u / prob, 1.0)) if prob > 0.0 else 0.0  # the stall happens where u < prob
            time_s = time_s * (1.0 + stall.mean_fraction * extra)
        return time_s


def _slowest_candidates(
    columns: PairedColumns, n_replica: int, n_step: int, rng: np.random.Generator
) -> tuple[Positions, NDArray[np.bool_]]:
    """Columns of steps that may be their slowest [step, candidate], and which of them there are.

    A step has `n_replica` columns, drawn by weight. Only those are drawn that may be the slowest of any draw at any score.
    """
    mass = columns.weight / columns.weight.sum()
    wanted, kept = min(1.0, LEFT_OUT / n_replica), np.zeros(len(mass), bool)
    for time_s in (row for own in columns.time_s.values() for row in own):
        order = np.argsort(-time_s, kind="stable")
        kept[order[: int(np.searchsorted(np.cumsum(mass[order]), wanted)) + 1]] = True
    candidates = np.flatnonzero(kept)
    share = min(1.0, float(mass[candidates].sum()))
    n_each = np.maximum(rng.binomial(n_replica, share, n_step), 1)
    present = np.arange(n_each.max()) < n_each[:, None]
    below = np.cumsum(mass[candidates])
    at = np.searchsorted(below / below[-1], rng.permutation(stratified(int(n_each.sum()), rng)))
    drawn = np.zeros(present.shape, np.intp)
    drawn[present] = candidates[np.minimum(at, len(candidates) - 1)]
    return drawn, present


def _slowest(time_s: Floats, drawn: Positions, present: NDArray[np.bool_], shared: Shared, factor: Floats) -> Floats:
    """Slowest of the columns of every step [step] at its mean regime factor."""
    low, fraction = interpolation(factor, shared.carried)
    high, found = np.minimum(low + 1, len(time_s) - 1), np.empty(len(factor))
    for first in range(0, len(factor), ROWS):
        some = slice(first, first + ROWS)
        start_s = time_s[low[some, None], drawn[some]]
        if len(time_s) > 1:
            start_s = start_s + fraction[some, None] * (time_s[high[some, None], drawn[some]] - start_s)
        found[some] = np.where(present[some], start_s, -np.inf).max(axis=1)
    return found

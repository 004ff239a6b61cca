"""Splits layers over model chunks, their sum fixed: relaxed by pathwise gradients, rounded, polished by moves of one layer.

Seconds are linear in a chunk's layers to a fraction of a percent, and the slope comes from the same job with one layer more per
chunk. Whole splits are evaluated with the cost model's own seconds, and only those whose memory fits. Assignment, micro-batches
and layers are chosen in turn, from several starts, each given the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ..core.arrays import Floats
from ..core.processes import Progress
from ..cost.partition import Splits, chunks_of_stage
from ..result.objective import PlanObjective
from .draws import Draws
from .evaluator import Assignments, PlacementProblem, Stored, Tables, columns, finished, step_times, stored
from .optimisers import anneal, descend, few_samples
from .splits import SplitSpace, exact_problem, layers_fit, rounded, split_micro_batches, split_space, with_layers

N_STEP, RATE = 15, 0.1  # layers per step of Adam, at most
N_DONOR, N_RECEIVER = 3, 4
MAX_MOVES = 12
MOST_REPLICAS = 8  # slowest ones, which alone decide the step and its gradient


class Slopes(eqx.Module):
    """Growth of the seconds of a step with the layers of its chunks.

    Attributes:
        share: [lane, kind, chunk] whose layers an op runs.
        lane_share: [lane, chunk] whose parameters a lane holds.
        busy_s, comm_s, end_s, end_comm_s: seconds per layer, as in `StepTables`.
    """

    share: Float[Array, "lane kind chunk"]
    lane_share: Float[Array, "lane chunk"]
    busy_s: Float[Array, "lane kind"]
    comm_s: Float[Array, "lane kind axis"]
    end_s: Float[Array, " lane"]
    end_comm_s: Float[Array, " lane"]


def split_layers(
    space: SplitSpace, splits: Splits, kept: Stored, assignment: Assignments, objective: PlanObjective
) -> Splits:
    """The best layer split that was found for an assignment and its micro-batches."""
    if not space.movable:
        return splits
    tables, seats = space.tables(splits), jnp.asarray(assignment, jnp.int32)
    slopes = _slopes(space, splits)
    moved = descend(
        lambda x, _: _gradient(tables, slopes, x, kept, seats, objective), jnp.zeros(len(splits.layers)), N_STEP, RATE
    )
    relaxed = rounded(np.asarray(splits.layers) + np.asarray(moved), max(splits.layers) * 2 + 2)
    starts = {splits.layers, tuple(int(n) for n in relaxed)}
    fitting = [Splits(layers, splits.micro_batches) for layers in sorted(starts) if _allowed(space, splits, layers)]
    reached = {start: _value(space, start, kept, seats, objective) for start in fitting or [splits]}
    best = min(reached, key=lambda start: reached[start])
    return _polished(space, best, reached[best], slopes, kept, seats, objective)


def _polished(
    space: SplitSpace,
    splits: Splits,
    best_s: float,
    slopes: Slopes,
    kept: Stored,
    seats: Array,
    objective: PlanObjective,
) -> Splits:
    """Moves of one layer from where it hurts most to where it hurts least, by the gradient, while they help."""
    nowhere = jnp.zeros(len(splits.layers))
    for _ in range(MAX_MOVES):
        gradient = np.asarray(_gradient(space.tables(splits), slopes, nowhere, kept, seats, objective), np.float64)
        moves = [layers for layers in _moves(splits.layers, gradient) if _allowed(space, splits, layers)]
        found = {layers: _value(space, replace(splits, layers=layers), kept, seats, objective) for layers in moves}
        if not found or min(found.values()) >= best_s:
            return splits
        layers = min(found, key=lambda one: found[one])
        splits, best_s = replace(splits, layers=layers), found[layers]
    return splits


def _moves(layers: tuple[int, ...], gradient: Floats) -> Iterator[tuple[int, ...]]:
    order = np.argsort(gradient)
    for donor in [q for q in order[::-1] if layers[q] > 0][:N_DONOR]:
        for receiver in order[:N_RECEIVER]:
            if donor != receiver:
                moved = list(layers)
                moved[donor] -= 1
                moved[receiver] += 1
                yield tuple(moved)


def _allowed(space: SplitSpace, splits: Splits, layers: tuple[int, ...]) -> bool:
    """Tests a split: not fewer layers on a chunk than one, or than the job's own split has somewhere, and memory fits."""
    return min(layers) >= min(1, *space.even.layers) and layers_fit(
        space.problem.job, layers, max(splits.micro_batches)
    )


def _value(space: SplitSpace, splits: Splits, kept: Stored, seats: Array, objective: PlanObjective) -> float:
    times_s = step_times(space.tables(splits), kept, np.asarray(seats)[None])
    return float(objective.of(times_s)[0])


def _slopes(space: SplitSpace, splits: Splits) -> Slopes:
    """Slopes from the job with one layer more in every chunk."""
    job, n_chunk = space.problem.job, len(splits.layers)
    own = space.seconds(with_layers(job, splits.layers))
    deeper = replace(job, model=job.model.deeper(n_chunk))
    more = space.seconds(with_layers(deeper, tuple(n + 1 for n in splits.layers)))
    signatures = space.problem.kinds.signatures
    share = np.zeros((*own.compute_s.shape[:2], n_chunk))
    for lane, kinds in enumerate(signatures):
        for kind, signature in enumerate(kinds, start=1):
            held = sorted({chunk for _, chunk in signature})
            share[lane, kind, held] = 1.0 / len(held)
    lane_share = np.zeros((len(signatures), n_chunk))
    for lane in range(len(signatures)):
        held = list(chunks_of_stage(job.plan, lane))
        lane_share[lane, held] = 1.0 / len(held)
    slopes = [b - a for a, b in zip(own, more, strict=True)]
    slopes[0] = slopes[0].sum(axis=-1)
    return Slopes(*(jnp.asarray(x, float) for x in (share, lane_share, *slopes)))


@eqx.filter_jit
def _gradient(
    tables: Tables,
    slopes: Slopes,
    more: Float[Array, " chunk"],
    kept: Stored,
    seats: Array,
    objective: PlanObjective,
) -> Float[Array, " chunk"]:
    """Gradient of the smoothed objective with `more` layers per chunk, the sum held; its largest entry is one."""
    base_s = columns(tables, kept, seats).mean(axis=-1)
    slowest = lax.top_k(base_s, min(MOST_REPLICAS, base_s.shape[0]))[1].astype(jnp.int32)

    def log_value(more: Array) -> Array:
        own, lane = slopes.share @ more, slopes.lane_share @ more
        step = tables.step
        changed = (
            step.busy_s + own * slopes.busy_s,
            step.comm_s + own[:, :, None] * slopes.comm_s,
            step.end_s + lane * slopes.end_s,
            step.end_comm_s + lane * slopes.end_comm_s,
        )
        new = eqx.tree_at(lambda t: (t.step.busy_s, t.step.comm_s, t.step.end_s, t.step.end_comm_s), tables, changed)
        return jnp.log(objective.smoothed(finished(columns(new, kept, seats, slowest), kept.shared)))

    gradient = jax.grad(log_value)(more)
    gradient = gradient - gradient.mean()
    return gradient / jnp.maximum(jnp.abs(gradient).max(), 1e-20)


N_ROUND = 2
LONGER = 2  # times the proposals of the other chains, for the one from the best


@dataclass(frozen=True)
class SplitChoice:
    """An assignment with splits of its own.

    Attributes:
        problem: the job with these splits, lowered exactly.
        assignment: [seat].
        splits: layers per chunk and micro-batches per replica.
    """

    problem: PlacementProblem
    assignment: Assignments
    splits: Splits


def with_splits(
    problem: PlacementProblem,
    starts: list[Assignments],
    objective: PlanObjective,
    key: Array,
    n_step: int,
    n_kept: int,
    progress: Progress,
) -> list[SplitChoice]:
    """Anneals from every start, and on from the best of them; the choice is left to other draws."""
    space = split_space(problem)
    kept = stored(space.problem, Draws(jax.random.fold_in(key, 1), n_kept))
    few = few_samples(kept)
    found: list[tuple[float, Assignments, Splits]] = []
    for index, start in enumerate(starts):
        assignment, splits = start, space.even
        for turn in range(N_ROUND):
            done = (N_ROUND * index + turn) / (N_ROUND * len(starts) + LONGER)
            progress(done, f"splits, start {index + 1} of {len(starts)}, round {turn + 1} of {N_ROUND}")
            splits = split_micro_batches(space, splits, space.tables(splits), kept, assignment, objective)
            splits = split_layers(space, splits, few, assignment, objective)
            own_key = jax.random.fold_in(jax.random.fold_in(key, 2 + index), turn)
            chain = anneal(
                space.tables(splits), kept, assignment, key=own_key, objective=objective, n_step=n_step, hot=1e-4
            )
            assignment = chain.assignment
        found.append((chain.value_s, assignment, splits))
    progress(N_ROUND * len(starts) / (N_ROUND * len(starts) + LONGER), "splits, annealing on from the best")
    _, assignment, splits = min(found, key=lambda one: one[0])
    own_key = jax.random.fold_in(key, 0)
    longer = anneal(
        space.tables(splits), kept, assignment, key=own_key, objective=objective, n_step=LONGER * n_step, hot=1e-4
    )
    assignment = longer.assignment
    ends = [(assignment, splits)]
    ends.append((assignment, split_micro_batches(space, splits, space.tables(splits), kept, assignment, objective)))
    ends += [(a, s) for _, a, s in found]
    distinct = {(tuple(a.tolist()), s): SplitChoice(exact_problem(problem, s), a, s) for a, s in ends}
    return list(distinct.values())

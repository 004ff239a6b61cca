"""Searches the best assignment: sharders, local search, cuts by columns, then under look-ups that vary; what each reaches.

Candidates come from the noise-free step and from stored draws of the look-ups, the choice from other draws, figures from fresh
ones: paired, in batches, so that a gain's error is that of a difference.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..result.objective import OBJECTIVES, PlanObjective
from ..result.spread import Gain, mean_and_error, paired_gain
from .assignment import NO_ROOM, Assignment, loads, steps, values
from .bounds import linear_bound, lower_bound
from .local_search import cut_further, descend, first_cuts
from .problem import Cut, ShardingProblem
from .sharders import SHARDERS
from .task import ShardingTask, lookup_factors

OPTIMISED, OWN = "optimised", "own"  # the chosen assignment, the job's own


@dataclass(frozen=True)
class RankLoad:
    """Tables of one rank, and its seconds and bytes in a noise-free step.

    Attributes:
        tables: that it holds, parts as `t3[0/2]`; those that all ranks hold are not among them.
        forward_s, backward_s: seconds of its tables before the forward exchange, and after the backward one, those that all
            ranks hold included.
        sent_bytes: what it sends to every other rank in an exchange.
        held_bytes: memory of its tables.
    """

    tables: tuple[str, ...]
    forward_s: float
    backward_s: float
    sent_bytes: float
    held_bytes: float


@dataclass(frozen=True)
class ShardingResult:
    """Result of a search for the places of tables.

    Attributes:
        problem: tables and ranks.
        objective: what was minimised.
        assignments: method -> assignment; those that fit into memory.
        batches_s: method -> [batch, step] steps on draws that chose nothing; paired between methods.
        bound: what no assignment is below: noise-free step, and objective; memory aside.
        ranks: [rank] of the chosen assignment.
        misfits: methods whose assignment does not fit into memory.
        elapsed_s: of the search.
    """

    problem: ShardingProblem
    objective: PlanObjective
    assignments: dict[str, Assignment]
    batches_s: dict[str, Float[np.ndarray, "batch step"]]
    bound: tuple[float, float]
    ranks: tuple[RankLoad, ...]
    misfits: tuple[str, ...] = field(default=())
    elapsed_s: float = 0.0

    @property
    def best(self) -> Assignment:
        """The chosen assignment."""
        return self.assignments[OPTIMISED]

    @property
    def baseline(self) -> str:
        """Baseline of the gain: the job's own assignment, else the best sharder."""
        others = [name for name in self.batches_s if name != OPTIMISED]
        return OWN if OWN in others else min(others, key=lambda name: self.value(name)[0], default=OPTIMISED)

    @property
    def best_sharder(self) -> str:
        """The best of the sharders."""
        others = [name for name in self.batches_s if name not in (OPTIMISED, OWN)]
        return min(others, key=lambda name: self.value(name)[0], default=OPTIMISED)

    def value(self, method: str = OPTIMISED, objective: str | None = None) -> tuple[float, float]:
        """Objective of a method and its Monte Carlo error, in its unit; by default the one minimised."""
        own = self.objective if objective is None else PlanObjective(OBJECTIVES.named(objective), self.objective.facts)
        return mean_and_error(np.asarray(own.of(self.batches_s[method])))

    def gain_over(self, method: str) -> Gain:
        """Gain of the choice over `method`, from paired steps."""
        of = self.objective.of
        return paired_gain(np.asarray(of(self.batches_s[method])), np.asarray(of(self.batches_s[OPTIMISED])))


N_RANDOM = 8  # random assignments beside those of sharders
N_START = 8  # of them all from which the local search starts
N_STORED = 128  # steps that candidates are improved on
N_CHOICE = 1024  # that choose between them
N_BATCH, N_FRESH = 8, 512  # batches of steps that are reported, and steps of each
MOST_REFINED = 30  # rounds of local search under varying look-ups


def shard(
    problem: ShardingProblem,
    objective: PlanObjective,
    *,
    seed: int,
    own: Assignment | None = None,
    progress: Progress = silent,
) -> ShardingResult:
    """Searches the assignment with the least objective.

    Args:
        problem: tables, ranks and what they cost.
        objective: quantity of the step to minimise.
        seed: of everything that is random.
        own: the job's own assignment, which the result is compared with.

    Raises:
        DataError: the tables fit nowhere, or no assignment that fits was found.
    """
    started = time.perf_counter()
    rng = np.random.default_rng([seed, 21])
    cuts = first_cuts(problem)
    plain = problem.task(cuts)
    progress(0.05, "sharders")
    methods = _baselines(plain, cuts, rng)
    if own is not None:
        methods[OWN] = own
    progress(0.15, "local search")
    found = _searched(problem, plain, methods, rng)
    if float(_mean(problem, found[0])) >= NO_ROOM:
        raise DataError(_no_room(problem))
    if problem.varies:
        progress(0.5, "look-ups that vary")
        found = _refined(problem, found, objective, seed, rng)
    progress(0.8, "fresh draws")
    candidates = {f"candidate {i}": one for i, one in enumerate(found)} | methods
    fitting = {name: one for name, one in candidates.items() if float(_mean(problem, one)) < NO_ROOM}
    best = _chosen(problem, {name: one for name, one in fitting.items() if _allows(problem, one)}, objective, seed)
    shown = {OPTIMISED: best} | {name: one for name, one in methods.items() if name in fitting}
    batches = _fresh(problem, shown, seed)
    bound = _bound(problem, shown, objective, seed)
    return ShardingResult(
        problem,
        objective,
        shown,
        batches,
        bound,
        rank_loads(problem, best),
        tuple(name for name in methods if name not in fitting),
        time.perf_counter() - started,
    )


def nominal(samples_s: Floats) -> Floats:
    """The noise-free step as an objective: a step that always takes the same."""
    return samples_s.mean(axis=-1)


def _baselines(task: ShardingTask, cuts: tuple[Cut, ...], rng: np.random.Generator) -> dict[str, Assignment]:
    """Assignment by every sharder."""
    own = {name: SHARDERS.named(name).assign(task, rng) for name in SHARDERS.names}
    return {name: Assignment(cuts, tuple(int(code) for code in codes)) for name, codes in own.items()}


def _mean(problem: ShardingProblem, one: Assignment) -> float:
    return float(values(problem.task(one.cuts), one.columns, nominal)[0])


def _searched(
    problem: ShardingProblem, plain: ShardingTask, methods: Mapping[str, Assignment], rng: np.random.Generator
) -> list[Assignment]:
    """Best noise-free assignments, best first: of the tables as they are cut, and what finer cuts make of them."""
    cuts = methods[SHARDERS.names[0]].cuts
    columns = [one.columns[:, 0] for one in methods.values() if one.cuts == cuts]
    columns += [rng.integers(plain.n_ranks, size=len(plain.pieces)) for _ in range(N_RANDOM)]
    starts = np.unique(np.stack(columns, axis=1), axis=1)
    starts = starts[:, np.argsort(values(plain, starts, nominal), kind="stable")[:N_START]]
    ends = np.unique(np.stack([start.codes for start in descend(plain, starts, nominal, rng)], axis=1), axis=1)
    order = np.argsort(values(plain, ends, nominal), kind="stable")[:3]
    found = [Assignment(cuts, tuple(ends[:, i].tolist())) for i in order]
    own = methods.get(OWN)
    if own is not None and own.cuts != cuts and _allows(problem, own):
        found.append(_from(problem, own, rng))
    found.sort(key=lambda one: _mean(problem, one))
    further = cut_further(problem, found[0], nominal, rng)
    return [*dict.fromkeys([further, *found])]


def _from(problem: ShardingProblem, own: Assignment, rng: np.random.Generator) -> Assignment:
    """The job's own assignment, improved with its own cuts."""
    end = descend(problem.task(own.cuts), own.columns, nominal, rng)[0]
    return Assignment(own.cuts, tuple(end.codes.tolist()))


def _refined(
    problem: ShardingProblem,
    found: list[Assignment],
    objective: PlanObjective,
    seed: int,
    rng: np.random.Generator,
) -> list[Assignment]:
    """The two best and what a local search under stored draws makes of them."""
    more = []
    for one in found[:2]:
        task = _drawn(problem, one.cuts, N_STORED, seed, "search")
        end = descend(task, one.columns, objective.of, rng, MOST_REFINED, widen=False)[0]
        more.append(Assignment(one.cuts, tuple(end.codes.tolist())))
    return [*dict.fromkeys([*more, *found])]


def _drawn(problem: ShardingProblem, cuts: tuple[Cut, ...], n_sample: int, seed: int, purpose: str) -> ShardingTask:
    """The task under draws for that purpose; noise-free with one sample if look-ups do not vary."""
    if not problem.varies:
        return problem.task(cuts)
    names = [table.name for table in problem.tables]
    return problem.task(cuts, lookup_factors(names, problem.spread, n_sample, seed, purpose))


def _chosen(
    problem: ShardingProblem, candidates: Mapping[str, Assignment], objective: PlanObjective, seed: int
) -> Assignment:
    """The best on draws that made none of them."""

    def reached(one: Assignment) -> float:
        return float(values(_drawn(problem, one.cuts, N_CHOICE, seed, "choice"), one.columns, objective.of)[0])

    return min(candidates.values(), key=reached)


def _fresh(
    problem: ShardingProblem, methods: Mapping[str, Assignment], seed: int
) -> dict[str, Float[np.ndarray, "batch step"]]:
    """Steps of every method on draws that chose nothing."""
    found: dict[str, list[Floats]] = {name: [] for name in methods}
    for batch in range(N_BATCH):
        for name, one in methods.items():
            task = _drawn(problem, one.cuts, N_FRESH, seed, f"fresh {batch}")
            found[name].append(steps(task, one.columns)[0])
    return {name: np.stack(own) for name, own in found.items()}


def _bound(
    problem: ShardingProblem, methods: Mapping[str, Assignment], objective: PlanObjective, seed: int
) -> tuple[float, float]:
    """Lower bounds of all assignments: of the noise-free step, and of the objective on the first of the fresh draws."""
    cuts = list(dict.fromkeys([*problem.even_cuts(), *(one.cuts for one in methods.values())]))
    plain = [problem.task(own) for own in cuts]
    free = max(float(lower_bound(plain)[0]), linear_bound(plain))
    drawn = lower_bound([_drawn(problem, own, N_FRESH, seed, "fresh 0") for own in cuts])
    return free, float(objective.of(drawn))


def rank_loads(problem: ShardingProblem, best: Assignment) -> tuple[RankLoad, ...]:
    """Tables, noise-free seconds and bytes of every rank."""
    task = problem.task(best.cuts)
    found, names, codes = loads(task, best.columns), task.pieces.names, np.array(best.codes)
    numbers = np.column_stack((found.seconds_s[0, ..., 0], found.sent_bytes[0], found.held_bytes[0]))
    return tuple(
        RankLoad(tuple(names[i] for i in np.flatnonzero(codes == rank)), *own)
        for rank, own in enumerate(numbers.tolist())
    )


def _allows(problem: ShardingProblem, one: Assignment) -> bool:
    """Whether it is one of those that may be chosen: the job's own may split tables where the choice may not."""
    return problem.split or (one.cuts == problem.uncut and max(one.codes) < problem.n_ranks)


def _no_room(problem: ShardingProblem) -> str:
    return (
        f"tables: no assignment to {problem.n_ranks} GPUs was found in which every GPU has room: "
        f"{problem.capacity_bytes / 1e9:.4g} GB each are left for tables. Use more GPUs, fewer rows, or let tables be split."
    )

"""place: which node sits where. Candidates from every method, the choice on draws that found none of them, the report on others.

kept draws      random, sorted, annealed, relaxed        each method's best on these is optimistic
validation      the choice among all of them             so is the best of these, a little
fresh draws     what is reported, paired                 nothing is chosen here
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

import jax
import numpy as np
from jax import Array
from jaxtyping import Float

from ..core.arrays import Floats
from ..core.processes import Progress, part_of, silent
from ..core.use_case import use_case
from ..cost.partition import Splits
from ..job.job import Job
from ..result.distribution import html_table
from ..result.objective import OBJECTIVES, PlanObjective, plan_objective
from ..result.spread import Gain as Gain, mean_and_error, paired_gain
from .draws import Draws
from .evaluator import Assignments, PlacementProblem, Stored, problem_of, score, step_times, stored
from .fleet import MeasuredFleet, check_counts, fleet_of, slots_of
from .layer_splits import SplitChoice, with_splits
from .optimisers import (
    MAX_EXHAUSTIVE,
    N_STEP,
    all_assignments,
    anneal,
    as_given,
    busy_seconds,
    random_assignments,
    relaxed,
    sorted_assignments,
)
from .report import AS_GIVEN, OPTIMISED, PlacementGoal

N_RANDOM = 1000
N_MEDIAN = 15  # random assignments around the median that stand for it on fresh draws
N_BEST = 8  # of the random ones, screened on few draws, that are looked at again
N_KEPT, N_VALIDATION = 64, 512  # simulated steps
SCREEN_COLUMNS = 1024  # replicas times steps that random assignments are screened on
LONGER = 3  # times the proposals of the other chains, for the one from the best candidate
STEPS_PER_NODE = 4  # of an annealing chain, at least
MOST_RELAXED = 512  # nodes; a matrix of more is too large to be worth it
TOO_MANY = f"more than {MOST_RELAXED} nodes: the relaxation was left out"
N_BATCH, N_FRESH = 8, 1024
SEARCHED, SEARCHED_WITH_SPLITS = 0.9, 0.4  # share of the work that is done when candidates are found


EVEN_SPLITS, SPLITS = "even_splits", "splits"
REPORTED = ("p50", "p95", "p99", "cvar95")  # objectives that are reported whatever was minimised
BASELINES = (AS_GIVEN, "random_best_of_1000", "sorted", "annealed")


@dataclass(frozen=True)
class PlacementResult:
    """A placement of measured nodes.

    Attributes:
        assignment: node of every slot; a slot is `node_size` consecutive devices in the plan's axis order.
        left_out: nodes without a slot.
        objective: what was minimised.
        batches_s: method -> [batch, step] steps under its assignment, on draws that chose nothing; paired between methods.
        random_s: name of an objective -> its median over random assignments and the error, on the same draws.
        method: the method whose assignment was chosen.
        slowness: [node] factor of a node's slowest GPU.
        seat: [slot, 2] lowest lane and replica of every slot.
        last_seat: [slot, 2] highest lane and replica of every slot.
        assignments: method -> [seat], the nodes left out last.
        hosts: [node] names; empty where nodes are numbered.
        splits: layer split and micro-batches per replica, where they were free.
        notes: what the user should know.
    """

    assignment: tuple[int, ...]
    left_out: tuple[int, ...]
    objective: PlanObjective
    batches_s: dict[str, Float[np.ndarray, "batch step"]]
    random_s: dict[str, tuple[float, float]]
    method: str
    slowness: Float[np.ndarray, " node"]
    seat: np.ndarray
    last_seat: np.ndarray
    assignments: dict[str, tuple[int, ...]]
    hosts: tuple[str, ...] = ()
    splits: Splits | None = None
    notes: tuple[str, ...] = field(default=())

    def value(self, method: str = OPTIMISED, objective: str | None = None) -> tuple[float, float]:
        """Objective of a method and its Monte Carlo error, in the unit of the objective; by default the one minimised."""
        return mean_and_error(asked(self.objective, objective).of(self.batches_s[method]))

    def host(self, node: int) -> str:
        """Name of a node; its number where the table has no names."""
        return self.hosts[node] if self.hosts else str(node)

    @property
    def p95_s(self) -> dict[str, tuple[float, float]]:
        """p95 of every method and its Monte Carlo error, seconds."""
        return {method: self.value(method, "p95") for method in self.batches_s}

    @property
    def best_baseline(self) -> str:
        """The best of the methods that choose no splits and relax nothing."""
        return min((m for m in BASELINES if m in self.batches_s), key=lambda m: self.value(m)[0])

    def gain_over(self, method: str, chosen: str = OPTIMISED) -> Gain:
        """Gain of the choice over `method`, from paired steps."""
        return paired_gain(self.objective.of(self.batches_s[method]), self.objective.of(self.batches_s[chosen]))

    @property
    def gain(self) -> Gain:
        """Gain of the choice over the nodes as they were given."""
        return self.gain_over(AS_GIVEN)

    def _repr_html_(self) -> str:
        """A small table for notebooks: what every method reached."""
        best = self.value()[0]
        rows = []
        for method in self.batches_s:
            value, error = self.value(method)
            rows.append((method, f"{value:.5g} ± {error:.1g} {self.objective.unit}", f"{value / best - 1.0:+.2%}"))
        title = f"{len(self.assignment)} nodes placed, {len(self.left_out)} left out"
        return html_table(title, ("method", self.objective.name, "above the chosen one"), rows, self.notes)


def reported(minimised: PlanObjective) -> tuple[str, ...]:
    """Names of the objectives that a result states."""
    return (*REPORTED, *(() if minimised.name in REPORTED else (minimised.name,)))


def asked(minimised: PlanObjective, name: str | None) -> PlanObjective:
    """The objective called `name` of the same plans; the one that was minimised if there is no name."""
    if name is None or name == minimised.name:
        return minimised
    return replace(minimised, objective=OBJECTIVES.named(name))


@dataclass(frozen=True)
class Effort:
    """Effort of a search.

    Attributes:
        n_random: random assignments.
        n_step: proposals of an annealing chain.
        n_relaxed: gradient steps of the relaxation; 0 for none.
        n_fresh: simulated steps that are reported on, a multiple of 16.
        n_kept: simulated steps that are searched on, even.
        n_exhaustive: try every assignment if there are no more than these.
    """

    n_random: int = N_RANDOM
    n_step: int = N_STEP
    n_relaxed: int = 25
    n_fresh: int = N_FRESH
    n_kept: int = N_KEPT
    n_exhaustive: int = MAX_EXHAUSTIVE


@use_case()
def place(
    job: Job,
    slowdown: Mapping[str, Mapping[int, float]] | Floats | MeasuredFleet,
    *,
    key: Array,
    goal: PlacementGoal = PlacementGoal(),
    effort: Effort | None = None,
    progress: Progress = silent,
) -> PlacementResult:
    """The assignment of nodes to slots with the smallest tail of the step time.

    Args:
        job: model, cluster, plan; of its variability what differs between GPUs and nodes is replaced by `slowdown`.
        slowdown: [node] or [node, gpu] factors, or kernel class (or "all") -> GPU -> factor (`io.tables.slowdowns`).
        key: typed PRNG key; the same key gives the same answer.
        goal: objective, its price, nodes to leave out, and whether splits may change; callers may give these by keyword.
        effort: length of the search.
        progress: called with the share that is done, and what is being done.

    Raises:
        DataError: nodes and slots do not match, an unknown objective, or one that needs a price without one.
    """
    wanted = plan_objective(goal.objective, job.plan, job.model.units_per_step(job.plan), goal.price_per_gpu_hour)
    effort = Effort() if effort is None else effort
    fleet = fleet_of(slowdown, job.cluster.node_size, job.model.kernel_classes)
    check_counts(fleet, slots_of(job).n_slot, goal.spares)
    problem = problem_of(job, fleet)
    effort = replace(effort, n_step=max(effort.n_step, STEPS_PER_NODE * fleet.n_node))
    searched = SEARCHED_WITH_SPLITS if goal.splits else SEARCHED
    found = candidates(problem, wanted, key, effort, part_of(progress, 0.0, searched))
    progress(searched, "choosing")
    chosen, method = choose(problem, found, wanted, key)
    choice = None
    if goal.splits:
        choice = choose_splits(problem, found, chosen, wanted, key, effort, part_of(progress, searched, SEARCHED))
    progress(SEARCHED, "scoring on fresh draws")
    return report(problem, chosen, method, wanted, key, effort, choice)


@dataclass(frozen=True)
class Candidates:
    """Assignments by method; each method may offer several.

    Attributes:
        by_method: method -> [assignment, seat].
        median: [assignment, seat] random ones around the median.
        exact: whether every assignment was tried.
    """

    by_method: dict[str, Assignments]
    median: Assignments
    exact: bool


def candidates(
    problem: PlacementProblem, objective: PlanObjective, key: Array, effort: Effort, progress: Progress
) -> Candidates:
    """Candidates of every method, on kept draws."""
    kept = stored(problem, Draws(named(key, "kept"), effort.n_kept))
    rng = np.random.default_rng(crc32(np.asarray(jax.random.key_data(key)).tobytes()))
    progress(0.0, "random assignments")
    best, median = _random(problem, objective, key, effort.n_random, rng)
    by_sorting = sorted_assignments(problem, busy_seconds(problem))
    found = {"as_given": as_given(problem)[None], "random_best_of_1000": best, "sorted": by_sorting}
    every = all_assignments(problem, effort.n_exhaustive)
    if every is not None:
        progress(0.1, "every assignment")
        found["brute_force"] = every[np.argsort(_values(problem, kept, every, objective), kind="stable")[:N_BEST]]
    progress(0.2, "annealing")
    starts = [*by_sorting, best[0]]
    chains = [
        anneal(problem.tables, kept, start, key=named(key, f"chain {i}"), objective=objective, n_step=effort.n_step)
        for i, start in enumerate(starts)
    ]
    found["annealed"] = np.stack([chain.assignment for chain in chains])
    if effort.n_relaxed > 0 and problem.fleet.n_node <= MOST_RELAXED:
        progress(0.5, "relaxing")
        rounded = relaxed(problem, kept, by_sorting[0], objective, key=named(key, "relaxed"), n_step=effort.n_relaxed)
        polished = anneal(
            problem.tables, kept, rounded, key=named(key, "polish"), objective=objective, n_step=effort.n_step
        )
        found["relaxed"] = np.stack([rounded, polished.assignment])
    progress(0.7, "annealing on from the best")
    offered = np.concatenate(list(found.values()))
    best_so_far = offered[np.argmin(_values(problem, kept, offered, objective))]
    chain = anneal(
        problem.tables, kept, best_so_far, key=named(key, "on"), objective=objective, n_step=LONGER * effort.n_step
    )
    found["annealed_on"] = chain.assignment[None]
    return Candidates(found, median, every is not None)


def choose(
    problem: PlacementProblem, found: Candidates, objective: PlanObjective, key: Array
) -> tuple[dict[str, Assignments], str]:
    """Every method's best on validation draws, with the best of all as "optimised", and the method it came from."""
    methods = [method for method, offered in found.by_method.items() for _ in offered]
    offered = np.concatenate(list(found.by_method.values()))
    reached = objective.of(score(problem, offered, Draws(named(key, "validation"), N_VALIDATION)))
    best: dict[str, int] = {}
    for index in np.argsort(reached, kind="stable").tolist():
        best.setdefault(methods[index], index)
    winner = int(np.argmin(reached))
    chosen = {method: offered[best[method]] for method in found.by_method}
    return {**chosen, OPTIMISED: offered[winner], "random": found.median}, methods[winner]


def choose_splits(
    problem: PlacementProblem,
    found: Candidates,
    chosen: dict[str, Assignments],
    objective: PlanObjective,
    key: Array,
    effort: Effort,
    progress: Progress,
) -> SplitChoice | None:
    """The best choice with uneven splits on validation draws; None if even splits are better."""
    starts = [chosen[OPTIMISED], *found.by_method["sorted"]]
    choices = with_splits(
        problem, starts, objective, named(key, "splits"), effort.n_step, effort.n_kept, part_of(progress, 0.0, 0.9)
    )
    draws = Draws(named(key, "validation"), N_VALIDATION)
    progress(0.9, "choosing splits")
    reached = [objective.of(score(c.problem, c.assignment[None], draws))[0] for c in choices]
    even = objective.of(score(problem, chosen[OPTIMISED][None], draws))[0]
    return choices[int(np.argmin(reached))] if min(reached) < even else None


def report(
    problem: PlacementProblem,
    chosen: dict[str, Assignments],
    method: str,
    objective: PlanObjective,
    key: Array,
    effort: Effort,
    choice: SplitChoice | None = None,
) -> PlacementResult:
    """Every method on fresh draws; with a `choice`, what was best without it is "even_splits"."""
    median = chosen["random"]
    offered = {name: a for name, a in chosen.items() if name != "random"}
    steps = fresh_steps(problem, np.concatenate([np.stack(list(offered.values())), median]), key, effort.n_fresh)
    batches = dict(zip(offered, steps, strict=False))
    if choice is not None:
        batches[EVEN_SPLITS], offered[EVEN_SPLITS] = batches[OPTIMISED], offered[OPTIMISED]
        offered[OPTIMISED] = choice.assignment
        batches[OPTIMISED] = fresh_steps(choice.problem, choice.assignment[None], key, effort.n_fresh)[0]
    seats = offered[OPTIMISED]
    n_slot = problem.slots.n_slot
    return PlacementResult(
        assignment=tuple(seats[:n_slot].tolist()),
        left_out=tuple(sorted(seats[n_slot:].tolist())),
        objective=objective,
        batches_s=batches,
        random_s={name: _median_of(steps[len(chosen) - 1 :], asked(objective, name)) for name in reported(objective)},
        method=method if choice is None else SPLITS,
        slowness=problem.slowness,
        seat=np.column_stack([problem.slots.lanes, problem.slots.replicas[:, 0]]),
        last_seat=np.column_stack([problem.slots.last_lanes, problem.slots.replicas[:, -1]]),
        assignments={name: tuple(a.tolist()) for name, a in offered.items()},
        hosts=problem.fleet.hosts,
        splits=None if choice is None else choice.splits,
        notes=(TOO_MANY,) if problem.fleet.n_node > MOST_RELAXED and effort.n_relaxed else (),
    )


def fresh_steps(
    problem: PlacementProblem, assignments: Assignments, key: Array, n_fresh: int, name: str = "fresh"
) -> Floats:
    """Steps in independent batches, paired between assignments, seconds [assignment, batch, step]."""
    size = max(2, n_fresh // N_BATCH)
    steps = score(problem, assignments, Draws(named(key, name), N_BATCH * size), chunk=size)
    return steps.reshape(len(assignments), N_BATCH, -1)


def named(key: Array, name: str) -> Array:
    """A key of its own for every use."""
    return jax.random.fold_in(key, crc32(name.encode()))


def _random(
    problem: PlacementProblem, objective: PlanObjective, key: Array, n: int, rng: np.random.Generator
) -> tuple[Assignments, Assignments]:
    """The best of `n` random assignments, and those around the median, screened on few draws."""
    tried = random_assignments(problem, n, rng)
    n_screen = 2 * max(4, min(16, SCREEN_COLUMNS // (2 * problem.slots.n_replica)))
    screen = stored(problem, Draws(named(key, "screen"), n_screen))
    order = np.argsort(_values(problem, screen, tried, objective), kind="stable")
    middle = len(order) // 2
    around = order[max(0, middle - N_MEDIAN // 2) : middle + N_MEDIAN // 2 + 1]
    return tried[order[:N_BEST]], tried[around]


def _values(problem: PlacementProblem, kept: Stored, assignments: Assignments, objective: PlanObjective) -> Floats:
    return objective.of(step_times(problem.tables, kept, assignments))


def _median_of(steps: Floats, objective: PlanObjective) -> tuple[float, float]:
    """Median over assignments of the objective and its error; steps [assignment, batch, step]."""
    return mean_and_error(np.median(objective.of(steps), axis=0))

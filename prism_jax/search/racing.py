"""Races plans on their tails: many with few draws, fewer with more, the finalists on several independent sets of draws.

Which plans enter: factors have mean one and a step waits for its slowest part, so a plan's tail is above its noise-free time.
A plan's nominal value is the objective of a step that always takes the noise-free time. A pilot measures by how much values lie
above nominal ones for this job (the least ratio), and by how much scores of few draws err. A plan whose nominal value already
exceeds the last of the `top` scores found, less `CAUTION` of that ratio, cannot be among them and stays out. A few plans of each
of the `top` fastest kinds go through all rounds, so that the finalists are not all alike.

The gain of a chosen plan is scored again over the job's own plan, on draws that no search has seen. The plan that looked best is
the one whose draws were kindest (winner's curse); new draws know nothing of the choice. Both plans see the same draws, so that
the gain is known better than either time. Most of what the cost model does not know is the same for all plans, which makes their
order surer than their times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import numpy as np
from scipy.special import stdtrit

from ..calibration.band import case_of, joint_factors
from ..core.arrays import Floats
from ..core.processes import Progress, part, silent
from ..core.together import dealt, n_processes, owners
from ..graph.draws import seed_of
from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..result.objective import OBJECTIVES, PlanObjective
from ..variability.tree import Variability
from .evaluate import Evaluator, ScreeningResult, TailScorer
from .figures import GainEstimate
from .plan_table import PlanTable, Rows, distinct, of_each_kind

N_REPEAT = 16  # of the draws of a calibration: members that no run has measured are drawn anew
N_BOOTSTRAP = 4000


def model_errors(job: Job, plans: Sequence[ParallelPlan], seed: int) -> Floats:
    """Factors between measured and predicted step times of plans of `job`, [draw, plan]."""
    calibration = job.effective_calibration
    cases = [case_of(job.model, job.cluster, plan, calibration, job.framework) for plan in plans]
    return joint_factors(cases, calibration, seed, N_REPEAT)


def prob_best(values: Floats, factors: Floats, seed: int) -> Floats:
    """Share of draws in which each plan has the least value, [plan], over bootstrap samples of the sets of draws and over the
    model's errors.

    Args:
        values: [plan, set of draws] objective.
        factors: [draw, plan] as `model_errors` has them.
    """
    n_plan, n_set = values.shape
    rng = np.random.default_rng([seed, 9])
    picks = rng.integers(n_set, size=(N_BOOTSTRAP, n_set))
    means = values[:, picks].mean(axis=2) * factors[rng.integers(len(factors), size=N_BOOTSTRAP)].T
    return np.bincount(means.argmin(axis=0), minlength=n_plan) / N_BOOTSTRAP


Scores = Callable[[str, Rows, Callable[[Rows], Floats], Progress], Floats]
ROUNDS = (64, 256)  # columns per plan; 256 err as much as 1,000 plain draws
FINAL_COLUMNS = 512
N_FINAL_SEEDS = 8
N_PILOT = 48
N_PILOT_SEEDS = 4
STATISTICS = ("p50", "p95", "p99")  # of finalists, behind the objective
STAGES: dict[str, tuple[int, ...]] = {
    "pilot": (N_PILOT_SEEDS,),
    "first": (),
    "work": (),
    **{f"{columns}": () for columns in ROUNDS},
    "final": (N_FINAL_SEEDS, 1 + len(STATISTICS)),
}  # what is scored, by name -> shape of the score of one plan
CAUTION = 0.7  # share of the least ratio of tail to noise-free time that is trusted
KEEP_SD = 4.0  # standard errors of a score by which a plan may trail and stay in


FIXED_WORK, DRAW_WORK, LAYOUT_WORK, STEPS_WORK = 18.0, 30.0, 250.0, 2e5  # measured; as in `_owner_of_tails`


def tail_values(
    evaluator: Evaluator,
    numbers: Rows,
    seeds: Sequence[int],
    n_column: int,
    value: Callable[[Floats, Rows], Floats],
    shape: Sequence[int] = (),
    progress: Progress = silent,
) -> Floats:
    """Values [plan, seed, *shape] of plans by number on the draws of each seed, in which processes share.

    Args:
        n_column: as in `TailScorer.samples`.
        value: called with step times [plan, sample] of some plans and their numbers; gives [plan, *shape].
        progress: called after each seed.
    """
    every = np.divmod(np.arange(len(numbers) * len(seeds)), len(seeds))  # place and seed of each row

    def compute(rows: Rows) -> Floats:
        place, of_seed = (own[rows] for own in every)
        found = np.empty((len(rows), *shape))
        for k in np.unique(of_seed):
            at = np.flatnonzero(of_seed == k)
            some = numbers[place[at]]
            found[at] = value(TailScorer(evaluator, seeds[k]).samples(some, n_column), some)
            progress((k + 1) / len(seeds))
        return found

    found = dealt(_owner_of_tails(evaluator, numbers, len(seeds), n_column), compute, shape)
    return found.reshape(len(numbers), len(seeds), *shape)


def _owner_of_tails(evaluator: Evaluator, numbers: Rows, n_seed: int, n_column: int) -> Rows:
    """Number of the process [plan and seed] that scores each plan on each seed: rows that share draws stand together, and
    among them those that share a pipeline.

    Notes: work is counted in members that run a chunk for a column: a plan's own, `FIXED_WORK` that goes with no member, and
        `DRAW_WORK` for every member of a stage where draws are made. What goes with no column is divided by their number.
    """
    n = len(numbers) * n_seed
    if n_processes() == 1:
        return np.zeros(n, np.intp)
    own = evaluator.parts(numbers)
    parts = own._make(np.repeat(part, n_seed) for part in own)
    seed = np.tile(np.arange(n_seed), len(numbers))
    drawn, _ = distinct(parts.pp, parts.n_member, parts.n_devices, seed)
    laid_out, _ = distinct(parts.block, parts.n_micro_batch)
    work = parts.n_chunk * (FIXED_WORK + parts.n_member) + STEPS_WORK / n_column
    work[drawn] += DRAW_WORK * parts.pp[drawn] * parts.n_member[drawn]
    work[laid_out] += LAYOUT_WORK / n_column * parts.n_op[laid_out]
    order = np.lexsort([parts.n_micro_batch, parts.block, seed, parts.n_devices, parts.n_member, parts.pp])
    owner = np.empty(n, np.intp)
    owner[order] = owners(work[order])
    return owner


@dataclass(frozen=True)
class Finalists:
    """Scores of the last round.

    Attributes:
        numbers: [plan] best first.
        values_s: [plan, seed] objective, in its unit, on independent sets of draws, shared by all plans.
        quantiles_s: [plan, (p50, p95, p99)].
        n_raced: plans that were scored on their tail.
    """

    numbers: Rows
    values_s: Floats
    quantiles_s: Floats
    n_raced: int

    @property
    def value_s(self) -> Floats:
        """Value of the objective, seconds, [finalist]."""
        return self.values_s.mean(axis=1)

    @property
    def error_s(self) -> Floats:
        """Standard error of `value_s`, [plan]."""
        return self.values_s.std(axis=1, ddof=1) / np.sqrt(self.values_s.shape[1])

    @property
    def behind_s(self) -> tuple[Floats, Floats]:
        """([plan], [plan]) how far behind the first, and the standard error of that difference."""
        gap = self.values_s - self.values_s[:1]
        return gap.mean(axis=1), gap.std(axis=1, ddof=1) / np.sqrt(gap.shape[1])


def successive_halving(
    evaluator: Evaluator,
    screen: ScreeningResult,
    objective: PlanObjective,
    seed: int,
    top: int,
    scores: Scores,
    progress: Progress,
) -> Finalists:
    """Finds the `top` plans by `objective`; fills in noise-free times of `screen` as it needs them.

    Args:
        scores: called as `scores(name, numbers, score, progress)`; returns `score(numbers)`, and may remember it (`Journal`).
    """
    race = _Race(evaluator, screen, objective, seed, scores)
    evaluator.fastest(screen)
    noise, ratio = race.pilot()
    first = race.by_nominal(without_twins(evaluator, screen, screen.order()))[: max(N_PILOT, 2 * top)]
    value = race.values("first", first, ROUNDS[0], progress)
    worth, ratios = float(np.sort(value)[min(top, len(value)) - 1]), np.array([ratio])
    if evaluator.works is not None:
        ratios, value = race.by_kind_of_work(worth)
        worth = min(worth, float(np.sort(value)[min(top, len(value)) - 1]))
    reach = worth / (1.0 + CAUTION * (ratios - 1.0))  # of every plan, or of all
    within = nominal(objective, screen.bound_s, screen.n_devices) <= reach
    evaluator.simulate_plans(screen, np.flatnonzero(within), progress)
    listed = of_each_kind(evaluator, screen.bound_s * ratios, top)
    evaluator.simulate_plans(screen, listed, progress)
    numbers = screen.order()
    is_near = race.nominal(numbers) <= np.broadcast_to(reach, screen.n_plans)[numbers]
    numbers = numbers[is_near | np.isin(numbers, first) | np.isin(numbers, listed)]
    numbers = race.by_nominal(without_twins(evaluator, screen, numbers))
    n_raced = len(numbers)
    for columns in ROUNDS:
        value = race.values(f"{columns}", numbers, columns, progress)
        numbers = _joined(numbers[_kept(value, top, noise * np.sqrt(ROUNDS[0] / columns))], listed, numbers)
    return race.final(_joined(numbers[: max(4 * top, 32)], listed, numbers), n_raced, progress)


def _joined(kept: Rows, listed: Rows, numbers: Rows) -> Rows:
    """`kept`, and behind them those of `listed` that are in `numbers`."""
    return np.concatenate([kept, numbers[np.isin(numbers, listed) & ~np.isin(numbers, kept)]])


def nominal(objective: PlanObjective, time_s: Floats, n_devices: Rows) -> Floats:
    """Value [plan] of steps that always take `time_s` [plan], seconds."""
    return objective.of(time_s[:, None], n_devices)


@dataclass(frozen=True)
class _Race:
    """One race of plans; arguments as those of `successive_halving`."""

    evaluator: Evaluator
    screen: ScreeningResult
    objective: PlanObjective
    seed: int
    scores: Scores

    def nominal(self, numbers: Rows) -> Floats:
        """Nominal values of plans with a noise-free time."""
        return nominal(self.objective, self.screen.step_s[numbers], self.screen.n_devices[numbers])

    def by_nominal(self, numbers: Rows) -> Rows:
        """Plans with a noise-free time, least nominal value first."""
        return numbers[np.argsort(self.nominal(numbers), kind="stable")]

    def values(self, name: str, numbers: Rows, columns: int, progress: Progress = silent) -> Floats:
        """Values [plan] on the draws of the search."""
        return self.scores(name, numbers, lambda some: self._several([self.seed], columns, some)[:, 0], progress)

    def _several(self, seeds: Sequence[int], columns: int, numbers: Rows) -> Floats:
        """Values [plan, seed] of plans on several sets of draws."""

        def value(samples: Floats, own: Rows) -> Floats:
            return self.objective.of(samples, self.screen.n_devices[own])

        return tail_values(self.evaluator, numbers, seeds, columns, value)

    def pilot(self) -> tuple[float, float]:
        """(relative error of a first-round score, least ratio of the value to the nominal one)."""
        numbers = self.screen.order()
        numbers = numbers[np.linspace(0, len(numbers) - 1, min(N_PILOT, len(numbers))).astype(int)]
        seeds = range(self.seed + 1, self.seed + 1 + N_PILOT_SEEDS)
        found = self.scores("pilot", numbers, partial(self._several, seeds, ROUNDS[0]), silent)
        value = np.ascontiguousarray(found.T)
        noise = float(np.sqrt((value / value.mean(axis=0)).var(axis=0, ddof=1).mean()))
        return noise, max(1.0, float((value.mean(axis=0) / self.nominal(numbers)).min()))

    def by_kind_of_work(self, worth: float) -> tuple[Floats, Floats]:
        """Returns the ratio [plan] of the value to the nominal one, and values [kind], where micro-batches differ in work.

        Notes: the ratio goes with how many micro-batches of which size a replica has, and with how many wait for each other. Of
            every kind the plan of least bound is scored, as far as nominal values are at most `worth`; further plans stay out
            anyway.
        """
        evaluator, screen = self.evaluator, self.screen
        value = nominal(self.objective, screen.bound_s, screen.n_devices)
        near = np.argsort(value, kind="stable")[: int((value <= worth).sum())]
        kinds = np.empty((len(near), 6), np.int64)
        for table, at in evaluator.tables(near):
            kinds[at] = work_kinds(table)
        _, first, which = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        numbers = near[first]
        evaluator.simulate_plans(screen, numbers)
        found = self.values("work", numbers, ROUNDS[0])
        ratios = np.ones(screen.n_plans)
        ratios[near] = np.maximum(found / self.nominal(numbers), 1.0)[which.ravel()]
        return ratios, found

    def final(self, numbers: Rows, n_raced: int, progress: Progress) -> Finalists:
        """Every finalist on draws that no round before has seen."""
        own = self.objective
        statistics = (own, *(replace(own, objective=OBJECTIVES.named(name)) for name in STATISTICS))
        seeds = range(self.seed + 1000, self.seed + 1000 + N_FINAL_SEEDS)

        def several(samples: Floats, some: Rows) -> Floats:
            n_devices = self.screen.n_devices[some]
            return np.stack([statistic.of(samples, n_devices) for statistic in statistics], axis=1)

        def score(some: Rows) -> Floats:
            return tail_values(self.evaluator, some, seeds, FINAL_COLUMNS, several, (len(statistics),), said)

        said = part(progress, "finalists on fresh draws")
        said(0.0)
        found = self.scores("final", numbers, score, progress)
        found = np.ascontiguousarray(
            np.moveaxis(found, 2, 1)
        )  # [plan, statistic, seed], whose means are added in this order
        order = np.argsort(found[:, 0].mean(axis=1), kind="stable")
        return Finalists(numbers[order], found[order, 0], found[order, 1:].mean(axis=2), n_raced)


@dataclass(frozen=True)
class KindRatios:
    """Ratio of the value of plans to the nominal one by `work_kinds`, of the first plan that is met of each."""

    evaluator: Evaluator
    objective: PlanObjective
    seed: int

    def __call__(self, table: PlanTable) -> Floats:
        """Returns the ratio of each plan of a table of feasible plans, [plan], at least 1."""
        kinds = [tuple(own) for own in work_kinds(table).tolist()]
        new = {kind: row for row, kind in reversed([*enumerate(kinds)]) if kind not in self._found}
        if new:
            own = table.take(np.array([*new.values()]))
            found = self.objective.of(TailScorer(self.evaluator, self.seed).samples_of(own, ROUNDS[0]), own.n_devices)
            ratio = found / nominal(self.objective, self.evaluator.step_times(own), own.n_devices)
            self._found.update(zip(new, np.maximum(ratio, 1.0).tolist(), strict=True))
        return np.array([self._found[kind] for kind in kinds])

    @cached_property
    def _found(self) -> dict[tuple[int, ...], float]:
        return {}


def work_kinds(table: PlanTable) -> Rows:
    """Returns the numbers [plan, number] by which steps are longer than noise-free ones where micro-batches differ in work."""
    pp = np.full(len(table), table.layout.pp)
    return np.stack([table.micro_batch, table.n_micro_batch, table.tied, table.dp, table.ep, pp], axis=1)


def _kept(value: Floats, top: int, noise: float) -> Rows:
    """Rows that may still be among the `top`, best first."""
    order = np.argsort(value, kind="stable")
    last = value[order[min(top, len(order)) - 1]]
    return order[value[order] <= last * (1.0 + KEEP_SD * noise)]


def without_twins(evaluator: Evaluator, screen: ScreeningResult, numbers: Rows) -> Rows:
    """Returns the plans without those that equal another in time and parts and take more memory (ZeRO-1 next to ZeRO-2)."""
    kept = []
    for table, at in evaluator.tables(numbers):
        own = numbers[at]
        columns = (table.tp, table.cp, table.dp, table.ep, table.micro_batch, table.recompute, table.tied)
        time = np.round(screen.step_s[own] / screen.step_s[own].min(), 9)
        order = np.lexsort([screen.memory_bytes[own], time, *columns])
        keys = np.stack([time, *columns])[:, order]
        new = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))
        kept.append(own[order[new]])
    found = np.concatenate(kept) if kept else numbers
    return found[np.argsort(screen.step_s[found], kind="stable")]


N_SEEDS = 8
N_COLUMN = 512
LEVEL = 0.9
SEED_OFFSET = 50_000  # away from the seeds of every round


def promise(
    evaluator: Evaluator,
    base: ParallelPlan,
    best: ParallelPlan,
    objective: PlanObjective,
    seed: int,
    posterior: Sequence[Variability] = (),
) -> GainEstimate:
    """Scores both plans on new draws, and under each posterior draw of the variability if there are any."""
    seeds = [fresh_seed(seed, SEED_OFFSET + k) for k in range(N_SEEDS)]

    def each(of: Sequence[tuple[int, Variability | None]]) -> Floats:
        owner = np.arange(len(of)) % n_processes()
        return dealt(
            owner, lambda rows: np.stack([_pair(evaluator, base, best, objective, *of[k]) for k in rows]), (2,)
        )

    pairs = each([(own, None) for own in seeds])
    gains = 1.0 - pairs[:, 1] / pairs[:, 0]
    half = half_width(gains)
    middle, seconds = float(gains.mean()), pairs.mean(axis=0)
    over = None
    if posterior:
        under = each([(seeds[0], tree) for tree in posterior])
        drawn = 1.0 - under[:, 1] / under[:, 0]
        middle, seconds = float(np.median(drawn)), np.median(under, axis=0)
        over = _wider(_quantiles(drawn), half)
    error = model_errors(evaluator.job, (base, best), seed)
    ratio = error[:, 1] / error[:, 0]
    # The gain is the median of what may be measured.
    by_model = _quantiles(1.0 - (1.0 - middle) * ratio / np.median(ratio))
    base_s, best_s = (float(value) for value in seconds)
    by_chance = (middle - half, middle + half)
    return GainEstimate(base_s, best_s, middle, by_chance, _wider(by_model, half), over)


def fresh_seed(seed: int, number: int) -> int:
    """Returns the seed of the set `number` of fresh draws of a search; no set is that of another seed."""
    return seed_of(jax.random.fold_in(jax.random.key(seed), number))


def half_width(gains: np.ndarray) -> float:
    """Half of the 90% interval of the mean of gains [set of draws], by Student's t."""
    return float(stdtrit(len(gains) - 1, 0.5 + LEVEL / 2) * gains.std(ddof=1) / np.sqrt(len(gains)))


def _quantiles(gains: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(gains, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _wider(interval: tuple[float, float], half: float) -> tuple[float, float]:
    return interval[0] - half, interval[1] + half


def _pair(
    evaluator: Evaluator,
    base: ParallelPlan,
    best: ParallelPlan,
    objective: PlanObjective,
    seed: int,
    variability: Variability | None,
) -> np.ndarray:
    scorer = TailScorer(evaluator, seed, variability)
    return np.array([scorer.value(objective, plan, N_COLUMN) for plan in (base, best)])

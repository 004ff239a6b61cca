"""Searches the best plans of a space without enumerating it: random plans, and neighbours of the fastest of each family.

Plans are drawn from all pipelines alike and timed from costs alone, without noise and without running a pipeline (`estimate_s`).
A neighbour is a plan with one choice set anew, or with one or two degrees moved to the next value. The front is the fastest
plans of all, and the fastest of every family: of every split of the model (tp, pp) that comes near them, since the way from one
split to another can lead over slower plans. All neighbours of the front are looked at until the front holds no plan whose
neighbours are not known: then none of its plans has a faster neighbour.

The fastest plans that this has met run as in an exhaustive search: exact times, race on tails, finalists and gain on fresh draws.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ..core.errors import PlanError
from ..core.processes import Progress, silent
from ..core.use_case import use_case
from ..job.job import Job
from .evaluate import Evaluator, ScreeningResult, TailScorer
from .exhaustive import Journal, SearchAim, study_of
from .plan_costs import FEASIBLE, broken_rules
from .plan_knobs import CHOICES, DEGREES, Knobs, PlanList, VisitedPlans
from .plan_table import Rows
from .racing import N_COLUMN, N_SEEDS, KindRatios, fresh_seed, successive_halving
from .space import PlanSpace, default_space
from .study import Study

N_DRAWN = 1 << 16  # positions, of which most break a rule
N_PER_PIPELINE = 12  # plans of every pipeline that are timed
N_FRONT = 20  # fastest plans whose neighbours are all looked at
FAMILY_WITHIN = 1.4  # of the fastest: families that take longer are left
N_ROUND = 60
_RECOMPUTE = len(DEGREES) + CHOICES.index("recompute")  # a choice that trades memory, which degrees can use


def drawn(knobs: Knobs, seed: int) -> Rows:
    """Positions [plan, knob] of random plans that break no rule, at most `N_PER_PIPELINE` of every pipeline."""
    rng = np.random.default_rng([seed, 31])
    tried = rng.integers(knobs.sizes, size=(N_DRAWN, len(knobs.sizes)))
    found = []
    for table, rows in knobs.tables(knobs.codes(tried)):
        sound = rows[broken_rules(table, knobs.model) == FEASIBLE]
        found.append(tried[sound[:N_PER_PIPELINE]])
    return np.concatenate(found) if found else tried[:0]


def polish(knobs: Knobs, known: VisitedPlans, progress: Progress = silent) -> None:
    """Looks at neighbours of the front of `known` until no plan of the front has a neighbour that is unknown."""
    expanded: set[bytes] = set()
    for number in range(N_ROUND):
        new = [row for row in known.front(N_FRONT, FAMILY_WITHIN) if row.tobytes() not in expanded]
        if not new:
            return
        progress(1.0 - 0.8 ** (number + 1), "neighbours of the fastest plans")
        known.look_up(np.concatenate([neighbours(knobs, row) for row in new]))
        expanded |= {row.tobytes() for row in new}


def neighbours(knobs: Knobs, positions: Rows) -> Rows:
    """Positions [neighbour, knob] one move away from `positions` [knob].

    A move sets one choice, or moves one degree to the next value, or one up and another down, or one with recomputation.
    """
    sizes = knobs.sizes
    n_degree = len(DEGREES)
    single = [(knob, positions[knob] + by) for knob in range(n_degree) for by in (-1, 1)]
    single = [(knob, at) for knob, at in single if 0 <= at < sizes[knob]]
    choices = [(knob, at) for knob in range(n_degree, len(sizes)) for at in range(sizes[knob]) if at != positions[knob]]
    moves = [(move,) for move in (*single, *choices)]
    moves += [(a, b) for a in single for b in single if a[0] < b[0]]
    moves += [(a, b) for a in single for b in choices if b[0] == _RECOMPUTE]
    found = np.repeat(positions[None], len(moves), axis=0)
    for row, move in zip(found, moves, strict=True):
        for knob, at in move:
            row[knob] = at
    return found


N_SHORT = 64  # plans that get an exact time
WITHIN = 1.05  # of the fastest by estimate: what estimates err, and what tails differ by
WITHIN_WORK = 1.3  # the same where work is drawn: how much longer tails are is known of kinds of plans, by few draws
GAP_SEEDS = 90_000  # away from the seeds of searches and of what they promise


@use_case()
def local_search(
    job: Job, space: PlanSpace | None = None, *, aim: SearchAim = SearchAim(), progress: Progress = silent
) -> Study:
    """Plans of `space` with a small objective; for spaces too large for `search`, whose arguments and result it shares.

    Args:
        job: its own plan gives what the space does not vary, and is what gains are measured against.
        space: `default_space(job)` if not given.
        aim: as in `search`.
        progress: called with the fraction done of what is being done.

    Raises:
        PlanError: no feasible plan was found.
        DataError: unknown objective, or one that needs a price without one.

    Notes:
        `screen` of the study holds the plans that were looked at, not the whole space.
    """
    started = time.perf_counter()
    wanted, seed = aim.objective_of(job), aim.seed
    space = default_space(job) if space is None else space
    knobs = Knobs(space, job.plan, job.model)
    first = Evaluator(job, space, aim.margin_of(job))
    known = VisitedPlans(knobs, first.costs, None if first.works is None else KindRatios(first, wanted, seed))
    known.look_up(np.concatenate([knobs.start(job.plan)[None], drawn(knobs, seed)]))
    polish(knobs, known, progress)
    evaluator, screen = _looked_at(first, knobs, known)
    found = successive_halving(evaluator, screen, wanted, seed, aim.top, Journal().scores, progress)
    progress(1.0, "gain on fresh draws")
    study = study_of(evaluator, screen, found, aim, "local", started)
    return replace(study, notes=(*study.notes, f"{screen.n_plans:,} plans were looked at, not the whole space"))


def gap(study: Study, reference: Study) -> tuple[float, float]:
    """Returns the excess of a study's best objective over that of another study's best plan, as a share, and its standard error.

    Both plans see the same draws, which neither search has seen; the objective is that of `study`.
    """
    if study.best.plan == reference.best.plan:
        return 0.0, 0.0
    evaluator = Evaluator(study.job, PlanList(()))
    ratios = []
    for k in range(N_SEEDS):
        scorer = TailScorer(evaluator, fresh_seed(study.seed, GAP_SEEDS + k))
        own, other = (scorer.value(study.objective, s.best.plan, N_COLUMN) for s in (study, reference))
        ratios.append(own / other - 1.0)
    return float(np.mean(ratios)), float(np.std(ratios, ddof=1) / np.sqrt(len(ratios)))


def _looked_at(first: Evaluator, knobs: Knobs, known: VisitedPlans) -> tuple[Evaluator, ScreeningResult]:
    """All plans that were met, as an evaluator of these alone; only the fastest keep a bound, so that only they are run.

    Raises:
        PlanError: none of them is feasible.
    """
    codes = knobs.codes(known.positions)
    tables = [*knobs.tables(codes)]
    evaluator = Evaluator(first.job, PlanList(tuple(table for table, _ in tables)))
    evaluator.costs = first.costs
    try:
        screen = evaluator.bounds()
    except PlanError as error:
        raise PlanError(f"{error} ({len(known):,} plans were looked at)") from None
    within = WITHIN if first.works is None else WITHIN_WORK
    short = {*knobs.codes(known.best(N_SHORT, within)).texts()}
    listed = codes.take(np.concatenate([rows for _, rows in tables]))
    bound = np.where([key in short for key in listed.texts()], screen.bound_s, np.nan)
    return evaluator, ScreeningResult(screen.reason, screen.memory_bytes, bound, screen.step_s, screen.n_devices)

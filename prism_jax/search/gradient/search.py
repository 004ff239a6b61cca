"""gradient_search: the best plans of a space without enumerating it.

Plans are relaxed to log-degrees and mixtures over choices and follow the gradient of the expected log step time from many
starts (`gradient_relax`), on times made from costs alone (`gradient_time`); neighbours of the best are looked at
(`gradient_polish`). The fastest plans that this has met run as in `search`: exact times, race on tails, finalists and gain on
fresh draws.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import PlanError
from ...job import Job
from ...objective import Objective, plan_objective
from ...progress import Progress, silent
from ...variability.tree import Variability
from ..evaluate import Evaluator, ScreeningResult
from ..exhaustive import study_of
from ..journal import Journal
from ..plans.space import PlanSpace, default_space
from ..racing import successive_halving
from ..study import Study
from ..tail import TailScorer
from ..verify import N_COLUMN, N_SEEDS
from .knobs import Knobs, PlanList
from .polish import polish
from .relax import descend
from .visited import VisitedPlans

N_SHORT = 40  # plans that get an exact time
WITHIN = 1.05  # of the fastest by estimate: what estimates err, and what tails differ by
GAP_SEEDS = 90_000  # away from the seeds of searches and of what they promise


def gradient_search(
    job: Job,
    space: PlanSpace | None = None,
    *,
    objective: str | Objective = "p95",
    price_per_gpu_hour: float | None = None,
    seed: int = 0,
    top: int = 10,
    posterior: Sequence[Variability] = (),
    memory_margin: float | None = None,
    progress: Progress = silent,
) -> Study:
    """Plans of `space` with a small objective; for spaces too large for `search`, whose arguments and result it shares.

    Args:
        job: its own plan gives what the space does not vary, and is what gains are measured against.
        space: `default_space(job)` if not given.
        objective: one of `OBJECTIVES`, by name or as it is.
        price_per_gpu_hour: for objectives in money.
        seed: same seed, same answer.
        top: how many plans are to be told apart.
        posterior: draws of the variability from a fit, for the interval of the gain.
        memory_margin: as in `search`.
        progress: called with the fraction done of what is being done.

    Raises:
        PlanError: no feasible plan was found.
        DataError: unknown objective, or one that needs a price without one.

    Notes:
        `screen` of the study holds the plans that were looked at, not the whole space.
    """
    started = time.perf_counter()
    wanted = plan_objective(objective, job.plan, price_per_gpu_hour)
    space = default_space(job) if space is None else space
    margin = job.software.memory_margin if memory_margin is None else memory_margin
    knobs = Knobs(space, job.plan, job.model)
    first = Evaluator(job, space, margin)
    known = VisitedPlans(knobs, first.costs)
    known.look_up(knobs.start(job.plan)[None])
    known.look_up(descend(knobs, known, seed, progress))
    polish(knobs, known)
    evaluator, screen = _looked_at(first, knobs, known)
    found = successive_halving(evaluator, screen, wanted, seed, top, Journal(None, "").scores, progress)
    progress(1.0, "gain on fresh draws")
    study = study_of(evaluator, screen, found, wanted, seed, "gradient", posterior, started)
    return replace(study, notes=(*study.notes, f"{screen.n_plans:,} plans were looked at, not the whole space"))


def gap(study: Study, reference: Study) -> tuple[float, float]:
    """How much larger the objective of a study's best plan is than that of another study's, as a share, and its standard error.

    Both plans see the same draws, which neither search has seen; the objective is that of `study`.
    """
    if study.best.plan == reference.best.plan:
        return 0.0, 0.0
    evaluator = Evaluator(study.job, PlanList(()))
    ratios = []
    for k in range(N_SEEDS):
        scorer = TailScorer(evaluator, study.seed + GAP_SEEDS + k)
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
    short = {*knobs.codes(known.best(N_SHORT, WITHIN)).texts()}
    listed = codes.take(np.concatenate([rows for _, rows in tables]))
    bound = np.where([key in short for key in listed.texts()], screen.bound_s, np.nan)
    return evaluator, ScreeningResult(screen.reason, screen.memory_bytes, bound, screen.step_s, screen.n_devices)

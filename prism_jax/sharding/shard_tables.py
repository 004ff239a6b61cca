"""Choosing which embedding table goes where; what `prism-jax shard` does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from .._version import __version__
from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..core.units import format_s
from ..core.use_case import UNRECORDED, Message, Option, use_case
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..job.write_job import ChosenFrom
from ..result.objective import plan_objective
from ..result.parameters import ObjectiveChoice, Output, Overrides, Seed
from .assignment import steps
from .from_job import noise_free_s, own_assignment, problem_of
from .report import BestSharding, ReachedSteps, ShardedJob, ShardingReport, words_of
from .search import OPTIMISED, ShardingResult, rank_loads, shard

OFF = 0.005  # of the step: what the search and the cost model may say differently without a note
MOST_SPREAD = 2.0


def write_sharded_job(report: ShardingReport, output: Output = None) -> Message | None:
    """Writes the job with the chosen assignment, as YAML that every command takes.

    Args:
        report: of `shard_tables`.
        output: write the job with the chosen assignment to FILE, as YAML.

    Raises:
        DataError: the job was not read from a file, or the file cannot be written.
    """
    if output is None:
        return None
    comment = (
        f"Embedding tables of {report.job.name} placed for the {report.objective} of the step: "
        f"p50 {format_s(report.best.steps.p50_s, 5)}, p95 {format_s(report.best.steps.p95_s, 5)} (prism-jax {__version__})"
    )
    return report.parts.write(output, {"tables": dict(report.best.assignment)}, (), comment)


@use_case(then=(write_sharded_job,))
def shard_tables(
    job: JobFile,
    *,
    overrides: Overrides = (),
    objective: ObjectiveChoice = "p95",
    spread: Annotated[float | None, Option(metavar="SHARE")] = None,
    whole: bool = False,
    seed: Seed = 0,
    progress: Progress = silent,
) -> ShardingReport:
    """Choose which embedding table goes where so that the step is shortest.

    Args:
        job, overrides, seed, progress: as in `explain_step`.
        objective: quantity to minimise: a name that `prism-jax show objectives` lists, or an `Objective`.
        spread: standard deviation over mean of the look-ups into a table from step to step; by default what the tables state.
        whole: keep tables whole: no parts by rows or columns, and no copies on every GPU.

    Raises:
        ConfigError, DataError: a file or an option is wrong; the job has no tables, or they fit nowhere.
        PlanError: the plan is impossible.

    Example:
        >>> shard_tables("dlrm_dcnv2_64").best.assignment["t20"]  # doctest: +SKIP
    """
    if spread is not None and not 0.0 <= spread <= MOST_SPREAD:
        raise DataError(f"--spread: {spread:g}, but a share from 0 to {MOST_SPREAD:g} is needed. Give 0.1 for 10%.")
    own = loaded(job, overrides)
    asked = plan_objective(objective, own.plan, own.model.units_per_step(own.plan))
    margin = own.software.memory_margin
    made = partial(problem_of, own, split=not whole, spread=spread)
    solved = partial(shard, seed=seed, own=own_assignment(own), progress=progress)
    try:
        result, too_full = solved(made(memory_margin=margin), asked), ""
    except DataError:  # there may be an assignment that fits without room to spare
        result = solved(made(), asked)
        too_full = (
            f"no assignment was found that leaves {margin:.0%} of a GPU's memory free for the error of the memory model, as a "
            "search of plans does: `prism-jax check` says how likely the chosen one does not fit"
        )
    report = _report(own, result, spread is None)
    report = replace(report, notes=(*report.notes, *([too_full] if too_full else ())))
    return report.made_of(ChosenFrom(result, job, tuple(overrides)))


def _report(job: Job, result: ShardingResult, by_tables: bool) -> ShardingReport:
    problem, names = result.problem, [table.name for table in result.problem.tables]
    shards = result.best.shards(problem.n_ranks)
    reached = _reached(result, OPTIMISED)
    cost_model_s = noise_free_s(job, result.best, anew=True)
    gain, sharder = result.gain_over(result.baseline), result.gain_over(result.best_sharder)
    free, bound = result.bound
    before = result.assignments.get(result.baseline)
    assumed = by_tables and any(table.spread is None for table in problem.tables)
    return ShardingReport(
        job=ShardedJob(
            job.name,
            job.model.name,
            job.cluster.device.name,
            problem.n_ranks,
            len(names),
            job.plan.global_batch,
            problem.capacity_bytes,
        ),
        objective=result.objective.name,
        objective_unit=result.objective.unit,
        best=BestSharding(dict(zip(names, map(str, shards), strict=True)), reached, cost_model_s),
        baselines={name: _reached(result, name) for name in result.batches_s if name != OPTIMISED},
        does_not_fit=result.misfits,
        lower_bound=bound,
        gap=reached.value / bound - 1.0,
        noise_free_lower_bound_s=free,
        noise_free_gap=reached.noise_free_s / free - 1.0,
        gain_over=result.baseline,
        gain=gain.value_s,
        gain_error=gain.error_s,
        gain_interval=(gain.low_s, gain.high_s),
        best_sharder=result.best_sharder,
        gain_over_best_sharder=sharder.value_s,
        gain_over_best_sharder_interval=(sharder.low_s, sharder.high_s),
        ranks=result.ranks,
        everywhere={n: s.way for n, s in zip(names, shards, strict=True) if not s.devices and s.way != "table"},
        spread=dict(zip(names, problem.spread, strict=True)),
        spread_assumed=assumed,
        notes=tuple(_notes(result, reached, cost_model_s, assumed)),
        elapsed_s=result.elapsed_s,
        record=UNRECORDED,
        ranks_before=None if before is None else rank_loads(problem, before),
    )


def _reached(result: ShardingResult, method: str) -> ReachedSteps:
    """Steps of a method."""
    one, problem = result.assignments[method], result.problem
    free = float(steps(problem.task(one.cuts), one.columns)[0, 0])
    own, mean, p50, p95 = (result.value(method, name) for name in (None, "mean", "p50", "p95"))
    return ReachedSteps(*own, *mean, *p50, *p95, free)


def _notes(result: ShardingResult, reached: ReachedSteps, cost_model_s: float, assumed: bool) -> list[str]:
    found = []
    spread = sorted({*result.problem.spread})
    if assumed:
        found.append(
            f"look-ups into a table are assumed to vary by {spread[-1]:.0%} from step to step (log-normal, tables independent): "
            "an assumption, not a measurement. Write `spread` to the tables of the model, or --spread."
        )
    if result.problem.varies:
        found.append(
            "only look-ups vary here; for hardware that varies too: -o best.yaml, then prism-jax predict best.yaml"
        )
    if abs(reached.noise_free_s / cost_model_s - 1.0) > OFF:
        found.append(
            f"the cost model says {1e3 * cost_model_s:.4g} ms of the noise-free step of the chosen plan, the search "
            f"{1e3 * reached.noise_free_s:.4g} ms: gradients of copied tables hide in other work to another extent"
        )
    if result.misfits:
        found.append(f"does not fit into memory: {', '.join(map(words_of, result.misfits))}")
    return found

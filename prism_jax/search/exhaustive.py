"""Searches every plan of a space, screened without randomness, the survivors raced on their tails; or does so for several sizes.

A journal keeps the results so far in a file of its own, so that an interrupted search goes on where it stopped.

Of several cluster sizes, those count that no other beats in time, GPUs, energy or cost. The batch stays (strong scaling). Energy
is that of all devices at their power limit for the median step; cost is the price of all devices for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.kept_work import Expected, Schema, WorkFile, identity, saved_at_the_end
from ..core.processes import Progress, silent
from ..core.together import check_alike, n_processes, of_first, process_number
from ..core.use_case import OptionGroup, use_case
from ..job.job import Job
from ..job.rules import problems
from ..plan.plan import ParallelPlan
from ..result.objective import S_PER_HOUR, Objective, PlanObjective, plan_objective
from ..system.hardware import mfu, tokens_per_s_per_gpu
from ..variability.tree import Variability
from .evaluate import Evaluator, ScreeningResult
from .figures import GainEstimate, SizeFacts, SizeFigures, plan_facts
from .plan_costs import FEASIBLE, REASONS, Reasons
from .plan_table import Rows
from .racing import STAGES, Finalists, model_errors, prob_best, promise, successive_halving
from .space import PlanSpace, default_space
from .study import Candidate, Study, front

CHUNK = 256  # plans that a process scores between two looks at the clock
SCORES, PLANS = "scores", "plans"


class Journal:
    """Remembers scores by name; in memory only if there is no file. Of several processes the first reads and writes it.

    Args:
        own: `identity` of the search.
        schema: "NAME/ITEM" -> what that array must be.
        told: of the arrays so far, what the file says of them to whoever looks into it; the search itself never reads that.
    """

    def __init__(
        self,
        path: Path | None = None,
        own: str = "",
        schema: Schema | None = None,
        told: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        is_kept = path is not None and process_number() == 0
        self._file, self._told = WorkFile(path if is_kept else None, "search", own), told if is_kept else None
        self._arrays: dict[str, Any] = of_first(self._file.read(lambda _: schema or {}, in_parts=True) or {})

    def scores(self, name: str, numbers: Rows, score: Callable[[Rows], Floats], progress: Progress) -> Floats:
        """Evaluates `score(numbers)` in chunks and reuses the chunks stored in the journal."""
        scores, plans = f"{name}/{SCORES}", f"{name}/{PLANS}"
        done = self._arrays.get(scores)
        if done is not None and not np.array_equal(self._arrays[plans][: len(done)], numbers[: len(done)]):
            done = None
        while done is None or len(done) < len(numbers):
            start = 0 if done is None else len(done)
            part = score(numbers[start : start + CHUNK * n_processes()])
            done = part if done is None else np.concatenate([done, part])
            self._arrays |= {scores: done, plans: numbers}
            progress(len(done) / len(numbers), f"tails of {len(numbers):,} plans")
            if self._file.is_due:
                self.save()
        return done

    def keep(self, name: str, make: Callable[[], Mapping[str, Floats]]) -> Mapping[str, Floats]:
        """Arrays that `make` gives, or gave in an earlier run."""
        own = f"{name}/"
        if not any(item.startswith(own) for item in self._arrays):
            self._arrays |= {own + item: value for item, value in make().items()}
            self.save()
        return {item.removeprefix(own): value for item, value in self._arrays.items() if item.startswith(own)}

    def refused(self, why: str) -> DataError:
        """The error of a journal that contradicts itself."""
        return self._file.refused(why)

    def save(self) -> None:
        """Writes the file, if there is one to write."""
        self._file.save(self._arrays, **({} if self._told is None else self._told(self._arrays)))


MOST_TOLD = 20  # plans that a journal tells people of
MOST = 1e30  # of any figure in a journal: larger ones overflow where they are squared


@dataclass(frozen=True)
class SearchAim(OptionGroup):
    """Objective of a search, and its other settings.

    Attributes:
        objective: one of `OBJECTIVES`, by name or as it is.
        price_per_gpu_hour: for objectives in money.
        seed: same seed, same answer.
        top: how many plans are to be told apart.
        posterior: draws of the variability from a fit, for the interval of the gain.
        memory_margin: share of a device's memory that a feasible plan leaves free; None: what the framework needs.
    """

    objective: str | Objective = "p95"
    price_per_gpu_hour: float | None = None
    seed: int = 0
    top: int = 10
    posterior: Sequence[Variability] = ()
    memory_margin: float | None = None

    def objective_of(self, job: Job) -> PlanObjective:
        """Returns the objective for plans of `job`.

        Raises:
            DataError: it is unknown, or needs a price without one.
        """
        return plan_objective(self.objective, job.plan, job.model.units_per_step(job.plan), self.price_per_gpu_hour)

    def margin_of(self, job: Job) -> float:
        """Returns the share of a device's memory that a plan leaves free."""
        return job.software.memory_margin if self.memory_margin is None else self.memory_margin


@use_case()
def search(
    job: Job,
    space: PlanSpace | None = None,
    *,
    aim: SearchAim = SearchAim(),
    journal: str | Path | None = None,
    progress: Progress = silent,
) -> Study:
    """The plans of `space` with the least objective, for the model, the cluster and the batch of `job`.

    Args:
        job: its own plan gives what the space does not vary, and is what gains are measured against.
        space: `default_space(job)` if not given.
        aim: objective, price, seed and the like, which callers may give by keyword.
        journal: file that remembers what has been found; an interrupted search with the same file goes on where it stopped.
        progress: called with the fraction done of what is being done.

    Raises:
        PlanError: no plan of the space is feasible.
        DataError: unknown objective, one that needs a price without one, or a journal of another search.
    """
    started = time.perf_counter()
    wanted, margin = aim.objective_of(job), aim.margin_of(job)
    space = default_space(job) if space is None else space
    evaluator = Evaluator(job, space, margin)
    own = "" if journal is None else identity(job, space, wanted.text, aim.seed, aim.top, margin)
    check_alike(job, space, wanted.text, aim.seed, aim.top, margin, tuple(aim.posterior))
    path = None if journal is None else Path(journal)
    kept = Journal(path, own, _schema(evaluator), partial(_best_so_far, evaluator, wanted))
    screen = _screen(evaluator, kept, progress)
    with saved_at_the_end(kept.save):
        found = successive_halving(evaluator, screen, wanted, aim.seed, aim.top, kept.scores, progress)
    progress(1.0, "gain on fresh draws")
    return study_of(evaluator, screen, found, aim, "exhaustive", started)


def study_of(
    evaluator: Evaluator,
    screen: ScreeningResult,
    found: Finalists,
    aim: SearchAim,
    method: str,
    started: float,
) -> Study:
    """Returns the study of a finished race, with the gain of its winner."""
    objective = aim.objective_of(evaluator.job)
    candidates = _candidates(evaluator, screen, found, aim.seed)
    gain, notes = _promise(evaluator, candidates[0], objective, aim.seed, aim.posterior)
    return Study(
        evaluator.job,
        objective,
        aim.seed,
        method,
        screen,
        candidates,
        found.n_raced,
        gain,
        time.perf_counter() - started,
        notes,
    )


def _schema(evaluator: Evaluator) -> dict[str, Expected]:
    """Returns the arrays that a journal keeps of a search."""
    n_plans = int(evaluator.first[-1])
    found = {
        "screen/reason": Expected("iu", (n_plans,), 0, len(REASONS) - 1),
        "screen/memory": Expected("f", (n_plans,), 0, MOST, may_be_nan=True),
        "screen/bound": Expected("f", (n_plans,), 0, MOST, may_be_nan=True),
        "screen/n_devices": Expected("iu", (n_plans,), 1, MOST),
    }
    for stage, shape in STAGES.items():
        found[f"{stage}/{SCORES}"] = Expected("f", (None, *shape), 1.0 / MOST, MOST)
        found[f"{stage}/{PLANS}"] = Expected("iu", (None,), 0, n_plans - 1)
    return found


def _best_so_far(evaluator: Evaluator, objective: PlanObjective, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Plans that have come furthest in the race, the best of each stage first, for people who wait."""
    found: dict[int, dict[str, Any]] = {}
    for stage in reversed(STAGES):
        score = arrays.get(f"{stage}/{SCORES}", np.empty(0))
        score = score if score.ndim == 1 else score.reshape(len(score), -1)[:, 0]  # on the first draws
        numbers = arrays.get(f"{stage}/{PLANS}", np.empty(0, np.intp))[: len(score)]
        for row in np.argsort(score, kind="stable")[:MOST_TOLD]:
            number = int(numbers[row])
            if number not in found and len(found) < MOST_TOLD:
                facts = plan_facts(evaluator.plan(number))
                found[number] = {
                    "plan": facts.words,
                    "value": float(score[row]),
                    "memory_bytes": float(arrays["screen/memory"][number]),
                    "n_devices": facts.n_devices,
                }
    return {"objective": objective.name, "unit": objective.unit, "best": [*found.values()]}


def _screen(evaluator: Evaluator, journal: Journal, progress: Progress) -> ScreeningResult:
    def make() -> dict[str, np.ndarray]:
        screen = evaluator.bounds(progress)
        return {
            "reason": screen.reason,
            "memory": screen.memory_bytes,
            "bound": screen.bound_s,
            "n_devices": screen.n_devices,
        }

    kept = journal.keep("screen", make)
    reason: Reasons = np.asarray(kept["reason"], dtype=np.uint8)
    if not np.array_equal(np.isfinite(kept["bound"]), reason == FEASIBLE) or not (reason == FEASIBLE).any():
        raise journal.refused("bounds and reasons contradict each other")
    return ScreeningResult(
        reason,
        kept["memory"],
        kept["bound"],
        np.full(len(reason), np.nan),
        np.asarray(kept["n_devices"], dtype=np.intp),
    )


def _candidates(evaluator: Evaluator, screen: ScreeningResult, found: Finalists, seed: int) -> tuple[Candidate, ...]:
    job, (behind, behind_error) = evaluator.job, found.behind_s
    plans = [evaluator.plan(int(number)) for number in found.numbers]
    sure = prob_best(found.values_s, model_errors(job, plans, seed), seed)
    return tuple(
        Candidate(
            plan=plans[row],
            step_s=float(screen.step_s[number]),
            p50_s=float(found.quantiles_s[row, 0]),
            p95_s=float(found.quantiles_s[row, 1]),
            p99_s=float(found.quantiles_s[row, 2]),
            value_s=float(found.value_s[row]),
            value_error_s=float(found.error_s[row]),
            behind_s=float(behind[row]),
            behind_error_s=float(behind_error[row]),
            prob_best=float(sure[row]),
            memory_bytes=float(screen.memory_bytes[number]),
            **_uncertain(job, float(screen.memory_bytes[number])),  # pyright: ignore[reportArgumentType]
            **_rates(job, plans[row], float(found.quantiles_s[row, 0])),
        )
        for row, number in enumerate(found.numbers)
    )


def _uncertain(job: Job, memory_bytes: float) -> dict[str, Any]:
    """90% interval of the peak that would be measured, bytes, and the probability that it does not fit."""
    law, has_experts = job.software.peak_law, job.model.has_experts
    return {
        "memory_interval_bytes": law.interval_bytes(memory_bytes, has_experts),
        "not_fit_prob": law.not_fit_prob(memory_bytes, job.cluster.device.hbm_bytes, has_experts),
    }


def _rates(job: Job, plan: ParallelPlan, median_s: float) -> dict[str, float]:
    """Returns the rates that a plan gets out of its devices at the median step."""
    n, model = plan.n_devices, job.model
    flops = model.step_flops(plan, recomputed=False)
    return {
        "mfu": mfu(flops, median_s, job.cluster, n, plan.dtype),
        "tokens_per_s_per_gpu": tokens_per_s_per_gpu(model.units_per_step(plan), median_s, n),
    }


def _promise(
    evaluator: Evaluator, best: Candidate, objective: PlanObjective, seed: int, posterior: Sequence[Variability]
) -> tuple[GainEstimate | None, tuple[str, ...]]:
    job = evaluator.job
    wrong = [str(problem) for problem in problems(job.plan, job.model, job.cluster)]
    if job.plan.layer_split:
        wrong.append("its layers are split by hand, which the search does not vary")
    if wrong:
        return None, (f"no gain is stated: the job's own plan cannot be compared ({wrong[0]})",)
    return promise(evaluator, job.plan, best.plan, objective, seed, posterior), ()


CRITERIA = ("value_s", "n_devices", "memory_bytes", "energy_j", "cost")


@dataclass(frozen=True)
class Size(SizeFigures):
    """Best plan of one cluster size, per step, with the study that found it."""

    study: Study

    def facts(self) -> SizeFacts:
        """The size as reports have it."""
        numbers = {field.name: getattr(self, field.name) for field in fields(SizeFigures)}
        return SizeFacts(**numbers, plan=plan_facts(self.study.best.plan), value_error_s=self.study.best.value_error_s)


@use_case()
def search_sizes(
    job: Job,
    n_devices: Sequence[int],
    space: PlanSpace | None = None,
    *,
    price_per_hour: float = 0.0,
    aim: SearchAim = SearchAim(top=1),
    any_framework: bool = False,
    progress: Progress = silent,
) -> tuple[Size, ...]:
    """Best plan on every number of devices, fewest first.

    Args:
        job, aim, progress: as in `search`, the price left out.
        space: `default_space` of each size if not given; its own numbers of devices do not count.
        any_framework: as in `default_space`.
        price_per_hour: of one device.

    Raises:
        DataError: no or repeated sizes, or a negative price.
        PlanError: a size has no feasible plan.
    """
    if not n_devices or len(set(n_devices)) < len(n_devices):
        raise DataError(f"n_devices = {list(n_devices)}, but different sizes are needed, one at least")
    if not price_per_hour >= 0.0:
        raise DataError(f"price_per_hour = {price_per_hour}, but it must not be negative")
    found, priced = [], replace(aim, price_per_gpu_hour=price_per_hour or None)
    for n in sorted(n_devices):
        sized = replace(job, cluster=job.cluster.of_size(n))
        values = default_space(sized, any_framework=any_framework) if space is None else replace(space, n_devices=(n,))
        study = search(sized, values, aim=priced, progress=progress)
        device_s = n * study.best.p50_s
        found.append(
            Size(
                study=study,
                n_devices=n,
                value_s=study.best.value_s,
                memory_bytes=study.best.memory_bytes,
                energy_j=device_s * job.cluster.device.power_watts,
                cost=device_s / S_PER_HOUR * price_per_hour,
                p50_s=study.best.p50_s,
            )
        )
    return tuple(found)


def best_sizes(sizes: Sequence[Size], *criteria: str) -> tuple[Size, ...]:
    """Sizes that no other beats in all of `criteria` (of `CRITERIA`), least of the first criterion first.

    Raises:
        DataError: unknown criterion.
    """
    unknown = set(criteria) - set(CRITERIA)
    if unknown or not criteria:
        raise DataError(f"criteria {sorted(unknown)} are unknown; known are {', '.join(CRITERIA)}")
    costs = np.array([[float(getattr(size, name)) for name in criteria] for size in sizes])
    return tuple(sizes[row] for row in front(costs))

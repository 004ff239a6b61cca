"""The part of the choice that needs JAX: candidates, search, finalists on fresh draws, and the report of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import jax

from ..._typing import Floats
from ...cloud.choice.candidate import Candidate
from ...cloud.choice.candidates import Setting, field_of
from ...cloud.choice.mixes import mixed_candidates
from ...cloud.choice.outcome import Outcome
from ...cloud.choice.search import Choice, search
from ...cloud.choice.verify import Fresh, gain_of, promised
from ...cloud.choice.wish import Wish
from ...cloud.choice.worlds import Worlds
from ...cloud.clusters.step_times import PlanTimes
from ...cloud.policies import POLICIES, Policy
from ...errors import DataError
from ...io.cloud_state import Running
from ...job import Job
from ...progress import Progress, part_of
from ...report.types.horizon.cloud import CloudReport
from ...report.types.record import RunRecord
from ...simulate.predict import predict
from ..horizon.simulated import level_draws
from .asked import Asked, Chosen
from .capacity import law_of_offers
from .facts import report_of


def chosen(job: Job, asked: Asked, record: RunRecord, progress: Progress) -> tuple[CloudReport, Chosen]:
    """The report, and what it is made of."""
    started = time.perf_counter()
    wish = Wish(
        asked.n_steps,
        asked.deadline_s,
        asked.budget_usd,
        asked.prob,
        asked.restart_s,
        asked.interval_s,
        asked.n_worlds,
        asked.seed,
    )
    law_of, told = law_of_offers(asked.availability, asked.offers)
    policies = allowed(asked.spot, asked.policies)
    setting = Setting(policies, law_of, asked.most_gpus, asked.reliability, asked.checkpoint)
    times = PlanTimes(job)
    field = field_of(asked.offers, times, setting, wish, part_of(progress, 0.0, 0.6))
    if not field.candidates:
        reasons = "; ".join(f"{n} offers: {reason}" for reason, n in field.unusable.items())
        raise DataError(f"cloud: no offer of the catalogue can run the job: {reasons}")
    candidates, running = _with_running(field.candidates, asked)
    worlds = Worlds(wish, level_draws(job, asked.seed))
    choice = search(candidates, worlds, wish, part_of(progress, 0.6, 0.9))
    if asked.mix:
        usd = inf if choice.best is None else choice.best.mean_usd
        candidates = (*candidates, *mixed_candidates(candidates, job, wish, usd, asked.most_gpus))
        choice = search(candidates, worlds, wish, part_of(progress, 0.6, 0.9))
    progress(0.9, "the best on fresh draws")
    fresh = Fresh(wish, lambda one: _refined(one, asked.seed))
    best = promised([one.candidate for one in _ranked(choice, wish)], fresh, wish)
    reference = None if best is None else _reference(candidates, running, fresh, wish, job, asked)
    gain = None
    if best is not None and reference is not None and reference is not best:
        gain = gain_of(best, reference, asked.seed)
    found = Chosen(wish, field, choice, best, reference)
    notes = _notes(job, asked, told, candidates)
    return report_of(job, asked, found, gain, notes, record, time.perf_counter() - started), found


def allowed(spot: str, names: Sequence[str]) -> tuple[Policy, ...]:
    """Policies by name and by what is said of spot.

    Raises:
        DataError: none is left. SpecError: an unknown name.
    """
    wanted = [POLICIES.named(name) for name in dict.fromkeys(names)] if names else list(POLICIES)
    if spot == "never":
        wanted = [one for one in wanted if not one.needs_spot]
    if spot == "only":
        wanted = [one for one in wanted if not one.needs_on_demand]
    if not wanted:
        raise DataError(f"--spot {spot} leaves none of the policies {', '.join(names)}. Leave one of both out.")
    return tuple(wanted)


def _ranked(choice: Choice, wish: Wish) -> list[Outcome]:
    """Feasible ones, best first."""
    return sorted((one for one in choice.simulated if one.keeps(wish)), key=lambda one: one.value(wish))


def _refined(candidate: Candidate, seed: int) -> tuple[float, Floats]:
    """Mean step over the noise-free one, and what is not known of the step of that plan."""
    job = candidate.best.job
    step = predict(job, key=jax.random.key(seed))
    return step.mean_s / step.deterministic_s, level_draws(job, seed)


def _with_running(candidates: Sequence[Candidate], asked: Asked) -> tuple[tuple[Candidate, ...], Candidate | None]:
    """What runs already starts at once; the others as everywhere."""
    running = None if asked.state is None else asked.state.running
    if running is None:
        return tuple(candidates), None
    at = [i for i, one in enumerate(candidates) if _is_running(one, running)]
    if not at:
        raise DataError(
            f"--resume: no candidate is {running.count} x {running.instance} in {running.where} under {running.policy}: name "
            "instance, zone and policy as the catalogue and `prism-jax cloud` do, and a count that is a power of two"
        )
    own = candidates[at[0]]
    offers = tuple(offer for offer in own.offers if offer.where.lower() == running.where.lower())
    stays = replace(own, offers=offers, task=replace(own.task, first_s=0.0))
    return (*candidates, stays), stays


def _is_running(candidate: Candidate, running: Running) -> bool:
    here = any(
        offer.title.lower() == running.instance.lower() and offer.where.lower() == running.where.lower()
        for offer in candidate.offers
    )
    return here and candidate.count == running.count and candidate.policy.name == running.policy


def _reference(
    candidates: Sequence[Candidate], running: Candidate | None, fresh: Fresh, wish: Wish, job: Job, asked: Asked
) -> Outcome | None:
    """What is running, or the cheapest on demand that keeps what is asked; None if neither is there."""
    if running is not None:
        return fresh.outcome(running)
    plain = [one for one in candidates if not one.policy.needs_spot]
    if not plain:
        return None
    choice = search(plain, Worlds(wish, level_draws(job, asked.seed)), wish)
    return None if choice.best is None else fresh.outcome(choice.best.candidate)


def _notes(job: Job, asked: Asked, law: str, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    notes = list(asked.told)
    if asked.reliability is None:
        notes.append("nothing is said of failures of hardware and software: state --reliability")
    if asked.restart_assumed:
        notes.append(f"a restart takes {asked.restart_s / 60.0:.3g} min besides the load: state --restart")
    if asked.checkpoint is None:
        notes.append("checkpoints are written by every instance at its network's rate, at most 1.2 GB/s")
    if any(one.policy.needs_spot for one in candidates):
        notes.append(f"spot capacity: {law}")
    if any(one.zones for one in candidates):
        notes.append(
            "jobs that move between zones of a region pay a restart, but no transfer of data between zones is counted"
        )
    notes.append(f"the batch stays at {job.plan.global_batch:,}; plans are searched in a part of the space of `search`")
    return tuple(notes)

"""Makes the part of the choice of cloud that needs JAX: the checked request; candidates, search, finalists, and the report.

Spot capacity of offers is a law by name, or what a fit of revocations says of their zones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from math import inf, isfinite
from typing import Any

import numpy as np

from .._inference_loader import inference
from ..core.archive import kind_of
from ..core.arrays import Floats
from ..core.errors import DataError, FitError
from ..core.executor import ALONE, Workers
from ..core.processes import Progress, part_of
from ..core.readable import evenly
from ..core.report import RunRecord
from ..core.use_case import UNTIMED_S
from ..horizon.checkpoint import Checkpoint
from ..horizon.predict_run import FIT
from ..horizon.reliability import Reliability
from ..job.job import Job
from ..prediction.facts import level_draws
from ..search.figures import plan_facts
from ..simulate.predict import predict
from .availability import AVAILABILITY, Availability
from .candidates import CandidateSet, CloudCandidate, CloudConstants, field_of, mixed_candidates
from .choice import CandidateOutcome, CloudChoice, CloudGain, Fresh, SpotDraws, gain_of, promised, search
from .clusters import InstancePart, PlanTimes
from .offers import Offer
from .policies import POLICIES, SpotPolicy
from .report import CloudReport, GainFacts, PartFacts, RentFacts, SimulatedRents
from .requirements import CloudRequirements, CloudState, Running


@dataclass(frozen=True)
class CloudRequest:
    """Checked request; `wish` is of what remains to be done, `told`: notes of the fits of start-up and checkpoints."""

    offers: tuple[Offer, ...]
    wish: CloudRequirements
    spot: str
    policies: tuple[str, ...]
    availability: str | Availability
    reliability: Reliability | None
    checkpoint: Checkpoint | None
    restart_assumed: bool
    most_gpus: int
    mix: bool
    state: CloudState | None
    today: date
    catalogue: tuple[str, ...]
    told: tuple[str, ...] = ()
    workers: Workers = ALONE


def law_of_offers(
    availability: str | Availability, offers: Sequence[Offer]
) -> tuple[Callable[[Offer], Availability], str]:
    """The law of every offer, and a line that says where it comes from.

    Args:
        availability: a law, a name of `AVAILABILITY`, or a fit of revocations: zones that it has seen have their own law, the
            others that of a zone that nobody has seen.

    Raises:
        FailedFitError, FitError, SpecError: no such law, or a fit that failed or is of something else.
    """
    if not isinstance(availability, str):
        return (lambda _: availability), f"{availability.name}, {availability.source}"
    if kind_of(availability) != FIT:
        law = AVAILABILITY.named(availability)
        return (lambda _: law), f"{law.name}, {law.source}"
    fit = inference().Fit.load(availability)
    unseen: Availability = fit.spot_market()
    zones = sorted({offer.zone for offer in offers if offer.zone})
    seen = _markets(fit, zones)
    return (lambda offer: seen.get(offer.zone, unseen)), f"{unseen.source}; {_told(zones, list(seen))}"


def _markets(fit: Any, zones: Sequence[str]) -> dict[str, Availability]:
    """The laws of those zones of which a fit has one."""
    found: dict[str, Availability] = {}
    for zone in zones:
        with suppress(FitError):
            found[zone] = fit.spot_market(zone)
    return found


def _told(zones: Sequence[str], seen: Sequence[str]) -> str:
    """Returns a sentence that names the zones of a catalogue with a law of their own.

    Notes: AWS has ids of zones ("use1-az1") that are the same for all, and names ("us-east-1a") that stand for another zone in
        every account: nobody but the account can tell one from the other.
    """
    if seen:
        return f"{len(seen)} of {len(zones)} zones of the catalogue are among them: {', '.join(seen)}"
    return (
        "none of them is a zone of the catalogue, so that all are like one that was not seen: name the zones of traces as the "
        "catalogue does (AWS: by ids such as use1-az1, since names such as us-east-1a are each account's own)"
    )


MOST_ON_FRONT = 12


def _report(
    job: Job,
    asked: CloudRequest,
    field: CandidateSet,
    choice: CloudChoice,
    best: CandidateOutcome | None,
    gain: CloudGain | None,
    notes: tuple[str, ...],
    record: RunRecord,
) -> CloudReport:
    """The report of a choice; its use case times it."""
    wish = asked.wish
    return CloudReport(
        job=job.name,
        model=job.model.name,
        n_steps=wish.n_steps,
        deadline_s=wish.deadline_s if isfinite(wish.deadline_s) else None,
        budget_usd=wish.budget_usd if isfinite(wish.budget_usd) else None,
        prob=wish.prob,
        aim="time" if wish.wants_time else "cost",
        left=None if asked.state is None else asked.state.done,
        catalogue=asked.catalogue,
        best=None if best is None else _rent(best, asked),
        front=tuple(_rent(one, asked) for one in choice.front[:MOST_ON_FRONT]),
        gain=None if gain is None else _gain(gain, asked),
        infeasible=choice.infeasible,
        unusable=field.unusable,
        n_offers=field.n_offers,
        n_candidates=choice.n_candidates,
        n_simulated=len(choice.simulated),
        n_worlds=wish.n_worlds,
        notes=notes,
        elapsed_s=UNTIMED_S,
        record=record,
        simulated=_simulated(choice.simulated),
    )


MOST_SIMULATED = 300  # of a picture


def _simulated(outcomes: Sequence[CandidateOutcome]) -> SimulatedRents:
    """Means of those that end, evenly spaced in the order of cost."""
    ended = [one for one in outcomes if isfinite(one.mean_s)]
    shown = evenly(ended, MOST_SIMULATED)
    return SimulatedRents(
        tuple(one.mean_s for one in shown),
        tuple(one.mean_usd for one in shown),
        tuple(bool(one.candidate.policy.needs_spot) for one in shown),
    )


def _rent(outcome: CandidateOutcome, asked: CloudRequest) -> RentFacts:
    """The facts of one choice to rent."""
    candidate, offer, ran, wish = outcome.candidate, outcome.offer, outcome.ran, asked.wish
    policy, task = candidate.policy, candidate.task
    paid_s = float(ran.spot_s.mean() + ran.on_demand_s.mean())
    prices = (offer.on_demand_usd_per_h, policy.needs_on_demand), (offer.spot_usd_per_h, policy.needs_spot)
    on_demand, spot = (candidate.count * price if needed and price is not None else None for price, needed in prices)
    return RentFacts(
        parts=_parts(outcome),
        plan=plan_facts(candidate.best.plan),
        policy=policy.name,
        law=candidate.law.name if candidate.law else "",
        step_s=task.work_s / wish.n_steps,
        interval_s=task.interval_s,
        restart_s=task.restart_s,
        on_demand_usd_per_h=on_demand,
        spot_usd_per_h=spot,
        price_day=offer.day.isoformat() if offer.day else None,
        price_age_days=(asked.today - offer.day).days if offer.day else None,
        time_mean_s=outcome.time_mean(),
        time_p50_s=outcome.time_quantile(0.5),
        time_p95_s=outcome.time_quantile(0.95),
        cost_mean_usd=outcome.cost_mean(),
        cost_p50_usd=outcome.cost_quantile(0.5),
        cost_p95_usd=outcome.cost_quantile(0.95),
        cost_cvar95_usd=outcome.cost_cvar(),
        deadline_prob=outcome.prob_by(wish.deadline_s) if isfinite(wish.deadline_s) else None,
        budget_prob=outcome.prob_within(wish.budget_usd) if isfinite(wish.budget_usd) else None,
        spot_share=float(ran.spot_s.mean()) / paid_s if paid_s > 0.0 else 0.0,
        interruptions=float(ran.n_lost.mean()),
        zones=tuple(zone.zone for zone in candidate.zones),
    )


def _parts(outcome: CandidateOutcome) -> tuple[PartFacts, ...]:
    candidate = outcome.candidate
    batch = candidate.best.plan.global_batch
    parts = candidate.parts or (InstancePart(outcome.offer, candidate.count, batch),)
    return tuple(
        PartFacts(o.cloud, o.title, o.device, o.where, part.count, part.count * o.gpus, part.samples)
        for part in parts
        for o in (part.offer,)
    )


def _gain(gain: CloudGain, asked: CloudRequest) -> GainFacts:
    running = asked.state is not None and asked.state.running is not None
    low, high = np.quantile(gain.saved_usd, (0.05, 0.95))
    return GainFacts(
        against="what is running" if running else "on demand",
        reference=_rent(gain.reference, asked),
        saved_usd=float(gain.saved_usd.mean()),
        saved_usd_interval=(float(low), float(high)),
        saved_s=float(gain.saved_s.mean()),
        saved_share=gain.share,
        saved_share_interval=gain.share_interval,
    )


def chosen(job: Job, asked: CloudRequest, record: RunRecord, progress: Progress) -> CloudReport:
    """Chooses what to rent, and reports it."""
    wish = asked.wish
    law_of, told = law_of_offers(asked.availability, asked.offers)
    policies = allowed(asked.spot, asked.policies)
    setting = CloudConstants(policies, law_of, asked.most_gpus, asked.reliability, asked.checkpoint)
    times = PlanTimes(job)
    field = field_of(asked.offers, times, setting, wish, part_of(progress, 0.0, 0.6))
    if not field.candidates:
        reasons = "; ".join(f"{n} offers: {reason}" for reason, n in field.unusable.items())
        raise DataError(f"cloud: no offer of the catalogue can run the job: {reasons}")
    candidates, running = _with_running(field.candidates, asked)
    worlds = SpotDraws(wish, level_draws(job, wish.seed))
    choice = search(candidates, worlds, wish, part_of(progress, 0.6, 0.9), workers=asked.workers)
    if asked.mix:
        usd = inf if choice.best is None else choice.best.mean_usd
        candidates = (*candidates, *mixed_candidates(candidates, job, wish, usd, asked.most_gpus))
        choice = search(candidates, worlds, wish, part_of(progress, 0.6, 0.9), workers=asked.workers)
    progress(0.9, "the best on fresh draws")
    fresh = Fresh(wish, lambda one: _refined(one, wish.seed))
    best = promised([one.candidate for one in _ranked(choice, wish)], fresh, wish)
    reference = None if best is None else _reference(candidates, running, fresh, wish, job)
    gain = None
    if best is not None and reference is not None and reference is not best:
        gain = gain_of(best, reference, wish.seed)
    return _report(job, asked, field, choice, best, gain, _notes(job, asked, told, candidates), record)


def allowed(spot: str, names: Sequence[str]) -> tuple[SpotPolicy, ...]:
    """Returns the policies by name, as `--spot` permits them.

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


def _ranked(choice: CloudChoice, wish: CloudRequirements) -> list[CandidateOutcome]:
    """Returns the feasible candidates, best first."""
    return sorted((one for one in choice.simulated if one.keeps(wish)), key=lambda one: one.value(wish))


def _refined(candidate: CloudCandidate, seed: int) -> tuple[float, Floats]:
    """Mean step over the noise-free one, and draws of the uncertainty of that plan's step."""
    job = candidate.best.job
    step = predict(job, key=seed)
    return step.mean_s / step.deterministic_s, level_draws(job, seed)


def _with_running(
    candidates: Sequence[CloudCandidate], asked: CloudRequest
) -> tuple[tuple[CloudCandidate, ...], CloudCandidate | None]:
    """Replaces the candidate that runs already by one that starts at once; the others start as everywhere."""
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


def _is_running(candidate: CloudCandidate, running: Running) -> bool:
    here = any(
        offer.title.lower() == running.instance.lower() and offer.where.lower() == running.where.lower()
        for offer in candidate.offers
    )
    return here and candidate.count == running.count and candidate.policy.name == running.policy


def _reference(
    candidates: Sequence[CloudCandidate],
    running: CloudCandidate | None,
    fresh: Fresh,
    wish: CloudRequirements,
    job: Job,
) -> CandidateOutcome | None:
    """Returns the running candidate, or the cheapest on demand that meets the requirements; None if there is neither."""
    if running is not None:
        return fresh.outcome(running)
    plain = [one for one in candidates if not one.policy.needs_spot]
    if not plain:
        return None
    choice = search(plain, SpotDraws(wish, level_draws(job, wish.seed)), wish)
    return None if choice.best is None else fresh.outcome(choice.best.candidate)


def _notes(job: Job, asked: CloudRequest, law: str, candidates: Sequence[CloudCandidate]) -> tuple[str, ...]:
    notes = list(asked.told)
    if asked.reliability is None:
        notes.append("no failure rate given for hardware and software: state --reliability")
    if asked.restart_assumed:
        notes.append(f"a restart takes {asked.wish.restart_s / 60.0:.3g} min besides the load: state --restart")
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

"""Choices as facts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from ...cloud.choice.outcome import Outcome
from ...cloud.choice.verify import Gain
from ...cloud.choice.wish import Wish
from ...cloud.clusters.mixed import Part
from ...job import Job
from ...report.codec import from_plain
from ...report.types.horizon.cloud import CloudReport, GainFacts, PartFacts, RentFacts
from ...report.types.record import RunRecord
from ...report.types.study import PlanFacts
from ...result.interval import holding
from ...search.study import plan_dict

if TYPE_CHECKING:
    from .asked import Asked, Chosen

MOST_ON_FRONT = 12


def report_of(
    job: Job,
    asked: Asked,
    found: Chosen,
    gain: Gain | None,
    notes: Sequence[str],
    record: RunRecord,
    elapsed_s: float,
) -> CloudReport:
    """The report of a choice."""
    wish, state = found.wish, asked.state
    front = found.choice.front[:MOST_ON_FRONT]
    return CloudReport(
        job=job.name,
        model=job.model.name,
        n_steps=wish.n_steps,
        deadline_s=wish.deadline_s if isfinite(wish.deadline_s) else None,
        budget_usd=wish.budget_usd if isfinite(wish.budget_usd) else None,
        prob=wish.prob,
        aim="time" if wish.wants_time else "cost",
        left=None if state is None else state.done,
        catalogue=asked.catalogue,
        best=None if found.best is None else rent_facts(found.best, wish, asked),
        front=tuple(rent_facts(one, wish, asked) for one in front),
        gain=None if gain is None else _gain(gain, wish, asked),
        infeasible=found.choice.infeasible,
        unusable=found.field.unusable,
        n_offers=found.field.n_offers,
        n_candidates=found.choice.n_candidates,
        n_simulated=len(found.choice.simulated),
        n_worlds=wish.n_worlds,
        notes=tuple(notes),
        elapsed_s=elapsed_s,
        record=record,
    )


def rent_facts(outcome: Outcome, wish: Wish, asked: Asked) -> RentFacts:
    """Something that may be rented."""
    candidate, offer, ran = outcome.candidate, outcome.offer, outcome.ran
    policy, task = candidate.policy, candidate.task
    paid_s = float(ran.spot_s.mean() + ran.on_demand_s.mean())
    prices = (offer.on_demand_usd_per_h, policy.needs_on_demand), (offer.spot_usd_per_h, policy.needs_spot)
    on_demand, spot = (candidate.count * price if needed and price is not None else None for price, needed in prices)
    return RentFacts(
        parts=_parts(outcome),
        plan=from_plain(PlanFacts, plan_dict(candidate.best.plan)),
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


def _parts(outcome: Outcome) -> tuple[PartFacts, ...]:
    candidate = outcome.candidate
    batch = candidate.best.plan.global_batch
    parts = candidate.parts or (Part(outcome.offer, candidate.count, batch),)
    return tuple(
        PartFacts(o.cloud, o.title, o.device, o.where, part.count, part.count * o.gpus, part.samples)
        for part in parts
        for o in (part.offer,)
    )


def _gain(gain: Gain, wish: Wish, asked: Asked) -> GainFacts:
    running = asked.state is not None and asked.state.running is not None
    low, high = np.quantile(gain.saved_usd, (0.05, 0.95))
    saved_usd = float(gain.saved_usd.mean())
    return GainFacts(
        against="what is running" if running else "on demand",
        reference=rent_facts(gain.reference, wish, asked),
        saved_usd=saved_usd,
        saved_usd_interval=holding(saved_usd, float(low), float(high)),
        saved_s=float(gain.saved_s.mean()),
        saved_share=gain.share,
        saved_share_interval=holding(gain.share, *gain.share_interval),
    )

"""What is asked of a choice of cloud, checked, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from ...cloud.availability import Availability
from ...cloud.choice.candidates import Field
from ...cloud.choice.outcome import Outcome
from ...cloud.choice.search import Choice
from ...cloud.choice.wish import Wish
from ...cloud.offers import Offer
from ...horizon.checkpoint import Checkpoint
from ...horizon.reliability import Reliability
from ...io.cloud_state import CloudState


@dataclass(frozen=True)
class Asked:
    """What is asked, checked; steps, time and money are what is left; `told`: what fits of small laws say."""

    offers: tuple[Offer, ...]
    n_steps: int
    deadline_s: float
    budget_usd: float
    prob: float
    spot: str
    policies: tuple[str, ...]
    availability: str | Availability
    reliability: Reliability | None
    checkpoint: Checkpoint | None
    interval_s: float | None
    restart_s: float
    restart_assumed: bool
    most_gpus: int
    mix: bool
    state: CloudState | None
    n_worlds: int
    seed: int
    today: date
    catalogue: tuple[str, ...]
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """What was searched and found."""

    wish: Wish
    field: Field
    choice: Choice
    best: Outcome | None
    reference: Outcome | None

"""OpenFieldFacts: a field that a job leaves unsaid, and what it may do to the step."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt
from typing import Any

import numpy as np

from ...calibration.band import model_factors
from ...calibration.open_fields import OpenField
from ...job import Job

TOLD = 3  # fields that a person is told of; a report holds all
SMALLEST_GAIN = 0.005  # of the width of an interval


@dataclass(frozen=True)
class Alternative:
    """What the field may be instead.

    Attributes:
        value: as a job file has it.
        odds: its probability.
        change: of the step if it is that value instead of the assumed one, relative.
    """

    value: str
    odds: float
    change: float


@dataclass(frozen=True)
class OpenFieldFacts:
    """One field.

    Attributes:
        name: `software.norm`.
        assumed: the likeliest value, which memory and plan are checked with.
        odds: its probability.
        alternatives: the others.
        narrows: share of the width of the interval that goes if the field is stated.
    """

    name: str
    assumed: str
    odds: float
    alternatives: tuple[Alternative, ...]
    narrows: float

    @property
    def sentence(self) -> str:
        """What a person reads."""
        return f"assumed {self.name}: {self.words}"

    @property
    def words(self) -> str:
        """The same without the name."""
        others = ", ".join(f"{one.value} ({one.odds:.0%}) {one.change:+.1%}" for one in self.alternatives)
        gain = f"; stated, the interval is {self.narrows:.0%} narrower" if self.narrows >= SMALLEST_GAIN else ""
        return f"{self.assumed} ({self.odds:.0%}); {others}{gain}"


def open_facts(job: Job) -> tuple[OpenFieldFacts, ...]:
    """The open fields of a job, the one that widens its interval most in front; none where its level or site was measured.

    Raises:
        SpecError: no constants for the device.
    """
    if job.level is not None or not job.open_fields:
        return ()
    stated = model_factors(job.model, job.cluster, job.plan, job.effective_calibration, job.framework)
    variance = float(np.var(np.log(stated))) + sum(one.sd**2 for one in job.open_fields)
    return tuple(_facts(one, variance) for one in job.open_fields)


def _facts(field: OpenField, variance: float) -> OpenFieldFacts:
    others = zip(field.values[1:], field.odds[1:], field.log_ratio[1:], strict=True)
    return OpenFieldFacts(
        name=field.name,
        assumed=_written(field.values[0]),
        odds=field.odds[0],
        alternatives=tuple(Alternative(_written(value), odds, exp(ratio) - 1.0) for value, odds, ratio in others),
        narrows=1.0 - sqrt(max(0.0, 1.0 - field.sd**2 / variance)),
    )


def _written(value: Any) -> str:
    """As a job file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""What a job leaves unsaid, as facts for a report: assumed values, what else they may be, and what each costs the interval."""

from __future__ import annotations

from math import exp, sqrt
from typing import Any

import numpy as np

from ..calibration.band import model_factors
from ..calibration.open_fields import OpenField
from ..job import Job
from ..report.types.open_field import Alternative, OpenFieldFacts


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

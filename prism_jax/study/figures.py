"""Defines what a study measures of one job, as plain numbers (NaN where nothing is known), and targets for them.

A target is "p95<=8s" or "tokens_per_s>=5e6": whether a job meets it, and with what probability.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan

import numpy as np

from ..core.arrays import Floats
from ..core.content import ByContent
from ..core.errors import DataError, UnitError
from ..core.units import parse


@dataclass(frozen=True, eq=False)
class JobFigures(ByContent):
    """One job; seconds are per step and of an average GPU.

    Attributes:
        value, value_error: the objective in its unit, and its Monte Carlo standard error.
        model_low, model_high: factors of the predicted median between which 90% of measured ones lie.
        tokens_per_s: of the median step; samples where the model counts these.
        exposed_*_s, hidden_*_s: communication by axis that the step waits for, and that runs during compute.
        fits: 1 where the job fits into memory, 0 where it does not.
        gpu_watts, joules_per_token: of the GPUs alone.
        money_per_mtoken: of the mean step.
        target_prob: probability that the target is met, given what the cost model does not know.
    """

    n_devices: float
    value: float
    value_error: float
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    p50_error_s: float
    p95_error_s: float
    p99_error_s: float
    model_low: float
    model_high: float
    tokens_per_step: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    mfu: float
    hfu: float
    memory_bytes: float
    fits: float
    compute_s: float
    bubble_s: float
    waiting_s: float
    stalls_s: float
    exposed_tp_s: float
    exposed_cp_s: float
    exposed_ep_s: float
    exposed_dp_s: float
    exposed_pp_s: float
    hidden_tp_s: float
    hidden_cp_s: float
    hidden_ep_s: float
    hidden_dp_s: float
    gpu_watts: float = nan
    joules_per_token: float = nan
    money_per_mtoken: float = nan
    target_prob: float = nan

    @property
    def exposed_s(self) -> float:
        """Communication that the step waits for, over all axes."""
        return self.exposed_tp_s + self.exposed_cp_s + self.exposed_ep_s + self.exposed_dp_s + self.exposed_pp_s

    @property
    def hidden_s(self) -> float:
        """Communication that runs during compute, over all axes."""
        return self.hidden_tp_s + self.hidden_cp_s + self.hidden_ep_s + self.hidden_dp_s


TIMES = ("mean", "p50", "p95", "p99")
RATES = ("tokens_per_s", "tokens_per_s_per_gpu", "mfu")
_FORM = re.compile(r"(?P<name>[a-z0-9_]{1,30}) ?(?P<sign><=|>=) ?(?P<bound>[^<>=]{1,40})")


@dataclass(frozen=True)
class Target:
    """A bound on one figure of a job.

    Attributes:
        name: of `TIMES`, which grow with the step time, or of `RATES`, which fall with it.
        bound: seconds, tokens per second, or a share.
        text: as it was written.
    """

    name: str
    bound: float
    text: str

    def prob(self, value: float, factors: Floats) -> float:
        """Share of `factors` [draw] of the step time under which a predicted `value` meets the target."""
        if self.name in TIMES:
            return float(np.mean(value * factors <= self.bound))
        return float(np.mean(value / factors >= self.bound))


def target_of(text: str) -> Target:
    """A target from its text.

    Raises:
        DataError: another form, an unknown figure, or a sign that does not go with it.
    """
    found = _FORM.fullmatch(text.strip())
    wanted = "<=" if found and found["name"] in TIMES else ">="
    if not found or found["name"] not in (*TIMES, *RATES) or found["sign"] != wanted:
        known = f"{', '.join(TIMES)} with <=, and {', '.join(RATES)} with >="
        raise DataError(f"--target: {text[:80]!r} is no target. Write p95<=8s or tokens_per_s>=5e6; known: {known}.")
    bound = _bound(found["name"], found["bound"].strip(), text)
    if not 0.0 < bound < np.inf:
        raise DataError(f"--target: {text[:80]!r}: the bound must be positive and finite.")
    return Target(found["name"], bound, text.strip())


def _bound(name: str, bound: str, text: str) -> float:
    try:
        return float(bound) if name in RATES or _is_number(bound) else parse(bound, "time")
    except (ValueError, UnitError):
        raise DataError(f"--target: {text[:80]!r}: {bound!r} is no number or duration. Write 8s or 5e6.") from None


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9.eE+-]{1,40}", text))

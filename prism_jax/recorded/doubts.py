"""Why not to trust a prediction of unrecorded steps: what every report on one has to say beside the figures.

A prediction may contradict itself (an estimate outside its own interval), the recording (a quantile where no recorded step is),
or ask more of the recorded steps than so many can tell.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from .._typing import Floats
from .prediction import TracePrediction
from .score import LEVEL

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
FAR = 1.25  # times the longest recorded step; a p95 beyond it is said to be
ALIKE = 0.5  # correlation of neighbouring steps that is worth a word
FEWEST = 10  # steps of which that correlation is judged


def doubts(prediction: TracePrediction, recorded_s: Floats, *, as_recorded: bool) -> tuple[str, ...]:
    """One sentence per reason, the gravest first; none for a prediction that can be taken as it stands.

    Args:
        prediction: of unrecorded steps.
        recorded_s: [step] the steps that it was made from, seconds, in the order of time.
        as_recorded: whether it is one of the recorded job, so that recorded steps may contradict it.
    """
    found = _outside_own_interval(prediction)
    if as_recorded:
        found += _unlike_recorded(prediction, recorded_s)
    return (*found, *_too_few(len(recorded_s)), *_in_a_row(recorded_s))


def _outside_own_interval(prediction: TracePrediction) -> list[str]:
    found = []
    for name, p in QUANTILES.items():
        value, (low, high) = prediction.quantile(p), prediction.interval(p, LEVEL)
        if not low <= value <= high:
            found.append(f"the {name} of {value:.4g} s lies outside its own interval, {low:.4g} to {high:.4g} s")
    return found


def _unlike_recorded(prediction: TracePrediction, recorded_s: Floats) -> list[str]:
    found = []
    low, high = np.quantile(recorded_s, [0.05, 0.95])
    p50, p95, longest = prediction.quantile(0.5), prediction.quantile(0.95), recorded_s.max()
    if not low <= p50 <= high:
        found.append(
            f"the p50 of {p50:.4g} s is not among the recorded steps, of which 90% take {low:.4g} to {high:.4g} s"
        )
    if p95 > FAR * longest:
        found.append(f"the p95 of {p95:.4g} s is {p95 / longest:.3g} times the longest recorded step, {longest:.4g} s")
    return found


def _too_few(n_step: int) -> list[str]:
    """Of n steps the longest stands for the n/(n+1) quantile on average; what lies beyond was seen in none."""
    beyond = [name for name, p in QUANTILES.items() if p > n_step / (n_step + 1)]
    if not beyond:
        return []
    needed = ceil(max(1.0 / (1.0 - QUANTILES[name]) for name in beyond) - 1e-9)
    steps = "step" if n_step == 1 else "steps"
    return [
        f"{n_step} recorded {steps} cannot show a {' or '.join(beyond)}: it rests on the model alone. "
        f"Record {needed} or more to see it"
    ]


def _in_a_row(recorded_s: Floats) -> list[str]:
    n_step = len(recorded_s)
    if n_step < FEWEST or recorded_s.std() == 0:
        return []
    alike = float(np.corrcoef(recorded_s[1:], recorded_s[:-1])[0, 1])
    if alike < max(ALIKE, 2.0 / np.sqrt(n_step)):
        return []
    worth = max(round(n_step * (1.0 - alike) / (1.0 + alike)), 1)
    return [
        f"neighbouring steps are alike (correlation {alike:.2f}), so {n_step} of them tell about as much as {worth} independent "
        "ones: intervals hold for other steps of the recorded stretch, and are too short for another hour"
    ]

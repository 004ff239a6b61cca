"""Runs alike: what a site's calibration leaves of the runs that it was measured on carries over to jobs made of the same parts.

    own(job) = misfit (sqrt(SHARED) g(parts) + sqrt(1 - SHARED) e)
    g        a Gaussian process, cov = exp(-|parts - parts'|^2 / (2 REACH^2));  e of this run alone

A job that was measured itself is predicted near where it was measured, a job unlike all that were measured as the knobs have
it. A run that is off by far more than configurations are is taken for a bad one: e has a heavy tail. Bands stay as wide as the
knobs have them: on measured sites, narrower ones near measured runs held too little.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from .._core.content import ByContent
from .._typing import Floats
from ..cost.correction import SHARE, CostCorrection
from .surrogate import StepSurrogate, surrogate_seconds

SHARED = 0.75  # of a configuration's deviation, as a variance: runs alike in all their parts still differ by half of it
REACH = 0.1  # between shares of a step's time: where a fifth of it is spent on something else, little carries over
DEGREES = 20.0  # of freedom of that tail
MOST = 400  # measured runs that are remembered: all pairs of them are held against each other
_STEP = 1e-3  # of a knob, relative, in its derivative


@dataclass(frozen=True, eq=False)
class ResidualGP(ByContent):
    """The measured runs of a site.

    Attributes:
        parts: [run, knob] what their steps are made of, as `sensitivities` has it.
        left: [run] logarithm of measured over expected seconds.
        trust: [run] 1 where a run is off by no more than configurations are, towards 0 where it is off by far more.
    """

    parts: Floats
    left: Floats
    trust: Floats

    def log_residual(self, parts: Floats) -> Floats:
        """[job] log factors that carry over to jobs of these `parts` [job, knob]."""
        alone = np.diag((1.0 / self.trust - SHARED) / SHARED)
        return alike(parts, self.parts) @ np.linalg.solve(alike(self.parts, self.parts) + alone, self.left)


def weight_of(left: Floats, misfit: Floats) -> Floats:
    """[run] how far runs that are off by `left` are believed where configurations are off by `misfit`, both [run] logarithms."""
    return np.minimum(1.0, (DEGREES + 1.0) / (DEGREES + (left / misfit) ** 2))


def sensitivities(rows: StepSurrogate, correction: CostCorrection) -> Floats:
    """[row, knob] share of the step's time that hangs on each knob: derivative of one logarithm by the other's."""
    seconds = np.asarray(surrogate_seconds(rows, correction))
    return np.stack(
        [
            (np.asarray(surrogate_seconds(rows, _moved(correction, item.name))) / seconds - 1.0) / _STEP
            for item in fields(correction)
        ],
        axis=-1,
    )


def _moved(correction: CostCorrection, knob: str) -> CostCorrection:
    """`correction` with one knob larger by `_STEP` of itself; the share, of what is left to either side."""
    value = getattr(correction, knob)
    return replace(correction, **{knob: value + _STEP * value * (1.0 - value if knob == SHARE else 1.0)})


def alike(parts: Floats, others: Floats) -> Floats:
    """[row, other] correlation of what two steps deviate by."""
    apart = ((parts[:, None] - others[None]) ** 2).sum(axis=-1)
    return np.exp(-0.5 * apart / REACH**2)

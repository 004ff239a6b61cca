"""How far a site's calibration predicts runs that it has not seen: by how many it has, and with each left out.

Errors are relative, predicted over measured minus one. No run counts towards the error of a fit that has seen it.
"""

from __future__ import annotations

from itertools import combinations, islice
from math import comb

import jax
import numpy as np
from numpy.typing import NDArray

from prism_jax._typing import Floats
from prism_jax.calibration.band import row_factors
from prism_jax.calibration.calibration import Calibration
from prism_jax.calibration.residual_gp import sensitivities
from prism_jax.calibration.surrogate import surrogate_seconds
from prism_jax.progress import Progress, silent
from prism_jax.report.types.site import CurvePoint

from .calibrate_site import calibrate_site
from .runs import SiteRuns, only

FEW = 12  # runs up to which several choices of the same number are averaged; of more, one choice by chance, which grows
MOST_CHOICES = 12  # of the runs that are seen, per number of runs
MOST_FOLDS = 40  # of more runs, several are left out at a time
SEED = 0


def predicted_s(calibration: Calibration, runs: SiteRuns) -> Floats:
    """[run] seconds of the median step at the mean of the calibration's knobs, with what carries over from measured runs."""
    correction = calibration.correction(runs.setting)
    carried = 0.0 if calibration.nearby is None else calibration.nearby.log_residual(sensitivities(runs, correction))
    return np.asarray(surrogate_seconds(runs, correction)) * np.exp(runs.left_out + carried)


def errors(calibration: Calibration, runs: SiteRuns) -> Floats:
    """[run] predicted over measured, minus one."""
    return predicted_s(calibration, runs) / np.exp(runs.log_measured) - 1.0


def bands(calibration: Calibration, runs: SiteRuns, seed: int = SEED) -> tuple[Floats, Floats]:
    """5 % and 95 % quantile [run] of what would be measured over what is predicted."""
    has_experts = [bool(has) for has in runs.has_experts]
    factors = row_factors(runs, runs.setting, has_experts, calibration, seed)
    low, high = np.quantile(factors, [0.05, 0.95], axis=0)
    return low, high


def learning_curve(
    calibration: Calibration, runs: SiteRuns, *, key: jax.Array, progress: Progress = silent
) -> list[CurvePoint]:
    """Errors after 0, 1, ... runs; of many runs, after 1 to 12 and then powers of two."""
    points = [CurvePoint(0, 1, float(np.median(np.abs(errors(calibration, runs)))))]
    sizes = _sizes(runs.n_run)
    for done, size in enumerate(sizes, 1):
        found = []
        choices = _choices(runs.n_run, size)
        for chosen in choices:
            left = np.setdiff1d(np.arange(runs.n_run), chosen)
            found.append(errors(calibrate_site(calibration, only(runs, chosen), key=key), runs)[left])
        points.append(CurvePoint(size, len(choices), float(np.median(np.abs(np.concatenate(found))))))
        progress(done / len(sizes))
    return points


def left_out_errors(calibration: Calibration, runs: SiteRuns, *, key: jax.Array, progress: Progress = silent) -> Floats:
    """[run] error of every run when it was left out; of many runs, when its fold was. One run: before calibration."""
    found = errors(calibration, runs)
    n_fold = min(runs.n_run, MOST_FOLDS)
    if runs.n_run < 2:
        return found
    fold = np.arange(runs.n_run) % n_fold
    for index in range(n_fold):
        left = fold == index
        fitted = calibrate_site(calibration, only(runs, np.flatnonzero(~left)), key=key)
        found[left] = errors(fitted, runs)[left]
        progress((index + 1) / n_fold)
    return found


def _sizes(n_run: int) -> list[int]:
    doubled = [2**i for i in range(4, 12)]
    return [*range(1, min(n_run, FEW + 1)), *(size for size in doubled if FEW < size < n_run)]


def _choices(n_run: int, size: int) -> list[NDArray[np.intp]]:
    """Which runs are seen: all choices, some by chance, or one by chance, to which the next size adds."""
    if n_run > FEW:
        return [np.sort(np.random.default_rng(SEED).permutation(n_run)[:size])]
    if comb(n_run, size) <= MOST_CHOICES:
        return [np.array(chosen) for chosen in islice(combinations(range(n_run), size), MOST_CHOICES)]
    rng = np.random.default_rng([SEED, size])
    return [np.arange(size), *(np.sort(rng.permutation(n_run)[:size]) for _ in range(MOST_CHOICES - 1))]

"""How sure an order of plans is given all that the cost model does not know: most of it is the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._typing import Floats
from ..calibration.joint import case_of, joint_factors
from ..job import Job
from ..plan.plan import ParallelPlan

N_REPEAT = 16  # of the draws of a calibration: members that no run has measured are drawn anew
N_BOOTSTRAP = 4000


def model_errors(job: Job, plans: Sequence[ParallelPlan], seed: int) -> Floats:
    """[draw, plan] factors between measured and predicted step times of plans of `job`."""
    calibration = job.effective_calibration
    cases = [case_of(job.model, job.cluster, plan, calibration, job.framework) for plan in plans]
    return joint_factors(cases, calibration, seed, N_REPEAT)


def prob_best(values: Floats, factors: Floats, seed: int) -> Floats:
    """[plan] how often each has the least value, over bootstrap samples of the sets of draws and over the model's errors.

    Args:
        values: [plan, set of draws] objective.
        factors: [draw, plan] as `model_errors` has them.
    """
    n_plan, n_set = values.shape
    rng = np.random.default_rng([seed, 9])
    picks = rng.integers(n_set, size=(N_BOOTSTRAP, n_set))
    means = values[:, picks].mean(axis=2) * factors[rng.integers(len(factors), size=N_BOOTSTRAP)].T
    return np.bincount(means.argmin(axis=0), minlength=n_plan) / N_BOOTSTRAP

"""Models that are not transformers: how far their kernels are from laws that transformers calibrated, which stay as they are.

Rows of such models are too few, and of too few devices, to shape what thousands of rows of transformers say of devices, links and
software. So all that is fitted to them is the level of the workload, from where the calibration stands. Transformers
have no member of that level: not a digit of theirs changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from inference.cost_model.calibrate import Calibrator, in_one_order, row_data, usable
from inference.cost_model.step_times import TERMS
from prism_jax.calibration.calibration import KNOBS, MISFIT, Calibration, Term
from prism_jax.calibration.key import CalibrationKey, Level, workload_of
from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.validation.costed import job_of_row
from prism_jax.validation.score import MeasuredRow

OF_WORKLOADS = tuple(term for term in TERMS if term.level == Level.WORKLOAD)


def with_workloads(calibration: Calibration, rows: Sequence[MeasuredRow], *, key: jax.Array) -> Calibration:
    """The calibration with deviations of the kinds of model of measured rows, in place of those it had.

    Args:
        calibration: of transformers.
        rows: measured; those of transformers and those with a known defect are left out.
        key: of the draws.

    Raises:
        DataError: no row is of another kind than transformers.
        FitError: no mode is found.
    """
    kept = in_one_order([row for row in usable(rows) if workload_of(row.job[0])])
    if not kept:
        raise DataError("no row is of another kind of model than transformers: nothing to fit")
    bases = [calibration.mean(_without_workload(job_of_row(row, calibration))) for row in kept]
    centre = np.array([[base[knob] for knob in KNOBS] for base in bases])
    data = replace(row_data(kept), centre=centre)
    found = Calibrator(data, OF_WORKLOADS).fit(data, key=key, n_draw=calibration.n_draw)
    others = tuple(term for term in calibration.terms if term.level != Level.WORKLOAD)
    own = tuple(_over(calibration, found, term) for term in found.terms if term.level == Level.WORKLOAD)
    return replace(calibration, terms=(*others, *own))


def _over(calibration: Calibration, found: Calibration, term: Term) -> Term:
    """The term of a fit to other rows: how wide their configurations deviate, over those of the calibration."""
    if term.knob != MISFIT:
        return term
    return replace(term, value=term.value + np.log(found.misfit / calibration.misfit.mean())[:, None])


def _without_workload(job: Job) -> CalibrationKey:
    """What the calibration knows of a job whatever its kind of model."""
    return CalibrationKey.of(job.cluster.device, job.framework, job.plan.software)

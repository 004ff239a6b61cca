"""What is known of a site before any run of its own: a normal law of its knobs, from the population's draws.

A site deviates from the mean of its device generation and framework as much as that mean is uncertain, and by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from prism_jax._typing import Floats
from prism_jax.calibration.calibration import KNOBS, Calibration
from prism_jax.calibration.key import CalibrationKey
from prism_jax.cost.correction import SHARE, CostCorrection

# Standard deviation of a site's own deviation, on the link's scale: how much set-ups of one device and one framework differ.
# Assumed, not tuned on scores.
SITE_DEVIATION: Mapping[str, float] = {
    "gemm": 0.03,  # the same libraries, other versions and clocks
    "attention": 0.15,  # which kernel of its generation runs
    "memory": 0.1,  # how much is fused
    "fp8": 0.05,  # recipes of scaling, casts in products or apart
    "expert": 0.15,  # dispatcher and balance of the experts
    "host": 0.2,  # CPU and version of Python
    "scale_up": 0.15,  # NVLink generations and PCIe under one name
    "network": 0.25,  # topology, routing, other tenants
    "scale_up_call_s": 0.6,  # how far apart ranks arrive
    "network_call_s": 0.6,
    "overlap_window": 0.8,  # buckets, streams and prefetch are settings
    "optimizer": 0.2,  # fused or not
    "micro_batch_s": 0.7,  # data loader and logging are settings
    "step_s": 0.7,
    "network_step_s": 0.7,
}
SEEDS = 8  # of the fresh draws that members never seen deviate by, in the covariance
EDGE = 1e-9  # of a share, from 0 and 1
SMALLEST_MISFIT = 1e-3  # of a calibration that knows none


@dataclass(frozen=True)
class SitePrior:
    """What is known of a site before any run of its own.

    Attributes:
        mean: [knob] on the link's scale.
        factor: [knob, knob] lower triangular root of the covariance, the site's own deviation included.
        site_sd: of the log factor of the site.
        misfit, misfit_sd: median over sites of the scale of a configuration's own log factor, and the standard deviation of
            that scale's logarithm.
        expert_misfit: how much wider it is for models with experts.
    """

    mean: Floats
    factor: Floats
    site_sd: float
    misfit: float
    misfit_sd: float
    expert_misfit: float


def site_prior(calibration: Calibration, setting: CalibrationKey) -> SitePrior:
    """Normal law of the knobs of a site of that device and framework."""
    drawn = [on_link(calibration.corrections(setting, seed)) for seed in range(SEEDS)]
    covariance = np.cov(np.concatenate(drawn), rowvar=False)
    own = np.array([SITE_DEVIATION[knob] for knob in KNOBS])
    return SitePrior(
        mean=on_link(calibration.correction(setting)),
        factor=np.linalg.cholesky(covariance + np.diag(own**2)).astype(float),
        site_sd=float(np.median(calibration.site_sd)),
        misfit=max(float(np.median(calibration.misfit)), SMALLEST_MISFIT),
        misfit_sd=float(np.median(calibration.misfit_sd)),
        expert_misfit=calibration.expert_misfit,
    )


def on_link(correction: CostCorrection) -> Floats:
    """[knob] or [draw, knob] on the link's scale: logarithms, and the logit of a share."""
    values = {knob: np.asarray(getattr(correction, knob), dtype=float) for knob in KNOBS}
    share = np.clip(values[SHARE], EDGE, 1.0 - EDGE)
    return np.stack([np.log(share / (1.0 - share)) if k == SHARE else np.log(v) for k, v in values.items()], axis=-1)

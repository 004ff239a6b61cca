"""The model band of a prediction holds its median: for every shipped job, under every framework."""

import numpy as np
import pytest

from prism_jax.calibration.band import model_factors
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.job.load_job import load_job
from prism_jax.tables.streams import example_files


@pytest.mark.parametrize("example", sorted(example_files()))
def test_the_band_holds_the_median_it_is_printed_beside(example: str):
    job = load_job(example, [])
    for framework in ("", *FRAMEWORKS.names):
        factors = model_factors(job.model, job.cluster, job.plan, job.effective_calibration, framework)
        low, high = np.quantile(factors, [0.05, 0.95])
        assert low <= 1.0 <= high, framework

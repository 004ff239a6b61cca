"""Recordings that several files of tests look at."""

import pytest

from tests.prism_jax.recorded.calls import written
from tests.support.trace_oracle import PipelineJob


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight steps of a job with dp 3, pp 2 and 4 micro-batches, as a plain table; ranks 10 to 12 and 20 to 22."""
    return str(written(tmp_path_factory.mktemp("table") / "ops.csv", PipelineJob(2, 3, 4), 8))

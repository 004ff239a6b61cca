"""The slowdown of compute beside communication from kernels that ran beside it."""

import numpy as np
import pandas as pd
import pytest

import inference.overlap as cost
from inference.overlap import measured_slowdown
from inference.overlap_data import from_frame
from prism_jax.core.errors import DataError
from prism_jax.system import catalog

A100 = catalog.device("a100-80gb")


def table(**more: str) -> pd.DataFrame:
    """A long kernel half beside communication, a short one wholly, one alone."""
    rows = {"kernel": ["a", "b", "c"], "duration_s": [4e-3, 1e-3, 9.0], "overlapped_s": [4e-3, 1e-3, 9.0]}
    return pd.DataFrame({**rows, "overlap_ratio": [0.5, 1.0, 0.0], **more})


@pytest.fixture
def factors(monkeypatch) -> np.ndarray:
    """Fitted factors of the two kernels that ran beside communication, [draw, row]."""
    drawn = np.array([[1.2, 1.5], [1.1, 1.3]])
    monkeypatch.setattr(cost, "measured_factors", lambda *_: drawn)
    return drawn


def test_the_slowdown_is_lost_seconds_over_seconds_of_communication(factors):
    found = measured_slowdown(from_frame(table()), {}, A100, 2, np.random.default_rng(0))
    each = [(0.8 + 0.5) / (0.5 * 4.8 + 1.5), (0.4 + 0.3) / (0.5 * 4.4 + 1.3)]  # ms
    assert [draw.constants["overlap_slowdown"] for draw in found.draws] == pytest.approx(each)
    assert found.mean.constants["overlap_slowdown"] == pytest.approx(np.mean(each))
    assert found.notes == ("the table names no GPU: taken as measured on a100-80gb",)


def test_the_gpu_that_a_table_names_is_the_jobs(factors):
    known = from_frame(table(gpu="A100-SXM-80GB"))
    assert measured_slowdown(known, {}, A100, 2, np.random.default_rng(0)).notes == ()
    with pytest.raises(DataError, match="kernels of A100-SXM-80GB, but the job runs on h100-sxm"):
        measured_slowdown(known, {}, catalog.device("h100-sxm"), 2, np.random.default_rng(0))


def test_a_table_without_overlap_says_nothing():
    with pytest.raises(DataError, match="no kernel of this fit ran beside communication"):
        measured_slowdown(from_frame(table().assign(overlap_ratio=0.0)), {}, A100, 2, np.random.default_rng(0))

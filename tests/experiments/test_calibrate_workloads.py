"""What rows of other kinds of model say, and what they leave alone."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from experiments.calibrate_steps.workloads import with_workloads
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.calibration.key import CalibrationKey, Level
from prism_jax.core.errors import DataError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.validation.costed import costed, job_of_row
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.catalog import workload
from tests.support.measured_rows import measured_rows

KEY = jax.random.key(0)
SLOWER = 1.5


def encoder_rows() -> list[MeasuredRow]:
    """BERT on four sites, each step half as long again as the calibration of transformers alone says."""
    model, cluster = workload("bert-large"), catalog.cluster("dgx-a100", 8)
    rows = []
    for site in range(4):
        plan = ParallelPlan(16 + 8 * site, 8 * (16 + 8 * site), 512, dp=8, dtype="fp16")
        row = MeasuredRow(f"row {site}", f"site {site}", 1.0, model=model, cluster=cluster, plan=plan, framework="fsdp")
        rows.append(replace(row, measured_s=SLOWER * _predicted_s(row)))
    return rows


def _predicted_s(row: MeasuredRow) -> float:
    alone = replace(shipped(), terms=tuple(term for term in shipped().terms if term.level != Level.WORKLOAD))
    return costed(job_of_row(row, alone, deterministic=True)).cost.compute_s.sum()


@pytest.fixture(scope="module")
def made() -> Calibration:
    """The shipped calibration with what these rows say of encoders."""
    return with_workloads(shipped(), encoder_rows(), key=KEY)


def test_rows_of_other_kinds_move_their_own_kind_alone(made: Calibration) -> None:
    before = [term for term in shipped().terms if term.level != Level.WORKLOAD]
    assert [term for term in made.terms if term.level != Level.WORKLOAD] == before
    device = catalog.cluster("dgx-a100", 8).device
    decoder = CalibrationKey.of(device, "fsdp", model=workload("llama-2-7b"))
    assert made.correction(decoder) == shipped().correction(decoder)
    encoder = CalibrationKey.of(device, "fsdp", model=workload("bert-large"))
    assert made.correction(encoder).gemm > made.correction(decoder).gemm
    assert {name for term in made.terms if term.level == Level.WORKLOAD for name in term.names} == {"encoder"}


def test_rows_of_transformers_alone_are_refused() -> None:
    with pytest.raises(DataError, match="no row is of another kind"):
        with_workloads(shipped(), measured_rows()[:2], key=KEY)


def test_a_kind_that_no_run_has_measured_widens_the_band(made: Calibration) -> None:
    """Its members deviate by fresh draws; transformers, which have no member of the level, do not."""
    device = catalog.cluster("dgx-a100", 8).device
    decoder = CalibrationKey.of(device, "fsdp")
    other = decoder._replace(workload="other")
    assert np.std(np.log(made.corrections(other).gemm)) > np.std(np.log(made.corrections(decoder).gemm))
    assert made.correction(other) == made.correction(decoder)

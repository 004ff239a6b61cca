"""Grids of jobs: figures of each, the table beside the best, and targets."""

import csv
import io
from dataclasses import fields, replace
from pathlib import Path

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError, PlanError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.predict import predict
from prism_jax.study.figures import JobFigures, target_of
from prism_jax.study.run_grid import StudyRequest, figures_of, run_study
from prism_jax.study.scaling import job_of_size
from prism_jax.study.table import study_table
from prism_jax.system import catalog
from prism_jax.variability.tree import Variability
from tests.support.jobs import EVERYTHING, MODEL, STATED

ASKED = StudyRequest(n_samples=64)


def job_of(dp: int) -> Job:
    """A small job; five replicas are no possible number."""
    plan = ParallelPlan(micro_batch=1, global_batch=16, seq_len=512, dp=dp, software=STATED)
    return Job(MODEL, catalog.cluster("dgx-h100", dp), plan, EVERYTHING)


def test_figures_are_those_of_a_prediction() -> None:
    job = job_of(4)
    own, drawn = figures_of(job, ASKED), predict(job, key=jax.random.key(0), n_samples=64)
    assert (own.p50_s, own.p95_s, own.value) == (
        drawn.quantile(0.5),
        drawn.quantile(0.95),
        pytest.approx(drawn.quantile(0.95), rel=1e-3),
    )
    parts = own.compute_s + own.bubble_s + own.waiting_s + own.stalls_s
    exposed = own.exposed_tp_s + own.exposed_cp_s + own.exposed_ep_s + own.exposed_dp_s + own.exposed_pp_s
    assert parts + exposed == pytest.approx(own.mean_s, rel=1e-5)
    assert own.tokens_per_s * own.p50_s == pytest.approx(16 * 512)


def test_impossible_jobs_are_rows_and_finished_ones_are_kept(tmp_path: Path, monkeypatch) -> None:
    tasks, file = [2, 5, 4], tmp_path / "study.npz"
    first = run_study(tasks, job_of, ASKED, resume=file)
    assert [own.figures is None for own in first] == [False, True, False]
    assert "global_batch" in first[1].problem
    monkeypatch.setattr("prism_jax.study.run_grid.predict", None)  # nothing is predicted again
    again = run_study(tasks, job_of, ASKED, resume=file)
    assert repr(again) == repr(first)
    with pytest.raises(DataError, match="another study"):
        run_study(tasks, job_of, StudyRequest(n_samples=128), resume=file)


def test_damaged_journals_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.npz"
    file.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match="study.npz"):
        run_study([2], job_of, ASKED, resume=file)


@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_sizes_keep_the_batch_or_the_share_of_a_replica(mode) -> None:
    job = job_of(4)
    large = job_of_size(job, 16, mode)
    assert large.plan.n_devices == large.cluster.n_devices == 16
    assert large.plan.global_batch == (64 if mode == "weak" else 16)
    with pytest.raises(PlanError, match="multiple"):
        job_of_size(
            Job(job.model, catalog.cluster("dgx-h100", 8), ParallelPlan(1, 16, 512, tp=8, dp=1), Variability("none")),
            12,
            mode,
        )


def test_unknown_figures_are_nan() -> None:
    own = figures_of(job_of(2), ASKED)
    assert np.isnan([own.money_per_mtoken, own.target_prob]).all()
    assert isinstance(own, JobFigures)


# --- Rows beside the best: ratios, ties within their error, units of unlike jobs -------------------------------------


ONE = replace(JobFigures(**{item.name: 1.0 for item in fields(JobFigures)}), tokens_per_step=1e6, n_devices=8.0)


def table(*figures: JobFigures | None):
    settings = [{"plan.tp": str(k)} for k in range(len(figures))]
    return study_table(["plan.tp"], settings, figures, ["" if own else "no" for own in figures], "p95", "s")


def test_the_least_value_is_the_best_and_near_ones_are_tied() -> None:
    rows = table(
        replace(ONE, value=2.0, value_error=0.01),
        replace(ONE, value=1.0, value_error=0.01),
        None,
        replace(ONE, value=1.02, value_error=0.01),
    ).rows
    assert [row.is_best for row in rows] == [False, True, False, False]
    assert [row.is_tied for row in rows] == [False, False, False, True]
    assert rows[0].relative == pytest.approx(2.0)
    assert rows[0].relative_error == pytest.approx(2.0 * (0.005**2 + 0.01**2) ** 0.5)


def test_jobs_that_do_not_fit_are_not_the_best_unless_none_fits() -> None:
    big, small = replace(ONE, value=1.0, fits=0.0), replace(ONE, value=2.0)
    assert table(big, small).rows[1].is_best
    assert table(big, replace(small, fits=0.0)).rows[0].is_best


def test_unlike_sizes_are_compared_by_gpu_hours() -> None:
    found = table(replace(ONE, value=3600.0), replace(ONE, value=1900.0, n_devices=16.0))
    assert found.unit == "GPU-hours"
    assert [row.is_best for row in found.rows] == [True, False]
    assert found.rows[1].relative == pytest.approx(1900.0 * 2 / 3600.0)


def test_csv_and_frame_hold_every_figure() -> None:
    found = table(ONE, None)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (rows[0]["p95_s"], rows[1]["p95_s"], rows[1]["problem"]) == ("1.0", "", "no")
    assert list(found.to_frame().columns) == list(rows[0])


# --- Targets: what they accept, and their probability in closed form -------------------------------------------------


FACTORS = np.array([0.8, 0.9, 1.0, 1.1])


def test_a_time_is_met_by_the_draws_below_its_bound() -> None:
    assert target_of("p95<=8s").prob(8.0, FACTORS) == 0.75
    assert target_of("p95 <= 8000 ms").prob(8.0, FACTORS) == 0.75


def test_a_rate_is_met_by_the_draws_above_its_bound() -> None:
    assert target_of("tokens_per_s>=5e6").prob(5e6, FACTORS) == 0.75


@pytest.mark.parametrize(
    "text", ["p95", "p95>=8s", "mfu<=0.4", "p95<=soon", "p95<=-1s", "p95<=0", "cash<=3", "p95<=nan", "p95<=1e999"]
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="--target"):
        target_of(text)


def test_gpu_hours_of_models_without_tokens_are_those_of_a_million_samples() -> None:
    """Images and samples of recommenders have no sequence length: a step has as many as its batch."""
    for name in ("resnet50_64", "dlrm_dcnv2_64"):
        job = load_job(name)
        own = figures_of(job, replace(ASKED, objective="gpu_hours_per_mtoken"))
        assert own.value == pytest.approx(own.mean_s / 3600 * 64 / job.plan.global_batch * 1e6, rel=1e-3)

"""Studies: impossible jobs are rows, finished tasks are kept, figures are those of a prediction."""

from pathlib import Path

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError, PlanError
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.predict import predict
from prism_jax.study.figures import JobFigures
from prism_jax.study.run_grid import StudyRequest, figures_of, run_study
from prism_jax.study.scaling import job_of_size
from prism_jax.system import catalog
from prism_jax.variability.tree import Variability
from tests.support.jobs import EVERYTHING, MODEL, STATED

ASKED = StudyRequest(n_samples=64)
LOADED: list[int] = []


def job_of(dp: int) -> Job:
    """A small job; five replicas are no possible number."""
    LOADED.append(dp)
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


def test_impossible_jobs_are_rows_and_finished_ones_are_kept(tmp_path: Path) -> None:
    LOADED.clear()
    tasks, file = [2, 5, 4], tmp_path / "study.npz"
    first = run_study(tasks, job_of, ASKED, resume=file)
    assert [own.figures is None for own in first] == [False, True, False]
    assert "global_batch" in first[1].problem
    assert tasks == LOADED
    again = run_study(tasks, job_of, ASKED, resume=file)
    assert tasks == LOADED  # nothing was made again
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

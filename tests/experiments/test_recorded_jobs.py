"""The committed recordings of experiments/recorded_jobs: PyTorch jobs without annotations."""

from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.recorded_jobs.work_factors import BARS, scores
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.predict_trace import Check, predict_trace
from prism_jax.recorded.recorded_job import fit_job
from prism_jax.recorded.unseen_steps import match_moments, predict_job
from prism_jax.recorded.what_if import what_if
from prism_jax.trace.trace import Trace

RECORDINGS = Path(__file__).resolve().parents[2] / "experiments" / "recorded_jobs" / "recordings"
UNEVEN = RECORDINGS / "ddp_2_uneven"


def test_they_are_small() -> None:
    assert sum(file.stat().st_size for file in RECORDINGS.rglob("*.gz")) < 300_000


@pytest.mark.parametrize("name", sorted(folder.name for folder in RECORDINGS.iterdir()))
def test_ranks_of_a_pipeline_are_stages_and_others_replicas(name: str) -> None:
    trace = open_trace(RECORDINGS / name)
    assert isinstance(trace, Trace)
    split, n_rank = name.split("_")[:2]
    assert (trace.job.pp, trace.job.dp) == ((int(n_rank), 1) if split == "pp" else (1, int(n_rank)))
    assert len(trace.steps) == 36


@pytest.mark.parametrize("name", ["ddp_2_uneven", "ddp_4"])
def test_recombined_steps_are_as_long_as_the_recorded_ones(name: str) -> None:
    """Before moments are matched. Logarithms of single ops made them 2.4 times (ddp_2_uneven) as long."""
    trace = open_trace(RECORDINGS / name)
    assert isinstance(trace, Trace)
    drawn = predict_job(fit_job(trace), key=jax.random.key(0), n_draw=1000)
    assert drawn.step_s.mean() == pytest.approx(trace.step_s.mean(), rel=0.15)
    assert match_moments(fit_job(trace)).agreement.mean == pytest.approx(1.0, abs=0.15)


def test_a_prediction_as_recorded_is_of_the_recorded_steps() -> None:
    trace = open_trace(UNEVEN)
    report = predict_trace(UNEVEN, check=Check(1.0))
    assert report.steps_s.p50 == pytest.approx(np.quantile(trace.step_s, 0.5), rel=0.03)
    assert report.steps_s.p95 == pytest.approx(np.quantile(trace.step_s, 0.95), rel=0.05)
    assert report.evidence is not None
    assert (report.evidence.agreement.mean, report.evidence.agreement.spread) == (1.0, 1.0)
    assert [line.split(" ")[0] for line in report.doubts] == ["36", "neighbouring"]
    assert sum(line.startswith("warning: ") for line in report.lines()) == 2


def test_the_rank_with_extra_work_is_found_and_its_loss_is_sane() -> None:
    report = what_if(UNEVEN, n_draw=1000)
    assert report.worst_ranks == (1,)
    as_recorded, replaced, *others = report.changes.values()
    assert 0.7 < replaced.p50 / as_recorded.p50 < 0.9
    assert all(0.9 < other.p50 / as_recorded.p50 < 1.05 for other in others)


def test_work_of_a_published_recording_predicts_its_other_half(shared_data: Path) -> None:
    """Twenty random halves, as the page has them."""
    errors, distances = scores(shared_data / "traces" / "trace-SE.parquet")
    assert np.median(np.abs(errors)) <= BARS["p95"]
    assert np.median(distances) <= BARS["ks"]

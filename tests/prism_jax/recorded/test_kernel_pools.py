"""Kernels inside recorded operations: what they add, which of them vary, and runs with kernels drawn anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.kernel_pools.made import MadeJob, write_made_job
from prism_jax.core.errors import DataError
from prism_jax.recorded.describe_trace import kernels_of_trace
from prism_jax.recorded.edits import with_micro_batches
from prism_jax.recorded.kernel_draws import kernel_draws, sum_of_kernels
from prism_jax.recorded.predict_trace import predict_trace
from prism_jax.recorded.prediction import ks_distance
from prism_jax.recorded.recorded_job import fit_job
from prism_jax.recorded.unseen_steps import match_moments, predict_job
from prism_jax.trace.trace import Trace
from tests.support.kineto_profiles import Event, bare, kernel, span, step
from tests.support.traces import trace_at

N_STEP = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_made_job(MadeJob(seed=2, n_step=N_STEP, n_layer=3), folder)
    return folder


@pytest.fixture(scope="module")
def made(folder: Path) -> Trace:
    return trace_at(folder, kernels=True)


def test_kernels_and_the_rest_are_as_long_as_their_runs(made: Trace) -> None:
    assert made.kernels is not None
    table = kernels_of_trace(made).table
    run_s = (made.end_s - made.start_s)[np.unique(made.kernels.op)].sum()
    between_s = 5 * 1e-6 * 3 * 2 * N_STEP  # a microsecond between the six kernels of each run
    assert sum(one.share for one in table.pools) + table.rest_share == pytest.approx(1.0, abs=1e-12)
    assert table.rest_share == pytest.approx(between_s / run_s, rel=2e-3)  # recorded to a nanosecond
    assert {one.count for one in table.pools} == {3 * 2 * N_STEP}


@pytest.mark.parametrize("seed", [0, 3])
def test_the_noisy_kernel_comes_first(seed: int, tmp_path: Path) -> None:
    noisy = write_made_job(MadeJob(seed), tmp_path)
    first, *others = kernels_of_trace(tmp_path).pools
    assert first.name == noisy
    assert first.cv_within == pytest.approx(0.2, rel=0.15)
    assert first.shapes == f"[[64,{8 + int(noisy[-1])}],[{8 + int(noisy[-1])},64],[]]"
    assert all(one.cv_within < 0.02 for one in others)


def test_gpus_that_differ_show_between_them(tmp_path: Path) -> None:
    write_made_job(MadeJob(3, gpu_cv=0.05, step_cv=0.0), tmp_path)
    steady = [one for one in kernels_of_trace(tmp_path).pools if one.cv_within < 0.1]
    assert len(steady) == 5
    between = [one.cv_between or 0.0 for one in steady]
    assert max(between) - min(between) < 0.003
    assert between[0] > 3 * steady[0].cv_within


def operator(name: str, ts: float, dur: float, shapes: list[list[int]]) -> Event:
    """An operator of the host with the shapes of its inputs."""
    event = span("cpu_op", name, ts, dur)
    event["args"]["Input Dims"] = shapes
    return event


def test_cpu_operators_take_what_those_they_call_do_not(tmp_path: Path) -> None:
    operators = [
        operator("aten::linear", 100, 400, [[8, 16], [16, 4]]),
        operator("aten::addmm", 150, 300, [[4], [8, 16], [16, 4]]),
        span("cpu_op", "aten::relu", 600, 100),
        span("cpu_op", "gloo:all_reduce", 900, 100),
    ]
    found = trace_at(bare(tmp_path, [step(0, 0, 1000), *operators]), kernels=True)
    assert found.kernels is not None
    kernels = found.kernels
    taken = {
        kernels.pools[pool]: 1e6 * seconds[0, 0] for pool, seconds in zip(kernels.pool, kernels.seconds, strict=True)
    }
    assert {(name, shapes): round(us, 3) for (name, shapes, _), us in taken.items()} == {
        ("aten::linear", "[[8,16],[16,4]]"): 100.0,
        ("aten::addmm", "[[4],[8,16],[16,4]]"): 300.0,
        ("aten::relu", ""): 100.0,
    }


def test_sizes_that_change_from_step_to_step_are_one_pool(tmp_path: Path) -> None:
    events = []
    for number, size in enumerate((8, 16, 24)):
        begin = 1000.0 * number
        events += [step(number, begin, 900.0), *kernel(begin + 100.0, "gemm", number + 1)]
        events.append(operator("aten::mm", begin + 98.0, 3.0, [[size, 4], [4, 2]]))
    found = trace_at(bare(tmp_path, events), kernels=True)
    assert found.kernels is not None
    assert [pool.shapes for pool in found.kernels.pools] == ["[[*,4],[4,2]]"]


def test_the_sum_by_fft_is_that_of_draws() -> None:
    rng = np.random.default_rng(0)
    values = [rng.exponential(size=400) - 1.0, rng.standard_t(3, 300)]
    values = [one - one.mean() for one in values]
    weights = [np.full(5, 0.1), np.full(2, 0.25)]
    grid, below = sum_of_kernels(list(zip(values, weights, strict=True)))
    n = 40_000
    drawn = np.sum([w[0] * rng.choice(one, (len(w), n)).sum(axis=0) for one, w in zip(values, weights, strict=True)], 0)
    assert ks_distance(np.interp(rng.random(n), below, grid), drawn) < 1.63 * np.sqrt(2 / n)  # 1 % false alarms
    variance = sum((w**2).sum() * one.var() for one, w in zip(values, weights, strict=True))
    assert np.diff(below, prepend=0.0) @ grid**2 == pytest.approx(variance, rel=2e-3)


def test_runs_drawn_anew_keep_their_mean_and_variance(made: Trace) -> None:
    job = fit_job(made)
    assert job.kernels is not None
    drawn = job.kernels.drawn(np.random.default_rng(0).random((len(job.kernels.op), 2, 20_000)))
    for row, op in enumerate(job.kernels.op.tolist()):
        shared = job.shared_s[op].ravel()
        new = np.random.default_rng(1).choice(shared, drawn[row].size) * drawn[row].ravel()
        assert new.mean() == pytest.approx(job.run_s[op].mean(), rel=2e-3)
        assert new.std() == pytest.approx(job.run_s[op].std(), rel=0.02)


def test_steps_drawn_with_kernels_are_like_those_without(made: Trace) -> None:
    with_, without = (predict_job(fit_job(one), key=0) for one in (made, replace(made, kernels=None)))
    for p in (0.5, 0.95):
        assert with_.quantile(p) == pytest.approx(without.quantile(p), rel=0.01)
    assert predict_trace(made, seed=1, n_draw=400, train_fraction=1.0).steps_s.p95 > 0.0


def test_more_micro_batches_take_the_kernels_of_those_that_were_recorded() -> None:
    recording = Path(__file__).resolve().parents[3] / "experiments" / "kernel_pools" / "recording"
    found = trace_at(recording, kernels=True)
    job = match_moments(fit_job(found))
    assert job.kernels is not None
    same, twice = (with_micro_batches(job, n) for n in (6, 12))
    assert same.kernels is not None
    assert twice.kernels is not None
    np.testing.assert_array_equal(np.sort(same.kernels.factor[:, 0]), np.sort(job.kernels.factor[:, 0]))
    assert len(twice.kernels.op) == 2 * len(job.kernels.op) - 2  # the optimizer of each stage runs once
    plain = with_micro_batches(match_moments(fit_job(replace(found, kernels=None))), 12)
    p50 = [predict_job(one, key=0).quantile(0.5) for one in (twice, plain)]
    assert p50[0] == pytest.approx(p50[1], rel=0.03)


def test_kernels_that_do_not_vary_change_nothing(made: Trace) -> None:
    assert made.kernels is not None
    still = replace(
        made.kernels, seconds=np.repeat(made.kernels.seconds[..., :1], N_STEP, axis=-1)[:, :1].repeat(2, axis=1)
    )
    found = kernel_draws(still, made.end_s - made.start_s)
    assert len(found.op) == 0
    assert (found.shared == 1.0).all()


@pytest.mark.parametrize("source", ["local_cluster", "steps.csv"])
def test_recordings_without_kernels_are_refused(source: str, tmp_path: Path) -> None:
    table = tmp_path / "steps.csv"
    table.write_text("step,step_time_s\n1,0.5\n2,0.6\n3,0.5\n")
    with pytest.raises(DataError, match="kernels"):
        kernels_of_trace(str(table) if source == "steps.csv" else source)
    with pytest.raises(DataError, match="kernels"):
        predict_trace(str(table) if source == "steps.csv" else source, kernels=True)

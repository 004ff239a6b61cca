"""`prism-jax scale`: sizes, marginal returns, and where communication stops hiding."""

import json
from dataclasses import fields, replace
from math import inf, isinf, isnan, log2

import pytest
from hypothesis import given, strategies as st

from prism_jax.job.job import Job
from prism_jax.job.load_job import loaded
from prism_jax.shell.app import main
from prism_jax.study.figures import JobFigures
from prism_jax.study.scaling import (
    KNEE,
    crossing,
    exposed_share,
    job_of_size,
    of_step,
    onsets,
    size_rows,
    smallest_meeting,
    stop_size,
)
from prism_jax.study.scaling_report import ScalingReport

JOB = ["scale", "llama2_7b_fsdp_64", "--samples", "64"]


def test_rows_agree_with_the_text(capsys, tmp_path) -> None:
    arguments = [*JOB, "--gpus", "8,16,20", "--target", "p95<=1h", "--resume", str(tmp_path / "x.npz"), "--price", "2"]
    assert main([*arguments, "--json"]) == 0
    report = ScalingReport.from_dict(json.loads(capsys.readouterr().out))
    assert [row.n_devices for row in report.rows] == [8, 16, 20]
    first, second, _ = (row.figures for row in report.rows)
    assert first is not None
    assert second is not None
    assert second.tokens_per_step == 2.0 * first.tokens_per_step
    ratio = second.tokens_per_s_per_gpu / first.tokens_per_s_per_gpu
    assert report.rows[1].per_gpu_change == pytest.approx(ratio - 1.0)
    assert first.money_per_mtoken == pytest.approx(2.0 * 8 / 3600 * first.mean_s / first.tokens_per_step * 1e6)
    assert report.target is not None
    assert (report.target.n_devices, report.target.prob) == (8, 1.0)
    assert main([*arguments, "--details"]) == 0
    text = capsys.readouterr().out
    assert "p95<=1h: from 8 GPUs, with probability 100%" in text
    assert f"{100 * report.rows[1].per_gpu_change:+.1f}%" in text


# --- Scaling ---------------------------------------------------------------------------------------------------------
# Scaling: marginal returns and changes in closed form, the size that stops paying, the size that meets a target.


ONE = replace(JobFigures(**{item.name: 1.0 for item in fields(JobFigures)}), target_prob=0.0)
SIZES = (8, 16, 32, 64)


def rows_of(power: float):
    """Throughput that grows with a power of the number of GPUs."""
    own = [replace(ONE, n_devices=n, tokens_per_s=n**power, tokens_per_s_per_gpu=n ** (power - 1)) for n in SIZES]
    return size_rows(SIZES, [({}, one, "") for one in own])


@given(st.floats(0.05, 1.2))
def test_the_marginal_return_of_a_power_law_is_its_power(power: float) -> None:
    first, *rest = rows_of(power)
    assert isnan(first.marginal_return)
    assert [row.marginal_return for row in rest] == pytest.approx([power] * 3)
    assert rest[-1].per_gpu_change == pytest.approx(8.0 ** (power - 1) - 1.0)


def test_more_stops_paying_at_the_first_size_below_the_threshold() -> None:
    assert stop_size(rows_of(0.7), 0.8) == 16
    assert stop_size(rows_of(0.9), 0.8) is None


def test_impossible_sizes_are_stepped_over() -> None:
    own = replace(ONE, n_devices=8.0, tokens_per_s=8.0)
    rows = size_rows(
        (8, 12, 32), [({}, own, ""), ({}, None, "no"), ({}, replace(own, n_devices=32.0, tokens_per_s=16.0), "")]
    )
    assert rows[1].figures is None
    assert rows[2].marginal_return == pytest.approx(0.5)


def test_the_smallest_size_that_likely_meets_the_target_and_fits() -> None:
    chances = [(0.2, 1.0), (0.6, 0.0), (0.7, 1.0), (0.9, 1.0)]
    own = [
        replace(ONE, n_devices=n, target_prob=prob, fits=fits) for n, (prob, fits) in zip(SIZES, chances, strict=True)
    ]
    found = smallest_meeting(size_rows(SIZES, [({}, one, "") for one in own]))
    assert found is not None
    assert found.n_devices == 32


# --- Onset: where growing communication stops hiding, in closed form, beside the cost model's own exposure -----------


@pytest.fixture(scope="module")
def job(examples) -> Job:
    return loaded(examples / "llama2_7b_fsdp_64.yaml", ["plan.micro_batch=4", "plan.global_batch=256"])


def test_crossing_is_found_between_doublings() -> None:
    assert crossing(lambda n: float(n), 100.0, 8) == pytest.approx(64 * 2 ** (36 / 64))
    assert crossing(lambda n: log2(n), 6.5, 8) == pytest.approx(64 * 2**0.5)
    assert crossing(lambda _: 1.0, 2.0, 8) == inf
    assert crossing(lambda _: 3.0, 2.0, 8) == 8.0


def test_the_step_shows_a_share_at_its_onset(job: Job) -> None:
    n = of_step(job)
    below, above = 2 ** int(log2(n)), 2 ** (int(log2(n)) + 1)
    assert exposed_share(job_of_size(job, below, "weak")) <= KNEE < exposed_share(job_of_size(job, above, "weak"))


def test_a_ring_stops_hiding_first_and_the_network_between(job: Job) -> None:
    """The network takes the faster algorithm; its window is the same."""
    for own in onsets(job):
        assert own.comm_s < own.window_s
        assert job.plan.n_devices < own.ring <= own.law <= own.tree


def test_slower_links_bring_the_onset_forward(job: Job) -> None:
    inner, outer = job.cluster.tiers
    slower = replace(job.cluster, tiers=(inner, replace(outer, latency_s=2.0 * outer.latency_s)))
    assert of_step(replace(job, cluster=slower)) < of_step(job)


def test_a_job_without_sharded_parameters_has_no_onset_per_pass(job: Job) -> None:
    plain = replace(job, plan=replace(job.plan, sharding="none"))
    assert onsets(plain) == ()
    assert isinf(of_step(plain)) or of_step(plain) > 8


def test_degrees_vary_in_a_file_that_does_not_say_its_number_of_gpus(capsys) -> None:
    """dp times the degrees is the size that the batch is of: without tensor parallelism the step is that of the file."""
    sizes = ["--gpus", "64", "--json"]
    assert main([*JOB, *sizes]) == 0
    plain = ScalingReport.from_dict(json.loads(capsys.readouterr().out)).rows[0].figures
    assert main([*JOB, *sizes, "--vary", "plan.tp=1,2"]) == 0
    (row,) = ScalingReport.from_dict(json.loads(capsys.readouterr().out)).rows
    assert row.settings == {"plan.tp": "1"}
    assert row.figures == plain


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("plan.dp=8,16", "--vary plan.dp: the number of GPUs decides it"),
        ("plan.dp=8", "--vary plan.dp: the number of GPUs decides it"),
        ("cluster.n_devices=8,16", "--vary cluster.n_devices: the number of GPUs decides it"),
        ("plan.tp=", "--vary plan.tp=: an empty value"),
        ("plan.tp", "for example --vary plan.tp=1,2,4,8"),
    ],
)
def test_what_cannot_vary_is_said_of_the_option_that_was_given(vary: str, message: str, capsys) -> None:
    assert main([*JOB, "--gpus", "64", "--vary", vary]) == 2
    assert message in capsys.readouterr().err

"""Onset: where growing communication stops hiding, in closed form, beside the cost model's own exposure."""

from dataclasses import replace
from math import inf, isinf, log2

import pytest

from prism_jax.job.job import Job
from prism_jax.job.load_job import loaded
from prism_jax.study.scaling import KNEE, crossing, exposed_share, job_of_size, of_step, onsets


@pytest.fixture(scope="module")
def job(examples) -> Job:
    return loaded(examples / "llama2_7b_fsdp_64.yaml")


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

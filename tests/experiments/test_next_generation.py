"""The grid of hardware: derivatives against differences on a small job, domains, and ranks."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from experiments.next_generation.run import AXES, BAR, base_of, figures_of, points, with_domain
from prism_jax.job.load_job import load_job
from prism_jax.variability.families import LogNormal, Normal
from prism_jax.variability.tree import Variability
from tests.support.jobs import compute_varies, make_job, network_varies

TREE = Variability(
    "t", {**compute_varies(gpu=LogNormal(0.03), call=Normal(0.01)), **network_varies(regime=LogNormal(0.05))}
)
GRID = {"nvlink_domain": [8], "compute": [1, 4], "bandwidth": [1, 2], "clock_spread": [0.5, 2], "network_cv": [1, 4]}
CONFIG = {"p": 0.95, "seed": 0, "n_samples": 64, "grid": GRID, "step": 1e-7, "wide_step": 1e-2, "beside": 1e-3}


@pytest.fixture(scope="module")
def found():
    with jax.enable_x64(True):
        return list(points(replace(load_job("t5_11b_256"), variability=TREE), CONFIG, least=True))


def test_derivatives_are_those_of_central_differences(found) -> None:
    assert len(found) == 17
    assert max(own.error for own in found) < BAR


def test_more_of_everything_is_faster_and_more_variance_slower(found) -> None:
    today = base_of(found, 8)
    slopes = dict(zip(AXES, today.slope, strict=True))
    assert slopes["compute"] < 0.0
    assert slopes["bandwidth"] < 0.0
    assert slopes["clock_spread"] > 0.0
    assert slopes["network_cv"] > 0.0
    assert -slopes["compute"] - slopes["bandwidth"] <= 1.0 + 1e-6  # the rest are latencies and launches
    assert [name for name, _ in today.ranked] == sorted(AXES, key=lambda axis: -abs(slopes[axis]))


def test_rows_are_relative_to_the_hardware_of_today(found) -> None:
    rows = figures_of("job", found)
    assert rows[f"job: {base_of(found, 8).name}"]["p95"] == 1.0
    assert len(rows) == len(found)


def test_a_domain_changes_the_innermost_links_alone() -> None:
    job = make_job(TREE)
    inner, *rest = with_domain(job, 72).cluster.tiers
    assert inner == replace(job.cluster.tiers[0], n_devices=72)
    assert rest == [*job.cluster.tiers[1:]]


def test_no_spread_is_the_step_of_constant_factors() -> None:
    """Spread 0 of clocks and of the network removes both."""
    from prism_jax.simulate.sensitivity import Spread
    from prism_jax.simulate.step_time import step_quantile

    tree = Variability(
        "t", {**compute_varies(gpu=LogNormal(0.03)), **network_varies(regime=LogNormal(0.05), call=Normal(0.02))}
    )
    quantile = step_quantile(make_job(tree), 0.95, key=0, n_samples=128)
    calm = step_quantile(make_job(), 0.95, key=0, n_samples=128)
    assert float(quantile(spread=Spread(0.0, 0.0))) == pytest.approx(float(calm()), rel=1e-5)
    assert float(quantile(spread=Spread(1.0, 1.0))) == pytest.approx(float(quantile()), rel=1e-6)
    assert np.diff([float(quantile(spread=Spread(k, 1.0))) for k in (0.0, 1.0, 2.0)]).min() > 0.0

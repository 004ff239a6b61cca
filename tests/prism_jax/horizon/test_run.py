"""Runs: the exact form behind them, spare nodes, checkpoints by size, and refusals."""

from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.stats import binom, poisson

from prism_jax.core.errors import SpecError
from prism_jax.horizon.advice import changes, response
from prism_jax.horizon.checkpoint import BEHIND, DISK, Checkpoint, CheckpointTier, PlannedStop, Recovery
from prism_jax.horizon.reliability import (
    Hazard,
    Reliability,
    SlowPhase,
    down_share,
    enough_prob,
    fewest_spares,
    n_down_law,
    of_mtbf,
)
from prism_jax.horizon.reliability_file import preset, preset_names
from prism_jax.horizon.run import TrainingRun
from prism_jax.horizon.simulated_run import simulated_run
from prism_jax.horizon.steps import StepSum
from prism_jax.system.catalog import load_toml

RUN = TrainingRun(
    100_000, StepSum.fixed(5.0), 16384, 8, of_mtbf(3.0, 16384), Checkpoint(30.0, load_s=60.0), Recovery(300.0)
)


def test_the_interval_is_the_best_of_all():
    """Against a grid on the exact form: time within .01 %."""
    grid = [float(RUN.expected_s(interval_s)) for interval_s in np.geomspace(50.0, 20_000.0, 4000)]
    assert float(RUN.expected_s()) < 1.0001 * min(grid)


def test_planned_stops_leave_the_interval_best():
    run = replace(RUN, recovery=replace(RUN.recovery, planned=(PlannedStop(2000.0, 300.0),)))
    grid = [float(run.expected_s(interval_s)) for interval_s in np.geomspace(50.0, 20_000.0, 4000)]
    assert float(run.expected_s()) < 1.0001 * min(grid)


def test_gradients_are_finite_differences():
    run = replace(RUN, checkpoint=replace(RUN.checkpoint, interval_s=2000.0))
    found, step = run.gradient(), 1e-4
    d, m = run.interval_s, 1.0 / run.rate_s
    by_d = (run.expected_s(d * (1 + step)) - run.expected_s(d * (1 - step))) / (2 * step * d)
    by_m = (run.expected_s(rate_s=1 / (m * (1 + step))) - run.expected_s(rate_s=1 / (m * (1 - step)))) / (2 * step * m)
    assert found["interval_s"] == pytest.approx(float(by_d), rel=1e-4)
    assert found["mtbf_s"] == pytest.approx(float(by_m), rel=1e-4)


def test_checkpoints_wait_until_the_last_one_can_be_loaded():
    behind = replace(RUN, checkpoint=Checkpoint(5.0, background_s=3000.0))
    assert behind.interval_s + 5.0 >= 3000.0


def test_changes_are_sorted_and_true():
    run = replace(RUN, checkpoint=replace(RUN.checkpoint, interval_s=7200.0))
    found = changes(run)
    assert [one.saves_s for one in found] == sorted((one.saves_s for one in found), reverse=True)
    best = next(one for one in found if one.what.startswith("checkpoint every"))
    assert best.saves_s == pytest.approx(float(run.expected_s()) - float(RUN.expected_s()))


def test_the_response_falls_with_the_time_between_failures():
    rows = response(RUN)
    assert all(a.expected_s > b.expected_s for a, b in pairwise(rows))
    at_three = next(row for row in rows if row.mtbf_h == 3.0)
    assert at_three.expected_s == pytest.approx(float(RUN.expected_s()))


LOSES = Hazard("GPU", per_node_h=1e-3, repair_s=7200.0)


def test_nodes_in_repair_are_binomial_and_poisson_where_rare():
    law = n_down_law(Reliability((LOSES,)), 8192, 8, 6)
    share = 0.002 / 1.002
    assert down_share(LOSES, 8192, 8) == pytest.approx(share)
    count = np.arange(10)
    assert law[:10] == pytest.approx(binom.pmf(count, 1024 + 6, share), rel=1e-9)
    assert law[:6] == pytest.approx(poisson.pmf(count[:6], 1030 * share), rel=0.02)


def test_spares_are_the_fewest_that_suffice():
    both = Reliability((LOSES, replace(LOSES, cause="switch", nodes_lost=4.0)))
    n = fewest_spares(both, 8192, 8)
    assert enough_prob(both, 8192, 8, n) >= 0.99 > enough_prob(both, 8192, 8, n - 1)
    assert n > fewest_spares(Reliability((LOSES,)), 8192, 8) > 0
    assert fewest_spares(of_mtbf(3.0, 8192), 8192, 8) == 0  # nothing is said of repair


def test_checkpoints_by_size():
    """BLOOM: 2.3 TB from 48 nodes in 40 s; asynchronous writes block for the copy into memory alone."""
    assert Checkpoint.of_bytes(2.3e12, 48).blocking_s == pytest.approx(40.0, rel=0.01)
    behind = Checkpoint.of_bytes(2.3e12, 48, BEHIND)
    assert behind.blocking_s < 10.0 < behind.background_s
    assert Checkpoint.of_bytes(2.3e12, 4800).blocking_s == pytest.approx(2.3e12 / DISK.gb_per_s_cluster / 1e9)


@pytest.mark.parametrize("name", preset_names())
def test_presets_say_what_was_counted(name: str):
    found = preset(name)
    assert found.source
    where = load_toml("prism_jax.horizon", "reliability.toml")[name].get("observed")
    if where:
        events = found.rate_h(where["n_gpus"], int(where["node_size"])) * where["hours"]
        published = {"llama3-2024": 419, "b200-504": 21, "bloom-2022": 18.5, "opt-2021": 90, "crusoe-h200": 205}
        assert events == pytest.approx(published[name], rel=1e-9)


def test_two_hazards_give_the_published_times_to_failure():
    """RSC-1: measured at 1,024 GPUs, published as projections above; Llama 3 at its own size."""
    assert preset("rsc-1").mttf_h(1024, 8) == pytest.approx(7.9, rel=0.01)
    assert preset("rsc-1").mttf_h(131_072, 8) == pytest.approx(0.23, rel=0.05)
    assert preset("llama3-2024").mttf_h(16_384, 8) == pytest.approx(3.09, rel=0.01)


def test_rates_of_which_next_to_nothing_is_known_are_refused_before_worlds_that_never_end():
    threats = Reliability((Hazard("guess", per_gpu_h=1e-5, log_sd=20.0),))
    with pytest.raises(SpecError, match=r"in \d.*% of worlds: guess is known to a factor of 4.9e\+08"):
        simulated_run(replace(RUN, reliability=threats), key=jax.random.key(0), n_world=200)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Checkpoint(-1.0),
        lambda: Checkpoint(float("nan")),
        lambda: Checkpoint(1.0, interval_s=0.0),
        lambda: Checkpoint.of_bytes(0.0, 8),
        lambda: Checkpoint.of_bytes(1e9, 0),
        lambda: CheckpointTier("disk", 0.0),
        lambda: Recovery(-1.0),
        lambda: Recovery(1.0, warmup_slowdown=0.9),
        lambda: Recovery(1.0, spares=-1),
        lambda: Recovery(1.0, policy="hope"),
        lambda: PlannedStop(0.0, 1.0),
        lambda: of_mtbf(0.0, 8),
        lambda: of_mtbf(1e-300, 8),
        lambda: Hazard("x", per_gpu_h=1e300),
        lambda: Hazard("x", per_gpu_h=1e-5, shape=1e-9),
        lambda: Hazard("x", per_gpu_h=1e-5, repair_s=1e300),
        lambda: Hazard("x", per_gpu_h=1e-5, repair_log_sd=50.0),
        lambda: SlowPhase("x", per_job_h=1.0, slowdown=1e300),
        lambda: replace(RUN, n_steps=0),
        lambda: replace(RUN, n_steps=10**13),
    ],
)
def test_impossible_figures_are_refused(make):
    with pytest.raises(SpecError, match="must be"):
        make()

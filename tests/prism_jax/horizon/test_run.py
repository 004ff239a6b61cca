"""A long run: closed forms, renewal, and checkpoints on two levels."""

from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from scipy.stats import binom, poisson

from prism_jax.core.errors import SpecError
from prism_jax.horizon.advice import TwoLevels, changes, response, two_level_time_s, two_levels_of
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
from prism_jax.horizon.run import TrainingRun, best_interval, expected_time, growth
from prism_jax.horizon.simulated_run import simulated_run
from prism_jax.horizon.steps import StepSum
from prism_jax.system.catalog import load_toml

RUN = TrainingRun(
    100_000, StepSum.fixed(5.0), 16384, 8, of_mtbf(3.0, 16384), Checkpoint(30.0, load_s=60.0), Recovery(300.0)
)


def test_the_interval_is_the_best_of_all():
    """Against a grid on the exact form: time within .01%."""
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


# --- The exact renewal form against its parts, against simulation, and against first-order lines ---------------------


SETTINGS = [(w, rate) for w in (1e-6, 0.01, 0.3, 5.0) for rate in (1e-5, 0.003, 0.3, 2.0)]


def simulated_time(n_interval, interval, blocking, outage, rate, rng):
    """Wall time of one job, interval by interval."""
    total = 0.0
    for _ in range(n_interval):
        while True:
            alive = rng.exponential(1.0 / rate)
            if alive >= interval + blocking:
                total += interval + blocking
                break
            total += alive + outage_time(outage, rate, rng)
    return total


def outage_time(outage, rate, rng):
    total = 0.0
    while True:
        alive = rng.exponential(1.0 / rate)
        if alive >= outage:
            return total + outage
        total += alive


@pytest.mark.parametrize(("interval", "blocking", "outage", "rate"), [(1.0, 0.1, 0.2, 0.1), (0.5, 0.2, 0.5, 1.5)])
def test_it_is_the_mean_of_simulated_jobs(interval, blocking, outage, rate):
    rng = np.random.default_rng(1)
    times = [simulated_time(5, interval, blocking, outage, rate, rng) for _ in range(4000)]
    error = np.std(times) / np.sqrt(len(times))
    assert abs(np.mean(times) - expected_time(5 * interval, interval, blocking, outage, rate)) < 4.4 * error  # 1e-5


def test_published_shares_at_16384_gpus():
    """Share of useful time with checkpoints each 60 and each 5 minutes, restarts of 5 minutes, one interruption in 1.8 h."""
    share = 1.0 / expected_time(1.0, np.array([60.0, 5.0]), 0.0, 5.0, 1 / (1.8 * 60.0))
    assert share == pytest.approx([0.714, 0.933], abs=2e-3)


def test_without_interruptions_only_checkpoints_cost():
    assert expected_time(100.0, 10.0, 1.0, 7.0, 0.0) == pytest.approx(110.0, rel=1e-12)
    assert growth(np.array([0.0, 1e-12, 1e-3])) == pytest.approx([1.0, 1.0, np.expm1(1e-3) / 1e-3], rel=1e-12)


@pytest.mark.parametrize(("blocking", "rate"), SETTINGS)
def test_the_best_interval_is_that_of_a_fine_grid(blocking, rate):
    best = best_interval(blocking, rate)
    grid = expected_time(1.0, np.geomspace(best / 4.0, best * 4.0, 20_001), blocking, 3.0, rate)
    assert expected_time(1.0, best, blocking, 3.0, rate) <= grid.min() * (1.0 + 1e-9)


def test_the_best_interval_tends_to_young_and_to_one_per_rate():
    assert best_interval(1e-6, 1e-3) == pytest.approx(np.sqrt(2 * 1e-6 / 1e-3), rel=1e-4)
    assert best_interval(50.0, 1.0) == pytest.approx(1.0, rel=1e-12)
    assert best_interval(1.0, 0.0) == np.inf
    assert best_interval(0.0, 1.0) == 0.0


@pytest.mark.parametrize("argument", range(4))
def test_gradients_are_those_of_differences(argument):
    at = [1.3, 0.2, 0.4, 0.7]

    def time(x):
        return expected_time(1.0, *(x if i == argument else v for i, v in enumerate(at)))

    with jax.enable_x64(True):
        step = 1e-5
        central = (time(at[argument] + step) - time(at[argument] - step)) / (2 * step)
        assert jax.grad(time)(at[argument]) == pytest.approx(central, rel=1e-6)


@pytest.mark.parametrize("argument", range(2))
def test_the_best_interval_has_gradients(argument):
    at = [0.2, 0.7]

    def best(x):
        return best_interval(*(x if i == argument else v for i, v in enumerate(at)))

    with jax.enable_x64(True):
        central = (best(at[argument] + 1e-5) - best(at[argument] - 1e-5)) / 2e-5
        assert jax.grad(best)(at[argument]) == pytest.approx(central, rel=1e-6)


# --- Two levels of recovery: limits, agreement with simulated jobs, the best setting, and what a run makes of it -----


BOTH = TwoLevels(0.3, 0.2, 0.02, 0.1, 0.1, 0.3)


def two_levels_simulated_time(levels: TwoLevels, interval: float, k: int, rng: np.random.Generator) -> float:
    """Wall time of k intervals and their copies, event by event."""
    rate = levels.soft_rate + levels.hard_rate
    span = interval + levels.local_blocking + levels.remote_blocking / k
    total, done, outage, is_hard = 0.0, 0, 0.0, False
    while done < k:
        alive, goal = rng.exponential(1.0 / rate), outage if outage > 0.0 else span
        if alive >= goal:
            total, done, outage, is_hard = total + goal, done + (outage == 0.0), 0.0, False
            continue
        is_hard = is_hard or rng.random() < levels.hard_rate / rate
        done = 0 if is_hard else done
        total, outage = total + alive, levels.hard_outage if is_hard else levels.soft_outage
    return total


@pytest.mark.parametrize(("interval", "k"), [(0.3, 1), (0.3, 4), (1.0, 3), (0.1, 12)])
def test_it_is_the_mean_of_simulated_jobs_of_two_levels(interval: float, k: int):
    """4,000 jobs; 4.4 standard errors: one false alarm in 100,000."""
    rng = np.random.default_rng(2)
    times = [two_levels_simulated_time(BOTH, interval, k, rng) for _ in range(4000)]
    error = np.std(times) / np.sqrt(len(times))
    assert abs(np.mean(times) - BOTH.expected_time(k * interval, interval, k)) < 4.4 * error


def test_one_level_is_the_renewal_form():
    hard = replace(BOTH, soft_rate=0.0, hard_rate=0.5, hard_noticed=0.2)
    one = expected_time(10.0, 0.5, 0.12, 0.3, 0.5, 0.2)
    assert hard.expected_time(10.0, 0.5, 1) == pytest.approx(float(one), rel=1e-12)
    soft = replace(BOTH, soft_rate=0.5, hard_rate=0.0, remote_blocking=0.0, soft_outage=0.3, soft_noticed=0.2)
    assert soft.expected_time(10.0, 0.5, 7) == pytest.approx(float(expected_time(10.0, 0.5, 0.02, 0.3, 0.5, 0.2)))


def test_levels_that_are_alike_are_one_level():
    alike = replace(BOTH, remote_blocking=0.0, hard_outage=0.1)
    assert alike.expected_time(10.0, 0.5, 1) == pytest.approx(
        float(expected_time(10.0, 0.5, 0.02, 0.1, 0.5)), rel=1e-12
    )


def test_without_interruptions_only_copies_cost():
    calm = replace(BOTH, soft_rate=0.0, hard_rate=0.0)
    assert calm.expected_time(10.0, 1.0, 5) == pytest.approx(10.0 * (1.0 + 0.02 + 0.1 / 5))
    rare = replace(BOTH, soft_rate=1e-12, hard_rate=1e-15)
    assert rare.expected_time(10.0, 1.0, 5) == pytest.approx(10.4, rel=1e-9)


def test_the_best_setting_is_that_of_a_grid():
    levels = replace(BOTH, soft_rate=0.01, hard_rate=0.002)
    least = min(levels.expected_time(1.0, d, k) for k in range(1, 40) for d in np.geomspace(0.2, 20.0, 200))
    assert levels.expected_time(1.0, *levels.best()) <= least * (1.0 + 1e-4)


def test_a_remote_copy_is_not_asked_for_before_it_is_written():
    interval, k = replace(BOTH, remote_blocking=0.0).best(least_remote=5.0)
    assert interval * k >= 5.0 * (1.0 - 1e-6)


SOFT = Reliability((Hazard("software", per_job_h=1.0, nodes_lost=0.0), Hazard("node", per_node_h=1e-5)))


def run_of(checkpoint: Checkpoint) -> TrainingRun:
    return TrainingRun(100_000, StepSum.fixed(5.0), 16384, 8, SOFT, checkpoint, Recovery(60.0))


def test_a_run_saves_by_a_copy_in_memory_where_some_interruptions_lose_no_node():
    run = run_of(Checkpoint.of_bytes(6e12, 64))
    levels, told = two_levels_of(run), two_level_time_s(run)
    assert levels is not None
    assert told is not None
    assert levels.soft_rate + levels.hard_rate == pytest.approx(run.rate_s)
    assert told[0] < float(run.expected_s())
    named = next(one for one in changes(run) if one.what.startswith("load from memory"))
    assert named.saves_s == pytest.approx(float(run.expected_s()) - told[0])
    behind = run_of(Checkpoint.of_bytes(6e12, 64, BEHIND))
    told_behind = two_level_time_s(behind)
    assert told_behind is not None
    assert told_behind[0] < min(float(behind.expected_s()), told[0])


def test_nothing_is_said_where_a_copy_is_not_known():
    assert two_level_time_s(run_of(Checkpoint(30.0, load_s=60.0))) is None

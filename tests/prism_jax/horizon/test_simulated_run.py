"""Simulated runs: events one by one, and sums of many steps."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.stats import norm

from experiments.horizon.renewal_settings import renewal_settings
from prism_jax.horizon.checkpoint import Checkpoint, PlannedStop, Recovery
from prism_jax.horizon.outcome import RunOutcome
from prism_jax.horizon.reliability import HOUR_S, Hazard, Reliability, SlowPhase
from prism_jax.horizon.run import TrainingRun, expected_time
from prism_jax.horizon.simulated_run import simulate, simulated_run
from prism_jax.horizon.steps import StepSum, variance_of_sum
from prism_jax.horizon.worlds import ProgramKey, RunConstants, RunDraws, SlowArrays, Threats

PLAIN = TrainingRun(
    n_steps=20_000,
    steps=StepSum(2.0, 1.9, 0.02, 0.01, 0.9, 0.03),
    n_gpus=1024,
    node_size=8,
    reliability=Reliability((Hazard("GPU", per_gpu_h=2e-4, repair_s=7200.0, repair_log_sd=1.0, log_sd=0.2),)),
    checkpoint=Checkpoint(10.0, 20.0, 30.0),
    recovery=Recovery(300.0, warmup_steps=5, warmup_slowdown=1.5),
)
FULL = replace(
    PLAIN,
    reliability=Reliability(
        (
            *PLAIN.reliability.hazards,
            Hazard("hang", per_job_h=0.05, nodes_lost=0.0, noticed_s=1800.0),
            Hazard("infant", per_node_h=1e-3, shape=0.6, nodes_lost=4.0, repair_s=3600.0, repair_log_sd=0.5),
        ),
        (
            SlowPhase(
                "hot GPU", per_gpu_h=3e-4, slowdown=1.3, slowdown_log_sd=0.5, duration_s=1800.0, duration_log_sd=1.0
            ),
        ),
    ),
    recovery=replace(PLAIN.recovery, swap_s=60.0, policy="hot_spare", planned=(PlannedStop(3600.0, 60.0),)),
)


def mean_and_error(values):
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def test_it_agrees_with_the_exact_form_where_both_apply():
    """Twenty settings, lambda(D + w) from .001 to 5: within 4.5 standard errors each; one false alarm in 7,000 runs."""
    settings = renewal_settings(20, seed=3)
    found = settings.simulated(n_world=200, key=jax.random.key(0))
    mean, error = found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])
    score = (mean - settings.expected_s()) / error
    assert 20 * 2 * norm.sf(4.5) < 1 / 7000
    assert np.abs(score).max() < 4.5
    assert np.median(error / mean) < 0.01


@pytest.mark.slow
def test_it_agrees_within_half_a_percent_in_two_hundred_settings():
    settings = renewal_settings(200, seed=4)
    assert np.abs(settings.relative_errors(key=jax.random.key(1))).max() < 0.005


@pytest.mark.parametrize("run", [FULL, replace(FULL, recovery=replace(FULL.recovery, policy="shrink"))])
def test_buckets_add_up_to_the_clock_of_every_world(run):
    with jax.enable_x64(True):
        found = simulated_run(run, key=jax.random.key(2), n_world=300)
    assert found.clock_s == pytest.approx(found.time_s, rel=1e-11)
    assert all((value >= 0.0).all() for value in found.seconds.values())


def test_worlds_do_not_depend_on_how_many_run_beside_them():
    inputs, setting, shape = two_threats(np.ones(700))
    whole = simulate(inputs, setting, shape, jax.random.key(5))
    few = simulate(jax.tree.map(lambda leaf: leaf[..., :300], inputs), setting, shape, jax.random.key(5))
    assert (whole.clock_s[:300] == few.clock_s).all()


def two_threats(same, shape=(1.0, 1.0), mean_s=2000.0, nodes=(0.0, 0.0), repair_s=0.0):
    from scipy.special import gamma

    scale_s = mean_s / gamma(1.0 + 1.0 / np.array(shape))
    inputs = RunDraws(
        scale_s=scale_s[:, None] * same,
        n_interval=np.full(len(same), 30),
        interval_s=500.0 * same,
        first_s=200.0 * same,
        checkpoint_s=10.0 * same,
        planned_s=0.0 * same,
        background_s=0.0 * same,
        restart_s=100.0 * same,
        swap_s=100.0 * same,
    )
    none = np.zeros(0)
    threats = Threats(np.array(shape), np.zeros(2), np.array(nodes), np.full(2, repair_s), np.zeros(2))
    setting = RunConstants(threats, SlowArrays(none, none, none, none, none), np.array(10.0), np.array(0.0))
    return inputs, setting, ProgramKey(sum(k == 1.0 for k in shape), 0, 4 if repair_s else 0)


def test_two_constant_threats_are_one_of_their_summed_rate():
    inputs, setting, shape = two_threats(np.ones(1500))
    mean, error = mean_and_error(simulate(inputs, setting, shape, jax.random.key(6)).clock_s)
    whole = expected_time(29 * 500.0, 500.0, 10.0, 100.0, 1e-3) + expected_time(200.0, 200.0, 10.0, 100.0, 1e-3)
    assert abs(mean - whole) < 4.4 * error  # 1e-5


def aged_time(rng, n_interval=30, scale_s=2000.0 / 1.5045755, k=0.6):
    """One job under one ageing threat, interval by interval; 1.50... is Γ(1 + 1/.6)."""
    clock = 0.0
    left = scale_s * rng.weibull(k)
    restart_s, done, into = 0.0, 0, 0.0
    while done < n_interval:
        need_s = restart_s + (200.0 if done == 0 else 500.0) + 10.0 - into
        if left >= need_s:
            clock, left, restart_s, into, done = clock + need_s, left - need_s, 0.0, 0.0, done + 1
        else:
            clock, left, restart_s, into = clock + left, scale_s * rng.weibull(k), 100.0, 0.0
    return clock


def test_ageing_threats_agree_with_a_simulation_interval_by_interval():
    rng = np.random.default_rng(7)
    slow, slow_error = mean_and_error(np.array([aged_time(rng) for _ in range(1500)]))
    inputs, setting, shape = two_threats(np.ones(1500), shape=(1.0, 0.6))
    inputs = replace_scale(inputs, 0, np.inf)
    mean, error = mean_and_error(simulate(inputs, setting, shape, jax.random.key(8)).clock_s)
    assert abs(mean - slow) < 4.4 * np.hypot(error, slow_error)  # 1e-5


def replace_scale(inputs, which, value):
    scale_s = inputs.scale_s.copy()
    scale_s[which] = value
    return RunDraws(**{**vars(inputs), "scale_s": scale_s})


def test_without_spares_every_loss_waits_for_its_repair():
    inputs, setting, shape = two_threats(np.ones(500), nodes=(1.0, 1.0), repair_s=5000.0)
    found = simulate(inputs, setting, shape, jax.random.key(9))
    assert found.seconds["waiting_s"] == pytest.approx(5000.0 * found.n_failure, rel=1e-4)


def test_hangs_cost_the_time_until_they_are_noticed():
    hang = Reliability((Hazard("hang", per_job_h=0.5, nodes_lost=0.0, noticed_s=1800.0),))
    run = replace(PLAIN, reliability=hang, steps=StepSum.fixed(2.0))
    found = simulated_run(run, key=jax.random.key(10), n_world=1000)
    assert found.seconds["failure"] == pytest.approx(1800.0 * found.n_failure, rel=1e-5)
    mean, error = mean_and_error(found.time_s)
    assert abs(mean - float(run.expected_s())) < 4.4 * error + 0.002 * mean  # its edges: first and last checkpoint


def test_slow_phases_take_the_share_of_time_that_they_last():
    """Onsets are Poisson: the job is slow for 1 - exp(-rate x duration) of its time, in which steps take twice as long."""
    phase = SlowPhase("hot", per_job_h=0.5, slowdown=2.0, duration_s=HOUR_S)
    run = replace(PLAIN, reliability=Reliability((), (phase,)), steps=StepSum.fixed(2.0), n_steps=200_000)
    found = simulated_run(run, key=jax.random.key(11), n_world=500)
    busy = 1.0 - np.exp(-0.5)
    share = found.seconds["slow_phases"] / (found.time_s - found.seconds["checkpoint"])
    mean, error = mean_and_error(share)
    assert abs(mean - 0.5 * busy) < 4.4 * error + 1e-3  # the first phase has to begin; 1e-5


def test_what_is_not_known_widens_the_answer_and_is_not_chance():
    wide = simulated_run(PLAIN, key=jax.random.key(12), n_world=2000)
    assert wide.clock_s == pytest.approx(wide.time_s, rel=2e-5)  # single precision of a sum of hundreds
    known = simulated_run(PLAIN.as_known(), key=jax.random.key(12), n_world=2000)
    assert wide.time_s.std() > 1.05 * known.time_s.std()
    low, high = wide.band()
    assert low < wide.mean_s < high
    assert known.band()[1] - known.band()[0] < high - low


# --- Sums of steps of one fleet: closed forms, and what K independent draws would say --------------------------------


@pytest.mark.parametrize("ar1", [-0.5, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("n_steps", [1, 2, 7, 60])
def test_variance_of_a_sum_is_the_sum_of_covariances(ar1: float, n_steps: int):
    lag = np.abs(np.subtract.outer(np.arange(n_steps), np.arange(n_steps)))
    assert variance_of_sum(2.0, ar1, n_steps) == pytest.approx(2.0 * (ar1**lag).sum(), rel=1e-9)


def test_what_persists_is_all_that_is_left_of_a_million_steps():
    law = StepSum(5.0, 4.9, 0.05, 0.02, 0.9, 0.1)
    assert law.variance(1) == pytest.approx(0.05**2 + 0.02**2 + 0.1**2)
    assert law.variance(10**6) ** 0.5 == pytest.approx(0.05 * 10**6, rel=1e-3)


def test_draws_have_the_moments_of_the_law():
    """Mean and variance of 200,000 draws; limits at 4.5 standard errors: one false alarm in 70,000."""
    law = StepSum(5.0, 4.9, 0.3, 0.02, 0.9, 0.4)
    draws = law.draws_s(50, 200_000, np.random.default_rng(0))
    assert abs(draws.mean() - 250.0) < 4.5 * (law.variance(50) / len(draws)) ** 0.5
    assert draws.var() == pytest.approx(law.variance(50), rel=4.5 * (2.1 / len(draws)) ** 0.5)
    assert (StepSum.fixed(2.0).draws_s(7, 3, np.random.default_rng(0)) == 14.0).all()


@pytest.mark.parametrize("n", [200, 2000])
def test_errors_of_quantiles_are_the_spread_of_quantiles(n):
    """Of 300 samples; the error of p99 of 200 worlds, which two worlds decide, may be a half too large but not too small."""
    rng, zero = np.random.default_rng(n), np.zeros(1)
    found = [RunOutcome(rng.exponential(size=n), {}, zero, zero, zero, zero) for _ in range(300)]
    for p in (0.5, 0.95, 0.99):
        spread = np.std([one.quantile(p) for one in found])
        error = np.sqrt(np.mean([one.mc_error(p) ** 2 for one in found]))
        assert 0.85 * spread < error < (1.2 if n * (1.0 - p) > 5 else 1.6) * spread

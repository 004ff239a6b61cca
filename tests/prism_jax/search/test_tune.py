"""Tuning keeps budgets, rounds to what can be run, finds what grids find, and promises what fresh draws show."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.cost.step import step_cost
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.placement.splits import with_layers
from prism_jax.search.report import TuneReport
from prism_jax.search.stated_fleet import StatedFleet
from prism_jax.search.tune import N_COLUMN, N_SEEDS, Tuning, axes_of, tune
from prism_jax.search.tuned_fields import FIELDS, TuneLimits, cost_of, own_setting
from prism_jax.simulate.inputs import known_gpus
from prism_jax.simulate.predict import predict
from prism_jax.simulate.step_time import step_quantile
from prism_jax.variability.config import preset
from prism_jax.variability.tree import Variability
from tests.support.jobs import stated

LIMITS = TuneLimits(mtbf_h=3.0)
SMALL = [
    "plan.sharding=none",
    "plan.dp=2",
    "plan.tp=2",
    "plan.pp=4",
    "plan.global_batch=32",
    "plan.micro_batch=1",
    "cluster.n_devices=16",
]


@pytest.fixture(scope="module")
def piped() -> Job:
    """Four stages of eight layers on two nodes."""
    return stated(replace(load_job("llama2_7b_fsdp_64", SMALL), variability=preset("a100-default")))


def tuning(job: Job, *fields: str, limits: TuneLimits = LIMITS) -> Tuning:
    return Tuning.of(job, fields, 0.95, 0, limits)


@pytest.mark.parametrize("field", FIELDS)
def test_values_start_at_the_job_and_keep_bounds_and_budget(piped, field):
    fleet = {"slowdowns": {"all": dict.fromkeys(range(3), 1.2)}} if field == "share" else {}
    (axis,) = axes_of(piped, [field], replace(LIMITS, **fleet))
    n = len(axis.start)
    assert axis.values(np.zeros(n)) == pytest.approx(axis.start, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        found = axis.values(rng.normal(0.0, 0.3, n))
        assert (found >= np.asarray(axis.low) * (1.0 - 1e-9)).all()
        assert (found <= np.asarray(axis.high) * (1.0 + 1e-9)).all()
        rounded = axis.rounded(found)
        assert rounded / axis.grain == pytest.approx(np.round(rounded / axis.grain), abs=1e-6)
        if axis.weight is not None:
            budget = float(axis.weight @ axis.start)
            assert axis.weight @ found == pytest.approx(budget, rel=2e-2)
            assert axis.weight @ rounded <= budget * (1.0 + 1e-9)
            assert axis.weight @ rounded >= budget - (axis.grain * axis.weight).sum()


def test_whole_layers_keep_their_sum(piped):
    (axis,) = axes_of(piped, ["layers"], LIMITS)
    assert axis.rounded(np.array([7.4, 8.3, 8.2, 8.1])).tolist() == [8.0, 8.0, 8.0, 8.0]
    assert axis.rounded(np.array([6.6, 8.7, 8.6, 8.1])).sum() == 32.0


def test_without_change_the_cost_is_the_jobs_own(piped):
    own = step_cost(piped.model, piped.cluster, piped.plan, piped.efficiency)
    for layers_move in (False, True):
        cost = cost_of(piped, own_setting(piped), layers_move=layers_move)
        for name in ("compute_s", "comm_s", "end_compute_s", "end_comm_s"):
            assert np.asarray(getattr(cost, name)) == pytest.approx(np.asarray(getattr(own, name)), rel=1e-12)


def test_moved_layers_cost_what_the_cost_model_says(piped):
    layers = (7, 9, 9, 7)
    setting = own_setting(piped)._replace(more_layers=np.array(layers) - 8.0)
    found = cost_of(piped, setting, layers_move=True)
    moved = with_layers(piped, layers)
    exact = step_cost(moved.model, moved.cluster, moved.plan, moved.efficiency)
    assert np.asarray(found.compute_s) == pytest.approx(np.asarray(exact.compute_s), rel=2e-3)
    assert np.asarray(found.end_compute_s) == pytest.approx(np.asarray(exact.end_compute_s), rel=2e-2)


def test_the_smooth_quantile_is_step_quantile_and_its_gradient_the_difference_on_the_same_draws(piped):
    found = tuning(piped, "power", "checkpoint")
    at_limit = found.setting(found.start)._replace(slower=np.ones((4, len(piped.model.kernel_classes))))
    own = step_quantile(piped, 0.95, key=0, n_samples=N_COLUMN)(piped.cluster)
    full = tuning(piped, "power", "checkpoint", limits=replace(LIMITS, power_watts=piped.cluster.device.power_watts))
    assert float(full.slope(full.start)[0]) == pytest.approx(float(own * at_limit.times), rel=1e-4)
    slope = np.asarray(found.slope(found.start)[1])
    for number, change in ((3, 2.0), (4, 30.0)):
        ends = [float(found.slope(found.start + by * np.eye(5)[number])[0]) for by in (-change, change)]
        assert slope[number] == pytest.approx((ends[1] - ends[0]) / (2.0 * change), rel=0.1)


@pytest.fixture(scope="module")
def report(piped) -> TuneReport:
    return tune(piped, ["power", "checkpoint"], limits=LIMITS)


def after(report: TuneReport) -> np.ndarray:
    return np.array([number.after for number in report.numbers])


def test_the_best_checkpoint_interval_is_that_of_the_exact_form(piped, report):
    (axis,) = axes_of(piped, ["checkpoint"], LIMITS)

    def factor(interval_s: float) -> float:
        return float(axis.enter(own_setting(piped), np.array([interval_s])).times)

    assert factor(after(report)[-1]) <= min(map(factor, np.geomspace(60.0, 7200.0, 400))) * (1.0 + 2e-4)
    assert report.gain > 0.5 * (1.0 - factor(after(report)[-1]) / factor(float(axis.start[0])))


def test_no_power_split_near_by_is_better(piped, report):
    found, watts = tuning(piped, "power"), after(report)[:-1]
    (axis,) = found.axes
    assert watts.sum() <= axis.start.sum()
    best = found.on_search(watts)
    assert best < found.on_search(axis.start)
    rng = np.random.default_rng(0)
    others = [axis.rounded(axis.values(np.log(watts / axis.start) + rng.normal(0.0, 0.05, 4))) for _ in range(24)]
    assert best <= min(map(found.on_search, others)) * (1.0 + 2e-3)


def test_the_gain_is_that_on_fresh_draws(piped, report):
    low, high = report.gain_interval
    assert low < report.gain < high
    found = tuning(piped, "power", "checkpoint")
    pairs = [[found.fresh(own, N_SEEDS + k) for own in (found.start, after(report))] for k in range(N_SEEDS)]
    base, best = np.mean(pairs, axis=0)
    assert report.gain == pytest.approx(1.0 - best / base, abs=2.0 * (high - low))
    assert any("interruptions" in line for line in report.lines())
    assert report.card().tone == ("good" if low > 0.0 else "unsure")


APART = [
    "plan.sharding=none",
    "plan.dp=4",
    "plan.tp=1",
    "plan.pp=1",
    "plan.schedule=1f1b",
    "plan.global_batch=128",
    "plan.micro_batch=1",
    "cluster.n_devices=4",
]
SLOW = {"all": {3: 1.5}}


@pytest.fixture(scope="module")
def apart() -> Job:
    """Four replicas of one GPU without noise, 32 micro-batches each."""
    return stated(replace(load_job("llama2_7b_fsdp_64", APART), variability=Variability()))


def test_a_slow_replica_gets_the_share_that_makes_all_equally_late(apart):
    """One of four is 1.5 times as slow: 1.5 m = (128 - m) / 3 at m = 23.3; of whole ones 23 and 35 have the least maximum."""
    found = tune(apart, ["share"], limits=TuneLimits(slowdowns=SLOW))
    assert [(number.label, number.before, number.after) for number in found.numbers] == [
        ("replicas 0-2", 32.0, 35.0),
        ("replica 3", 32.0, 23.0),
    ]
    assert found.gain == pytest.approx(1.0 - 35.0 / 48.0, rel=0.02)


def test_of_all_shares_the_best_is_found(piped):
    """Two replicas, of which one has a slow GPU in its last stage; every pair of numbers of micro-batches is tried."""
    slow = TuneLimits(slowdowns={"all": {15: 1.3}})
    search = tuning(replace(piped, plan=replace(piped.plan, global_batch=16)), "share", limits=slow)
    found = search.rounded(search.descended())
    every = [search.on_search(np.array([m, 16.0 - m])) for m in range(8, 13)]
    assert found.sum() == 16.0
    assert search.on_search(found) <= min(every) * (1.0 + 1e-6)
    assert found[1] < found[0]


def test_other_fields_are_best_for_the_whole_layers_that_are_found(piped, monkeypatch):
    """Layers stay as they are here, so nothing may be lost against a search of the other field alone, on whichever draws."""
    monkeypatch.setattr("prism_jax.search.tune.N_COLUMN", 64)
    both, alone = (tuning(piped, *fields) for fields in (("layers", "power"), ("power",)))
    found, power = both.best(), alone.best()
    assert both.on_search(found) <= alone.on_search(power) * (1.0 + 1e-5)


def test_gpus_that_are_all_stated_are_as_those_that_are_drawn_without_noise(apart):
    every = {"all": {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.5}}
    some, all_of_them = (tuning(apart, "share", limits=TuneLimits(slowdowns=own)) for own in (SLOW, every))
    values = np.array([103.0 / 3.0, 25.0])
    assert all_of_them.fleet.drawn is None
    assert all_of_them.on_search(values) == pytest.approx(some.on_search(values), rel=1e-6)
    for own in (some, all_of_them):
        assert float(own.slope(own.start)[0]) == pytest.approx(own.on_search(own.start), rel=1e-4)


def test_micro_batches_that_do_not_divide_are_the_more_for_some_replicas(apart):
    fleet = StatedFleet.of(apart, SLOW)
    assert list(fleet.parts(np.array([103.0 / 96.0, 25.0 / 32.0]))) == [(0, 34, 2), (0, 35, 1), (1, 25, 1)]


def test_a_share_is_for_fleets_that_are_stated_to_be_unequal(apart):
    for slowdowns in ({}, {"all": dict.fromkeys(range(4), 1.5)}):
        with pytest.raises(DataError, match="nothing to choose"):
            axes_of(apart, ["share"], TuneLimits(slowdowns=slowdowns))


def test_a_stated_fleet_takes_what_a_prediction_of_it_takes(piped):
    slow = {"all": {5: 1.2, 6: 1.1}, "nic": {0: 1.5}}
    search = tuning(piped, "power", limits=TuneLimits(slowdowns=slow, power_watts=piped.cluster.device.power_watts))
    known = known_gpus(slow, 16, piped.model.kernel_classes)
    own_s = predict(piped, key=3, n_samples=2048, known=known).quantile(0.95)
    assert np.mean([search.fresh(search.start, k) for k in range(4)]) == pytest.approx(own_s, rel=3e-3)
    assert search.on_search(search.start) == pytest.approx(own_s, rel=1e-2)
    assert float(search.slope(search.start)[0]) == pytest.approx(search.on_search(search.start), rel=2e-3)


def test_power_of_nodes_makes_them_equally_fast(apart):
    """Four nodes of one GPU, one 10% slower: its cap rises until slowdown times stretch is that of the others."""
    job = replace(apart, cluster=replace(apart.cluster, node_size=1))
    watts = 0.7 * job.cluster.device.power_watts
    limits = TuneLimits(slowdowns={"all": {3: 1.1}}, power_watts=watts)
    (axis,) = axes_of(job, ["power"], limits)
    found = tune(job, ["power"], limits=limits)
    slow, fast = (next(n.after for n in found.numbers if n.label == label) for label in ("node 3", "nodes 0-2"))
    assert 3.0 * fast + slow <= 4.0 * watts + 1e-6
    assert slow > fast
    stretch = axis.enter(own_setting(job), np.array([fast, slow])).slower
    seconds = np.asarray(step_cost(job.model, job.cluster, job.plan, job.efficiency).compute_s).sum(axis=(0, 1))
    times = np.asarray(stretch).reshape(2, -1) @ seconds * (1.0, 1.1)
    assert times[1] == pytest.approx(times[0], rel=5e-3)


def test_what_cannot_be_tuned_is_refused(piped):
    with pytest.raises(DataError, match="no field"):
        axes_of(piped, ["bandwith"], LIMITS)
    with pytest.raises(DataError, match="nothing to choose"):
        axes_of(piped, ["checkpoint"], TuneLimits())
    with pytest.raises(DataError, match="different ones"):
        axes_of(piped, ["power", "power"], LIMITS)
    with pytest.raises(DataError, match="W per GPU"):
        axes_of(piped, ["power"], TuneLimits(power_watts=5.0))
    with pytest.raises(DataError, match="no such tier"):
        axes_of(piped, ["bandwidth"], TuneLimits(price={"nvlnk": 2.0}))

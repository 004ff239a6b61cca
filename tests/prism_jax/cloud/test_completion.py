"""Simulated completion against closed forms, and what must hold whatever is drawn."""

from functools import cache

import jax
import numpy as np
import pytest

from prism_jax.cloud import completion
from prism_jax.cloud.availability import WeibullSpells, loss_rate_s
from prism_jax.cloud.completion import SpotTask, simulate
from prism_jax.cloud.policies import POLICIES
from prism_jax.cloud.spot import Paths
from prism_jax.core.errors import SpecError

N = 2_500
KEY = jax.random.key(3)
SAME = np.ones(N)
WORK_S = 4 * 86_400.0
SPELLS = WeibullSpells(4 * 3600.0, 0.75, 2 * 3600.0)
TASK = SpotTask.cut(WORK_S, 1800.0, 30.0, 300.0, 0.0)


def ran(policy: str, task: SpotTask, paths: Paths, deadline_s: float = np.inf, factors=SAME):
    return simulate(task, paths, POLICIES.named(policy), factors, deadline_s, key=KEY)


@cache
def paths_of(spells: WeibullSpells, days: float) -> Paths:
    return spells.draw(4, N, days * 86_400.0, np.random.default_rng(0))


@pytest.mark.parametrize("rate_s", [1e-6, 2e-5, 2e-4])
def test_failures_on_demand_follow_the_renewal_form(rate_s):
    task = SpotTask.cut(WORK_S, None, 60.0, 600.0, rate_s)
    found = ran("on_demand", task, Paths.always(4, N))
    error = found.time_s.std() / np.sqrt(N)
    assert abs(found.time_s.mean() - task.expected_s()) < 4.0 * error + 1e-5 * task.expected_s()
    assert abs(found.time_s.mean() / task.expected_s() - 1.0) < 5e-3


@pytest.mark.parametrize("down_s", [0.0, 1800.0])
def test_exponential_spells_follow_the_renewal_form(down_s):
    rate_s = 1e-4
    task = SpotTask.cut(WORK_S, None, 30.0, 300.0, 0.0, rate_s)
    begins_up = Paths(*_starting_up(WeibullSpells(1.0 / rate_s, 1.0, down_s)))
    found = ran("spot", task, begins_up)
    assert abs(found.time_s.mean() / task.expected_s(rate_s, down_s) - 1.0) < 5e-3


def _starting_up(spells: WeibullSpells):
    """Without the wait of a start in a gap, which the closed form leaves out."""
    paths = paths_of(spells, 40.0)
    gap_s = np.where(paths.until_s[0] == 0.0, paths.until_s[1], 0.0)
    return np.maximum(paths.until_s - gap_s, 0.0), paths.n_up, paths.price, paths.n_nodes


def test_without_interruptions_time_is_start_and_cycles():
    task = SpotTask(WORK_S, 10, 60.0, 300.0)
    found = ran("on_demand", task, Paths.always(4, N))
    assert np.allclose(found.time_s, 300.0 + WORK_S + 600.0, rtol=1e-5)
    assert np.allclose(found.cost_usd(36.0, np.nan), found.time_s * 0.01, rtol=1e-5)


def test_paid_time_never_exceeds_wall_time_and_spot_is_not_paid_in_gaps():
    found = ran("spot", TASK, paths_of(SPELLS, 40.0))
    assert (found.spot_s <= found.time_s * (1 + 1e-5)).all()
    assert found.spot_s.mean() < 0.95 * found.time_s.mean()
    assert (found.on_demand_s == 0.0).all()


def test_fallback_without_deadline_is_spot():
    paths = paths_of(SPELLS, 40.0)
    assert np.array_equal(ran("spot_with_fallback", TASK, paths).time_s, ran("spot", TASK, paths).time_s)


@pytest.mark.parametrize("slack", [1.15, 1.5, 2.5])
def test_fallback_keeps_the_deadline_where_machines_on_demand_do_not_fail(slack):
    deadline_s = slack * (WORK_S + TASK.n_interval * 30.0)
    found = ran("spot_with_fallback", TASK, paths_of(SPELLS, 40.0), deadline_s)
    assert (found.time_s <= deadline_s).all()
    on_demand = ran("on_demand", TASK, Paths.always(4, N), deadline_s)
    assert found.on_demand_s.mean() < on_demand.on_demand_s.mean()


def test_more_slack_means_less_time_on_demand():
    paths = paths_of(SPELLS, 40.0)
    hours = [ran("spot_with_fallback", TASK, paths, f * WORK_S).on_demand_s.mean() for f in (1.2, 1.5, 2.0, 3.0)]
    assert hours == sorted(hours, reverse=True)


def test_mixture_is_never_slower_than_half_the_pace():
    found, spot = (ran(policy, TASK, paths_of(SPELLS, 40.0)) for policy in ("mixture", "spot"))
    assert found.time_s.mean() < spot.time_s.mean()
    assert np.allclose(found.on_demand_s, 0.5 * found.time_s, rtol=1e-4)


def test_a_loss_destroys_one_interval_at_most():
    ends = np.array([[1000.0], [1000.0], [np.inf]])
    paths = Paths(ends, np.array([[4], [0], [4]], dtype=np.int32), np.ones((3, 1)), 4)
    task = SpotTask(3000.0, 3, 0.0, 100.0)
    found = ran("spot", task, paths, factors=np.ones(1))
    # start 100, 900 s of work lost, start 100, 3000 s of work
    assert found.time_s[0] == pytest.approx(1000.0 + 100.0 + 3000.0)
    assert found.n_lost[0] == 1.0


def test_prices_of_pieces_weight_the_hours():
    ends = np.array([[500.0], [np.inf]])
    paths = Paths(ends, np.full((2, 1), 4, dtype=np.int32), np.array([[1.0], [3.0]]), 4)
    found = ran("spot", SpotTask(1000.0, 1), paths, factors=np.ones(1))
    assert found.spot_s[0] == pytest.approx(500.0 + 3.0 * 500.0)


def test_nodes_that_never_come_are_a_job_without_end():
    paths = Paths(np.full((1, 1), np.inf), np.zeros((1, 1), np.int32), np.ones((1, 1)), 4)
    assert np.isinf(ran("spot", SpotTask(1000.0, 1), paths, factors=np.ones(1)).time_s[0])


def test_a_running_job_does_not_start_again():
    task = SpotTask(WORK_S, 10, 60.0, 300.0, first_s=0.0)
    assert np.allclose(ran("on_demand", task, Paths.always(4, N)).time_s, WORK_S + 600.0, rtol=1e-5)


def test_worlds_do_not_depend_on_how_many_run_together(monkeypatch):
    task, paths = SpotTask.cut(WORK_S, None, 60.0, 600.0, 2e-5, 1e-4), paths_of(SPELLS, 12.0).of_worlds(slice(50))
    whole = ran("spot_with_fallback", task, paths, 6 * 86_400.0, SAME[:50])
    monkeypatch.setattr(completion, "MOST_WORLDS", 17)  # 50 worlds: three of 17, the last begins early
    parts = ran("spot_with_fallback", task, paths, 6 * 86_400.0, SAME[:50])
    assert all(np.array_equal(getattr(whole, name), getattr(parts, name)) for name in ("time_s", "spot_s", "n_lost"))


def test_progress_that_is_none_is_refused():
    with pytest.raises(SpecError, match="hardly makes progress"):
        ran("on_demand", SpotTask(WORK_S, 1, 60.0, 600.0, 1e-2), Paths.always(4, N))


def test_loss_rate_of_exponential_spells_is_theirs():
    assert loss_rate_s(WeibullSpells(10_000.0, 1.0, 5_000.0), 4) == pytest.approx(1e-4, rel=0.03)


def test_lone_losses_add_to_the_rate():
    law = WeibullSpells(1e6, 1.0, 100.0, lone_per_node_s=1e-5)
    assert loss_rate_s(law, 8) == pytest.approx(8e-5 + 1e-6, rel=0.1)


def test_share_of_time_in_which_there_are_nodes():
    paths = paths_of(SPELLS, 30.0)
    length_s = np.diff(np.minimum(paths.until_s, 30 * 86_400.0), axis=0, prepend=0.0)
    assert (length_s * paths.usable).sum() / length_s.sum() == pytest.approx(4.0 / 6.0, rel=0.01)

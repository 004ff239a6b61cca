"""Placements: the evaluator is the engine, identities of assignments, and the search finds what can be found."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from benchmarks.placement import gain_on
from prism_jax.core.errors import DataError
from prism_jax.placement.draws import Draws
from prism_jax.placement.evaluator import assemble, problem_of, score, step_times, stored
from prism_jax.placement.fleet import fleet_of
from prism_jax.placement.optimisers import (
    all_assignments,
    anneal,
    as_given,
    busy_seconds,
    n_distinct,
    random_assignments,
    relaxed,
    sorted_assignments,
)
from prism_jax.placement.place import Effort, place
from prism_jax.placement.report import OPTIMISED, PlacementGoal
from prism_jax.placement.splits import with_micro_batches
from prism_jax.placement.tables import step_program
from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.simulate.inputs import known_gpus
from prism_jax.simulate.predict import predict
from prism_jax.simulate.step_time import step_time
from prism_jax.variability.config import preset
from tests.support.jobs_with_work import JOBS, POPULAR, balanced

P95 = PlanObjective(OBJECTIVES.named("p95"))

QUICK = Effort(n_random=50, n_step=200, n_relaxed=3, n_fresh=256, n_kept=32, n_exhaustive=1000)


PLANS = {
    "a group per node": {},
    "a group is half a node": {"tp": 4, "dp": 4},
    "a GPU per group": {"tp": 1, "dp": 16, "pp": 2, "batch": 64},
    "a group is two nodes": {"tp": 16, "dp": 2, "pp": 2},
    "lanes inside a node": {"tp": 2, "dp": 8, "more": "schedule: 1f1b, axis_order: [tp, pp, cp, dp]"},
    "sharded over nodes": {"tp": 1, "pp": 1, "dp": 32, "batch": 32, "more": "sharding: hsdp, dp_shard: 16"},
    "interleaved": {"more": "schedule: interleaved, virtual_stages: 2"},
    "dual pipe": {"more": "schedule: dualpipe", "batch": 32},
}


@pytest.mark.parametrize("name", PLANS)
def test_without_noise_an_assignment_is_the_step_of_the_engine(name, job_of, factors):
    job = job_of(**PLANS[name])
    slow = factors(job.plan.n_devices // 8)
    problem = problem_of(job, fleet_of(slow, 8))
    seats = random_assignments(problem, 3, np.random.default_rng(1))
    found = score(problem, seats, Draws(jax.random.key(0), 2))[:, 0]
    by_device = np.stack([slow[seat].ravel() for seat in seats], axis=-1)
    np.testing.assert_allclose(found, np.asarray(step_time(job, by_device)), rtol=2e-6)


@pytest.mark.parametrize("name", ["a group per node", "a group is two nodes", "lanes inside a node"])
def test_kernel_classes_slow_down_on_their_own(name, job_of):
    job = job_of(**PLANS[name])
    rng = np.random.default_rng(3)
    classes = {c: 1.0 + 0.1 * rng.random(job.plan.n_devices) for c in ("gemm", "attention", "memory")}
    fleet = fleet_of({c: dict(enumerate(v.tolist())) for c, v in classes.items()}, 8)
    problem = problem_of(job, fleet)
    found = score(problem, as_given(problem)[None], Draws(jax.random.key(0), 2))[0, 0]
    engine = step_time(job, {c: v[:, None] for c, v in classes.items()})
    np.testing.assert_allclose(found, np.asarray(engine)[0], rtol=2e-6)


@pytest.mark.parametrize(
    ("name", "tolerance"), [("a group per node", 1e-4), ("a group is two nodes", 1e-4), ("lanes inside a node", 1e-4)]
)
def test_with_noise_it_is_brute_force_within_monte_carlo_error(name, tolerance, job_of, factors):
    """Four standard errors of either side, and 0.01% for what the moments of a mixed group leave out."""
    job = job_of(**PLANS[name], variability="h100-default")
    slow = factors(job.plan.n_devices // 8, seed=4)
    problem = problem_of(job, fleet_of(slow, 8))
    steps = score(problem, as_given(problem)[None], Draws(jax.random.key(1), 2048), chunk=128)[0]
    known = known_gpus({"all": dict(enumerate(slow.ravel().tolist()))}, job.plan.n_devices)
    engine = predict(job, key=jax.random.key(2), n_samples=4096, method="brute_force", known=known)
    for p in (0.5, 0.9):
        batches = np.quantile(steps.reshape(16, -1), p, axis=1)
        error = np.hypot(engine.mc_error(p), batches.std(ddof=1) / 4)
        assert np.quantile(steps, p) == pytest.approx(engine.quantile(p), rel=tolerance, abs=4 * error)


def test_kept_noise_and_passing_noise_are_the_same(job_of, factors):
    job = job_of(variability="h100-default")
    problem = problem_of(job, fleet_of(factors(8), 8))
    seats = random_assignments(problem, 2, np.random.default_rng(0))
    draws = Draws(jax.random.key(7), 16)
    kept = stored(problem, Draws(jax.random.fold_in(draws.key, 0), 16))
    np.testing.assert_allclose(step_times(problem.tables, kept, seats), score(problem, seats, draws), rtol=1e-6)


def test_if_all_nodes_are_alike_every_assignment_is_the_same(job_of):
    job = job_of(variability="h100-default")
    found = place(job, np.full(8, 1.1), key=jax.random.key(0), effort=QUICK)
    times = {method: value for method, (value, _) in found.p95_s.items()}
    assert max(times.values()) == min(times.values())
    assert found.gain.value_s == found.gain.low_s == found.gain.high_s == 0.0


def test_exchanging_replicas_changes_nothing(job_of, factors):
    job = job_of()
    problem = problem_of(job, fleet_of(factors(8), 8))
    slot = problem.slots.slot[:, :, 0]
    seats = as_given(problem)
    exchanged = seats.copy()
    exchanged[slot[:, 0]], exchanged[slot[:, 1]] = seats[slot[:, 1]], seats[slot[:, 0]]
    one, other = score(problem, np.stack([seats, exchanged]), Draws(jax.random.key(0), 2))
    np.testing.assert_array_equal(one, other)


def test_every_distinct_assignment_is_tried_once(job_of, factors):
    job = job_of(pp=2, dp=3, batch=24)
    problem = problem_of(job, fleet_of(factors(7), 8))  # one spare
    every = all_assignments(problem)
    assert every is not None
    assert len(every) == n_distinct(problem) == 5040 // 6
    canonical = {tuple(sorted(tuple(seats[problem.slots.slot[:, r, 0]]) for r in range(3))) for seats in every}
    assert len(canonical) == len(every)


def test_one_slow_node_goes_where_brute_force_puts_it(job_of):
    job = job_of(layers=5, pp=3, more="schedule: 1f1b, layer_split: [2, 1, 2]")
    slow = np.ones(6)
    slow[0] = 1.3
    found = place(job, slow, key=jax.random.key(0), effort=QUICK)
    stage = found.seat[found.assignment.index(0), 0]
    assert stage == 1
    assert found.value()[0] == found.value("brute_force")[0] == found.value("sorted")[0]
    assert found.value()[0] < 0.995 * found.value("as_given")[0]


def test_a_spare_takes_the_slow_node_out(job_of):
    job = job_of(variability="h100-default")
    slow = np.ones(9)
    slow[3] = 1.4
    found = place(job, slow, key=jax.random.key(0), spares=1, effort=QUICK)
    assert found.left_out == (3,)
    assert sorted([*found.assignment, 3]) == list(range(9))


@pytest.mark.slow
def test_the_search_is_as_good_as_brute_force_on_a_small_instance(job_of, factors):
    job = job_of(pp=3, variability="h100-default")
    found = place(job, factors(6, seed=2), key=jax.random.key(1), effort=replace(QUICK, n_step=600))
    best = found.value("brute_force")[0]
    assert found.value("annealed")[0] <= 1.005 * best
    assert found.value()[0] <= 1.001 * min(found.value(m)[0] for m in ("as_given", "sorted", "annealed"))


def test_the_same_seed_gives_the_same_answer(job_of, factors):
    job = job_of(variability="h100-default")
    one, again = (place(job, factors(8), key=jax.random.key(5), effort=QUICK) for _ in range(2))
    assert one.assignments == again.assignments
    assert all(np.array_equal(one.batches_s[method], again.batches_s[method]) for method in one.batches_s)
    assert (one.assignment, one.random_s, one.gain) == (again.assignment, again.random_s, again.gain)


def test_sorting_puts_slow_nodes_into_light_stages(job_of, factors):
    job = job_of(layers=10, more="schedule: 1f1b, layer_split: [3, 3, 1, 3]")
    slow = factors(8)
    problem = problem_of(job, fleet_of(slow, 8))
    across, grouped = sorted_assignments(problem, busy_seconds(problem))
    worst = np.argsort(-slow.max(axis=1))
    assert {int(problem.slots.lanes[np.flatnonzero(across == node)[0]]) for node in worst[:2]} == {2}
    slowest_four = {int(np.flatnonzero(grouped == node)[0]) for node in worst[:4]}
    assert len({int(problem.slots.replicas[slot, 0]) for slot in slowest_four}) == 1


@pytest.mark.parametrize(
    ("slow", "options", "words"),
    [
        (np.ones(7), {}, "of 7 nodes, but the job runs on 8"),
        (np.ones(9), {}, "--spares 1"),
        (np.ones(8), {"spares": 2}, "2 spares were asked for"),
        (np.ones(8), {"objective": "p59"}, "p59' is unknown"),
        ({"all": {0: 1.0, 63: 1.0}}, {}, "62 GPUs are missing.*or begin the table with `# extremes alone"),
        (np.full(8, np.nan), {}, "positive numbers"),
    ],
)
def test_what_does_not_fit_is_named(slow, options, words, job_of):
    with pytest.raises(DataError, match=words):
        place(job_of(), slow, key=jax.random.key(0), **options)


@pytest.mark.parametrize("name", ["a group per node", "sharded over nodes"])
def test_the_relaxation_ends_in_an_assignment(name, job_of, factors):
    """Gradients stay finite where groups span nodes and where nothing varies."""
    job = job_of(**PLANS[name], variability="h100-default")
    problem = problem_of(job, fleet_of(factors(job.plan.n_devices // 8), 8))
    kept = stored(problem, Draws(jax.random.key(0), 8))
    found = relaxed(problem, kept, as_given(problem), P95, key=jax.random.key(1), n_step=2)
    assert sorted(found.tolist()) == list(range(problem.fleet.n_node))


def test_a_promised_gain_is_seen_on_other_draws(job_of, factors):
    """Wider than the interval by two: one seed, false alarm below 1 in 100."""
    job, slow = job_of(variability="h100-default"), factors(8, seed=6)
    found = place(job, slow, key=jax.random.key(0), effort=QUICK)
    seen = gain_on(job, slow, found, key=jax.random.key(99)).value_s
    half = found.gain.high_s - found.gain.value_s
    assert abs(seen - found.gain.value_s) <= 2 * half
    assert found.gain.low_s > 0


def test_nodes_are_ranked_by_the_classes_that_were_measured(job_of):
    job = job_of(layers=10, more="schedule: 1f1b, layer_split: [3, 3, 1, 3]")
    slow = {device: 1.5 if device // 8 == 5 else 1.0 for device in range(64)}
    problem = problem_of(job, fleet_of({"attention": slow}, 8))
    for seats in sorted_assignments(problem, busy_seconds(problem)):
        assert problem.slots.lanes[np.flatnonzero(seats == 5)[0]] == 2


def links_of(n_node: int, seed: int) -> np.ndarray:
    """Factors [link or nic, node, gpu]."""
    return np.random.default_rng(seed).lognormal(0.1, 0.4, (2, n_node, 8))


def by_gpu(links: np.ndarray) -> dict[str, dict[int, float]]:
    return {name: dict(enumerate(own.ravel().tolist())) for name, own in zip(("link", "nic"), links, strict=True)}


@pytest.mark.parametrize("name", PLANS)
def test_links_of_an_assignment_are_those_of_the_engine(name, job_of):
    job = job_of(**PLANS[name])
    links = links_of(job.plan.n_devices // 8, seed=5)
    problem = problem_of(job, fleet_of(by_gpu(links), 8))
    seats = random_assignments(problem, 2, np.random.default_rng(1))
    found = score(problem, seats, Draws(jax.random.key(0), 2))[:, 0]
    for seat, step_s in zip(seats, found, strict=True):
        known = known_gpus(by_gpu(links[:, seat]), job.plan.n_devices)
        engine = predict(job, key=jax.random.key(0), n_samples=16, method="brute_force", known=known)
        assert step_s == pytest.approx(engine.quantile(0.5), rel=3e-6)


def test_annealing_carries_the_times_of_replicas_that_wait_for_a_slow_link(job_of):
    job = job_of(pp=2, dp=8, batch=64, variability="h100-default")
    problem = problem_of(job, fleet_of(by_gpu(links_of(17, seed=6)), 8))
    kept = stored(problem, Draws(jax.random.key(3), 16))
    chain = anneal(problem.tables, kept, as_given(problem), key=jax.random.key(4), objective=P95, n_step=300)
    again = P95.of(step_times(problem.tables, kept, chain.assignment[None]))[0]
    assert chain.value_s == pytest.approx(float(again), rel=1e-6)
    assert chain.value_s < 0.995 * P95.of(step_times(problem.tables, kept, as_given(problem)[None]))[0]


def test_a_spare_takes_the_node_with_the_slow_nic_out(job_of):
    job = job_of(variability="h100-default")
    slow = {"all": dict.fromkeys(range(72), 1.0), "nic": dict.fromkeys(range(40, 48), 2.0)}
    found = place(job, slow, key=jax.random.key(0), goal=PlacementGoal(spares=1), effort=QUICK)
    assert found.left_out == (5,)
    assert int(np.argmax(found.slowness)) == 5


WORKING = {"both": JOBS["both"], "sharded": JOBS["sharded"], "balanced": balanced, "popular": POPULAR["uneven"]}


@pytest.mark.parametrize("name", WORKING)
def test_work_of_micro_batches_is_drawn_as_predict_draws_it(name, factors):
    """Four standard errors of either side, and 0.1% for what the moments of a mixed group leave out."""
    job = WORKING[name]()
    slow = factors(job.plan.n_devices // 8, seed=4)
    problem = problem_of(job, fleet_of(slow, 8))
    steps = score(problem, as_given(problem)[None], Draws(jax.random.key(1), 1024), chunk=128)[0]
    known = known_gpus({"all": dict(enumerate(slow.ravel().tolist()))}, job.plan.n_devices)
    engine = predict(job, key=jax.random.key(2), n_samples=2048, method="brute_force", known=known)
    for p in (0.5, 0.95):
        batches = np.quantile(steps.reshape(16, -1), p, axis=1)
        error = np.hypot(engine.mc_error(p), batches.std(ddof=1) / 4)
        assert np.quantile(steps, p) == pytest.approx(engine.quantile(p), rel=1e-3, abs=4 * error)


def test_an_assignment_has_the_p95_that_predict_says_with_work(factors):
    """Of the job on the nodes where they were placed."""
    job = JOBS["padded"]()
    slow = factors(job.plan.n_devices // 8, seed=5)
    effort = Effort(n_random=100, n_step=100, n_relaxed=0, n_fresh=2048)
    found = place(job, slow, key=jax.random.key(3), effort=effort)
    placed = known_gpus({"all": dict(enumerate(slow[list(found.assignment)].ravel().tolist()))}, job.plan.n_devices)
    told = predict(job, key=jax.random.key(4), n_samples=4096, known=placed)
    value, error = found.value(OPTIMISED, "p95")
    assert abs(value - told.quantile(0.95)) <= 4.0 * np.hypot(error, told.mc_error(0.95))
    assert value > 1.3 * told.deterministic_s
    assert stored(problem_of(job, fleet_of(slow, 8)), Draws(jax.random.key(1), 4)).replicas.work is None


def test_splits_of_a_job_with_work_are_scored(factors):
    """Numbers of micro-batches share the rows of the largest."""
    job = replace(JOBS["both"](), variability=preset("none"))
    problem = problem_of(job, fleet_of(factors(job.plan.n_devices // 8), 8))
    programs = [step_program(with_micro_batches(job, m)) for m in (4, 6)]
    variant = np.arange(problem.slots.n_replica, dtype=np.int32) % 2
    both = assemble(job, problem.fleet, problem.slots, programs, variant)
    steps = [
        score(
            assemble(job, problem.fleet, problem.slots, programs, own),
            as_given(problem)[None],
            Draws(jax.random.key(1), 64),
        )
        for own in (0 * variant, variant, 0 * variant + 1)
    ]
    assert both.tables.step.work is not None
    assert steps[0].mean() < steps[1].mean() < steps[2].mean()
    draws, seats = Draws(jax.random.key(1), 2048), as_given(problem)[None]
    alone, mixed = (
        score(assemble(job, problem.fleet, problem.slots, own, 0 * variant), seats, draws, chunk=128)
        for own in (programs[:1], programs)
    )
    assert alone.mean() == pytest.approx(mixed.mean(), abs=5.0 * alone.std() / np.sqrt(draws.n_sample))

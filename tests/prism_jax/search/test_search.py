"""A search finds the best plan, says how sure it is, can be interrupted, and gives the same answer again."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError, PlanError
from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.search.ask_tell import AskTell
from prism_jax.search.evaluate import Evaluator, TailScorer
from prism_jax.search.exhaustive import search
from prism_jax.search.racing import N_SEEDS, SEED_OFFSET, fresh_seed
from prism_jax.search.study import front
from tests.support.files.archives import changed, npy

N_SEED = 6


@pytest.fixture(scope="module")
def study(job, space):
    return search(job, space, top=5)


@pytest.mark.slow
def test_no_other_plan_is_better_on_fresh_draws(study, job, space):
    """All plans in reach, and more, scored anew; the winner may trail by noise only (4 standard errors)."""
    reach = 1.15 * study.best.p95_s  # a plan's p95 lies above its noise-free time
    evaluator = Evaluator(job, space, job.software.memory_margin)
    screen = evaluator.bounds()
    evaluator.simulate(screen, reach)
    numbers = np.flatnonzero(screen.step_s <= reach)
    assert len(numbers) > 20
    objective = PlanObjective(OBJECTIVES.named("p95"))
    scores = np.stack(
        [objective.of(TailScorer(evaluator, 9_000 + s).samples(numbers, 256)) for s in range(N_SEED)], axis=1
    )
    best = int(np.argmin(scores.mean(axis=1)))
    own = next(i for i, number in enumerate(numbers) if evaluator.plan(int(number)) == study.best.plan)
    gap = scores[own] - scores[best]
    assert gap.mean() <= 4.0 * gap.std(ddof=1) / np.sqrt(N_SEED) + 1e-9


def test_candidates_come_in_order_and_probabilities_add_up(study):
    values = [candidate.value_s for candidate in study.candidates]
    assert values == sorted(values)
    assert sum(candidate.prob_best for candidate in study.candidates) == pytest.approx(1.0)
    assert study.best.tied
    assert len(study.top(5)) == 5
    for candidate in study.candidates:
        assert candidate.step_s < candidate.p50_s < candidate.p95_s < candidate.p99_s
        assert candidate.value_s == candidate.p95_s


def test_the_same_seed_gives_the_same_answer(study, job, space):
    again = search(job, space, top=5)
    assert again.candidates == study.candidates
    assert again.promise == study.promise


def test_the_gain_is_that_of_new_draws(study):
    promise = study.promise
    assert promise.gain == pytest.approx(1.0 - promise.best_s / promise.base_s, abs=1e-3)
    assert promise.gain_interval[0] < promise.gain < promise.gain_interval[1]


def test_posterior_draws_widen_the_gain(job, space):
    few = replace(space, pp=(1, 2), schedule=("1f1b",))
    posterior = [job.variability.scaled(k) for k in (0.5, 1.0, 1.5, 2.0)]
    promise = search(job, few, top=2, posterior=posterior).promise
    assert promise is not None
    assert promise.posterior_interval is not None
    low, high = promise.posterior_interval
    assert low < promise.gain < high
    assert high - low > promise.gain_interval[1] - promise.gain_interval[0]


class Stop(Exception):
    """Stands for Ctrl-C."""


SLOW = pytest.mark.slow


@pytest.mark.parametrize("stop_at", [pytest.param("costs", marks=SLOW), "tails", pytest.param("finalists", marks=SLOW)])
def test_an_interrupted_search_goes_on_where_it_stopped(study, job, space, tmp_path, stop_at):
    file = tmp_path / "found.npz"

    def interrupt(fraction, what="", /):
        if what.startswith(stop_at) and fraction > 0.3:
            raise Stop

    with pytest.raises(Stop):
        search(job, space, top=5, journal=file, progress=interrupt)
    assert search(job, space, top=5, journal=file).candidates == study.candidates


def test_a_journal_of_another_search_is_refused(journal, job, few, tmp_path):
    file = tmp_path / "found.npz"
    file.write_bytes(journal)
    with pytest.raises(DataError, match="belongs to another search"):
        search(job, few, top=2, journal=file, seed=1)
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="not the file of a search"):
        search(job, few, top=2, journal=file)


@pytest.fixture(scope="module")
def few(space):
    return replace(space, pp=(1,), cp=(1,))


@pytest.fixture(scope="module")
def journal(job, few, tmp_path_factory) -> bytes:
    file = tmp_path_factory.mktemp("journal") / "found.npz"
    search(job, few, top=2, journal=file)
    return file.read_bytes()


WRONG = {
    "no scores": lambda _, arrays: arrays.pop("first/scores"),
    "no plans": lambda _, arrays: arrays.pop("first/plans"),
    "no memory": lambda _, arrays: arrays.pop("screen/memory"),
    "an unknown array": lambda _, arrays: arrays.update({"more/scores": np.zeros(3)}),
    "an unknown item": lambda _, arrays: arrays.update({"screen/more": np.zeros(3)}),
    "text": lambda _, arrays: arrays.update({"screen/bound": arrays["screen/bound"].astype(str)}),
    "whole numbers": lambda _, arrays: arrays.update({"first/scores": np.ones(1, int)}),
    "fewer plans": lambda _, arrays: arrays.update({"screen/bound": arrays["screen/bound"][1:]}),
    "a scalar": lambda _, arrays: arrays.update({"screen/reason": np.array(0)}),
    "unknown reasons": lambda _, arrays: arrays.update({"screen/reason": arrays["screen/reason"] + 100}),
    "no feasible plan": lambda _, arrays: arrays["screen/bound"].fill(np.nan),
    "scores that are missing": lambda _, arrays: arrays["first/scores"].fill(np.nan),
    "scores without end": lambda _, arrays: arrays["64/scores"].fill(np.inf),
    "scores of nothing": lambda _, arrays: arrays["64/scores"].fill(0.0),
    "scores of another shape": lambda _, arrays: arrays.update({"64/scores": arrays["final/scores"]}),
    "finalists of another shape": lambda _, arrays: arrays.update({"final/scores": arrays["64/scores"]}),
    "plans that are not there": lambda _, arrays: arrays["64/plans"].fill(1 << 40),
    "no GPUs": lambda _, arrays: arrays["screen/n_devices"].fill(0),
    "a pickle": lambda _, arrays: arrays.update({"first/scores": npy(np.array([None], dtype=object))}),
}


@pytest.mark.parametrize("edit", WRONG.values(), ids=WRONG)
def test_a_journal_that_contradicts_itself_is_refused(edit, journal, job, few, tmp_path):
    file = tmp_path / "found.npz"
    file.write_bytes(journal)
    changed(file, edit)
    with pytest.raises(DataError, match=r"found\.npz: not the file of a search.*or remove it to start over"):
        search(job, few, top=2, journal=file)


def test_scores_of_other_plans_are_made_again(journal, job, few, tmp_path):
    file = tmp_path / "found.npz"
    file.write_bytes(journal)
    expected = search(job, few, top=2, journal=file).candidates
    changed(file, lambda _, arrays: arrays.update({"64/plans": arrays["64/plans"][::-1]}))
    assert search(job, few, top=2, journal=file).candidates == expected


def test_the_frame_has_a_row_per_candidate(study):
    frame = study.to_frame()
    assert len(frame) == len(study.candidates)
    assert {"tp", "schedule", "p95_s", "prob_best"} <= set(frame.columns)


def test_a_front_holds_whatever_nothing_else_beats(study):
    kept = study.front("memory_bytes")
    assert kept[0] == study.best
    for candidate in study.candidates:
        beaten = any(k.value_s <= candidate.value_s and k.memory_bytes <= candidate.memory_bytes for k in kept)
        assert beaten


def test_front_of_points():
    costs = np.array([[2.0, 2.0], [1.0, 3.0], [3.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    assert front(costs).tolist() == [1, 0, 2]


def test_asked_plans_are_told_and_ranked(job, space):
    asked = AskTell(job, space)
    with pytest.raises(DataError, match="no plan was told"):
        _ = asked.best
    plans = asked.ask(3)
    assert len(set(plans)) == 3
    values = [asked.tell(plan) for plan in plans]
    assert asked.best == (plans[int(np.argmin(values))], min(values))
    assert not set(asked.ask(3)) & set(plans)
    asked.tell(plans[0], 1e-3)
    assert asked.best.plan == plans[0]
    with pytest.raises(DataError, match="positive number"):
        asked.tell(plans[0], -1.0)


def test_knobs_make_plans_or_say_why_not(job, space):
    asked = AskTell(job, space)
    plan = asked.plan(tp=2, pp=2, schedule="1f1b", micro_batch=2)
    assert (plan.dp, plan.n_devices) == (4, 16)
    assert set(asked.knobs) >= {"tp", "pp", "overlap_dp"}
    with pytest.raises(PlanError, match="but the cluster has 16 devices"):
        asked.plan(tp=3, pp=1)
    with pytest.raises(PlanError, match="GiB per device"):
        asked.plan(tp=1, pp=1, micro_batch=2)
    with pytest.raises(PlanError, match="unknown knobs"):
        asked.plan(tensor=2)


def test_fresh_draws_are_those_of_no_other_seed() -> None:
    seeds = [fresh_seed(seed, SEED_OFFSET + k) for seed in range(50) for k in range(N_SEEDS)]
    assert len(set(seeds)) == len(seeds)
    assert fresh_seed(3, SEED_OFFSET) == fresh_seed(3, SEED_OFFSET)

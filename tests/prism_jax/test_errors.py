"""Errors say which field is to blame, as a path and in their text."""

import pickle

import pytest

from prism_jax.core.errors import ConfigError, Mark, Mistake, PlanError, Problem, SpecError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.network import Tier


def test_a_problem_becomes_an_error_that_knows_its_field() -> None:
    error = SpecError.of(Problem("n_sm", "0, but it must be positive"), "device x")
    assert str(error) == "device x: n_sm = 0, but it must be positive"
    assert (error.path, error.text) == (("n_sm",), "0, but it must be positive")
    whole = PlanError.of(Problem("", "too many stages"))
    assert (str(whole), whole.path, whole.text) == ("too many stages", (), "too many stages")


def test_an_error_in_a_section_spells_its_path() -> None:
    error = SpecError.at(("variability", "stalls", 0, "step_prob"), "'x' is not a number")
    assert str(error) == "variability.stalls[0].step_prob: 'x' is not a number"


def test_specs_blame_a_field() -> None:
    with pytest.raises(PlanError) as plan:
        ParallelPlan(micro_batch=0, global_batch=1, seq_len=1)
    assert plan.value.path == ("micro_batch",)
    with pytest.raises(SpecError) as tier:
        Tier("rail", 8, 1e9, 1e-6, oversubscription=0.5)
    assert tier.value.path == ("oversubscription",)


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (Mistake("nothing was given"), "nothing was given"),
        (Mistake("is empty", Mark("job.yaml")), "job.yaml: is empty"),
        (Mistake("7", Mark("job.yaml", 5, 3), ("cluster", "tiers", 0)), "job.yaml:5:3 cluster.tiers.0: 7"),
        (Mistake("7", Mark("--set plan.tp=7", option=("plan", "tp")), ("plan", "tp")), "--set plan.tp=7: 7"),
        (Mistake("7", Mark("--set plan.tp=7", option=("plan", "tp")), ("plan",)), "--set plan.tp=7 plan: 7"),
    ],
)
def test_a_mistake_is_one_line(mistake: Mistake, line: str) -> None:
    assert str(mistake) == line


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(SpecError.at(("a", "b"), "wrong")))
    assert (str(error), error.path, error.text) == ("a.b: wrong", ("a", "b"), "wrong")
    config = ConfigError([Mistake("7", Mark("job.yaml", 5, 3), ("plan", "tp")), Mistake("x")])
    back = pickle.loads(pickle.dumps(config))
    assert (str(back), back.mistakes) == ("job.yaml:5:3 plan.tp: 7\nx", config.mistakes)

"""Errors say which field is to blame; progress has one signature everywhere."""

import pickle

import pytest

from prism_jax.core.errors import ConfigError, DataError, Mark, Mistake, PlanError, Problem, SpecError
from prism_jax.core.processes import Progress, part_of, silent
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


# --- One signature of progress for everything that takes long --------------------------------------------------------


def test_part_of_maps_shares_and_passes_the_text_on():
    told: list[tuple[float, str]] = []

    def progress(done: float, what: str = "", /) -> None:
        told.append((done, what))

    part = part_of(progress, 0.5, 0.9)
    part(0.0, "first")
    part(0.5)
    part(1.0, "last")
    assert told == [(0.5, "first"), (pytest.approx(0.7), ""), (pytest.approx(0.9), "last")]


def test_a_function_of_the_share_alone_serves_where_nothing_else_is_told():
    shares: list[float] = []
    part_of(shares.append, 0.0, 0.5)(1.0)  # pyright: ignore[reportArgumentType]
    assert shares == [0.5]


def test_silent_takes_both_and_is_progress():
    silent(0.5)
    silent(0.5, "halfway")
    assert isinstance(silent, Progress)


@pytest.mark.parametrize("n", [1, 20, 21, 40_000])
def test_a_message_has_at_most_twenty_lines(n: int) -> None:
    lines = str(ConfigError([Mistake(f"mistake {i}") for i in range(n)])).split("\n")
    assert len(lines) == min(n, 20)
    assert lines[-1] == (f"mistake {n - 1}" if n <= 20 else f"... and {n - 19:,} more")
    assert str(DataError("\n".join(f"line {i}" for i in range(n)))).count("\n") < 20

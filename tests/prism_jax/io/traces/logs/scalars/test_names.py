"""What names of scalars say."""

import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.scalars import choose, is_clock, is_step, is_time, meaning


@pytest.mark.parametrize(
    ("name", "unit_s"),
    [
        ("step_time_s", 1.0),
        ("step_time", None),
        ("Step Time (ms)", 1e-3),
        ("train/step_time_ms", 1e-3),
        ("run-7 - train/step_time_s", 1.0),
        ("perf/step_time_seconds", 1.0),
        ("iteration_time_ms", 1e-3),
        ("elapsed_time_per_iteration_s", 1.0),
        ("elapsed_time_per_iteration", None),
        ("iteration-time", None),
        ("time_metrics/end_to_end(s)", 1.0),
        ("train_step_timing in s", 1.0),
        ("ms_per_step", 1e-3),
        ("sec_per_iter", 1.0),
        ("stepTimeMs", 1e-3),
        ("step_us", 1e-6),
    ],
)
def test_step_times(name: str, unit_s: float | None):
    assert is_time(name, beside_steps=False)
    assert not is_step(name)
    assert meaning(name).unit_s == unit_s


@pytest.mark.parametrize("name", ["duration", "duration_s", "time_s", "seconds", "dt", "ms"])
def test_plain_times_are_step_times_beside_steps_only(name: str):
    assert is_time(name, beside_steps=True)
    assert not is_time(name, beside_steps=False)


@pytest.mark.parametrize(
    "name", ["step", "_step", "Step", "global_step", "train/global_step", "iteration", "run-7 - _step"]
)
def test_numbers_of_steps(name: str):
    assert is_step(name)
    assert not is_time(name, beside_steps=True)


@pytest.mark.parametrize("name", ["_timestamp", "_runtime", "Wall time", "timestamp", "Relative Time (s)", "elapsed_s"])
def test_clocks(name: str):
    assert is_clock(name)
    assert not is_time(name, beside_steps=True)


@pytest.mark.parametrize(
    "name",
    ["loss", "lr", "tokens_per_s", "forward_time_ms", "data_time", "run - train/step_time__MAX", "", "s/m", "x" * 9999],
)
def test_other_scalars(name: str):
    assert not is_time(name, beside_steps=True)
    assert not is_clock(name)


def test_training_comes_before_evaluation_and_whole_steps_before_their_parts():
    chosen = choose(["_step", "eval/step_time_s", "train/step_time_s", "train/global_step", "_runtime"], "a.csv:1")
    assert (chosen.step, chosen.time, chosen.clock) == ("train/global_step", "train/step_time_s", "_runtime")


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["a", "b"], r"a\.csv:1: no column of step times\. Looked for .*There are 'a', 'b'"),
        (["step", "step_time"], r"'step_time': nothing says the unit\. State it with --unit s"),
        (["Step", "a - step_time_s", "b - step_time_s"], r"several could be the step time: 'a - step_time_s', 'b"),
        (["Step", "a - _runtime", "b - _runtime"], r"several could be the time of an entry"),
        (["loss"], r"no column of step times"),
    ],
)
def test_what_cannot_be_told_is_refused(names: list[str], match: str):
    with pytest.raises(DataError, match=match):
        choose(names, "a.csv:1")


def test_a_stated_unit_must_not_contradict_the_name():
    assert choose(["step", "step_time"], "a", 1e-3).unit_s == 1e-3
    assert choose(["step", "step_time_ms"], "a", 1e-3).unit_s == 1e-3
    with pytest.raises(DataError, match="another unit than --unit"):
        choose(["step", "step_time_s"], "a", 1e-3)

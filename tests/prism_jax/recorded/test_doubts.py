"""What is said against a prediction, and that nothing is said against a sound one."""

import numpy as np
import pytest

from prism_jax.recorded.prediction import TracePrediction, doubts, resampled

STEPS = np.random.default_rng(0).normal(1.0, 0.05, 120)


def of(recorded_s: np.ndarray, factor: float = 1.0, as_recorded: bool = True) -> tuple[str, ...]:
    drawn = resampled(recorded_s, n_refit=40, per_refit=100, seed=0)
    return doubts(TracePrediction(factor * drawn), recorded_s, as_recorded=as_recorded)


def test_a_sound_prediction_is_not_doubted() -> None:
    assert of(STEPS) == ()


@pytest.mark.parametrize(("n", "beyond"), [(5, "p95 or p99"), (18, "p95 or p99"), (19, "p99"), (98, "p99")])
def test_quantiles_that_so_few_steps_cannot_show_are_named(n: int, beyond: str) -> None:
    (found,) = of(STEPS[:n])
    assert found.startswith(f"{n} recorded steps cannot show a {beyond}: ")
    assert found.endswith("Record 100 or more to see it")


def test_99_steps_show_a_p99() -> None:
    assert of(STEPS[:99]) == ()


@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_a_prediction_that_contradicts_the_recording_says_so(factor: float) -> None:
    """The figures of a user: recorded p50 0.117 s, predicted 0.027 s; p95 1.9 s, eight times the longest recorded step."""
    found = of(STEPS, factor)
    assert "is not among the recorded steps" in found[0]
    assert any("times the longest recorded step" in line for line in found) == (factor > 1)
    assert of(STEPS, factor, as_recorded=False) == ()


def test_an_estimate_outside_its_interval_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TracePrediction, "quantile", lambda self, p: 10.0)
    assert [line.split(" ")[1] for line in of(STEPS, as_recorded=False)] == ["p50", "p95", "p99"]


def test_steps_that_take_after_their_neighbours_tell_less() -> None:
    (found,) = of(np.sort(STEPS))
    assert found.startswith("neighbouring steps are alike (correlation 1.00), so 120 of them")

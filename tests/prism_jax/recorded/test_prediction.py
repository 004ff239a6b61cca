"""Predicted steps of a recording: quantiles, their intervals, and steps drawn again."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from prism_jax.recorded.prediction import TracePrediction, doubts, ks_distance, resampled
from prism_jax.result.distribution import StepTimes


@pytest.fixture(scope="module")
def normal() -> TracePrediction:
    """Every refit agrees: steps of 10 s, standard deviation 1 s."""
    return TracePrediction(np.random.default_rng(0).normal(10.0, 1.0, (200, 1000)))


@pytest.mark.parametrize("n_step", [5, 20, 100])
@pytest.mark.parametrize("p", [0.5, 0.95])
def test_expected_quantile_of_a_sample_of_a_known_law(normal: TracePrediction, p: float, n_step: int) -> None:
    """Against the median of the quantile of fresh samples; four standard errors, both sides drawn alike."""
    n_sample = 200 * (1000 // n_step)
    fresh = np.quantile(np.random.default_rng(9).normal(10.0, 1.0, (n_sample, n_step)), p, axis=1)
    error = (
        1.2533 * 2.0 * np.sqrt(2.0 / (n_step * n_sample))
    )  # sd of a p95 is about 2 / sqrt(n), of a median 1.25 times that
    assert normal.expected(p, n_step) == pytest.approx(np.median(fresh), abs=4 * error)


@given(
    refits=st.lists(st.lists(st.floats(1e-3, 1e6), min_size=4, max_size=4), min_size=2, max_size=12),
    p=st.floats(0, 1),
    level=st.floats(0.01, 0.99),
)
def test_no_estimate_lies_outside_its_own_interval(refits: list[list[float]], p: float, level: float) -> None:
    """However skewed the refits are."""
    found = TracePrediction(np.array(refits))
    for value, (low, high) in (
        (found.quantile(p), found.interval(p, level)),
        (found.expected(p, 2), found.expected_interval(p, 2, level)),
    ):
        assert low * (1 - 1e-12) <= value <= high * (1 + 1e-12)


def test_long_run_quantile_and_its_error(normal: TracePrediction) -> None:
    exact = stats.norm.ppf(0.95, 10.0, 1.0)
    assert normal.quantile(0.95) == pytest.approx(exact, abs=4 * normal.mc_error(0.95) + 2e-3)
    assert normal.mc_error(0.95) == pytest.approx(1.2533 * 2.1 / np.sqrt(200 * 1000), rel=0.4)


def test_interval_covers_the_quantile_of_the_next_steps(normal: TracePrediction) -> None:
    low, high = normal.expected_interval(0.95, 20, 0.9)
    fresh = np.quantile(np.random.default_rng(1).normal(10.0, 1.0, (4000, 20)), 0.95, axis=1)
    assert ((low <= fresh) & (fresh <= high)).mean() == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 4000) + 0.01)


def test_wider_levels_contain_narrower_ones() -> None:
    refits = np.random.default_rng(2)
    found = TracePrediction(refits.normal(10.0, 1.0, (64, 500)) + refits.normal(0.0, 0.3, (64, 1)))
    for low, high in ((0.5, 0.8), (0.8, 0.9), (0.9, 0.99)):
        for interval in (found.interval, lambda p, level: found.expected_interval(p, 20, level)):
            inner, outer = interval(0.95, low), interval(0.95, high)
            assert outer[0] <= inner[0] <= inner[1] <= outer[1]
    sample, long_run = found.expected_interval(0.95, 20), found.interval(0.95)
    assert sample[0] < long_run[0] < long_run[1] < sample[1]


def test_more_steps_than_draws_are_all_draws() -> None:
    found = TracePrediction(np.random.default_rng(3).normal(10.0, 1.0, (8, 100)))
    assert found.expected(0.5, 10_000) == pytest.approx(found.quantile(0.5), rel=1e-12)


def test_constant_steps_are_certain() -> None:
    found = TracePrediction(np.full((4, 50), 2.5))
    assert (found.quantile(0.95), found.expected(0.95, 7), found.mc_error(0.95)) == (2.5, 2.5, 0.0)
    assert found.interval(0.95) == found.expected_interval(0.95, 7) == (2.5, 2.5)


def test_samples_are_all_draws_sorted() -> None:
    found = TracePrediction(np.array([[3.0, 1.0], [2.0, 4.0]]))
    assert found.samples_s.tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("sizes", [(1, 1), (7, 30), (200, 50)])
def test_ks_distance_is_that_of_scipy(sizes: tuple[int, int]) -> None:
    """Ties included."""
    rng = np.random.default_rng(4)
    for digits in (1, 6):
        a, b = (np.round(rng.normal(shift, 1.0, n), digits) for shift, n in zip((0.0, 0.3), sizes, strict=True))
        assert ks_distance(a, b) == pytest.approx(stats.ks_2samp(a, b)[0], abs=1e-12)


def test_ks_distance_of_a_sample_to_itself_is_zero() -> None:
    a = np.random.default_rng(5).normal(size=(4, 25))
    assert ks_distance(a, a.ravel()) == 0.0
    assert ks_distance(a, a + 100) == 1.0


def test_a_prediction_answers_as_step_times_do(normal: TracePrediction) -> None:
    assert isinstance(normal, StepTimes)
    assert normal.by_fleet_s.shape == (200, 1000)
    assert normal.mean_s == pytest.approx(10.0, abs=0.02)
    assert normal.std_s == pytest.approx(1.0, abs=0.02)
    assert normal.prob_above(normal.quantile(0.95)) == pytest.approx(0.05, abs=2e-3)
    assert normal.prob_slower(0.1) == pytest.approx(stats.norm.sf(1.0), abs=5e-3)
    assert "<td>p95</td>" in normal._repr_html_()


def test_a_guarantee_covers_the_quantile_of_a_fresh_refit() -> None:
    """With 95% confidence in 95% of 400 cases; five standard errors."""
    rng, held = np.random.default_rng(4), 0
    for _ in range(400):
        middles = rng.normal(10.0, 0.3, 41)
        bound = TracePrediction(middles[:40, None] + np.zeros((1, 3))).guarantee(0.95, 0.95)
        held += middles[40] <= bound.bound_s
    assert bound.kind == "refits"
    assert held / 400 == pytest.approx(0.95, abs=5.0 * np.sqrt(0.95 * 0.05 / 400))


# --- What is said against a prediction, and that nothing is said against a sound one ---------------------------------


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


# --- Step times redrawn from recorded ones: exact where nothing varies, honest about what was not seen ---------------


REFITS = {"n_refit": 40, "per_refit": 100, "seed": 0}


def test_equal_steps_are_repeated() -> None:
    np.testing.assert_allclose(resampled(np.full(7, 2.5), **REFITS), 2.5, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_steps_can_be_redrawn(n: int) -> None:
    drawn = resampled(np.arange(1.0, n + 1.0), **REFITS)
    assert drawn.shape == (40, 100)
    assert np.isfinite(drawn).all()
    assert (drawn > 0).all()


def test_unit_and_order_of_the_steps_do_not_matter() -> None:
    step_s = np.random.default_rng(1).lognormal(0.0, 0.2, 30)
    np.testing.assert_allclose(resampled(1e3 * step_s[::-1], **REFITS), 1e3 * resampled(step_s, **REFITS), rtol=1e-9)


def test_one_step_in_n_plus_one_is_longer_than_all_recorded_ones() -> None:
    """By exchangeability; the share over refits is the mean of 4,000 Beta(1, n) weights, five standard errors."""
    step_s = np.random.default_rng(2).lognormal(0.0, 0.2, 19)
    drawn = resampled(step_s, n_refit=4000, per_refit=50, seed=0)
    error = np.sqrt((0.05 * 0.95 / 21 + 0.05 * 0.95 / 50) / 4000)
    assert (drawn > step_s.max()).mean() == pytest.approx(1 / 20, abs=5 * error)
    assert (drawn < step_s.min()).mean() == pytest.approx(1 / 20, abs=5 * error)


@pytest.mark.parametrize("p", [0.5, 0.95])
@pytest.mark.parametrize("draw", [np.random.Generator.normal, np.random.Generator.laplace])
def test_intervals_cover_quantiles_of_the_next_steps(draw: Callable[..., np.ndarray], p: float) -> None:
    """18 steps from 18: 100 times. A coverage of 0.88 leaves 74 to 98% with probability 1e-4."""
    rng, held = np.random.default_rng(3), 0
    for seed in range(100):
        fitted, fresh = np.exp(0.1 * draw(rng, size=(2, 18)))
        prediction = TracePrediction(resampled(fitted, n_refit=40, per_refit=100, seed=seed))
        low, high = prediction.expected_interval(p, 18, 0.9)
        held += low <= np.quantile(fresh, p) <= high
    assert 74 <= held <= 98

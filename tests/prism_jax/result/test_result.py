"""What a distribution of step times answers."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.result.distribution import StepTimeDistribution, StepTimes, html_table, independent_bound


def distribution(method: str = "symmetric", n: int = 8000) -> StepTimeDistribution:
    rng = np.random.default_rng(0)
    samples = rng.gamma(20.0, 0.1, n)
    return StepTimeDistribution(np.sort(samples), np.sort(samples.reshape(8, -1), axis=1), 1.5, method, n, 0.05 * n)


def test_quantiles_and_probabilities_turn_each_other_round() -> None:
    result = distribution()
    for p in (0.05, 0.5, 0.95, 0.99):
        assert result.prob_above(result.quantile(p)) == pytest.approx(1 - p, abs=2e-4)
    assert result.prob_slower(0.2) == result.prob_above(1.2 * result.quantile(0.5))
    assert result.prob_above(0.0) == 1.0
    assert result.prob_above(1e9) == 0.0


def test_moments_are_those_of_the_samples() -> None:
    result = distribution()
    assert result.mean_s == pytest.approx(2.0, abs=0.02)
    assert result.std_s == pytest.approx(0.447, abs=0.02)


def test_error_of_a_quantile_is_that_of_independent_batches() -> None:
    """Median of n samples: 1 / (2 f sqrt n); 7 degrees of freedom, so within a factor 2.5."""
    result = distribution()
    expected = 0.5 / (0.9 * np.sqrt(8000))  # density 0.90 at the median of Gamma(20, 0.1)
    assert expected / 2.5 < result.mc_error(0.5) < 2.5 * expected


def test_brute_force_guarantees_by_order_statistic() -> None:
    """Its steps are independent; symmetric samples are not."""
    result = distribution("brute_force")
    bound = result.guarantee(0.95, 0.99)
    assert bound == independent_bound(result.samples_s, 0.95, 0.99)
    assert bound.bound_s > result.quantile(0.95)
    assert distribution().guarantee().kind == "randomisations"


def test_a_guarantee_that_too_few_steps_cannot_give_is_refused() -> None:
    with pytest.raises(DataError, match="800 samples .* can"):
        distribution("brute_force", 800).guarantee(0.999, 0.99)


def test_guarantee_lies_above_the_quantile_and_rises_with_confidence() -> None:
    bounds = [distribution().guarantee(0.95, c).bound_s for c in (0.9, 0.99, 0.999)]
    assert distribution().quantile(0.95) < bounds[0] < bounds[1] < bounds[2]


def test_interval_is_a_student_interval_around_the_quantile() -> None:
    """The stated error is half the interval of 95 % over 1.96, but for what interpolation leaves."""
    result = distribution()
    low, high = result.interval(0.95, 0.95)
    assert (low + high) / 2 == pytest.approx(result.quantile(0.95))
    assert high - low == pytest.approx(2 * 1.959964 * result.mc_error(0.95), rel=0.01)
    narrow = np.ptp(result.interval(0.95, 0.9))
    assert (high - low) / narrow == pytest.approx(2.144787 / 1.761310, rel=1e-5)  # t of 14 degrees of freedom


def test_a_distribution_answers_as_step_times_do() -> None:
    result = distribution()
    assert isinstance(result, StepTimes)
    np.testing.assert_array_equal(result.by_fleet_s[:, 0], result.samples_s)


def test_tables_for_notebooks_are_escaped() -> None:
    result = StepTimeDistribution(np.ones(8), np.ones((8, 2)), 1.0, "symmetric", 8, 1.0, notes=("p95 < 2 & rising",))
    html = result._repr_html_()
    assert "p95 &lt; 2 &amp; rising" in html
    assert "<td>p95</td>" in html
    assert html_table("<b>", ("a",), [("<script>",)]) == (
        "<div><table><caption>&lt;b&gt;</caption><thead><tr><th>a</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;</td></tr></tbody></table></div>"
    )

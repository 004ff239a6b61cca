"""Intervals that hold their estimate."""

from hypothesis import given, strategies as st

from prism_jax.result.distribution import holding

NUMBER = st.floats(-1e6, 1e6)


@given(NUMBER, NUMBER, NUMBER)
def test_an_interval_holds_its_estimate_and_what_it_held_before(estimate: float, a: float, b: float):
    low, high = holding(estimate, min(a, b), max(a, b))
    assert low <= estimate <= high
    assert low <= min(a, b)
    assert high >= max(a, b)
    assert {low, high} <= {estimate, a, b}
    if min(a, b) <= estimate <= max(a, b):
        assert (low, high) == (min(a, b), max(a, b))

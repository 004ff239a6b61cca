"""Exposure: nothing is lost between what shows and what hides."""

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.cost.chunk_cost import behind, bucketed, cut_up, prefetched

SECONDS = st.floats(0.0, 10.0)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(SECONDS, SECONDS, st.integers(1, 64))
def test_exposed_and_hidden_add_up(comm: float, window: float, n: int) -> None:
    for part in (behind(comm, window), cut_up(comm, window, n), bucketed(comm, window, n), bucketed(comm, window, 0)):
        assert part.exposed_s + part.hidden_s == pytest.approx(comm)
        assert part.exposed_s >= 0.0
        assert 0.0 <= part.hidden_s <= max(window, 0.0) + 1e-12


def test_a_wide_window_hides_everything_but_the_first_piece() -> None:
    assert behind(1.0, 2.0) == (0.0, 1.0)
    assert cut_up(1.0, 2.0, 8).exposed_s == pytest.approx(1 / 8)
    assert bucketed(1.0, 2.0, 10).exposed_s == pytest.approx(1 / 10)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(SECONDS, SECONDS, st.floats(0.0, 1.0))
def test_communication_shows_where_it_outlasts_its_share_of_the_window(
    comm: float, window: float, share: float
) -> None:
    part = behind(comm, window, share)
    assert part.exposed_s == pytest.approx(max(0.0, comm - share * window), abs=1e-12)
    assert part.hidden_s == pytest.approx(min(comm, share * window))


def test_what_has_nothing_beside_it_shows_whatever_the_window() -> None:
    assert prefetched(4.0, 1.0, 100.0) == (1.0, 3.0)
    assert prefetched(4.0, 1.0, 4.0, 0.5) == (2.0, 2.0)


def test_a_longer_communication_shows_from_a_knee_on_and_then_in_full() -> None:
    shown = [float(behind(comm, 2.0, 0.5).exposed_s) for comm in (0.5, 1.0, 1.5, 2.0)]
    assert shown == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_without_buckets_the_reduction_waits_for_the_end() -> None:
    assert bucketed(1.0, 5.0, 0) == (1.0, 0.0)

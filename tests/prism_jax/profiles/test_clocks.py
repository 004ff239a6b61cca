"""Clock offsets of ranks: what was put in is found again, from collectives, from sends, through chains of ranks."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from prism_jax.profiles.clocks import Meetings, compare_clocks

JITTER_S = 20e-6


def collectives(groups, offset_s, n_step=40, seed=0, drift=None, span_s=2.0, jitter_s=JITTER_S) -> Meetings:
    """Every step each group of ranks ends together, up to jitter, as read on the members' own clocks."""
    rng = np.random.default_rng(seed)
    drift = np.zeros(len(offset_s)) if drift is None else drift
    rank, group, end = [], [], []
    for step in range(n_step):
        for number, members in enumerate(groups):
            true = step * span_s / n_step + rng.uniform(0, span_s / n_step)
            for member in members:
                rank.append(member)
                group.append(step * len(groups) + number)
                shown = true + rng.normal(0, jitter_s)
                end.append(shown + offset_s[member] + drift[member] * true)
    order = rng.permutation(len(rank))
    side = np.zeros(len(rank), dtype=np.int32)
    return Meetings(np.array(rank, dtype=np.int32)[order], np.array(group)[order], np.array(end)[order], side)


@pytest.mark.parametrize(
    "groups",
    [[range(8)], [(r, r + 1) for r in range(7)], [range(4), range(4, 8), *((r, r + 4) for r in range(4))]],
    ids=["one group", "chain", "mesh"],
)
def test_offsets_of_seconds_are_found_to_within_the_jitter(groups):
    offset = np.random.default_rng(1).uniform(-5, 5, size=8)
    clocks = compare_clocks(collectives(groups, offset, n_step=200), 8)
    np.testing.assert_allclose(clocks.offset_s, offset - offset[0], atol=JITTER_S)
    assert clocks.n_part == 1
    assert 0.5 * JITTER_S < clocks.error_s < 3 * JITTER_S  # of a difference of two jittered ends


def test_corrected_times_of_one_collective_agree():
    offset = np.array([0.0, 3.0, -1.0, 0.5])
    meetings = collectives([range(4)], offset, jitter_s=0.0)
    fixed = compare_clocks(meetings, 4).corrected(meetings.rank, meetings.end_s)
    for group in np.unique(meetings.group):
        assert np.ptp(fixed[meetings.group == group]) < 1e-9


def test_a_third_of_outliers_does_not_move_the_offsets():
    offset = np.array([0.0, 1.0, 2.0])
    meetings = collectives([range(3)], offset, n_step=90)
    late = np.random.default_rng(3).choice(len(meetings.end_s), len(meetings.end_s) // 9, replace=False)
    meetings.end_s[late] += 0.3
    np.testing.assert_allclose(compare_clocks(meetings, 3).offset_s, offset, atol=2 * JITTER_S)


def test_ranks_without_shared_groups_keep_their_clocks_and_are_counted():
    offset = np.array([0.0, 1.0, 2.0, 5.0, 9.0])
    clocks = compare_clocks(collectives([(0, 1), (2, 3)], offset), 5)
    assert clocks.part.tolist() == [0, 0, 1, 1, 2]
    assert clocks.n_part == 3
    np.testing.assert_allclose(clocks.offset_s, [0.0, 1.0, 0.0, 3.0, 0.0], atol=JITTER_S)


def test_nothing_shared_changes_nothing():
    empty = Meetings(np.zeros(0, np.int32), np.zeros(0, np.intp), np.zeros(0), np.zeros(0, np.int32))
    clocks = compare_clocks(empty, 3)
    assert clocks.part.tolist() == [0, 1, 2]
    assert clocks.error_s == 0.0
    np.testing.assert_array_equal(clocks.corrected(np.array([1]), np.array([7.5])), [7.5])


def test_the_peer_with_most_shared_groups_is_preferred():
    """Rank 3 meets rank 1 once, through a broken clock reading, and rank 2 often."""
    offset = np.array([0.0, 1.0, 2.0, 3.0])
    good = collectives([(0, 1), (0, 2), (2, 3)], offset)
    bad = Meetings(
        np.append(good.rank, [1, 3]).astype(np.int32),
        np.append(good.group, [10_000, 10_000]),
        np.append(good.end_s, [0.0, 77.0]),
        np.append(good.side, [0, 0]).astype(np.int32),
    )
    np.testing.assert_allclose(compare_clocks(bad, 4).offset_s, offset, atol=2 * JITTER_S)


def test_the_delay_of_receives_cancels_between_directions():
    """Receives end 2 ms after their send; as many in one direction as in the other, or not."""
    rng = np.random.default_rng(0)
    offset, delay = 0.75, 2e-3
    rank, group, end, side = [], [], [], []
    for number in range(60):
        sender = 0 if number % 3 else 1
        true = float(number)
        for member in (0, 1):
            rank.append(member)
            group.append(number)
            side.append(-1 if member == sender else 1)
            end.append(true + (member == 1) * offset + (member != sender) * delay + rng.normal(0, 1e-6))
    clocks = compare_clocks(Meetings(*(np.array(v) for v in (rank, group, end, side))), 2)
    assert clocks.offset_s[1] == pytest.approx(offset, abs=5e-6)


def test_drift_is_corrected_in_long_recordings_only():
    offset, drift = np.array([0.0, 1.0, -2.0]), np.array([0.0, 30e-6, -50e-6])
    for span_s, expected in ((100.0, drift), (2.0, np.zeros(3))):
        meetings = collectives([range(3)], offset, n_step=200, drift=drift, span_s=span_s)
        clocks = compare_clocks(meetings, 3)
        np.testing.assert_allclose(clocks.drift, expected, atol=1e-6)
        fixed = clocks.corrected(meetings.rank, meetings.end_s)
        one = meetings.group == 199
        assert np.ptp(fixed[one]) < 10 * JITTER_S + 5e-3 * (span_s < 10)
    assert (compare_clocks(collectives([range(3)], offset, n_step=200, span_s=100.0), 3).drift == 0).all()


def test_drift_adds_up_along_a_chain():
    offset, drift = np.array([0.0, 5e3, -8e4, 1e5]), np.array([0.0, 40e-6, 0.0, -40e-6])
    meetings = collectives([(0, 1), (1, 2), (2, 3)], offset, n_step=300, drift=drift, span_s=200.0)
    clocks = compare_clocks(meetings, 4)
    np.testing.assert_allclose(clocks.drift, drift, atol=1e-6)
    fixed = clocks.corrected(meetings.rank, meetings.end_s)
    for group in (0, 450, 897):
        assert np.ptp(fixed[meetings.group == group]) < 10 * JITTER_S


@given(seed=st.integers(0, 1000), n_rank=st.integers(2, 6))
def test_the_order_of_entries_does_not_matter(seed, n_rank):
    meetings = collectives([range(n_rank), (0, n_rank - 1)], np.arange(n_rank, dtype=float), n_step=5, seed=seed)
    order = np.random.default_rng(seed).permutation(len(meetings.rank))
    shuffled = Meetings(*(getattr(meetings, f)[order] for f in ("rank", "group", "end_s", "side")))
    one, other = compare_clocks(meetings, n_rank), compare_clocks(shuffled, n_rank)
    np.testing.assert_array_equal(one.offset_s, other.offset_s)
    assert one.error_s == other.error_s


def test_a_thousand_ranks_in_a_mesh():
    """8 tensor-parallel x 128 data-parallel ranks, all offsets found through at most two peers."""
    n_rank, n_step = 1024, 6
    rng = np.random.default_rng(0)
    offset = rng.uniform(-1, 1, n_rank)
    ranks = np.arange(n_rank)
    rank = np.tile(np.concatenate([ranks, ranks]), n_step)
    step = np.repeat(np.arange(n_step), 2 * n_rank)
    group = np.tile(np.concatenate([ranks // 8, 128 + ranks % 8]), n_step) + step * 136
    end = group * 1e-3 + offset[rank] + rng.normal(0, JITTER_S, len(rank))
    clocks = compare_clocks(Meetings(rank.astype(np.int32), group, end, np.zeros(len(rank), np.int32)), n_rank)
    assert clocks.n_part == 1
    np.testing.assert_allclose(clocks.offset_s, offset - offset[0], atol=6 * JITTER_S)

"""Pairs of measured rows and the reliability of probabilities, in closed form."""

import numpy as np
import pytest

from experiments.paired_probability.pairs import picked, reliability
from tests.support.measured_rows import measured_rows


def test_pairs_are_of_one_source_balanced_and_no_ties():
    rows = measured_rows(spread=0.1, batches=(64, 128, 256, 512))
    pairs = picked(rows, 9, 0)
    assert len({(pair.first.id, pair.second.id) for pair in pairs}) == len(pairs) == 9
    assert all(pair.first.source == pair.second.source for pair in pairs)
    assert all(abs(pair.log_ratio) > 0.01 for pair in pairs)
    counts = [sum(pair.first.source == source for pair in pairs) for source in {pair.first.source for pair in pairs}]
    assert len(counts) == 3
    assert max(counts) - min(counts) <= 1
    assert [pair.first.id for pair in picked(rows, 9, 0)] == [pair.first.id for pair in pairs]
    assert all(pair.same_size for pair in pairs)


def test_reliability_is_the_distance_of_what_is_stated_from_what_happens():
    """Half of the pairs stated at .9 of which .7 come true, half at .55 of which .55 do, whichever is first."""
    prob = np.repeat([0.9, 0.45], 1000)
    right = np.concatenate([np.arange(1000) < 700, np.arange(1000) < 550]).astype(float)
    better = np.where(prob > 0.5, right, 1.0 - right)
    found = reliability(prob, better)
    assert found.reliability == pytest.approx(0.1)
    assert found.brier == pytest.approx(np.mean((prob - better) ** 2))
    assert found.count.tolist() == [1000, 0, 0, 0, 1000]
    assert found.noise == pytest.approx(
        (np.sqrt(0.09 / 1000) + np.sqrt(0.2475 / 1000)) / 2 * np.sqrt(2 / np.pi), rel=0.05
    )


def test_a_coin_is_right_half_of_the_time_and_has_a_quarter():
    found = reliability(np.full(500, 0.5), (np.arange(500) % 5 > 0).astype(float))
    assert found.reliability == pytest.approx(0.0)
    assert found.brier == 0.25

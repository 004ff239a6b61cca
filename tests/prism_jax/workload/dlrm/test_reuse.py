"""Reuse of table rows: closed forms, limits, draws, and shares measured in production tables."""

import csv
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.workload.dlrm.tables import Histogram, Reuse, Uniform, Zipf, bin_reuse, parse_reuse

MEASURED = Path("../shared/data/nonllm/meta_embedding_reuse.csv")
ALL = (Uniform(), Zipf(0.0), Zipf(0.7), Zipf(1.0), Zipf(1.3), Histogram((0.1,) * 10 + (0.0,) * 7))


def lru_hits(rows: np.ndarray, room: int) -> float:
    """Share of hits of a least-recently-used cache that starts empty."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in rows.tolist():
        if row in held:
            hits += 1
            held.move_to_end(row)
        else:
            held[row] = None
            if len(held) > room:
                held.popitem(last=False)
    return hits / len(rows)


@pytest.mark.parametrize("reuse", ALL)
def test_with_room_for_all_every_second_lookup_of_a_row_is_a_hit(reuse: Reuse) -> None:
    unique = reuse.unique_rows(1e5, 3e5)
    assert reuse.hit_rate(1e5, 3e5, 1e5) == pytest.approx(1.0 - unique / 3e5, abs=1e-9)


@pytest.mark.parametrize("reuse", ALL)
def test_hits_grow_with_the_cache_and_stay_shares(reuse: Reuse) -> None:
    hits = [reuse.hit_rate(1e5, 3e5, room) for room in (0.0, 10.0, 1e3, 1e4, 5e4, 1e5)]
    assert all(0.0 <= one <= 1.0 for one in hits)
    assert hits == sorted(hits)


def test_uniform_is_the_closed_form() -> None:
    assert Uniform().unique_rows(10.0, 5.0) == pytest.approx(10.0 * (1.0 - 0.9**5))
    assert Uniform().unique_rows(1.0, 5.0) == 1.0
    assert Uniform().hit_rate(1e6, 1e6, 1e5) == pytest.approx(1.0 - (1e5 + 9e5 * 0.9) / 1e6)


def test_zipf_without_skew_reads_as_many_rows_as_uniform() -> None:
    assert Zipf(0.0).unique_rows(1e6, 1e6) == pytest.approx(Uniform().unique_rows(1e6, 1e6), rel=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_zipf_agrees_with_draws_through_a_cache(exponent: float) -> None:
    rows, n_lookups, room = 20_000, 40_000, 1_500
    prob = np.arange(1, rows + 1) ** -exponent
    drawn = np.random.default_rng(3).choice(rows, n_lookups, p=prob / prob.sum())
    assert Zipf(exponent).unique_rows(rows, n_lookups) == pytest.approx(len(np.unique(drawn)), rel=0.02)
    assert Zipf(exponent).hit_rate(rows, n_lookups, room) == pytest.approx(lru_hits(drawn, room), abs=0.01)


def test_histogram_agrees_with_draws_through_a_cache() -> None:
    counts = np.repeat([1, 2, 3, 4, 11], [4000, 2000, 500, 500, 300])
    drawn = np.random.default_rng(3).permutation(np.repeat(np.arange(len(counts)), counts))
    shares = np.zeros(17)
    for bin_, low, high in ((0, 1, 1), (1, 2, 2), (2, 3, 4), (4, 9, 16)):
        shares[bin_] = counts[(counts >= low) & (counts <= high)].sum() / counts.sum()
    own = Histogram(tuple(shares))
    assert own.unique_rows(1e9, len(drawn)) == pytest.approx(
        len(counts), rel=0.06
    )  # of a bin the mean reuse is assumed
    assert own.hit_rate(1e9, len(drawn), 1000) == pytest.approx(lru_hits(drawn, 1000), abs=0.03)


def test_histogram_reproduces_the_unique_rows_of_production_tables() -> None:
    if not MEASURED.exists():
        pytest.skip("measured reuse is not at hand")
    files: dict[str, dict[str, list[dict[str, str]]]] = {}
    with MEASURED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            files.setdefault(row["file"], {}).setdefault(row["kind"], []).append(row)
    for kinds in files.values():
        lookups = kinds["fraction_of_lookups"]
        own = Histogram(tuple(float(row["frac"]) for row in lookups))
        indices, unique = float(lookups[0]["indices"]), float(lookups[0]["unique_rows"])
        assert own.unique_rows(1e18, indices) == pytest.approx(unique, rel=0.03)
        shares = own.shares / bin_reuse() / (own.shares / bin_reuse()).sum()
        stated = [float(row["frac"]) for row in kinds["fraction_of_unique_rows"]]
        np.testing.assert_allclose(shares, stated, atol=0.015)


@pytest.mark.parametrize("exponent", [0.8, 1.15])
@pytest.mark.parametrize("least", [4.0, 40.0])
def test_frequent_rows_and_the_others_make_up_the_law(exponent: float, least: float) -> None:
    rows, n = 50_000, 100_000
    prob = np.arange(1, rows + 1) ** -exponent
    prob /= prob.sum()
    found = Zipf(exponent).frequent(rows, n, least)
    assert found.rows == pytest.approx((n * prob > least).sum(), rel=0.05)
    assert found.share == pytest.approx(prob[n * prob > least].sum(), rel=0.01)
    own = found.own.unique_rows(found.rows, found.share * n)
    rest = found.rest.unique_rows(rows - found.rows, (1.0 - found.share) * n)
    assert own + rest == pytest.approx(Zipf(exponent).unique_rows(rows, n), rel=0.01)


def test_a_histogram_is_parted_by_how_often_its_rows_are_read() -> None:
    found = Histogram((0.4, 0.2, 0.1, 0.1, 0.1, 0.1, *(0.0,) * 11)).frequent(1e9, 1e6, 5.0)
    assert found.share == pytest.approx(0.3)
    assert found.own == Histogram((0.0, 0.0, 0.0, 0.1, 0.1, 0.1, *(0.0,) * 11))
    assert found.rows == pytest.approx(sum(1e5 / bin_reuse()[3:6]))


def test_evenly_read_rows_are_all_frequent_or_none() -> None:
    assert Uniform().frequent(1000.0, 9000.0, 8.0)[:2] == (1000.0, 1.0)
    assert Uniform().frequent(1000.0, 7000.0, 8.0)[:2] == (0.0, 0.0)


def test_texts_of_job_files() -> None:
    assert parse_reuse("uniform") == Uniform()
    assert parse_reuse("zipf(1.05)") == Zipf(1.05)
    assert parse_reuse(Zipf(1.05, 40.0).written) == Zipf(1.05, 40.0)
    with pytest.raises(SpecError, match=r"must be uniform, zipf\(a\)"):
        parse_reuse("zipf")
    with pytest.raises(SpecError, match="17 are needed"):
        Histogram((1.0,))

"""Embedding tables: rows that are read again, and seconds of a lookup."""

import csv
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system.catalog import device
from prism_jax.workload.dlrm.lookup_law import (
    A100,
    V100,
    BandwidthCurve,
    Lookups,
    TableSeconds,
    lookup_law,
    seconds_of_traffic,
    traffic,
)
from prism_jax.workload.dlrm.sizes import SizeRule, exchange_bytes
from prism_jax.workload.dlrm.tables import EmbeddingTable, Histogram, Reuse, Uniform, Zipf, bin_reuse, parse_reuse

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
    # of a bin the mean reuse is assumed
    assert own.unique_rows(1e9, len(drawn)) == pytest.approx(len(counts), rel=0.06)
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


# --- Seconds of embedding tables: additive, by bytes, monotone; exchange sizes by three rules ------------------------


TABLES = tuple(
    EmbeddingTable(f"t{i}", rows, 128, pooling) for i, (rows, pooling) in enumerate([(10**7, 10.0), (500, 1.0)])
)


def seconds(tables: tuple[EmbeddingTable, ...] = TABLES, batch: float = 65536, optimizer: str = "sgd") -> TableSeconds:
    law = lookup_law(device("a100-40gb"), 40e6)
    rows, dim, pooling, element_bytes = (
        np.array([getattr(table, name) for table in tables], dtype=float)
        for name in ("rows", "dim", "pooling", "element_bytes")
    )
    batches = np.full(len(tables), float(batch))
    lookups = Lookups(rows, dim, pooling, batches, element_bytes, tuple(table.reuse for table in tables))
    return seconds_of_traffic(traffic(lookups, law, optimizer, 4.0), law)


def test_a_table_costs_the_same_beside_others() -> None:
    both, alone = seconds(), seconds(TABLES[:1])
    assert both.forward_s[0] == alone.forward_s[0]
    assert both.backward_s[0] == alone.backward_s[0]


def test_rows_that_nothing_repeats_are_read_from_memory() -> None:
    """10^7 rows of 512 bytes, ten each of 65,536 samples: by far most of the bytes are rows, at the measured bandwidth."""
    own = seconds()
    rows_s = 65536 * 10 * 512 / 1391.1e9
    assert rows_s < own.forward_s[0] < 1.25 * rows_s
    assert own.traffic.hit_rate[0] < 0.05
    assert own.traffic.hit_rate[1] > 0.95


def test_half_the_columns_are_about_half_the_time() -> None:
    half = tuple(replace(table, dim=64) for table in TABLES[:1])
    assert seconds(half).forward_s[0] / seconds().forward_s[0] == pytest.approx(0.55, abs=0.05)  # 1.1 for narrow rows


def test_state_of_the_optimizer_costs_time_and_memory() -> None:
    found = [seconds(optimizer=name) for name in ("sgd", "rowwise_adagrad", "adagrad")]
    backward = [own.backward_s[0] for own in found]
    assert backward == sorted(backward)
    held = [own.traffic.held_bytes[0] / (4 * TABLES[0].n_params) for own in found]
    assert held == pytest.approx([1.0, 1.0 + 1 / 128, 2.0])
    with pytest.raises(SpecError, match="'adam', but it must be one of sgd"):
        seconds(optimizer="adam")


@pytest.mark.parametrize("curve", [V100, A100])
def test_curves_rise_from_their_start_to_their_bandwidth(curve: BandwidthCurve) -> None:
    size = 2.0 ** np.arange(0.0, 36.0, 0.25)
    time_s = curve.seconds(size)
    assert time_s[0] == curve.start_s
    assert (size / time_s)[-1] == pytest.approx(curve.full_bytes_per_s, rel=1e-3)
    assert (np.diff(time_s) > -0.06 * time_s[:-1]).all()  # the published pieces do not meet exactly
    assert curve.seconds(0.0) == 0.0


def test_another_device_keeps_latencies_and_scales_bandwidth() -> None:
    law, own = lookup_law(device("h100-sxm"), 50e6), lookup_law(device("a100-40gb"), 40e6)
    assert law.seconds(1.0, 0.0) == own.seconds(1.0, 0.0)
    assert law.seconds(1e11, 0.0) / own.seconds(1e11, 0.0) == pytest.approx(1555 / 3350, rel=1e-3)


def test_size_rules_agree_where_devices_are_alike_and_order_where_not() -> None:
    even = np.full(4, 3.0)
    assert [float(exchange_bytes(even, rule)) for rule in SizeRule] == pytest.approx([12.0] * 3)
    uneven = np.array([9.0, 1.0, 1.0, 1.0])  # sends 27 and receives 3; the others send 3 and receive 11
    found = {rule: float(exchange_bytes(uneven, rule)) * 3 / 4 for rule in SizeRule}
    assert found == {SizeRule.MAX_OF_MAX: 27.0, SizeRule.MAX_OF_SUM: 15.0, SizeRule.SUM: 9.0}
    assert exchange_bytes(np.stack([even, uneven])).shape == (2,)
    assert float(exchange_bytes(np.array([5.0]))) == 5.0

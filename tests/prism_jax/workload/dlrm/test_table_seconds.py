"""Seconds of embedding tables: additive, by bytes, monotone; exchange sizes by three rules."""

from dataclasses import replace

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
from prism_jax.workload.dlrm.tables import EmbeddingTable

TABLES = tuple(
    EmbeddingTable(f"t{i}", rows, 128, pooling) for i, (rows, pooling) in enumerate([(10**7, 10.0), (500, 1.0)])
)


def seconds(tables: tuple[EmbeddingTable, ...] = TABLES, batch: float = 65536, optimizer: str = "sgd") -> TableSeconds:
    law = lookup_law(device("a100-40gb"), 40e6)
    columns = [
        np.array([getattr(table, name) for table in tables], dtype=float)
        for name in ("rows", "dim", "pooling", "element_bytes")
    ]
    batches = np.full(len(tables), float(batch))
    lookups = Lookups(*columns[:3], batches, columns[3], tuple(table.reuse for table in tables))
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

"""Networks: algorithms of collectives, tiers, and curves that were measured."""

import pickle
from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import SpecError
from prism_jax.cost.block_cost import collective_s
from prism_jax.system import catalog
from prism_jax.system.collectives import NCCL, TierGroup, candidates
from prism_jax.system.hardware import Cluster
from prism_jax.system.network import Network
from prism_jax.system.network_kinds import (
    LIBRARIES,
    NETWORKS,
    MeasuredCollectives,
    MeasuredCurve,
    MeasuredNetwork,
    TieredNetwork,
)

A100 = catalog.cluster("dgx-a100", 1024)
H100 = catalog.cluster("dgx-h100", 1024)
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
HUGE = 1e12  # bytes: latency and ramp vanish


def group(cluster: Cluster, stride: int, size: int) -> TierGroup:
    return TieredNetwork(cluster.tiers, cluster.device.generation).group(stride, size)


@pytest.mark.parametrize(("kind", "rounds"), [("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_large_ring_moves_n_minus_one_nths_of_the_buffer(kind: str, rounds: int, size: int) -> None:
    bandwidth = A100.tiers[0].bytes_per_s * NCCL.scale_up.of(kind)
    expected = rounds * (size - 1) / size * HUGE / bandwidth
    assert collective_s(kind, HUGE, A100, 1, size).seconds == pytest.approx(expected, rel=1e-3)


def test_small_ring_costs_its_hops() -> None:
    for size in (2, 8):
        hops = 2 * (size - 1)
        low_latency = NCCL.protocols[0]
        expected = low_latency.base_ring_s + hops * A100.tiers[0].latency_s * low_latency.scale_up_hop
        assert collective_s("all_reduce", 8.0, A100, 1, size).seconds == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 8, 16, 128])
def test_no_bytes_or_no_peers_take_no_time(kind: str, size: int) -> None:
    assert collective_s(kind, 0.0, A100, 1, size).seconds == 0.0
    assert collective_s(kind, 1e9, A100, 1, 1) == (0.0, "none")


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sampled_from(KINDS), st.sampled_from([2, 8, 16, 64]), st.sampled_from([1, 8]), st.floats(3, 10))
def test_more_bytes_never_take_less_time(kind: str, size: int, stride: int, exponent: float) -> None:
    small = collective_s(kind, 10**exponent, H100, stride, size).seconds
    assert collective_s(kind, 1.5 * 10**exponent, H100, stride, size).seconds >= small


@pytest.mark.parametrize("n_bytes", [1e4, 1e6, 1e8, 1e10])
def test_hierarchical_and_rail_rings_beat_one_flat_ring_across_nodes(n_bytes: float) -> None:
    options = candidates("all_reduce", n_bytes, group(A100, 1, 128))
    assert options["hierarchical"] < options["ring"]
    assert options["rail_ring"] <= options["ring"]


def test_reduction_in_the_switch_beats_the_ring_on_eight_h100() -> None:
    chosen = collective_s("all_reduce", 1e9, H100, 1, 8)
    assert chosen.algorithm == "in_switch"
    assert chosen.seconds < candidates("all_reduce", 1e9, group(H100, 1, 8))["ring"]


def test_a100_switches_do_not_reduce() -> None:
    assert collective_s("all_reduce", 1e9, A100, 1, 8).algorithm == "ring"


def test_trees_win_for_small_messages_on_many_nodes() -> None:
    assert "tree" in collective_s("all_reduce", 1e4, A100, 8, 128).algorithm


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_gathering_across_nodes_takes_logarithmically_many_hops(kind: str) -> None:
    slowest, tier = NCCL.protocols[-1], H100.tiers[1]
    hop_s = tier.latency_s * slowest.tree_network_hop + slowest.network_step_s
    few, many = (candidates(kind, 1e3, group(H100, 8, n))["pat"] for n in (8, 128))
    assert many - few == pytest.approx((7 - 3) * hop_s, rel=1e-3)
    assert collective_s(kind, 1e6, H100, 8, 128).algorithm == "pat"


def test_pat_needs_a_node_per_member_and_is_no_all_reduce() -> None:
    assert "pat" not in candidates("all_gather", 1e6, group(H100, 1, 128))
    assert "pat" not in candidates("all_reduce", 1e6, group(H100, 8, 16))


def test_pat_takes_a_hop_per_buffer_of_a_large_message() -> None:
    own = group(H100, 8, 128)
    small, large = (candidates("all_gather", n_bytes, own)["pat"] for n_bytes in (2e8, 4e8))
    wire_s = 2e8 * 127 / 128 / (H100.tiers[1].bytes_per_s * NCCL.network.all_gather)
    hops = 2e8 * 127 / 128 / NCCL.pat_bytes
    slowest = NCCL.protocols[-1]
    hop_s = H100.tiers[1].latency_s * slowest.tree_network_hop + slowest.network_step_s
    assert large - small == pytest.approx(wire_s + hops * hop_s, rel=1e-6)


@pytest.mark.parametrize(
    ("mib", "n_node", "bus_gb_per_s"), [(64, 4, 217), (64, 512, 112), (1024, 4, 337), (1024, 512, 286)]
)
def test_all_reduces_on_many_nodes_slow_down_as_measured(mib: int, n_node: int, bus_gb_per_s: float) -> None:
    """Source: arXiv 2411.13055, read off a plot."""
    n, n_bytes = 8 * n_node, mib * 2.0**20
    seconds = collective_s("all_reduce", n_bytes, catalog.cluster("dgx-h100", 8 * 512), 1, n).seconds
    assert 2.0 * (n - 1) / n * n_bytes / seconds / 1e9 == pytest.approx(bus_gb_per_s, rel=0.12)


def test_members_one_node_apart_have_a_port_each() -> None:
    one_rail = group(A100, 8, 16)
    assert one_rail.in_node == 1
    assert one_rail.n_node == 16
    whole_nodes = group(A100, 1, 16)
    assert (whole_nodes.in_node, whole_nodes.n_node) == (8, 2)
    # the same buffer over the same number of members: eight ports per node against one
    assert (
        collective_s("all_reduce", 1e9, A100, 1, 16).seconds < collective_s("all_reduce", 1e9, A100, 8, 16).seconds / 5
    )


def test_oversubscribed_spine_slows_an_all_to_all() -> None:
    oversubscribed, full = catalog.cluster("llama3-h100", 16384), catalog.cluster("dgx-h100", 16384)
    args = ("all_to_all", 1e9)
    assert collective_s(*args, oversubscribed, 1, 16384).seconds > 2 * collective_s(*args, full, 1, 16384).seconds


@pytest.mark.parametrize(
    ("size", "n_bytes", "measured_s"),
    # nccl-tests all-reduce, in place, Azure ND A100 v4 (NetX-lab/Echo, MIT)
    [(8, 134217728, 1119.8e-6), (8, 1073741824, 8139.6e-6), (16, 1073741824, 16166e-6), (64, 1073741824, 17143e-6)],
)
def test_large_all_reduces_are_within_ten_percent_of_measurements(size: int, n_bytes: int, measured_s: float) -> None:
    azure = catalog.cluster("azure-nd-a100-v4", 64)
    assert collective_s("all_reduce", n_bytes, azure, 1, size).seconds == pytest.approx(measured_s, rel=0.1)


# --- Measured --------------------------------------------------------------------------------------------------------
# Measured collectives on a network: the ratio where it was measured, its neighbours beyond, and nothing elsewhere.


CLUSTER = catalog.cluster("dgx-h100", 64)
SIZES = (log(1e4), log(1e6), log(1e8))


def curve(kind: str, crosses: bool, n: int, *ratio: float) -> MeasuredCurve:
    return MeasuredCurve(kind, crosses, n, SIZES, tuple(np.log(ratio).tolist()))


MEASURED = MeasuredCollectives(
    (
        curve("all_reduce", True, 16, 1.0, 2.0, 4.0),
        curve("all_reduce", True, 64, 4.0, 4.0, 4.0),
        curve("p2p", True, 2, 3.0, 3.0, 3.0),
    )
)


def test_the_ratio_is_that_of_the_measured_size_and_group():
    assert MEASURED.factor("all_reduce", 1e6, True, 16) == pytest.approx(2.0)
    assert MEASURED.factor("all_reduce", 1e5, True, 16) == pytest.approx(2.0**0.5), "halfway in log bytes"
    assert MEASURED.factor("all_reduce", 1e4, True, 32) == pytest.approx(2.0), "halfway in log members"


def test_beyond_what_was_measured_the_last_ratio_stays():
    assert MEASURED.factor("all_reduce", 1e12, True, 16) == pytest.approx(4.0)
    assert MEASURED.factor("all_reduce", 1.0, True, 2) == pytest.approx(1.0)
    assert MEASURED.factor("all_reduce", 1e4, True, 4096) == pytest.approx(4.0)


@pytest.mark.parametrize(("kind", "crosses"), [("all_to_all", True), ("all_reduce", False)])
def test_what_was_not_measured_keeps_the_figures(kind, crosses):
    assert MEASURED.factor(kind, 1e6, crosses, 8) == 1.0


def test_a_cluster_multiplies_its_own_seconds():
    own, measured = CLUSTER.fabric, replace(CLUSTER, measured=MEASURED).fabric
    assert isinstance(measured, MeasuredNetwork)
    assert isinstance(measured, Network)
    inside, across = ("all_reduce", 1e6, 1, 8), ("all_reduce", 1e6, 1, 16)
    assert measured.collective(*inside) == own.collective(*inside)
    assert measured.collective(*across).seconds == pytest.approx(2.0 * own.collective(*across).seconds)
    assert measured.collective(*across).algorithm == own.collective(*across).algorithm
    far = own.n_distance - 1
    assert measured.send_s(1e6, far, 8) == pytest.approx(3.0 * own.send_s(1e6, far, 8))
    assert measured.send_s(1e6, 0, 8) == own.send_s(1e6, 0, 8)


def test_measurements_stay_where_a_cluster_grows():
    grown = replace(CLUSTER, measured=MEASURED).of_size(4096)
    assert grown.fabric.collective("all_reduce", 1e6, 1, 4096).seconds == pytest.approx(
        4.0 * CLUSTER.of_size(4096).fabric.collective("all_reduce", 1e6, 1, 4096).seconds
    )


def test_of_two_tables_the_later_wins_where_both_measured():
    later = MeasuredCollectives((curve("all_reduce", True, 32, 5.0, 5.0, 5.0),))
    both = later.over(MEASURED)
    assert both.factor("all_reduce", 1e4, True, 16) == pytest.approx(5.0)
    assert both.factor("p2p", 1e4, True, 2) == pytest.approx(3.0)


# --- The tiered network as an object: what clusters have by default, by content, with any library of collectives -----


GENTLE = replace(NCCL, name="gentle", scale_up=replace(NCCL.scale_up, all_gather=NCCL.scale_up.all_gather / 2))


def test_a_cluster_without_a_network_has_its_tiers_under_nccl() -> None:
    assert H100.network is None
    assert H100.fabric == TieredNetwork(H100.tiers, "hopper", NCCL)
    assert isinstance(H100.fabric, Network)


def test_it_is_equal_hashed_and_pickled_by_content() -> None:
    one, other = TieredNetwork(H100.tiers, "hopper"), TieredNetwork(catalog.cluster("dgx-h100", 1024).tiers, "hopper")
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert replace(one, library=GENTLE) != one


def test_the_outermost_tier_grows_and_never_shrinks() -> None:
    network = TieredNetwork(H100.tiers, "hopper")
    assert network.of_size(4096) == TieredNetwork(H100.of_size(4096).tiers, "hopper")
    assert network.of_size(16) == network


def test_a_distance_is_the_innermost_tier_that_joins_two_devices() -> None:
    network = TieredNetwork(catalog.cluster("llama3-h100", 16384).tiers)
    first = np.array([0, 0, 0, 5], dtype=np.intp)
    second = np.array([7, 8, network.tiers[1].n_devices, 6], dtype=np.intp)
    assert network.distances(first, second).tolist() == [0, 1, 2, 0]
    assert [network.leaves_node(d) for d in range(network.n_distance)] == [False] + [True] * (network.n_distance - 1)


def test_half_the_share_of_a_library_doubles_the_wire_time_of_large_messages() -> None:
    usual = H100.fabric.collective("all_gather", 1e12, 1, 8)
    gentle = replace(H100, network=TieredNetwork(H100.tiers, "hopper", GENTLE)).fabric.collective(
        "all_gather", 1e12, 1, 8
    )
    assert gentle.algorithm == usual.algorithm
    assert gentle.seconds == pytest.approx(2.0 * usual.seconds, rel=1e-3)


def test_the_shipped_kinds_have_names() -> None:
    assert NETWORKS.names == ("tiered",)
    assert LIBRARIES.names == ("nccl",)
    assert NETWORKS.named("tiered").from_cluster == ("tiers", "generation")


def test_a_network_that_is_too_small_is_refused() -> None:
    with pytest.raises(SpecError, match=r"its network joins 1024 devices, fewer than n_devices 2048"):
        replace(H100, n_devices=2048, network=TieredNetwork(H100.tiers))
    assert replace(H100, network=TieredNetwork(H100.tiers)).of_size(2048).fabric.n_devices == 2048


def test_an_all_reduce_serves_gathers_and_scatters_of_the_same_bytes_on_its_side_of_the_nodes() -> None:
    measured = MeasuredCollectives((MeasuredCurve("all_reduce", True, 16, (0.0, 30.0), (np.log(1.5),) * 2),))
    for kind in ("all_reduce", "reduce_scatter", "all_gather"):
        assert measured.factor(kind, 2.0**20, True, 16) == pytest.approx(1.5)
        assert measured.factor(kind, 2.0**20, False, 8) == 1.0
    assert measured.factor("all_to_all", 2.0**20, True, 16) == 1.0
    own = MeasuredCurve("all_gather", True, 16, (0.0, 30.0), (np.log(3.0),) * 2)
    both = MeasuredCollectives((*measured.curves, own))
    assert both.factor("all_gather", 2.0**20, True, 16) == pytest.approx(3.0)
    assert both.serving("reduce_scatter", True) == "all_gather"

"""The tiered network as an object: what clusters have by default, by content, with any library of collectives."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system import catalog
from prism_jax.system.collectives import NCCL
from prism_jax.system.network import Network
from prism_jax.system.network_kinds import LIBRARIES, NETWORKS, TieredNetwork

H100 = catalog.cluster("dgx-h100", 1024)
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

"""Clusters of another size."""

from prism_jax.system.catalog import cluster


def test_a_cluster_of_another_size_keeps_its_tiers_and_grows_the_last():
    small = cluster("dgx-a100", 16)
    large = small.of_size(64)
    assert (large.n_devices, large.tiers[:-1], large.device) == (64, small.tiers[:-1], small.device)
    assert large.tiers[-1].n_devices == 64
    assert small.of_size(8).tiers == small.tiers

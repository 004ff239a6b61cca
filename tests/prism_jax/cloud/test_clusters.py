"""Instances as clusters, best plans there, and kinds that meet in the gradient exchange."""

import pytest

from prism_jax import load_job
from prism_jax.cloud.clusters import (
    FAST_LATENCY_S,
    SLOW_LATENCY_S,
    InstanceShape,
    PlanTimes,
    UnusableError,
    best_plans,
    cluster_of,
    exchange_s,
    joins_stages,
    mix,
    split,
)
from prism_jax.cloud.offers import Offer, device_of

P4D = InstanceShape("a100-40gb", 8, 50e9)


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("A100 (40 GB)", "a100-40gb"),
        ("A100 (80 GB)", "a100-80gb"),
        ("A100-40GB", "a100-40gb"),
        ("H100 HGX (80GB)", "h100-sxm"),
        ("H100 PCIe (80GB)", "h100-pcie"),
        ("V100 (16 GB)", "v100-16gb"),
        ("L4-24GB", "l4"),
        ("K80 (12 GB)", "k80"),
        ("H200-141GB", "h200"),
        ("A100 (20 GB)", ""),
        ("abacus", ""),
    ],
)
def test_names_of_gpus(gpu, device):
    assert device_of(gpu) == device


def test_tiers_of_instances():
    cluster = cluster_of(P4D, 4)
    assert cluster.n_devices == 32
    assert cluster.node_size == 8
    assert [tier.n_devices for tier in cluster.tiers] == [8, 32]
    assert cluster.tiers[1].bytes_per_s == pytest.approx(50e9 / 8)
    assert cluster.tiers[1].latency_s == FAST_LATENCY_S
    assert cluster_of(InstanceShape("v100-16gb", 1, 1.25e9), 2).tiers[0].latency_s == SLOW_LATENCY_S
    assert joins_stages(P4D)
    assert not joins_stages(InstanceShape("v100-16gb", 1, 1.25e9))


def test_one_instance_needs_no_network_but_two_do():
    assert cluster_of(InstanceShape("l4", 8, None), 1).n_devices == 8
    with pytest.raises(UnusableError):
        cluster_of(InstanceShape("l4", 8, None), 2)
    with pytest.raises(UnusableError):
        cluster_of(InstanceShape("", 8, None), 1)


@pytest.fixture(scope="module")
def job():
    return load_job("llama2_7b_fsdp_64")


def test_all_counts_at_once_are_each_by_itself(job):
    together = best_plans(job, P4D, (2, 4))
    alone = best_plans(job, P4D, (4,))
    assert together[4].step_s == pytest.approx(alone[4].step_s, rel=1e-6)
    assert together[4].plan.n_devices == 32
    assert together[4].step_s < together[2].step_s
    assert together[4].plan.global_batch == job.plan.global_batch


def test_tensor_parallelism_stays_inside_an_instance(job):
    assert best_plans(job, InstanceShape("a100-80gb", 2, 4e9), (8,))[8].plan.tp <= 2


def test_a_single_instance_is_planned_once(job):
    times = PlanTimes(job)
    first, second = (times.of(InstanceShape("h100-sxm", 8, rate), (1,)) for rate in (None, 4e11))
    assert first[1] is second[1]


@pytest.mark.parametrize(
    ("batch", "rates", "units"),
    [(128, (3.0, 1.0), (8, 4)), (256, (1.0, 1.0), (16, 16)), (96, (5.0, 2.0, 1.0), (8, 4, 4))],
)
def test_splits_add_up_and_are_near_the_rates(batch, rates, units):
    parts = split(batch, rates, units)
    assert parts is not None
    assert sum(parts) == batch
    assert all(part % unit == 0 and part > 0 for part, unit in zip(parts, units, strict=True))
    slowest = max(part / rate for part, rate in zip(parts, rates, strict=True))
    assert slowest <= (batch + sum(units)) / sum(rates) * 1.5


def test_splits_that_cannot_be():
    assert split(6, (1.0, 1.0), (4, 4)) is None
    assert split(4, (1.0, 1.0), (4, 4)) is None


def test_exchange_is_a_ring():
    assert exchange_s(8e9, [1e9]) == 0.0
    assert exchange_s(8e9, [1e9, 4e9]) == pytest.approx(8.0 + 2 * SLOW_LATENCY_S)


def test_a_mix_is_faster_than_its_parts_and_never_cheaper_per_step_than_the_better(job):
    offers = [
        Offer("c", "a", "H100", 8, on_demand_usd_per_h=80.0, network_bytes_per_s=4e11, device="h100-sxm"),
        Offer("c", "b", "A100", 8, on_demand_usd_per_h=40.0, network_bytes_per_s=5e10, device="a100-80gb"),
    ]
    rented = [(o, 2, best_plans(job, InstanceShape(o.device, 8, o.network_bytes_per_s), (2,))[2]) for o in offers]
    made = mix(job, rented)
    assert made is not None
    assert sum(part.samples for part in made.parts) == job.plan.global_batch
    alone = [best.step_s for _, _, best in rented]
    assert made.step_s < max(alone)
    assert made.step_s >= 1.0 / sum(1.0 / s for s in alone)
    usd = [2 * (o.on_demand_usd_per_h or 0.0) * s for o, s in zip(offers, alone, strict=True)]
    assert made.step_s * 240.0 >= min(usd)

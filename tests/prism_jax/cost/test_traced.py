"""Costs on JAX's arrays are those on plain floats, for every term of every kind of plan."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.calibration.calibration import shipped
from prism_jax.calibration.key import CalibrationKey
from prism_jax.core.arrays import is_traced, namespace
from prism_jax.core.kernels import COLLECTIVES
from prism_jax.cost.block_cost import collective_s
from prism_jax.cost.efficiency import CostCorrection, Efficiency
from prism_jax.cost.step import StepCost, step_cost
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster, Device
from prism_jax.system.network import Tier
from prism_jax.workload.transformer.sizes import MLASpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

GPT = TransformerSpec(name="gpt", n_layers=8, hidden=2048, n_heads=16, ffn_hidden=8192, vocab=32000)
MLA = replace(
    GPT, gated=True, norm="rms", position="rope", bias=False, moe=MoESpec(8, 2, 1024), mla=MLASpec(768, 256, 64, 32, 64)
)
BASE = ParallelPlan(micro_batch=1, global_batch=64, seq_len=2048)
PLANS = {
    "tp, sequence parallel": {"tp": 4, "dp": 4, "sequence_parallel": True, "overlap": Overlap(tp=True)},
    "fp8": {"tp": 2, "dp": 8, "dtype": "fp8", "recompute": "full"},
    "pipeline of experts": {"dp": 16, "ep": 4, "tp": 2, "pp": 2, "schedule": "dualpipe", "zero_stage": 1},
    "interleaved": {
        "tp": 8,
        "pp": 2,
        "dp": 2,
        "virtual_stages": 2,
        "schedule": "interleaved",
        "overlap": Overlap(pp=False),
    },
    "context": {"cp": 4, "tp": 2, "dp": 2},
    "fsdp": {"dp": 32, "sharding": "fsdp", "zero_stage": 3},
    "hsdp": {"dp": 32, "sharding": "hsdp", "dp_shard": 8, "zero_stage": 3},
    "fp32": {"tp": 2, "dp": 8, "dtype": "fp32"},
}
SECONDS = ("compute_s", "comm_s", "hidden_comm_s", "p2p_s", "end_compute_s", "end_comm_s", "end_hidden_comm_s")


def hardware(value: Callable[[Any], Any], cluster: Cluster) -> Cluster:
    """`cluster` with every rate and latency as `value` of it."""
    device = cluster.device
    peaks = {name: value(peak) for name, peak in device.peak_flops_per_s.items()}
    tiers = tuple(replace(t, bytes_per_s=value(t.bytes_per_s), latency_s=value(t.latency_s)) for t in cluster.tiers)
    device = replace(device, peak_flops_per_s=peaks, hbm_bytes_per_s=value(device.hbm_bytes_per_s))
    return replace(cluster, device=device, tiers=tiers)


def constants(value: Callable[[Any], Any], eff: Efficiency) -> Efficiency:
    """`eff` with every number but the tiles as `value` of it."""
    correction = CostCorrection(
        **{item.name: value(getattr(eff.correction, item.name)) for item in fields(CostCorrection)}
    )
    names = [
        item.name
        for item in fields(Efficiency)
        if item.name not in ("gemm_tiles", "gemm_recipes", "attention_kernels", "correction")
    ]
    return replace(eff, correction=correction, **{name: value(getattr(eff, name)) for name in names})


def agree(model: TransformerSpec, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> None:
    """Every term of the cost is the same under both libraries, constants of the device traced as well."""

    plain: StepCost = step_cost(model, cluster, plan, eff)
    traced: Any = step_cost(model, hardware(jnp.asarray, cluster), plan, constants(jnp.asarray, eff))
    for name in SECONDS:
        assert isinstance(getattr(traced, name), jax.Array)
        np.testing.assert_allclose(getattr(traced, name), getattr(plain, name), rtol=1e-6, atol=1e-15, err_msg=name)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PLANS)
def test_traced_cost_is_the_plain_one(name: str) -> None:
    plan = replace(BASE, **PLANS[name])
    cluster = catalog.cluster("dgx-h100", plan.n_devices)
    agree(MLA, cluster, plan, shipped().efficiency(CalibrationKey.of(cluster.device)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("cluster", ["dgx-v100", "pcie-l40s", "gb200-nvl72", "mi300x", "tpu-v5p-pod", "aurora"])
def test_traced_cost_is_the_plain_one_on_every_fabric(cluster: str) -> None:
    plan = replace(BASE, tp=2, pp=4, dp=16, zero_stage=1, dtype="fp16" if cluster == "dgx-v100" else "bf16")
    devices = catalog.cluster(cluster, plan.n_devices)
    agree(GPT, devices, plan, shipped().efficiency(CalibrationKey.of(devices.device)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("in_switch", [False, True])
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_traced_collective_takes_the_seconds_of_the_cheapest_algorithm(kind: str, in_switch: bool) -> None:
    cluster = catalog.cluster("dgx-h100", 128)
    inner, *outer = cluster.tiers
    cluster = replace(cluster, tiers=(replace(inner, in_switch=in_switch), *outer))
    groups = [(1, 8), (8, 2), (1, 32), (4, 16)]
    cases = [(stride, size, n_bytes) for stride, size in groups for n_bytes in (0.0, 1e4, 1e9)]

    def seconds(scale: Any) -> list[Any]:
        devices = hardware(lambda x: x * scale, cluster)
        return [collective_s(kind, n_bytes, devices, stride, size).seconds for stride, size, n_bytes in cases]

    np.testing.assert_allclose(jax.jit(seconds)(jnp.asarray(1.0)), seconds(1.0), rtol=1e-12)


def test_name_of_the_algorithm_is_known_for_plain_numbers_only() -> None:
    cluster = catalog.cluster("dgx-h100", 64)
    assert collective_s("all_reduce", 1e3, cluster, 1, 8).algorithm != "cheapest"
    traced = hardware(jnp.asarray, cluster)
    assert collective_s("all_reduce", 1e3, traced, 1, 8).algorithm == "cheapest"


def test_library_follows_the_numbers() -> None:
    cluster = catalog.cluster("dgx-h100", 64)
    assert namespace(cluster, 1.0, np.ones(2), "text", None) is np
    assert namespace(hardware(jnp.asarray, cluster)) is jnp
    assert namespace(cluster) is np  # once more, now that it is known
    assert namespace(replace(cluster, device=replace(cluster.device, hbm_bytes=jnp.ones(())))) is jnp
    assert namespace((1.0, {"bf16": jnp.ones(())})) is jnp
    assert not is_traced(np.float64(1.0))
    assert is_traced(jnp.ones(()))


def test_values_that_are_traced_are_not_checked() -> None:
    def made(x: Any) -> Any:
        tier = Tier("nvlink", 8, x, x, oversubscription=1.0 + x)
        device = Device("mine", {"bf16": x}, 1e9, x, x, 100, "made up")
        cluster = Cluster("mine", device, (tier,), 8)
        return cluster.device.peak("bf16") + cluster.tiers[0].effective_bytes_per_s

    assert jax.jit(made)(jnp.asarray(1.0)) == 1.5

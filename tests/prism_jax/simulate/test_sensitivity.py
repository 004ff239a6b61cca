"""What moves the step time: derivatives, and shares of the allocation."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.result.spread import AllocationSpread
from prism_jax.simulate.allocation import allocation_spread
from prism_jax.simulate.predict import brute_force, predict, symmetric
from prism_jax.simulate.program import Program
from prism_jax.simulate.sensitivity import hardware_sensitivity, kernel_weights, noise_free_step
from prism_jax.simulate.step_time import step_quantile
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import Stall, Variability
from prism_jax.workload.transformer.sizes import MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.jobs import EVERYTHING, STATED, compute_varies, make_program, network_varies

P, N_SAMPLES = 0.95, 512
DENSE = TransformerSpec("dense", n_layers=4, hidden=8192, n_heads=64, ffn_hidden=32768, vocab=32000)
MOE = TransformerSpec("moe", n_layers=2, hidden=4096, n_heads=32, ffn_hidden=8192, vocab=32000, moe=MoESpec(8, 2, 8192))
PLANS = {
    "dense": (DENSE, ParallelPlan(micro_batch=1, global_batch=32, seq_len=4096, tp=4, pp=2, dp=8)),
    "experts": (MOE, ParallelPlan(micro_batch=2, global_batch=64, seq_len=4096, dp=16, ep=8, zero_stage=1)),
}
FIELDS = ("peak", "hbm", "nvlink bandwidth", "nvlink latency", "infiniband bandwidth", "infiniband latency")
STEP = 3e-3  # relative, of the finite differences: they err by its square


def make_job(name: str) -> Job:
    """A job whose p95 depends on every field of the hardware."""
    model, plan = PLANS[name]
    stated = replace(plan, software=STATED)  # what is open would shift steps by a ratio that hangs on the hardware, too
    return Job(model, catalog.cluster("dgx-h100", plan.n_devices), stated, EVERYTHING, framework="megatron-core")


def scaled(cluster: Cluster, factors: Any) -> Cluster:
    """`cluster` with every one of `FIELDS` times its factor."""
    peak, hbm, *tiers = list(factors)
    device = cluster.device
    device = replace(
        device,
        peak_flops_per_s={**device.peak_flops_per_s, "bf16": device.peak("bf16") * peak},
        hbm_bytes_per_s=device.hbm_bytes_per_s * hbm,
    )
    changed = [
        replace(tier, bytes_per_s=tier.bytes_per_s * bandwidth, latency_s=tier.latency_s * latency)
        for tier, bandwidth, latency in zip(cluster.tiers, tiers[::2], tiers[1::2], strict=True)
    ]
    return replace(cluster, device=device, tiers=tuple(changed))


@dataclass(frozen=True)
class Derivatives:
    """Value and derivatives [field] in the logarithm of every field, seconds."""

    value: float
    gradient: np.ndarray
    difference: np.ndarray


def derivatives(function: Any, cluster: Cluster) -> Derivatives:
    """By JAX, and by central differences."""
    at = jax.jit(jax.value_and_grad(lambda factors: function(scaled(cluster, factors))))
    ones = np.ones(len(FIELDS))
    value, gradient = at(jnp.asarray(ones))
    steps = STEP * np.eye(len(FIELDS))
    ends = [[float(at(jnp.asarray(ones + sign * step))[0]) for sign in (1.0, -1.0)] for step in steps]
    return Derivatives(float(value), np.asarray(gradient), np.array([high - low for high, low in ends]) / (2.0 * STEP))


@cache
def of_quantile(name: str) -> Derivatives:
    """Of the p95 of a job."""
    with jax.enable_x64(True):
        job = make_job(name)
        return derivatives(step_quantile(job, P, key=jax.random.key(3), n_samples=N_SAMPLES), job.cluster)


@cache
def of_noise_free(name: str) -> Derivatives:
    """Of the step without variability."""
    with jax.enable_x64(True):
        job = make_job(name)
        return derivatives(noise_free_step(job), job.cluster)


def samples(name: str, factors: np.ndarray) -> np.ndarray:
    """Step times that `predict` draws, on the same random numbers."""
    job = make_job(name)
    job = replace(job, cluster=scaled(job.cluster, factors.tolist()))
    return predict(job, key=jax.random.key(3), n_samples=N_SAMPLES).samples_s


@pytest.mark.parametrize("name", PLANS)
def test_value_is_the_quantile_of_the_prediction(name: str) -> None:
    drawn = predict(make_job(name), key=jax.random.key(3), n_samples=N_SAMPLES)
    assert of_quantile(name).value == pytest.approx(drawn.quantile(P), rel=1e-3)


def test_noise_free_step_is_that_of_the_prediction() -> None:
    drawn = predict(make_job("dense"), key=jax.random.key(3), n_samples=N_SAMPLES)
    assert of_noise_free("dense").value == pytest.approx(drawn.deterministic_s, rel=1e-5)


@pytest.mark.parametrize(("made", "name"), [(of_quantile, "dense"), (of_quantile, "experts"), (of_noise_free, "dense")])
def test_gradient_is_the_finite_difference(made: Any, name: str) -> None:
    found = made(name)
    assert np.all(found.gradient != 0.0)
    np.testing.assert_allclose(found.gradient, found.difference, rtol=AT_KINKS[name], atol=STEP**2 * found.value)


# Exchanges of experts are close to where their window ends for some samples: a difference over the step sees both sides.
AT_KINKS = {"dense": 1e-3, "experts": 1e-2}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("field", ["peak", "hbm", "infiniband bandwidth"])
def test_gradient_is_the_finite_difference_of_predictions(name: str, field: str) -> None:
    """To 1e-3 of the average over the samples around the p95.

    The p95 itself is one of these samples. It is as far off as the network factor of that sample is from its neighbours' mean.
    """
    index, gradient = FIELDS.index(field), of_quantile(name).gradient
    step = STEP * np.eye(len(FIELDS))[index]
    high_s, low_s = (samples(name, 1.0 + sign * step) for sign in (1.0, -1.0))
    around = float((high_s - low_s) @ kernel_weights(len(high_s), P)) / (2.0 * STEP)
    plain = float(np.quantile(high_s, P) - np.quantile(low_s, P)) / (2.0 * STEP)
    assert around == pytest.approx(gradient[index], rel=AT_KINKS[name])
    assert plain == pytest.approx(gradient[index], rel=0.15)


def small_job() -> Job:
    """One node, one stage: a program that compiles in seconds."""
    plan = ParallelPlan(micro_batch=1, global_batch=16, seq_len=4096, dp=8, software=STATED)
    model = replace(DENSE, n_layers=2, hidden=4096, n_heads=32, ffn_hidden=16384)
    return Job(model, catalog.cluster("dgx-h100", 8), plan, EVERYTHING)


@pytest.mark.usefixtures("x64")
@pytest.mark.slow
def test_derivative_in_one_field_of_a_device_and_in_one_constant() -> None:
    job = small_job()
    p95 = step_quantile(job, P, key=jax.random.key(1), n_samples=128)
    device, eff = job.cluster.device, job.efficiency

    @jax.jit
    def seconds(bandwidth: jax.Array, share: jax.Array) -> jax.Array:
        cluster = replace(job.cluster, device=replace(device, hbm_bytes_per_s=bandwidth))
        return p95(cluster, replace(eff, memory=share))

    def log_slope(argument: int) -> float:
        at = [jnp.asarray(device.hbm_bytes_per_s), jnp.asarray(eff.memory)]
        return float(jax.grad(seconds, argument)(*at) * at[argument])

    assert log_slope(0) < 0.0
    # A faster memory and a larger share of it are the same.
    assert log_slope(1) == pytest.approx(log_slope(0), rel=1e-6)


def test_sensitivities_name_what_the_step_depends_on() -> None:
    job = small_job()
    found = hardware_sensitivity(job, key=jax.random.key(1), n_samples=128)
    assert {"peak bf16", "hbm", "nvlink bandwidth"} <= set(found)
    assert not {"peak fp8", "peak fp32", "infiniband bandwidth"} & set(found)  # nothing runs there
    assert [abs(own.change) for own in found.values()] == sorted(
        (abs(own.change) for own in found.values()), reverse=True
    )
    for name in ("peak bf16", "hbm"):
        assert -1.0 < found[name].change < -0.01
        assert 0.0 < found[name].error < 0.1 * abs(found[name].change)


def test_tiers_of_one_name_are_both_asked() -> None:
    job = small_job()
    job = replace(
        job, cluster=replace(job.cluster, tiers=tuple(replace(tier, name="link") for tier in job.cluster.tiers))
    )
    assert "link bandwidth" in hardware_sensitivity(job, key=jax.random.key(1), n_samples=128)


def test_kernel_averages_around_the_quantile() -> None:
    weight = kernel_weights(16384, 0.95)
    middle = (np.arange(16384) + 0.5) / 16384
    assert weight.sum() == pytest.approx(1.0)
    assert weight @ middle == pytest.approx(0.95, abs=1e-5)
    assert np.all(weight[np.abs(middle - 0.95) > 0.02] == 0.0)
    assert kernel_weights(100, 0.999)[-1] == 1.0  # few samples: the one at the quantile


def test_impossible_questions_are_refused() -> None:
    job = small_job()
    with pytest.raises(DataError, match="between 0 and 1"):
        step_quantile(job, 95.0, key=jax.random.key(1))
    with pytest.raises(DataError, match="tiers"):
        noise_free_step(job)(replace(job.cluster, tiers=job.cluster.tiers[-1:]))


# --- Spreads within and between allocations: closed forms, and brute force whose fleets live for several steps -------


KEY = jax.random.key(0)
N_STEP, N_FLEET = 16, 2000
PLAIN = {"tp_comm_s": 0.0, "p2p_s": 0.0, "end_comm_s": 0.0, "end_compute_s": 0.0}


def spread(program: Program) -> AllocationSpread:
    return allocation_spread(program, symmetric(program, KEY, 1024), KEY)


def test_share_of_one_gpu_is_that_of_the_product_of_its_factors() -> None:
    """T = c G S with both of mean one: var(G) / (var(G) + var(S) + var(G) var(S))."""
    gpu, step = 0.03, 0.02
    tree = Variability("t", compute_varies(gpu=LogNormal(gpu)), step=LogNormal(step))
    found = spread(make_program(tree, tp=1, pp=1, dp=1, n_micro_batch=1, **PLAIN))
    assert found.share == pytest.approx(gpu**2 / (gpu**2 + step**2 + (gpu * step) ** 2), abs=0.02)
    assert np.hypot(found.between_s, found.within_s) == pytest.approx(found.std_s)


@pytest.mark.parametrize("plan", [{"tp": 1, "dp": 8}, {"tp": 4, "dp": 1}, {"tp": 32, "dp": 2}, {"pp": 1, "dp": 64}])
def test_everything_lies_between_allocations_where_only_gpus_differ(plan: dict[str, int]) -> None:
    found = spread(make_program(Variability("t", compute_varies(gpu=LogNormal(0.03))), **plan))
    assert found.share == pytest.approx(1.0, abs=0.01 + 4.0 * found.share_error)
    assert found.within_s < 0.2 * found.std_s


@pytest.mark.parametrize(
    "tree",
    [
        Variability("t", compute_varies(call=LogNormal(0.05))),
        Variability("t", network_varies(regime=LogNormal(0.2))),
        Variability("t", step=LogNormal(0.05), stalls=(Stall(0.1, 0.0, 0.2),)),
    ],
    ids=["call", "network", "step"],
)
def test_nothing_lies_between_allocations_of_equal_gpus(tree: Variability) -> None:
    program = make_program(tree, tp=2, dp=4)
    whole = symmetric(program, KEY, 512)
    found = allocation_spread(program, whole, KEY)
    assert (found.share, found.between_s, found.p95_s) == (0.0, 0.0, whole.quantile(0.95))


@pytest.mark.parametrize("plan", [{"dp": 1}, {"dp": 4}, {"tp": 32, "dp": 1}, {"dp": 16}], ids=str)
def test_spreads_are_those_of_fleets_that_live_for_several_steps(plan: dict[str, int]) -> None:
    """Share within 3 points and four standard errors, quantile within 0.3%; the table of large groups in both."""
    program = make_program(EVERYTHING, **{"tp": 2, "pp": 2, **plan})
    found = spread(program)
    whole = brute_force(program, jax.random.key(9), N_STEP * N_FLEET, explicit=False, steps_per_fleet=N_STEP)
    steps = whole.by_fleet_s
    mean_s = steps.mean(axis=1)
    share = (mean_s.var(ddof=1) - steps.var(axis=1, ddof=1).mean() / N_STEP) / whole.std_s**2
    assert found.share == pytest.approx(share, abs=0.03 + 4.0 * found.share_error)
    typical = np.argsort(mean_s)[int(0.45 * N_FLEET) : int(0.55 * N_FLEET)]
    assert found.p95_s == pytest.approx(np.quantile(steps[typical], 0.95), rel=3e-3)

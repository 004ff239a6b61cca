"""ResNet-50 as a workload: sizes that are published, kernels in closed form, memory, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

import prism_jax
from prism_jax.core.errors import ConfigError, PlanError
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.framework.base import MEGATRON
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import Workload
from prism_jax.workload.catalog import workload
from prism_jax.workload.cnn.spec import CnnSpec

PLAN = ParallelPlan(micro_batch=32, global_batch=32, dtype="fp16", software=Software(norm="eager"))
JOB = """
model: resnet-50
cluster: {preset: dgx-h100, n_devices: 8}
plan: {dp: 8, micro_batch: 64, global_batch: 512, dtype: fp16}
variability: h100-default
"""


@pytest.fixture
def resnet() -> CnnSpec:
    found = workload("resnet-50")
    assert isinstance(found, CnnSpec)
    return found


def test_parameters_and_products_are_the_published_ones(resnet: CnnSpec) -> None:
    """25,557,032 parameters in 161 tensors and 4.09 G multiply-adds at 224 (torchvision, ResNet50_Weights)."""
    assert isinstance(resnet, Workload)
    assert (resnet.n_params(), resnet.network.n_tensors) == (25_557_032, 161)
    assert resnet.network.forward_flops / 2e9 == pytest.approx(4.09, abs=0.005)


def test_kernels_hold_the_flops_of_the_model(resnet: CnnSpec) -> None:
    """Three products for each convolution, two for the first, whose input is the image."""
    counts = {run.kind: run.count for run in resnet.layout}
    flops = sum(n * resnet.block(kind, PLAN).kernels.flops() for kind, n in counts.items())
    assert flops == pytest.approx(resnet.step_flops(PLAN, recomputed=False), rel=1e-12)
    stem = resnet.block("stem", PLAN).kernels
    assert stem.flops("B") == 0.0
    assert stem.flops("F") == stem.flops("W") == 2.0 * 32 * 112 * 112 * 64 * 3 * 49


def test_products_are_implicit_gemms_in_all_passes(resnet: CnnSpec) -> None:
    """m n k of a strided 3x3 convolution; a stride leaves the input gradient as many multiply-adds."""
    ops = [op for op in resnet.block("stage2.0", PLAN).kernels.ops if op.name == "conv_3x3"]
    sizes = {op.phase: (op.m, op.n, op.k) for op in ops}
    assert sizes["F"] == (32 * 28 * 28, 128, 128 * 9)
    assert sizes["W"] == (128, 128 * 9, 32 * 28 * 28)
    assert sizes["B"] == (32 * 56 * 56, 128, 128 * 9 / 4)
    assert all(2.0 * m * n * k == op.flops for op in ops for m, n, k in [sizes[op.phase]])


def test_a_fused_norm_saves_the_passes_of_sum_and_activation(resnet: CnnSpec) -> None:
    """Beyond its masks: per block three activations of 2 passes forward, and of a sum 2."""
    fused = replace(PLAN, software=Software(norm="fused"))
    apart, together = (
        sum(
            op.hbm_bytes
            for op in resnet.block("stage1.1", plan).kernels.ops
            if op.phase == "F" and op.kernel == "memory"
        )
        for plan in (PLAN, fused)
    )
    narrow, wide = (2 * 32 * 56 * 56 * channels for channels in (64, 256))
    masks = (2 * narrow + wide) / 2 / 8
    assert apart - together == pytest.approx(2 * 2 * narrow + (2 + 2) * wide - masks)


def test_layouts_are_changed_around_products_on_tensor_cores_alone(resnet: CnnSpec) -> None:
    """V100 has no TF32: convolutions in fp32 run on CUDA cores, which take either order."""
    first = replace(resnet, channels_last=False)

    def seconds(model: CnnSpec, device: str, dtype: str) -> float:
        plan, found = replace(PLAN, dtype=dtype), catalog.device(device)
        return float(op_seconds(model.block("stem", plan).kernels, found, dtype, efficiency(found.generation)).sum())

    for device, dtype, moves in (("v100", "fp32", False), ("v100", "fp16", True), ("a100", "fp32", True)):
        assert (seconds(first, device, dtype) > 1.001 * seconds(resnet, device, dtype)) is moves


def test_winograd_speeds_up_3x3_on_cuda_cores_alone(resnet: CnnSpec) -> None:
    """Against the same products of another kind."""
    kernels = resnet.block("stage1.1", replace(PLAN, dtype="fp32")).kernels
    plain = KernelTable.of(
        op._replace(variant="convolution" if op.variant == "winograd" else op.variant) for op in kernels.ops
    )
    for device, gains in (("v100", True), ("a100", False)):
        found = catalog.device(device)
        own, other = (
            op_seconds(table, found, "fp32", efficiency(found.generation)).sum() for table in (kernels, plain)
        )
        assert bool(own < other) is gains


def test_what_is_kept_is_every_input_of_a_product_and_of_a_norm(resnet: CnnSpec) -> None:
    """A block of stage 1: three inputs of norms (64, 64, 256 channels), results of two inner ReLUs and of the last."""
    kept = sum(tensor.size_bytes for tensor in resnet.block("stage1.1", PLAN).saved(MEGATRON))
    assert kept == 2 * 32 * 56 * 56 * (64 + 64 + 256 + 64 + 64 + 256)
    full = replace(PLAN, recompute="full")
    assert sum(t.size_bytes for t in resnet.block("stage1.1", full).saved(MEGATRON)) == 2 * 32 * 56 * 56 * 256


def test_image_size_is_a_field(resnet: CnnSpec) -> None:
    larger = replace(resnet, image_size=448)
    conv = resnet.network.forward_flops - 2 * 2048 * 1000
    assert larger.n_params() == resnet.n_params()
    assert larger.network.forward_flops - 2 * 2048 * 1000 == pytest.approx(4 * conv)


def test_a_job_is_predicted_in_samples(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    job = prism_jax.load_job(file)
    assert job.memory.total_bytes < job.cluster.device.hbm_bytes
    assert job.model.units_per_step(job.plan) == 512
    written = prism_jax.load_job(file, ["model={kind: cnn, architecture: resnet-50, name: resnet-50}"])
    assert written.model.n_params() == job.model.n_params()


def test_what_contradicts_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with pytest.raises(ConfigError, match="did you mean resnet-50"):
        prism_jax.load_job(file, ["model={kind: cnn, name: r, architecture: resnet-5}"])
    with pytest.raises(ConfigError, match="image_size = 4 is too small"):
        prism_jax.load_job(file, ["model={kind: cnn, name: r, architecture: vgg-11, image_size: 4}"])
    with pytest.raises(ConfigError, match="samples of resnet-50 are images"):
        prism_jax.load_job(file, ["plan.seq_len=512"])
    job = prism_jax.load_job(file)
    with pytest.raises(PlanError, match="whole blocks or nothing"):
        replace(job, plan=replace(job.plan, recompute="selective")).check()

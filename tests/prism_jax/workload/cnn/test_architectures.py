"""Convolutional networks: published counts, their kernels, and commands that take them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

import prism_jax
from prism_jax.core.errors import ConfigError, PlanError
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.framework.base import MEGATRON
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.shell.app import main
from prism_jax.system import catalog
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import Workload
from prism_jax.workload.catalog import workload
from prism_jax.workload.cnn.architectures import ARCHITECTURES, CM_DARE_TOTALS
from prism_jax.workload.cnn.spec import CnnSpec
from prism_jax.workload.cnn.tape import CnnNetwork

PLAN = ParallelPlan(micro_batch=32, global_batch=32, dtype="fp16", software=Software(norm="eager"))
JOB = """
model: resnet-50
cluster: {preset: dgx-h100, n_devices: 8}
plan: {dp: 8, micro_batch: 64, global_batch: 512, dtype: fp16}
variability: h100-default
"""


RESNET = cast("CnnSpec", workload("resnet-50"))


def test_parameters_and_products_are_the_published_ones() -> None:
    """25,557,032 parameters in 161 tensors and 4.09 G multiply-adds at 224 (torchvision, ResNet50_Weights)."""
    assert isinstance(RESNET, Workload)
    assert (RESNET.n_params(), RESNET.network.n_tensors) == (25_557_032, 161)
    assert RESNET.network.forward_flops / 2e9 == pytest.approx(4.09, abs=0.005)


def test_kernels_hold_the_flops_of_the_model() -> None:
    """Three products for each convolution, two for the first, whose input is the image."""
    counts = {run.kind: run.count for run in RESNET.layout}
    flops = sum(n * RESNET.block(kind, PLAN).kernels.flops() for kind, n in counts.items())
    assert flops == pytest.approx(RESNET.step_flops(PLAN, recomputed=False), rel=1e-12)
    stem = RESNET.block("stem", PLAN).kernels
    assert stem.flops("B") == 0.0
    assert stem.flops("F") == stem.flops("W") == 2.0 * 32 * 112 * 112 * 64 * 3 * 49


def test_products_are_implicit_gemms_in_all_passes() -> None:
    """m n k of a strided 3x3 convolution; a stride leaves the input gradient as many multiply-adds."""
    ops = [op for op in RESNET.block("stage2.0", PLAN).kernels.ops if op.name == "conv_3x3"]
    sizes = {op.phase: (op.m, op.n, op.k) for op in ops}
    assert sizes["F"] == (32 * 28 * 28, 128, 128 * 9)
    assert sizes["W"] == (128, 128 * 9, 32 * 28 * 28)
    assert sizes["B"] == (32 * 56 * 56, 128, 128 * 9 / 4)
    assert all(2.0 * m * n * k == op.flops for op in ops for m, n, k in [sizes[op.phase]])


def test_a_fused_norm_saves_the_passes_of_sum_and_activation() -> None:
    """Beyond its masks: per block three activations of 2 passes forward, and of a sum 2."""
    fused = replace(PLAN, software=Software(norm="fused"))
    apart, together = (
        sum(
            op.hbm_bytes
            for op in RESNET.block("stage1.1", plan).kernels.ops
            if (op.phase, op.kernel) == ("F", "memory")
        )
        for plan in (PLAN, fused)
    )
    narrow, wide = (2 * 32 * 56 * 56 * channels for channels in (64, 256))
    masks = (2 * narrow + wide) / 2 / 8
    assert apart - together == pytest.approx(2 * 2 * narrow + (2 + 2) * wide - masks)


def test_layouts_are_changed_around_products_on_tensor_cores_alone() -> None:
    """V100 has no TF32: convolutions in fp32 run on CUDA cores, which take either order."""
    first = replace(RESNET, channels_last=False)

    def seconds(model: CnnSpec, device: str, dtype: str) -> float:
        plan, found = replace(PLAN, dtype=dtype), catalog.device(device)
        return float(op_seconds(model.block("stem", plan).kernels, found, dtype, efficiency(found.generation)).sum())

    for device, dtype, moves in (("v100", "fp32", False), ("v100", "fp16", True), ("a100", "fp32", True)):
        assert (seconds(first, device, dtype) > 1.001 * seconds(RESNET, device, dtype)) is moves


def test_winograd_speeds_up_3x3_on_cuda_cores_alone() -> None:
    """Against the same products of another kind."""
    kernels = RESNET.block("stage1.1", replace(PLAN, dtype="fp32")).kernels
    plain = KernelTable.of(
        op._replace(variant="convolution" if op.variant == "winograd" else op.variant) for op in kernels.ops
    )
    for device, gains in (("v100", True), ("a100", False)):
        found = catalog.device(device)
        own, other = (
            op_seconds(table, found, "fp32", efficiency(found.generation)).sum() for table in (kernels, plain)
        )
        assert bool(own < other) is gains


def test_what_is_kept_is_every_input_of_a_product_and_of_a_norm() -> None:
    """A block of stage 1: three inputs of norms (64, 64, 256 channels), results of two inner ReLUs and of the last."""
    kept = sum(tensor.size_bytes for tensor in RESNET.block("stage1.1", PLAN).saved(MEGATRON))
    assert kept == 2 * 32 * 56 * 56 * (64 + 64 + 256 + 64 + 64 + 256)
    full = replace(PLAN, recompute="full")
    assert sum(t.size_bytes for t in RESNET.block("stage1.1", full).saved(MEGATRON)) == 2 * 32 * 56 * 56 * 256


def test_image_size_is_a_field() -> None:
    larger = replace(RESNET, image_size=448)
    conv = RESNET.network.forward_flops - 2 * 2048 * 1000
    assert larger.n_params() == RESNET.n_params()
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


# --- Published counts ------------------------------------------------------------------------------------------------
# Parameters, to the last one, and multiply-adds of the shipped networks, against what torchvision publishes. Source:
# torchvision 0.15, `num_params` and `_ops` of the weights' metadata (docs: pytorch.org/vision/stable/models.html);
# the ops count convolutions and products only.


PUBLISHED = {
    "alexnet": (61_100_840, 0.714), "convnext-base": (88_591_464, 15.355), "convnext-large": (197_767_336, 34.361),
    "convnext-small": (50_223_688, 8.684), "convnext-tiny": (28_589_128, 4.456), "densenet-121": (7_978_856, 2.834),
    "densenet-161": (28_681_000, 7.728), "densenet-169": (14_149_480, 3.36), "densenet-201": (20_013_928, 4.291),
    "efficientnet-b0": (5_288_548, 0.386), "efficientnet-b1": (7_794_184, 0.687), "efficientnet-b2": (9_109_994, 1.088),
    "efficientnet-b3": (12_233_232, 1.827), "efficientnet-b4": (19_341_616, 4.394), "efficientnet-b5": (30_389_784, 10.266),
    "efficientnet-b6": (43_040_704, 19.068), "efficientnet-b7": (66_347_960, 37.746), "inception-v3": (27_161_264, 5.713),
    "mnasnet-0.5": (2_218_512, 0.104), "mnasnet-0.75": (3_170_208, 0.215), "mnasnet-1.0": (4_383_312, 0.314),
    "mnasnet-1.3": (6_282_256, 0.526), "mobilenet-v2": (3_504_872, 0.301), "resnet-18": (11_689_512, 1.814),
    "resnet-34": (21_797_672, 3.664), "resnet-50": (25_557_032, 4.089), "resnet-101": (44_549_160, 7.801),
    "resnet-152": (60_192_808, 11.514), "resnext-50-32x4d": (25_028_904, 4.23), "resnext-101-32x8d": (88_791_336, 16.414),
    "shufflenet-v2-x0.5": (1_366_792, 0.04), "shufflenet-v2-x1.0": (2_278_604, 0.145), "shufflenet-v2-x1.5": (3_503_624, 0.296),
    "shufflenet-v2-x2.0": (7_393_996, 0.583), "squeezenet-1.0": (1_248_424, 0.819), "squeezenet-1.1": (1_235_496, 0.349),
    "vgg-11": (132_863_336, 7.609), "vgg-11-bn": (132_868_840, 7.609), "vgg-13": (133_047_848, 11.308),
    "vgg-13-bn": (133_053_736, 11.308), "vgg-16": (138_357_544, 15.47), "vgg-16-bn": (138_365_992, 15.47),
    "vgg-19": (143_667_240, 19.632), "vgg-19-bn": (143_678_248, 19.632), "wide-resnet-50-2": (68_883_240, 11.398),
    "wide-resnet-101-2": (126_886_696, 22.753),
}  # fmt: skip
IMAGES = {"efficientnet-b2": 288}  # rows that torchvision counts at, where they are not those of the paper


# Source: seresnext101_32x4d and resnext101_32x4d of pytorch-image-models; ResNet18 of kuangliu/pytorch-cifar.
OTHERS = {"se-resnext-101-32x4d": 48_955_416, "resnext-101-32x4d": 44_177_704, "resnet-18-cifar": 11_173_962}


@pytest.mark.parametrize("name", OTHERS)
def test_counts_of_others(name: str) -> None:
    assert CnnSpec(name, name).n_params() == OTHERS[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_those_of_torchvision(name: str) -> None:
    """Operations are those of evaluation: without Inception's auxiliary head."""
    n_params, giga = PUBLISHED[name]
    model = CnnSpec(name, name, IMAGES.get(name, 0))
    assert model.n_params() == n_params
    kept = tuple(segment for segment in model.network.segments if segment.name != "auxiliary")
    assert CnnNetwork(kept).forward_flops / 2e9 == pytest.approx(giga, rel=0.002, abs=0.001)


def test_every_shipped_network_is_counted() -> None:
    assert {one.name for one in ARCHITECTURES if "torchvision" in one.source} == set(PUBLISHED)


@pytest.mark.parametrize("name", CM_DARE_TOTALS)
def test_networks_of_totals_have_them(name: str) -> None:
    """As nearly as whole widths and edges allow."""
    flops, n_params, n_tensors = CM_DARE_TOTALS[name]
    network = CnnSpec(name, f"cm-dare-{name}").network
    assert network.train_flops == pytest.approx(flops, rel=0.15)
    assert network.n_params == pytest.approx(n_params, rel=0.075)
    assert network.n_tensors == pytest.approx(n_tensors, rel=0.065)


# --- Commands work on convolutional networks as on transformers ------------------------------------------------------


COMMANDS_JOB = """
model: resnet-18
cluster: {preset: dgx-a100, n_devices: 16}
plan: {dp: 16, micro_batch: 64, global_batch: 1024, dtype: fp16}
framework: fsdp
variability: a100-default
"""
BATCH = ["--set", "plan.global_batch=512", "--set", "cluster.n_devices=8"]
SPACE = (
    "{tp: [1], pp: [1, 2], cp: 1, micro_batch: [32, 64], schedule: 1f1b, recompute: [none, full], zero_stage: [0, 1]}"
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("cnn") / "job.yaml"
    file.write_text(COMMANDS_JOB)
    (file.parent / "space.yaml").write_text(SPACE)
    (file.parent / "nodes.csv").write_text("host,slowdown\n0,1.0\n1,1.05\n")
    return str(file)


SLOW = [pytest.mark.slow]


@pytest.mark.parametrize(
    ("words", "schema"),
    [
        (["check", "{job}"], "check"),
        (["predict", "{job}", "--samples", "64"], "prediction"),
        pytest.param(["place", "{job}", "--slowdowns", "{slow}", "--set", "plan.dp=8", *BATCH], "place", marks=SLOW),
        pytest.param(["compare", "{job}", "{job}", "--samples", "64"], "comparison", marks=SLOW),
        pytest.param(["scale", "{job}", "--gpus", "8:32"], "scaling", marks=SLOW),
        pytest.param(["sweep", "{job}", "--set", "plan.micro_batch=32,64"], "sweep", marks=SLOW),
    ],
)
def test_commands_know_convolutional_networks(
    job: str, words: list[str], schema: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = str(Path(job).with_name("nodes.csv"))
    assert main([*(word.format(job=job, slow=slow) for word in words), "--json"]) == 0
    assert schema in json.loads(capsys.readouterr().out)["schema"]


def test_explanations_name_what_varies(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What varies is computing in products and in memory, and one model knows no tokens."""
    assert main(["predict", job, "--samples", "64", "--details"]) == 0
    said = capsys.readouterr().out
    assert "samples/s per GPU" in said
    assert "memory-bound" in said


def test_search_takes_only_plans_that_fit_and_the_best_is_not_slower(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space = str(Path(job).with_name("space.yaml"))
    assert main(["search", job, "--space", space, "--top", "3", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert best["plan"]["tp"] == best["plan"]["cp"] == 1
    assert best["p50_s"] <= best["p95_s"]

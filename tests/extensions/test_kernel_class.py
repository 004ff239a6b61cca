"""A kernel class of a caller, in this one file: convolutions, and a small network that uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest

from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.core.arrays import Floats
from prism_jax.core.errors import Problem, SpecError
from prism_jax.core.kernels import COMPUTE_CLASSES, KERNEL_CLASSES, KernelClass, KernelSizes, Roof
from prism_jax.core.picture import colour
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import CostCorrection, efficiency
from prism_jax.cost.step import step_cost
from prism_jax.explain.types import words
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.shell.app import main
from prism_jax.simulate.inputs import deterministic, known_gpus
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from prism_jax.simulate.step_time import step_time
from prism_jax.system.catalog import device
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import ClassVariability, Variability
from prism_jax.workload.base.kernels import Kernel, KernelTable
from prism_jax.workload.base.workload import Block, BlockRun, Parameters, PlainBlock, SavedTensor, Split
from prism_jax.workload.catalog import KINDS, WorkloadKind

REACHED = 0.8  # of what a matrix product of the same size reaches
TAPS = 9


def conv_s(sizes: KernelSizes, roof: Roof) -> Floats:
    """Implicit matrix product: pixels x output channels x (input channels times taps)."""
    return roof.gemm_s(sizes.m, sizes.n, sizes.k, sizes.batch) / REACHED


CONV = KernelClass("conv", "convolutions", conv_s, "gemm", "gemm", 0.75, "convolution", "#123456")


@dataclass(frozen=True)
class ConvNet:
    """Residual blocks of two 3 x 3 convolutions on square images, a linear layer at the end."""

    name: str
    n_blocks: int
    channels: int
    size: int
    n_labels: int = 1000

    @property
    def sample_unit(self) -> str:
        return "samples"

    @property
    def kernel_classes(self) -> tuple[str, ...]:
        return (*COMPUTE_CLASSES, "conv")

    @property
    def has_experts(self) -> bool:
        return False

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        return BlockRun("residual", self.n_blocks), BlockRun("head", 1, "last")

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, int], ...]:
        return (("dense", 1),)

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        images, wide = float(plan.micro_batch), plan.element_bytes
        if kind == "head":
            return PlainBlock(
                _products("linear", "gemm", images, self.n_labels, self.channels, wide),
                parameters=(Parameters("dense", self.channels * self.n_labels),),
                saved_tensors=(SavedTensor("pooled", wide * images * self.channels),),
            )
        pixels = images * self.size**2
        values = wide * pixels * self.channels
        norm = [Kernel("norm", phase, "memory", 0.0, 3.0 * values) for phase in ("F", "B")]
        convs = _products("conv", "conv", pixels, self.channels, TAPS * self.channels, wide)
        return PlainBlock(
            convs + convs + KernelTable.of(norm),
            parameters=(Parameters("dense", 2 * TAPS * self.channels**2),),
            saved_tensors=(SavedTensor("inputs of convolutions", 2.0 * values),),
        )

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        return plan.element_bytes * plan.micro_batch * self.size**2 * self.channels

    def n_params(self) -> int:
        return self.n_blocks * 2 * TAPS * self.channels**2 + self.channels * self.n_labels

    def n_params_active(self) -> int:
        return self.n_params()

    def units_per_step(self, plan: ParallelPlan) -> int:
        return plan.global_batch

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        image = 2.0 * self.n_blocks * 2 * TAPS * self.channels**2 * self.size**2 + 2.0 * self.channels * self.n_labels
        return 3.0 * image * plan.global_batch

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        return {axis: Split(1, "parts of a convolution") for axis in ("tp", "cp", "ep")}

    def deeper(self, n: int) -> ConvNet:
        return replace(self, n_blocks=self.n_blocks + n)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        return iter(())


def _products(name: str, kernel: str, m: float, n: float, k: float, wide: float) -> KernelTable:
    flops, hbm = 2.0 * m * n * k, wide * (m * k / TAPS + k * n + m * n)
    return KernelTable.of([Kernel(name, phase, kernel, flops, hbm, 1.0, m, n, k) for phase in ("F", "B", "W")])


JOB = """
model: {kind: convnet, name: net, n_blocks: 16, channels: 512, size: 28}
cluster: {preset: llama3-h100, n_devices: 16}
plan: {pp: 2, dp: 8, micro_batch: 32, global_batch: 1024}
variability: %s
"""
SPACE = "{tp: 1, cp: 1, pp: [1, 2], micro_batch: [16, 32], schedule: 1f1b, recompute: none, zero_stage: [1]}"
NAMED = "{preset: none, conv: {gpu: 0.05}}"
ALL_GEMM = "{preset: none, gemm: {gpu: 0.05, call: 0.02}}"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with KERNEL_CLASSES.with_item(CONV), KINDS.with_item(WorkloadKind("convnet", ConvNet, "convolutions")):
        yield


def job_file(folder: Path, varies: str) -> str:
    path = folder / "job.yaml"
    path.write_text(JOB % varies)
    return str(path)


def test_its_seconds_follow_its_own_law():
    """A large convolution takes as long as the matrix product over `REACHED`; the calibration's gemm knob scales it."""
    eff = efficiency("hopper")
    n, flops, hbm = 8192.0, 2 * 8192.0**3, 6 * 8192.0**2
    table = KernelTable.of(
        [Kernel("a", "F", kernel, flops, hbm, 0.0, n, n, n) for kernel in ("gemm", "conv", "memory", "conv")]
    )
    seconds = op_seconds(table, device("h100-sxm"), "bf16", eff)
    assert seconds[1] == seconds[3] == pytest.approx(seconds[0] / REACHED, rel=1e-12)
    scaled = op_seconds(table, device("h100-sxm"), "bf16", replace(eff, correction=CostCorrection(gemm=1.3)))
    np.testing.assert_allclose(scaled / seconds, [1.3, 1.3, 1.0, 1.3], rtol=1e-12)


def test_class_axis_is_as_wide_as_the_workload_says(tmp_path: Path):
    job = load_job(job_file(tmp_path, NAMED))
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    assert cost.classes == ("gemm", "attention", "memory", "conv")
    assert cost.compute_s.shape[-1] == 4
    assert cost.compute_s[..., 3].sum() > 0.5 * cost.compute_s.sum()
    transformer = load_job("llama2_7b_fsdp_64")
    assert step_cost(transformer.model, transformer.cluster, transformer.plan, transformer.efficiency).compute_s.shape[
        -1
    ] == len(COMPUTE_CLASSES)


def test_surrogate_counts_it(tmp_path: Path):
    job = load_job(job_file(tmp_path, NAMED))
    quick = surrogate_seconds(
        stack([surrogate_of(job.model, job.cluster, job.plan, job.efficiency)]), job.efficiency.correction
    )
    assert float(quick[0]) == pytest.approx(deterministic(lower(job)), rel=0.04)


def test_an_unlisted_class_is_refused():
    table = KernelTable.of([Kernel("a", "F", "conv", 1.0)])
    with pytest.raises(SpecError, match="kernels of class conv, but the workload states gemm, attention, memory"):
        table.class_index(COMPUTE_CLASSES)


def test_it_varies_like_gemm_until_a_tree_names_it():
    gemm = ClassVariability(gpu=LogNormal(0.02))
    tree = Variability("t", {"gemm": gemm})
    assert tree.of("conv") == gemm
    assert tree.without("conv").of("conv").is_zero
    assert tree.without("conv").of("gemm") == gemm
    assert tree.without("gemm").of("conv") == gemm
    assert tree.only("gemm").of("conv").is_zero
    assert tree.only("conv").of("conv") == gemm
    assert tree.only("conv").of("gemm").is_zero
    own = Variability("t", {"gemm": gemm, "conv": ClassVariability(gpu=LogNormal(0.05))})
    assert own.of("conv").gpu == LogNormal(0.05)


def test_prediction_under_a_borrowed_tree_is_that_of_the_same_tree_written_out(tmp_path: Path):
    borrowed = load_job(job_file(tmp_path, ALL_GEMM))
    written = load_job(job_file(tmp_path, ALL_GEMM[:-1] + ", conv: {gpu: 0.05, call: 0.02}}"))
    a, b = (predict(job, key=jax.random.key(0), n_samples=256) for job in (borrowed, written))
    np.testing.assert_array_equal(a.samples_s, b.samples_s)
    assert a.quantile(0.95) > 1.02 * a.deterministic_s


def test_prediction_agrees_with_brute_force(tmp_path: Path):
    job = load_job(job_file(tmp_path, NAMED))
    fast = predict(job, key=jax.random.key(1), n_samples=2048)
    full = predict(job, key=jax.random.key(2), n_samples=2048, method="brute_force")
    for p in (0.5, 0.95):
        error = np.hypot(fast.mc_error(p), full.mc_error(p))
        assert abs(fast.quantile(p) - full.quantile(p)) < 4 * error + 1e-3 * full.quantile(p)


def test_slowdowns_of_gpus_know_it(tmp_path: Path):
    job = load_job(job_file(tmp_path, NAMED))
    ones = np.ones((16, 1))
    plain = float(step_time(job, ones)[0])
    assert plain == pytest.approx(deterministic(lower(job)))
    assert float(step_time(job, {"conv": 1.5 * ones})[0]) > 1.2 * plain
    assert known_gpus({"conv": {3: 1.2}}, 16, job.model.kernel_classes).factor.shape == (4, 16)


def test_commands_know_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, space, slow = job_file(tmp_path, NAMED), tmp_path / "space.yaml", tmp_path / "slow.csv"
    space.write_text(SPACE)
    slow.write_text("gpu,conv\n3,1.3\n")
    assert main(["check", file]) == 0
    assert "GiB" in capsys.readouterr().out
    assert main(["predict", file, "--json"]) == 0
    whole = capsys.readouterr().out
    assert '"conv"' in whole
    assert main(["predict", file, "--slowdowns", str(slow), "--json"]) == 0
    slowed = json.loads(capsys.readouterr().out)
    assert slowed["step_time_s"]["p50"] > json.loads(whole)["step_time_s"]["p50"]
    assert main(["search", file, "--space", str(space), "--top", "2", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert best["p50_s"] < best["p95_s"]


def test_the_node_that_convolves_slowly_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file, slow = job_file(tmp_path, NAMED), tmp_path / "slow.csv"
    slow.write_text("node,conv\n0,1.0\n1,1.2\n2,1.0\n")
    assert main(["place", file, "--slowdowns", str(slow), "--spares", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == [1]


def test_reports_and_pictures_call_it_by_its_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", job_file(tmp_path, NAMED), "--details"]) == 0
    assert "convolution" in capsys.readouterr().out
    assert words("gemm+conv") == "GEMM + convolution"
    assert colour("conv") == "#123456"
    assert main(["show", "kernels", "conv"]) == 0
    assert "convolutions" in capsys.readouterr().out


def test_a_class_says_what_is_wrong_with_it():
    with pytest.raises(SpecError, match="knob = 'conv', but it must be one of gemm, attention, memory"):
        KernelClass("other", "", knob="conv")
    with pytest.raises(SpecError, match="a kernel class called 'conv' is there already"):
        KERNEL_CLASSES.add(CONV)

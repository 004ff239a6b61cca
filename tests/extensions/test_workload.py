"""A kind of model of one's own, a residual MLP over samples: written down here, known everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import pytest

import prism_jax
from prism_jax.core.errors import ConfigError, PlanError, Problem
from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.cost.memory import memory
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.exhaustive import search
from prism_jax.search.space import default_space
from prism_jax.shell.app import main
from prism_jax.workload.base.kernels import Kernel, KernelTable
from prism_jax.workload.base.workload import Block, BlockRun, Comm, Parameters, PlainBlock, SavedTensor, Split, Workload
from prism_jax.workload.catalog import KINDS, WorkloadKind


@dataclass(frozen=True)
class ResidualMlp:
    """`n_blocks` residual blocks of two square products each, and a classifier; samples are vectors."""

    name: str
    n_blocks: int
    width: int
    n_classes: int
    source: str = ""

    sample_unit = "samples"
    kernel_classes = COMPUTE_CLASSES
    has_experts = False

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        return (BlockRun("residual", self.n_blocks), BlockRun("classifier", 1, "last", is_unit=False))

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, int], ...]:
        return (("dense", 1),)

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        rows, n_product = plan.micro_batch, 1 if kind == "classifier" else 2
        columns = self.n_classes if kind == "classifier" else self.width / plan.tp
        kernels = [one for _ in range(n_product) for one in _product(rows, columns, self.width, plan)]
        count = n_product * self.width * columns
        comms = () if plan.tp == 1 or kind == "classifier" else _sums(self, plan)
        saved = SavedTensor("inputs of the products", n_product * plan.element_bytes * rows * self.width)
        return PlainBlock(KernelTable.of(kernels), comms, (Parameters("dense", count),), (saved,))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        return plan.element_bytes * plan.micro_batch * self.width

    def n_params(self) -> int:
        return 2 * self.n_blocks * self.width**2 + self.width * self.n_classes

    def n_params_active(self) -> int:
        return self.n_params()

    def units_per_step(self, plan: ParallelPlan) -> int:
        return plan.global_batch

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        return 6.0 * plan.global_batch * self.n_params()

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        return {"tp": Split(self.width, "columns"), "cp": Split(1, "sequence"), "ep": Split(1, "experts")}

    def deeper(self, n: int) -> ResidualMlp:
        return replace(self, n_blocks=self.n_blocks + n)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        if plan.recompute != "none":
            yield Problem(
                "recompute", f"{plan.recompute}, but residual MLPs keep their activations. Use recompute=none."
            )


def _product(rows: float, columns: float, inner: float, plan: ParallelPlan) -> list[Kernel]:
    flops = 2.0 * rows * columns * inner
    traffic = plan.element_bytes * (rows * inner + inner * columns + rows * columns)
    forward = Kernel("product", "F", "gemm", flops, traffic, 1.0, rows, columns, inner)
    return [forward, forward._replace(phase="B", n=inner, k=columns), forward._replace(phase="W", m=inner, k=rows)]


def _sums(model: ResidualMlp, plan: ParallelPlan) -> tuple[Comm, ...]:
    size = model.boundary_bytes(plan)
    forward = Comm("tp", "all_reduce", "F", size, plan.stride("tp"), plan.tp)
    return (forward, forward._replace(phase="B"))


KIND = WorkloadKind(
    "residual_mlp", ResidualMlp, "residual MLP over vectors", presets=(ResidualMlp("mlp-1b", 8, 8192, 1000),)
)
JOB = """
model: {kind: residual_mlp, name: wide, n_blocks: 8, width: 8192, n_classes: 1000}
cluster: dgx-h100
plan: {tp: 2, pp: 2, dp: 4, micro_batch: 512, global_batch: 16384, zero_stage: 1}
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with KINDS.with_item(KIND):
        yield file


def test_it_is_a_workload() -> None:
    assert isinstance(KIND.presets[0], Workload)


def test_check_and_show_know_it(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(job_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_params"] == 2 * 8 * 8192**2 + 8192 * 1000
    assert main(["show", "models"]) == 0
    assert "mlp-1b" in capsys.readouterr().out


def test_a_preset_may_be_named_and_changed(job_file: Path) -> None:
    job = prism_jax.load_job(job_file, ["model=mlp-1b"])
    assert job.model == KIND.presets[0]


def test_predict_counts_samples_and_scales_with_the_model(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = prism_jax.load_job(job_file)
    step = prism_jax.predict(job, key=jax.random.key(0), n_samples=128)
    deeper = prism_jax.predict(replace(job, model=job.model.deeper(8)), key=jax.random.key(0), n_samples=128)
    assert 1.3 < deeper.quantile(0.5) / step.quantile(0.5) < 2.0  # twice the blocks, the same optimizer and idle time
    assert main(["predict", str(job_file), "--samples", "128"]) == 0
    assert "samples/s per GPU" in capsys.readouterr().out


def test_memory_is_that_of_its_blocks(job_file: Path) -> None:
    job = prism_jax.load_job(job_file)
    worst = memory(job.model, job.cluster, job.plan).stages[1]
    per_stage = (4 * 2 * 8192**2 / 2) + 8192 * 1000
    assert worst.parameters_bytes == pytest.approx(2.0 * per_stage)
    assert worst.optimizer_bytes == pytest.approx(12.0 * per_stage / 4)


def test_search_finds_a_plan(job_file: Path) -> None:
    job = prism_jax.load_job(job_file)
    space = replace(default_space(job), schedule=("1f1b",), micro_batch=(256, 512), recompute=("none",))
    assert set(space.cp) == set(space.ep) == {1}
    best = search(job, space=space, seed=0).best
    assert best is not None
    assert best.plan.n_devices == 16


def test_what_contradicts_it_is_refused(job_file: Path) -> None:
    with pytest.raises(ConfigError, match=r"plan.cp=2: 2, but wide has no sequence. Use cp=1"):
        prism_jax.load_job(job_file, ["plan.cp=2", "plan.dp=2"])
    with pytest.raises(ConfigError, match=r"model.widht=3: unknown field, did you mean width"):
        prism_jax.load_job(job_file, ["model.widht=3"])
    job = prism_jax.load_job(job_file)
    with pytest.raises(PlanError, match="keep their activations"):
        prism_jax.predict(replace(job, plan=replace(job.plan, recompute="full")), key=jax.random.key(0))

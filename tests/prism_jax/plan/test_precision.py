"""Products in 8 and 4 bits: bytes of inputs, passes that make them, layers that stay in 16 bits."""

from dataclasses import replace

import pytest

from prism_jax.core.errors import PlanError, SpecError
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.framework.software import Software
from prism_jax.job.job import Job
from prism_jax.job.rules import check_plan
from prism_jax.plan.fields import QUANTISED, share_in_bf16
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.prediction.job_facts import recipe_notes
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from prism_jax.system.catalog import cluster, device
from prism_jax.variability.config import preset as variability
from prism_jax.workload.base.kernels import Kernel, KernelTable
from prism_jax.workload.catalog import model as preset
from prism_jax.workload.transformer.shard import Shard, gemm
from prism_jax.workload.transformer.sizes import AdapterSpec

MODEL = preset("llama3-70b")
PLAN = ParallelPlan(micro_batch=1, global_batch=1, seq_len=4096)


def products(dtype: str, layers: int | None = 0) -> list[Kernel]:
    return gemm("x", 4096, 8192, 8192, Shard.of(MODEL, replace(PLAN, dtype=dtype, bf16_layers=layers)))


@pytest.mark.parametrize(
    ("dtype", "n_bytes", "n_launch"),
    [
        ("fp8", 2 + 1, 1),
        ("mxfp8", 2 + 2 * (1 + 1 / 32), 1),  # one pass writes rows and columns
        ("mxfp4", 2 + 2 * (0.5 + 1 / 32), 1),
        ("nvfp4", 3 * 2 + 2 * (0.5 + 1 / 16), 3),  # largest element, rows, columns with their Hadamard transform
    ],
)
def test_an_input_is_quantised_for_the_product_and_for_the_weight_gradient(dtype: str, n_bytes: float, n_launch: int):
    casts = {op.phase: op for op in products(dtype) if op.kernel == "memory"}
    assert set(casts) == {"F", "B"}
    assert casts["F"].hbm_bytes == pytest.approx(n_bytes * 4096 * 8192)
    assert casts["F"].n_launch == n_launch


def test_a_frozen_weight_needs_no_columns():
    shard = replace(Shard.of(MODEL, replace(PLAN, dtype="nvfp4", bf16_layers=0)), trains=False)
    cast = next(op for op in gemm("x", 4096, 8192, 8192, shard) if op.kernel == "memory")
    assert (cast.n_launch, cast.hbm_bytes) == (2, pytest.approx((2 * 2 + 0.5625) * 4096 * 8192))


def test_nvfp4_keeps_10_of_62_layers_in_16_bits_unless_told_otherwise():
    """arXiv 2509.25149: the first two and the last eight blocks of the 12B model."""
    plan = replace(PLAN, dtype="nvfp4")
    assert share_in_bf16(plan, 62) == 10 / 62
    assert share_in_bf16(replace(plan, bf16_layers=4), 62) == 4 / 62
    assert share_in_bf16(replace(plan, dtype="mxfp8"), 62) == share_in_bf16(replace(plan, dtype="bf16"), 62) == 0.0


@pytest.mark.parametrize("dtype", list(QUANTISED))
def test_all_layers_in_16_bits_are_a_bf16_model(dtype: str):
    own, wide = (
        MODEL.block("dense_layer", replace(PLAN, **given)).kernels
        for given in ({"dtype": dtype, "bf16_layers": 80}, {"dtype": "bf16"})
    )
    b200, eff = device("b200"), efficiency("blackwell")
    total = op_seconds(own, b200, dtype, eff).sum()
    assert total == pytest.approx(op_seconds(wide, b200, "bf16", eff).sum(), rel=1e-12)


@pytest.mark.parametrize("dtype", list(QUANTISED))
@pytest.mark.parametrize("layers", [0, 10])
def test_flops_do_not_depend_on_the_precision(dtype: str, layers: int):
    plan = replace(PLAN, dtype=dtype, bf16_layers=layers)
    own, wide = (MODEL.block("dense_layer", p).kernels for p in (plan, PLAN))
    assert own.flops() == pytest.approx(wide.flops(), rel=1e-12)


def test_fewer_bits_make_products_faster_on_a_device_that_has_them():
    b200, eff = device("b200"), efficiency("blackwell")

    def product_s(dtype: str) -> float:
        plan = replace(PLAN, dtype=dtype, bf16_layers=None if dtype == "bf16" else 0)
        products = [op for op in MODEL.block("dense_layer", plan).kernels.ops if op.kernel == "gemm"]
        return float(op_seconds(KernelTable.of(products), b200, dtype, eff).sum())

    bf16, fp8, mxfp8, nvfp4 = (product_s(dtype) for dtype in ("bf16", "fp8", "mxfp8", "nvfp4"))
    assert fp8 == pytest.approx(mxfp8, rel=0.02)
    assert 0.45 * fp8 < nvfp4 < 0.7 * fp8 < 0.7 * bf16


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [("b200", "nvfp4", 9e15), ("gb200", "mxfp4", 10e15), ("gb300", "nvfp4", 15e15), ("h100-sxm", "mxfp8", 1.9789e15)],
)
def test_formats_with_block_scales_run_at_the_rate_of_their_bits(name: str, dtype: str, peak: float):
    assert device(name).peak(dtype) == pytest.approx(peak)


def test_a_device_without_four_bits_is_refused():
    with pytest.raises(SpecError, match="no fp4 peak, which nvfp4 runs at; it has bf16"):
        device("h100-sxm").peak("nvfp4")
    plan = replace(PLAN, dtype="nvfp4")
    with pytest.raises(PlanError, match="dtype = nvfp4: device h100-sxm has no fp4 peak"):
        check_plan(plan, MODEL, cluster("dgx-h100", 1))


def test_layers_in_16_bits_go_with_a_narrow_format():
    with pytest.raises(PlanError, match="bf16_layers = 4, but dtype = bf16"):
        check_plan(replace(PLAN, bf16_layers=4), MODEL, cluster("dgx-h100", 1))
    with pytest.raises(PlanError, match="'fp6' is unknown"):
        check_plan(replace(PLAN, dtype="fp6"), MODEL, cluster("dgx-h100", 1))


def test_adapters_stay_in_16_bits():
    own = replace(MODEL, adapters=AdapterSpec(16))
    ops = own.block("dense_layer", replace(PLAN, dtype="nvfp4")).kernels.ops
    assert {op.dtype for op in ops if op.kernel == "gemm" and op.name.endswith((" a", " b"))} == {"bf16"}


# --- Recipes of fp8 --------------------------------------------------------------------------------------------------


def recipe_s(recipe: str | None, dtype: str = "fp8", **changes: object) -> float:
    """Noise-free step of Llama-3-70B on 256 H100 as torchtitan PR 1299 ran it."""
    plan = ParallelPlan(
        16, 512, 8192, tp=8, dp=32, sharding="fsdp", recompute="full", sequence_parallel=True, dtype=dtype,
        fp8_recipe=recipe, software=Software(compile=True), **changes,  # type: ignore[arg-type]
    )  # fmt: skip
    job = Job(preset("llama-3-70b"), cluster("dgx-h100", 256), plan, variability("none"), framework="fsdp")
    return deterministic(lower(job, True))


def test_gains_of_recipes_are_those_that_torchtitan_measured() -> None:
    """PR 1299: 597 tokens/s and GPU in bf16, 810 tensorwise, 600 rowwise, 942 with asynchronous tensor parallelism."""
    wide = recipe_s(None, "bf16")
    assert wide / recipe_s("tensorwise") == pytest.approx(810 / 597, rel=0.15)
    assert wide / recipe_s("rowwise") == pytest.approx(600 / 597, rel=0.15)
    assert wide / recipe_s("tensorwise", overlap=Overlap(tp=True)) == pytest.approx(942 / 597, rel=0.15)


def test_a_framework_has_a_recipe_of_its_own() -> None:
    assert recipe_s(None) == recipe_s("tensorwise") == recipe_s("current")
    assert recipe_s("delayed") < recipe_s("tensorwise") < recipe_s("rowwise")
    assert recipe_s("mxfp8") == pytest.approx(recipe_s(None, "mxfp8"))


@pytest.mark.parametrize(("framework", "recipe"), [("fsdp", "tensorwise"), ("megatron-core", "delayed")])
def test_a_recipe_that_nobody_stated_is_said(framework: str, recipe: str) -> None:
    plan = ParallelPlan(1, 8, 8192, dp=8, dtype="fp8")
    job = Job(preset("llama-3-8b"), cluster("dgx-h100", 8), plan, framework=framework, variability=variability("none"))
    (note,) = recipe_notes(job)
    assert note.startswith(f"assumed plan.fp8_recipe: {recipe};")
    assert recipe_notes(replace(job, plan=replace(plan, dtype="bf16"))) == ()
    assert recipe_notes(replace(job, plan=replace(plan, fp8_recipe="rowwise"))) == ()


def test_a_recipe_of_fp8_wants_fp8() -> None:
    with pytest.raises(PlanError, match="It goes with dtype=fp8"):
        check_plan(replace(PLAN, fp8_recipe="rowwise"), MODEL, cluster("dgx-h100", 1))
    with pytest.raises(PlanError, match="known are delayed"):
        check_plan(replace(PLAN, dtype="fp8", fp8_recipe="rows"), MODEL, cluster("dgx-h100", 1))

"""Constants of the cost model from measured kernels: the preset's own law gives the preset, slower kernels make slower steps."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from inference.kernels.cost import measured_constants
from inference.kernels.model import Kernels
from prism_jax.core.errors import DataError
from prism_jax.cost.compute import attention_s, gemm_s, stream_s
from prism_jax.cost.efficiency import Efficiency, MeasuredTables, efficiency
from prism_jax.cost.step import step_cost
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload.catalog import model

CLUSTER = catalog.cluster("dgx-h100", 8)
H100, PRESET = CLUSTER.device, efficiency("hopper")
PLAN = ParallelPlan(
    tp=8, pp=1, dp=1, micro_batch=2, global_batch=8, seq_len=4096, sequence_parallel=True, recompute="none"
)


def gemms(eff: Efficiency, dtype: str = "bf16", n: int = 150, noise: float = 0.0) -> pd.DataFrame:
    """Products of random shapes that take as long as the law says."""
    rng = np.random.default_rng(0)
    m, n_, k = (2.0 ** rng.uniform(10, 14, n).round(1) // 16 * 16 for _ in range(3))
    peak = H100.peak(dtype) * (eff.gemm_fp8 if dtype == "fp8" else 1.0)
    hbm = (1.0 if dtype == "fp8" else 2.0) * (m * k + k * n_) + 2.0 * m * n_
    busy = np.maximum(gemm_s(m, n_, k, 1.0, peak, H100, eff), stream_s(hbm, 1.0, H100.hbm_bytes_per_s, eff))
    seconds = busy * np.exp(noise * rng.standard_normal(n))
    return pd.DataFrame({"op": "gemm", "m": m, "n": n_, "k": k, "dtype": dtype, "duration_s": seconds})


def attention(eff: Efficiency, op: str, seen: float = 0.5) -> pd.DataFrame:
    """Seconds of the law for the FLOPs that the cost model counts: `seen` of the square, backward twice that."""
    rows, heads = (x.ravel() for x in np.meshgrid(2.0 ** np.arange(9, 15), [8.0, 16.0, 32.0, 64.0]))
    backward = op == "sdp_bwd"
    flops = 4.0 * heads * rows**2 * 128.0 * seen * (2.0 if backward else 1.0)
    seconds = attention_s(flops, rows, heads, 128.0, backward, H100.peak("bf16"), H100.n_sm, eff)
    shape = {"seq_len": rows, "n_head": heads, "head_dim": 128.0, "batch": 1.0}
    return pd.DataFrame({"op": op, **shape, "dtype": "bf16", "duration_s": seconds})


def passes(eff: Efficiency) -> pd.DataFrame:
    size = 2.0 ** np.arange(18.0, 34.0)
    return pd.DataFrame(
        {"op": "memory", "bytes": size, "dtype": "bf16", "duration_s": stream_s(size, 1.0, H100.hbm_bytes_per_s, eff)}
    )


def everything(eff: Efficiency, slower: float = 1.0) -> pd.DataFrame:
    parts = [gemms(eff), attention(eff, "sdp_fwd"), attention(eff, "sdp_bwd"), passes(eff)]
    table = pd.concat(parts, ignore_index=True)
    return table.assign(duration_s=table["duration_s"] * slower)


def fitted(table: pd.DataFrame, dtype: str = "bf16", gpu: str = "H100-SXM-80GB") -> MeasuredTables:
    data = Kernels().prepare(table.assign(gpu=gpu))
    return measured_constants(data, H100, dtype, 24, np.random.default_rng(0))


def compute_s(eff: Efficiency) -> float:
    return float(step_cost(model("gpt3-22b"), CLUSTER, PLAN, eff).compute_s.sum())


def test_tables_made_by_the_presets_own_law_change_nothing():
    found = fitted(everything(PRESET))
    assert compute_s(found.mean.constants_of(PRESET)) == pytest.approx(compute_s(PRESET), rel=1e-3)
    assert found.knobs == {"gemm", "attention", "memory"}
    assert found.covers == ("gemm in bf16", "attention forward", "attention backward", "memory")
    assert found.notes == ()


def test_kernels_that_take_a_fifth_longer_make_steps_a_fifth_longer():
    slower = fitted(everything(PRESET, 1.2)).mean.constants_of(PRESET)
    gaps = replace(PRESET, launch_s=0.0), replace(slower, launch_s=0.0)
    assert compute_s(gaps[1]) / compute_s(gaps[0]) == pytest.approx(1.2, rel=5e-3)


def test_constants_that_were_not_the_presets_are_found_within_their_error():
    """150 products with 3% noise: four standard errors, a false alarm of 1 in 16,000 for each constant."""
    true = replace(PRESET, gemm_max=0.7, gemm_k_half=160.0)
    found = fitted(gemms(true, noise=0.03))
    for name in ("gemm_max", "gemm_k_half"):
        drawn = np.log([draw.constants[name] for draw in found.draws])
        off = np.log(found.mean.constants[name]) - np.log(getattr(true, name))
        assert abs(off) < 4.0 * drawn.std(), name
    assert found.mean.constants["gemm_max"] == pytest.approx(0.7, rel=0.03)


def test_what_was_not_measured_keeps_the_preset_and_is_named():
    found = fitted(gemms(replace(PRESET, gemm_max=0.6)))
    eff = found.mean.constants_of(PRESET)
    assert found.knobs == {"gemm"}
    assert eff.gemm_max * eff.gemm_fp8 == pytest.approx(PRESET.gemm_max * PRESET.gemm_fp8), "products in fp8 stay"
    assert (eff.attention_forward, eff.memory) == (PRESET.attention_forward, PRESET.memory)
    assert found.notes == ("attention and memory of h100-sxm: not measured, as the preset has it",)


def test_products_in_fp8_are_those_of_a_plan_in_fp8():
    slow = replace(PRESET, gemm_fp8=0.5)
    found = fitted(gemms(slow, "fp8"), "fp8")
    assert found.mean.constants["gemm_fp8"] == pytest.approx(0.5, rel=1e-3)
    assert found.knobs == {"gemm", "fp8"}
    other = fitted(gemms(PRESET), "fp8")
    assert other.knobs == frozenset()
    assert "products in fp8 of h100-sxm: not measured" in other.notes[0]


def test_attention_without_a_mask_does_twice_the_work():
    full = attention(PRESET, "sdp_fwd", seen=1.0).assign(causal=False)
    found = fitted(full).mean.constants_of(PRESET)
    assert found.attention_forward == pytest.approx(PRESET.attention_forward, rel=1e-3)


def test_kernels_of_another_gpu_are_refused_with_a_remedy():
    with pytest.raises(
        DataError, match=r"kernels of A100-SXM-80GB, but the job runs on h100-sxm\. Fit kernels"
    ) as error:
        fitted(gemms(PRESET), gpu="A100-SXM-80GB")
    assert "--where gpu=" in str(error.value)


def test_operations_without_a_law_are_refused():
    with pytest.raises(DataError, match="nothing that the cost model has a law for"):
        fitted(gemms(PRESET).assign(op="grouped_gemm"))

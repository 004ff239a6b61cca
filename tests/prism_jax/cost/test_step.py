"""step_cost: identities over plans, published step times, and JAX's arrays against plain floats."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.step_tables.table import read_step_rows
from prism_jax.calibration.calibration import shipped
from prism_jax.calibration.key import CalibrationKey
from prism_jax.core.arrays import is_traced, namespace
from prism_jax.core.kernels import COLLECTIVES, COMM_AXES
from prism_jax.cost.block_cost import collective_s, dispatch_share
from prism_jax.cost.efficiency import CostCorrection, Efficiency, efficiency
from prism_jax.cost.step import StepCost, step_cost
from prism_jax.job.job import Job
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster, Device
from prism_jax.system.network import Tier
from prism_jax.validation.costed import job_of_row
from prism_jax.validation.score import MeasuredRow
from prism_jax.variability.tree import Variability
from prism_jax.workload.catalog import model as catalog_model
from prism_jax.workload.transformer.sizes import MLASpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

F, B, W = 0, 1, 2
TP, CP, EP, DP = range(len(COMM_AXES))
GPT = TransformerSpec(name="gpt", n_layers=8, hidden=4096, n_heads=32, ffn_hidden=16384, vocab=51200)
MOE = replace(GPT, gated=True, norm="rms", position="rope", bias=False, moe=MoESpec(8, 2, 4096))
PLAN = ParallelPlan(micro_batch=2, global_batch=64, seq_len=2048, pp=4, dp=2)
REFERENCE = Path(__file__).resolve().parents[3] / ".." / "shared" / "data" / "steps" / "reference_rows.json"


def calibrated_s(row: MeasuredRow) -> float:
    """Noise-free step under the shipped calibration, with the software of the row."""
    job = job_of_row(row)
    return pipeline_s(step_cost(job.model, job.cluster, job.plan, job.efficiency), job.plan)


def cost_of(plan: ParallelPlan, model: TransformerSpec = GPT, host_launch_s: float = 0.0) -> StepCost:
    """Kernels and links alone, started by a host that takes no time unless one is given."""
    eff = replace(efficiency("ampere"), host_launch_s=host_launch_s)
    return step_cost(model, catalog.cluster("dgx-a100", plan.n_devices), plan, eff)


def test_shapes_follow_chunks_and_stages() -> None:
    cost = cost_of(replace(PLAN, virtual_stages=2, schedule="interleaved"))
    assert cost.compute_s.shape == (3, 8, 3)
    assert cost.comm_s.shape == cost.hidden_comm_s.shape == (3, 8, 4)
    assert cost.p2p_s.shape == (8,)
    assert cost.p2p_s[-1] == 0.0
    assert np.all(cost.p2p_s[:-1] > 0.0)
    assert cost.end_comm_s.shape == cost.end_compute_s.shape == (4,)
    for array in (cost.compute_s, cost.comm_s, cost.hidden_comm_s, cost.p2p_s, cost.end_comm_s):
        assert np.all(np.isfinite(array))
        assert np.all(array >= 0.0)


def test_model_flops_are_those_of_the_model() -> None:
    tokens = PLAN.global_batch * PLAN.seq_len
    assert cost_of(PLAN).model_flops == tokens * GPT.train_flops_per_token(2048, causal=True)
    full = cost_of(replace(PLAN, recompute="full", attention="unfused"))
    assert full.hardware_flops == tokens * GPT.train_flops_per_token(2048, causal=False, recompute="full")
    assert full.model_flops < full.hardware_flops


def test_full_recomputation_adds_one_forward_of_every_middle_chunk() -> None:
    plan = replace(PLAN, tp=2, overlap=Overlap(pp=False))
    plain, full = cost_of(plan), cost_of(replace(plan, recompute="full"))
    middle = slice(1, 3)
    assert full.compute_s[B, middle] - plain.compute_s[B, middle] == pytest.approx(plain.compute_s[F, middle])
    assert full.comm_s[B, middle, TP] - plain.comm_s[B, middle, TP] == pytest.approx(plain.comm_s[F, middle, TP])
    assert full.compute_s[W] == pytest.approx(plain.compute_s[W])


def test_selective_recomputation_lies_between_none_and_full() -> None:
    modes = ("none", "selective", "full")
    none, selective, full = (cost_of(replace(PLAN, recompute=mode)).compute_s[B].sum() for mode in modes)
    assert none < selective < full


def test_without_parallel_axes_there_is_no_communication() -> None:
    cost = cost_of(ParallelPlan(micro_batch=1, global_batch=8, seq_len=2048))
    assert cost.comm_s.sum() == cost.hidden_comm_s.sum() == cost.p2p_s.sum() == cost.end_comm_s.sum() == 0.0


def test_every_axis_communicates_on_its_own_column() -> None:
    assert cost_of(replace(PLAN, tp=2)).comm_s[..., TP].sum() > 0.0
    assert cost_of(replace(PLAN, dp=4, ep=4), MOE).comm_s[..., EP].sum() > 0.0
    ring = cost_of(replace(PLAN, cp=2))
    assert ring.comm_s[..., CP].sum() + ring.hidden_comm_s[..., CP].sum() > 0.0
    sharded = cost_of(replace(PLAN, pp=1, dp=16, sharding="fsdp"))
    assert sharded.comm_s[..., DP].sum() + sharded.hidden_comm_s[..., DP].sum() > 0.0
    assert cost_of(PLAN).comm_s.sum() == 0.0


@pytest.mark.parametrize("change", [{"tp": 8, "sequence_parallel": True}, {"tp": 8}], ids=["sp", "no_sp"])
def test_overlapping_tensor_parallel_communication_hides_some_of_it(change: dict) -> None:
    shown, overlapped = (cost_of(replace(PLAN, overlap=Overlap(tp=tp), **change)) for tp in (False, True))
    assert shown.hidden_comm_s[..., TP].sum() == 0.0
    whole_s, shown_s = shown.comm_s[..., TP].sum(), overlapped.comm_s[..., TP].sum()
    assert shown_s < whole_s
    assert shown_s + overlapped.hidden_comm_s[..., TP].sum() == pytest.approx(whole_s)
    assert overlapped.compute_s.sum() > shown.compute_s.sum()  # what runs beside compute slows it


def test_overlap_of_gradient_reduction_shortens_the_end() -> None:
    plan = replace(PLAN, pp=1, dp=32, tp=1)
    shown, hidden = (cost_of(replace(plan, overlap=Overlap(dp=dp))).end_comm_s[0] for dp in (False, True))
    assert hidden < 0.6 * shown


def test_sharding_the_optimizer_divides_its_time() -> None:
    plan = replace(PLAN, pp=1, dp=32)
    whole, sharded = (cost_of(replace(plan, zero_stage=z)).end_compute_s[0] for z in (0, 1))
    assert sharded == pytest.approx(whole / 32)


def test_tied_embeddings_add_a_reduction_between_first_and_last_stage() -> None:
    tied, untied = (cost_of(replace(PLAN, dp=1), replace(GPT, tied_embeddings=t)) for t in (True, False))
    assert untied.end_comm_s.tolist() == [0.0] * 4
    assert tied.end_comm_s[0] == tied.end_comm_s[3] > 0.0
    assert tied.end_comm_s[1] == 0.0


def test_126_layers_on_128_chunks_leave_one_out_at_both_ends() -> None:
    model = replace(GPT, n_layers=126)
    plan = ParallelPlan(1, 32, 2048, pp=16, virtual_stages=8, schedule="interleaved")
    cost = cost_of(plan, model)
    gemm = cost.compute_s[F, :, 0]
    assert gemm[0] < 1e-9 + gemm[1] * 0.1  # embedding only
    assert gemm[1] == pytest.approx(gemm[126])


def test_a_token_goes_to_every_node_once() -> None:
    assert dispatch_share(1, 8) == 1 / 8
    assert dispatch_share(8, 1) == pytest.approx(1.0)
    assert dispatch_share(2, 2) == pytest.approx(0.75)
    assert dispatch_share(1000, 2) == pytest.approx(1.0, abs=1e-3)


def test_deepseek_v3_trains_at_the_published_rate() -> None:
    # 180 thousand H800 hours per 10^12 tokens (arXiv 2412.19437 section 1), all but communication of experts at full speed:
    # the busiest stage alone must take less than the step, and more than half of it.
    model, cluster = catalog_model("deepseek-v3"), catalog.cluster("h800", 2048)
    plan = ParallelPlan(
        1, 15360, 4096, pp=16, dp=128, ep=64, schedule="dualpipe", zero_stage=1, recompute="selective", dtype="fp8"
    )
    own = Job(model, cluster, plan, Variability(), framework="megatron-core")
    cost = step_cost(model, cluster, own.plan, own.efficiency)
    published_s = 15360 * 4096 / (1e12 / (180e3 * 3600)) / 2048
    compute = cost.compute_s.sum() * plan.n_micro_batch / plan.pp
    assert 0.5 * published_s < compute < published_s


def test_more_replicas_cost_nothing_per_micro_batch() -> None:
    plan = replace(PLAN, overlap=Overlap(pp=False))  # more replicas move the stages of a pipeline apart
    few, many = cost_of(plan), cost_of(replace(plan, dp=16, global_batch=512))
    assert np.array_equal(few.compute_s, many.compute_s)


def test_small_layers_run_at_the_pace_of_the_host() -> None:
    small = replace(GPT, hidden=256, n_heads=4, ffn_hidden=1024)
    one, two = (cost_of(ParallelPlan(mb, 8, 128), small, 1e-3).compute_s.sum() for mb in (1, 2))
    assert one == pytest.approx(two, rel=1e-4)


def pipeline_s(cost: StepCost, plan: ParallelPlan) -> float:
    """Busiest stage times micro-batches, plus once through the pipeline (arXiv 2104.04473 section 2.2)."""
    chunk = cost.compute_s.sum((0, 2)) + cost.comm_s.sum((0, 2))
    stage = np.array([chunk[s :: plan.pp].sum() for s in range(plan.pp)])
    fill = (stage.sum() - stage.max()) / plan.virtual_stages + 2 * (plan.pp - 1) * cost.p2p_s.max()
    return float(plan.n_micro_batch * stage.max() + fill + (cost.end_compute_s + cost.end_comm_s).max())


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared measurements are not here")
def test_published_megatron_steps_are_predicted_within_the_bar() -> None:
    errors = []
    for row in read_step_rows(REFERENCE):
        if not row.id.startswith(("narayanan_t1", "narayanan_t2", "korthikanti")):
            continue
        assert row.measured_s is not None
        errors.append(calibrated_s(row) / row.measured_s - 1.0)
    assert len(errors) == 24
    assert np.mean(np.abs(errors)) <= 0.045
    assert np.max(np.abs(errors)) <= 0.12


@pytest.mark.skipif(not REFERENCE.exists(), reason="the shared measurements are not here")
def test_llama3_steps_lie_near_the_published_ones() -> None:
    rows = [row for row in read_step_rows(REFERENCE) if row.id.startswith("llama3")]
    assert len(rows) == 3
    for row in rows:
        assert row.measured_range is not None  # of the conventions in which the source may count FLOPs
        low, high = row.measured_range
        assert 0.85 * low <= calibrated_s(row) <= 1.15 * high, row.id


def test_a_stage_without_layers_takes_no_time() -> None:
    split = (GPT.n_layers - 2, 2, 0, 0)
    cost = cost_of(replace(PLAN, tp=1, pp=4, dp=1, layer_split=split, overlap=Overlap(pp=False)))
    assert np.all(cost.compute_s[:, 2] == 0.0)
    assert np.all(cost.comm_s[:, 2] == 0.0)
    assert cost.compute_s[:, 1].sum() > 0.0


# --- Costs on JAX's arrays are those on plain floats, for every term of every kind of plan ---------------------------


SMALL_GPT = TransformerSpec(name="gpt", n_layers=8, hidden=2048, n_heads=16, ffn_hidden=8192, vocab=32000)
MLA = replace(
    SMALL_GPT,
    gated=True,
    norm="rms",
    position="rope",
    bias=False,
    moe=MoESpec(8, 2, 1024),
    mla=MLASpec(768, 256, 64, 32, 64),
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
    agree(SMALL_GPT, devices, plan, shipped().efficiency(CalibrationKey.of(devices.device)))


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

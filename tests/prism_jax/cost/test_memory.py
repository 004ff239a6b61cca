"""Memory model against arXiv 2205.05198 and 1910.02054, its monotonicity, and formats of states."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import MemoryBreakdown, StateFactors, held_weights, memory, state_factors
from prism_jax.cost.partition import chunks_of_stage, gradient_bytes, layers_of_chunks
from prism_jax.cost.step import step_cost
from prism_jax.cost.step_end import optimizer_bytes
from prism_jax.framework.base import GIB, MEGATRON, MemoryOptions
from prism_jax.framework.software import APART, GROUPED, STREAMS, Software
from prism_jax.job.job import Job
from prism_jax.job.rules import check_plan, problems
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.plan_costs import peak_memory
from prism_jax.search.plan_table import PlanTable
from prism_jax.search.space import default_space
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster, Device
from prism_jax.system.network import Tier
from prism_jax.variability.config import preset
from prism_jax.workload.base.workload import total_bytes
from prism_jax.workload.catalog import model as catalog_model
from prism_jax.workload.transformer import params
from prism_jax.workload.transformer.saved_tensors import layer_saved_tensors
from prism_jax.workload.transformer.sizes import MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

A100 = Device("a100-80gb", {"bf16": 312e12}, 80 * GIB, 2.04e12, 400.0, 108, source="datasheet")
PROPERTY = settings(deadline=None, derandomize=True, max_examples=40)


def cluster(n_devices: int) -> Cluster:
    return Cluster("test", A100, (Tier("all", max(n_devices, 8), 1e9, 1e-6),), n_devices)


def gpt(name: str, n_heads: int, hidden: int, n_layers: int) -> TransformerSpec:
    return TransformerSpec(name, n_layers, hidden, n_heads, 4 * hidden, 51200)


# Table 3 of arXiv 2205.05198: model, tp, pp, interleaved stages, micro-batch, global batch
CONFIGS: dict[str, tuple[TransformerSpec, dict[str, Any]]] = {
    "22B": (gpt("22B", 64, 6144, 48), {"tp": 8, "pp": 1, "micro_batch": 4, "global_batch": 4}),
    "175B": (gpt("175B", 96, 12288, 96), {"tp": 8, "pp": 8, "virtual_stages": 3, "micro_batch": 1, "global_batch": 64}),
    "530B": (
        gpt("530B", 128, 20480, 105),
        {"tp": 8, "pp": 35, "virtual_stages": 3, "micro_batch": 1, "global_batch": 280},
    ),
    "1T": (gpt("1T", 160, 25600, 128), {"tp": 8, "pp": 64, "micro_batch": 1, "global_batch": 512}),
}


def paper_plan(name: str, **changes: Any) -> ParallelPlan:
    degrees = CONFIGS[name][1]
    schedule = "interleaved" if degrees.get("virtual_stages", 1) > 1 else "1f1b"
    plan = ParallelPlan(seq_len=2048, attention="unfused", schedule=schedule, **degrees)
    return replace(plan, **changes)


def paper_memory(name: str, **changes: Any) -> MemoryBreakdown:
    plan = paper_plan(name, **changes)
    return memory(CONFIGS[name][0], cluster(plan.n_devices), plan)


def closed_form(model: TransformerSpec, plan: ParallelPlan) -> float:
    """Table 2 of arXiv 2205.05198, bytes per layer."""
    s, b, h, a, t = plan.seq_len, plan.micro_batch, model.hidden, model.n_heads, plan.tp
    scores = 0.0 if plan.recompute == "selective" else 5 * a * s / h
    if plan.recompute == "full":
        return 2 * s * b * h
    if plan.sequence_parallel:
        return s * b * h / t * (34 + scores)
    return s * b * h * (10 + (24 + scores) / t)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize(
    "technique",
    [{}, {"sequence_parallel": True}, {"recompute": "selective"}, {"recompute": "full"},
     {"sequence_parallel": True, "recompute": "selective"}],
)  # fmt: skip
def test_a_gpt_layer_saves_exactly_the_bytes_of_table_2(name: str, tp: int, technique: dict[str, Any]):
    model = CONFIGS[name][0]
    plan = paper_plan(name, tp=tp, **technique)
    saved = total_bytes(layer_saved_tensors(model, plan))
    assert saved == pytest.approx(closed_form(model, plan), rel=1e-12)


def test_flash_attention_removes_the_scores_but_for_one_number_per_row():
    model, _ = CONFIGS["175B"]
    plan = paper_plan("175B", attention="flash", sequence_parallel=True)
    s, h, a, t = 2048, 12288, 96, 8
    assert total_bytes(layer_saved_tensors(model, plan)) == pytest.approx(34 * s * h / t + 4 * a * s / t, rel=1e-12)


@pytest.mark.parametrize(("name", "saving"), [("175B", 0.70), ("530B", 0.65)])
def test_selective_recompute_saves_the_published_share(name: str, saving: float):
    """Section 5: 70% of the activations of GPT-3 and 65% of MT-NLG, against tensor and sequence parallelism."""
    model = CONFIGS[name][0]
    kept = total_bytes(layer_saved_tensors(model, paper_plan(name, sequence_parallel=True, recompute="selective")))
    whole = total_bytes(layer_saved_tensors(model, paper_plan(name, sequence_parallel=True)))
    assert 1 - kept / whole == pytest.approx(saving, rel=0.1)


@pytest.mark.parametrize("name", CONFIGS)
def test_sequence_parallelism_with_selective_recompute_needs_a_fifth_of_the_activations(name: str):
    """Figure 7: the two together bring activations to about 20% of the tensor-parallel baseline, a 5x reduction."""
    baseline = paper_memory(name).stages[0].activations_bytes
    both = paper_memory(name, sequence_parallel=True, recompute="selective").stages[0].activations_bytes
    assert 0.15 < both / baseline < 0.22


@pytest.mark.parametrize("name", CONFIGS)
def test_full_recompute_needs_a_tenth_of_the_activations(name: str):
    """Figure 7: about 10% of the tensor-parallel baseline; section 6.1: the two techniques need about 2x of it."""
    full = paper_memory(name, recompute="full").stages[0].activations_bytes
    assert full / paper_memory(name).stages[0].activations_bytes == pytest.approx(0.10, abs=0.03)


@pytest.mark.parametrize(("name", "factor"), [("175B", 1 + 7 / 24), ("530B", 1 + 34 / 105)])
def test_interleaving_multiplies_first_stage_activations_by_its_factor(name: str, factor: float):
    """Section 4.2.3: `L (1 + (p-1)/(pm))` layers in flight on the first stage; equation 5."""
    model, degrees = CONFIGS[name]
    plan = paper_plan(name, sequence_parallel=True, recompute="selective")
    s, h, t = 2048, model.hidden, 8
    layers = 34 * s * h / t * model.n_layers * factor
    in_flight = degrees["pp"] * factor
    embedding = (s * h / t + 8 * s) * in_flight  # dropout mask (section 4.3) and token ids
    found = memory(model, cluster(plan.n_devices), plan).stages[0].activations_bytes
    assert found == pytest.approx(layers + embedding, rel=1e-9)


def test_loss_adds_the_published_term_on_the_last_stage():
    """Section 4.3: `4 sbh/t (1 + v/h)` for final norm, output layer and fp32 logits."""
    model, _ = CONFIGS["22B"]
    plan = paper_plan("22B", sequence_parallel=True)
    s, b, h, t, v = 2048, 4, 6144, 8, 51200
    layers = model.n_layers * closed_form(model, plan)
    embedding = s * b * h / t + 8 * s * b
    loss = 4 * s * b * h / t * (1 + v / h)
    assert paper_memory("22B", sequence_parallel=True).worst.activations_bytes == pytest.approx(
        layers + embedding + loss, rel=1e-9
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_figure_1_baselines_exceed_80_gb_and_present_work_fits(name: str):
    """Figure 1: no tensor-parallel baseline of table 3 fits an 80 GB A100; every one fits with both techniques."""
    assert not paper_memory(name).fits
    assert paper_memory(name, sequence_parallel=True, recompute="selective").fits
    assert paper_memory(name, recompute="full").fits


@pytest.mark.parametrize(("stage", "published_gb"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_reproduces_figure_1_of_its_paper(stage: int, published_gb: float):
    """arXiv 1910.02054, figure 1: 7.5 B parameters, 64 GPUs, 16 bytes per parameter, GB = 1e9."""
    model = TransformerSpec("7.5B", 36, 4096, 32, 16384, 51200)
    plan = ParallelPlan(1, 64, 1024, dp=64, zero_stage=stage)
    states = memory(model, cluster(64), plan, MemoryOptions(grad_bytes=2.0)).worst.states_bytes
    assert states * 7.5e9 / model.n_params() / 1e9 == pytest.approx(published_gb, rel=0.015)


@pytest.mark.parametrize(("stage", "bytes_per_parameter"), [(0, 18.0), (1, 6.0 + 12.0 / 16)])
def test_states_follow_the_table_of_megatrons_distributed_optimizer(stage: int, bytes_per_parameter: float):
    """Megatron-LM, dist_optimizer.md: bf16 parameters with fp32 gradients take 18, or 6 + 12/d bytes."""
    model = CONFIGS["22B"][0]
    plan = ParallelPlan(1, 16, 2048, dp=16, zero_stage=stage)
    states = memory(model, cluster(16), plan).worst.states_bytes
    assert states / model.n_params() == pytest.approx(bytes_per_parameter, rel=1e-9)


def test_fully_sharded_states_take_16_bytes_over_the_group():
    model = CONFIGS["22B"][0]
    fsdp = memory(model, cluster(64), ParallelPlan(1, 64, 2048, dp=64, sharding="fsdp")).worst.states_bytes
    hsdp = memory(model, cluster(64), ParallelPlan(1, 64, 2048, dp=64, sharding="hsdp", dp_shard=8)).worst.states_bytes
    assert fsdp == pytest.approx(16 * model.n_params() / 64)
    assert hsdp == pytest.approx(16 * model.n_params() / 8)


def test_expert_parallelism_divides_the_experts_only():
    moe = MoESpec(n_experts=8, top_k=2, ffn_hidden=14336)
    model = TransformerSpec("moe", 32, 4096, 32, 14336, 32000, n_kv_heads=8, gated=True, norm="rms", position="rope",
                            bias=False, tied_embeddings=False, moe=moe)  # fmt: skip
    one = memory(model, cluster(8), ParallelPlan(1, 8, 4096, dp=8)).worst.parameters_bytes
    eight = memory(model, cluster(8), ParallelPlan(1, 8, 4096, dp=8, ep=8)).worst.parameters_bytes
    experts = 32 * 8 * 3 * 4096 * 14336
    assert one == pytest.approx(2 * model.n_params())
    assert one - eight == pytest.approx(2 * experts * 7 / 8)


def test_grouped_queries_save_fewer_keys_and_values():
    model = TransformerSpec("gqa", 32, 4096, 32, 14336, 32000, n_kv_heads=8, gated=True, norm="rms", position="rope")
    full = replace(model, n_kv_heads=32)
    plan = ParallelPlan(1, 1, 4096)
    saved = total_bytes(layer_saved_tensors(full, plan)) - total_bytes(layer_saved_tensors(model, plan))
    assert saved == 2 * 2 * 4096 * (32 - 8) * 128


def test_unfused_gate_saves_one_more_tensor():
    model = TransformerSpec("gated", 2, 4096, 32, 14336, 32000, gated=True, norm="rms", position="rope")
    plan = ParallelPlan(1, 1, 4096)
    fused = total_bytes(layer_saved_tensors(model, plan))
    unfused = total_bytes(layer_saved_tensors(model, plan, options=replace(MEGATRON, fused_gate=False)))
    assert unfused - fused == 2 * 4096 * 14336


def test_worst_stage_is_reported_with_negative_headroom_when_it_does_not_fit():
    found = paper_memory("1T")
    assert found.stage == 0
    assert found.total_bytes == max(stage.total_bytes for stage in found.stages)
    assert found.headroom_bytes == found.capacity_bytes - found.total_bytes < 0
    assert found.as_dict()["total"] == pytest.approx(
        sum(value for key, value in found.as_dict().items() if key not in ("total", "capacity", "headroom"))
    )


def test_uneven_layers_leave_the_ends_short():
    """Llama 3 405B: 126 layers in 128 chunks, none on the first and the last one."""
    plan = ParallelPlan(1, 16, 8192, pp=16, virtual_stages=8, schedule="interleaved")
    sizes = [len(layers) for layers in layers_of_chunks(126, plan)]
    assert sizes == [0] + [1] * 126 + [0]


def test_both_ends_of_dualpipe_live_on_the_first_stage():
    plan = ParallelPlan(1, 16, 8192, pp=4, schedule="dualpipe")
    assert [chunks_of_stage(plan, stage) for stage in range(4)] == [(0, 3), (1, 2), (1, 2), (0, 3)]


EXPERTS = replace(gpt("experts", 8, 512, 8), gated=True, norm="rms", position="rope", moe=MoESpec(8, 2, 1024))


@pytest.mark.parametrize(("schedule", "is_copied"), [("1f1b", True), ("dualpipe", False)])
@pytest.mark.parametrize("is_tied", [False, True])
def test_modules_that_predict_more_tokens_read_an_embedding_on_their_own_stage(
    schedule: str, is_copied: bool, is_tied: bool
):
    """DualPipe's first and last device hold it already (arXiv 2412.19437, section 3.2.3), as does a head that is tied to it."""
    plain = replace(EXPERTS, name="x", tied_embeddings=is_tied)
    plan = ParallelPlan(micro_batch=1, global_batch=8, seq_len=512, pp=4, schedule=schedule)

    def stages(model: TransformerSpec) -> np.ndarray:
        return held_weights(model, plan).count.sum(axis=1)

    more = stages(replace(plain, n_mtp=1)) - stages(plain)
    embedding = plain.vocab * plain.hidden
    own = params.mtp_params(replace(plain, n_mtp=1))
    ends = [own] if is_copied else [own, own]
    assert more[-1] == own + embedding * (is_copied and not is_tied)
    assert sorted(more[more > 0.0]) == sorted([*ends[1:], more[-1]])


@pytest.mark.parametrize("changes", [{}, {"recompute": "full"}, {"offload_activations": 1.0}])
def test_a_stage_holds_for_a_moment_what_its_own_blocks_need(changes: dict[str, Any]):
    """A wide dense layer of the first stage is nothing to the second."""
    plan = ParallelPlan(micro_batch=1, global_batch=8, seq_len=512, pp=2, **changes)
    assert EXPERTS.moe is not None
    first_dense = replace(EXPERTS, moe=replace(EXPERTS.moe, n_dense_first=1), vocab=512)
    wide = replace(first_dense, ffn_hidden=64 * first_dense.ffn_hidden)
    usual, wider = (memory(model, cluster(2), plan).stages for model in (first_dense, wide))
    assert wider[0].temporary_bytes > 2 * usual[0].temporary_bytes
    assert wider[1].temporary_bytes == usual[1].temporary_bytes


def test_only_streams_of_library_calls_have_workspaces_for_experts():
    plan = ParallelPlan(micro_batch=1, global_batch=8, seq_len=512)
    found = {
        kind: memory(EXPERTS, cluster(8), replace(plan, software=Software(expert_products=kind))).worst.workspace_bytes
        for kind in (None, STREAMS, GROUPED, APART)
    }
    own = MEGATRON.workspace_bytes
    assert found == {None: found[STREAMS], STREAMS: own + MEGATRON.expert_workspace_bytes, GROUPED: own, APART: own}


def test_a_layer_split_that_misses_layers_is_refused():
    with pytest.raises(PlanError, match="adds up to 47 layers, but the model has 48"):
        layers_of_chunks(48, ParallelPlan(1, 8, 2048, pp=2, layer_split=(24, 23)))
    with pytest.raises(PlanError, match=r"pp \* virtual_stages = 2"):
        layers_of_chunks(48, ParallelPlan(1, 8, 2048, pp=2, layer_split=(16, 16, 16)))


powers = st.sampled_from([1, 2, 4])
plans = st.builds(
    lambda tp, pp, dp, size, **more: ParallelPlan(size, size * dp * 16, 2048, tp=tp, pp=pp, dp=dp, **more),
    powers, powers, powers, powers, zero_stage=st.integers(0, 2), sequence_parallel=st.booleans(),
    recompute=st.sampled_from(["none", "selective", "full"]),
)  # fmt: skip
LLAMA = TransformerSpec("llama", 32, 4096, 32, 11008, 32000, gated=True, norm="rms", position="rope", bias=False,
                        tied_embeddings=False)  # fmt: skip
NO_COMMUNICATORS = MemoryOptions(nccl_bytes=0.0)


def total(plan: ParallelPlan) -> float:
    """Without communicators: a further group does add one."""
    return memory(LLAMA, cluster(plan.n_devices), plan, NO_COMMUNICATORS).total_bytes


@PROPERTY
@given(plans)
def test_more_of_an_axis_or_a_higher_stage_never_needs_more_and_a_larger_micro_batch_never_less(plan: ParallelPlan):
    held = total(plan)
    assert total(replace(plan, tp=2 * plan.tp)) <= held
    assert total(replace(plan, pp=2 * plan.pp)) <= held
    assert total(replace(plan, zero_stage=plan.zero_stage + 1)) <= held
    assert total(replace(plan, micro_batch=2 * plan.micro_batch, global_batch=2 * plan.global_batch)) >= held


# --- Formats of states -----------------------------------------------------------------------------------------------


LLAMA_3 = catalog_model("llama-3-8b")
PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=4096, dp=8, zero_stage=1)
LOW = StateDtypes(grad_reduce="bf16", main_grads="bf16", main_params="fp16", exp_avg="bf16", exp_avg_sq="fp8")


def plan_with(**dtypes: Any) -> ParallelPlan:
    return replace(PLAN, state_dtypes=StateDtypes(**dtypes))


def factors(plan: ParallelPlan) -> StateFactors:
    return state_factors(LLAMA_3, plan, MEGATRON)


def seconds(plan: ParallelPlan) -> Any:
    eff = replace(efficiency("hopper"), host_launch_s=0.0)
    return step_cost(LLAMA_3, catalog.cluster("dgx-h100", plan.n_devices), plan, eff)


@pytest.mark.parametrize(
    ("dtypes", "kept", "sharded"),
    [
        ({}, 6.0, 12.0),
        ({"grad_reduce": "bf16"}, 4.0, 16.0),
        ({"grad_reduce": "bf16", "main_grads": "bf16"}, 4.0, 12.0),
        ({"grad_reduce": "bf16", "main_grads": "bf16", "exp_avg": "bf16", "exp_avg_sq": "bf16"}, 4.0, 8.0),
        ({"main_params": "fp32_remainder"}, 6.0, 10.0),
    ],
)
def test_an_update_holds_what_megatrons_table_says(dtypes: dict[str, Any], kept: float, sharded: float):
    """Rows "bf16 parameters, fp32 gradients" (6 + 12/d) and 16-bit gradients (4 + 16/d) of dist_optimizer.md."""
    own = factors(plan_with(**dtypes))
    assert own.parameters + own.gradients == pytest.approx(kept)
    assert own.optimizer + own.update == pytest.approx(sharded / PLAN.dp)


def test_the_copy_for_the_update_comes_when_activations_are_gone():
    short = replace(plan_with(grad_reduce="bf16"), seq_len=64, dp=1, global_batch=2)
    long = replace(short, seq_len=8192)
    cluster = catalog.cluster("dgx-h100", 1)
    n = LLAMA_3.n_params()
    worst, busy = memory(LLAMA_3, cluster, short).worst, memory(LLAMA_3, cluster, long).worst
    assert worst.temporary_bytes + worst.activations_bytes == pytest.approx(4.0 * n, rel=1e-12)
    in_fp32 = memory(LLAMA_3, cluster, replace(long, state_dtypes=StateDtypes())).worst
    assert busy.activations_bytes > 4.0 * n
    assert busy.temporary_bytes == in_fp32.temporary_bytes


def test_sharded_parameters_have_the_format_of_the_master_copy():
    fsdp = replace(PLAN, sharding="fsdp", zero_stage=0)
    in_16_bits = replace(fsdp, state_dtypes=StateDtypes(main_params="bf16"))
    for plan, each in ((fsdp, 4.0), (in_16_bits, 2.0)):
        own = factors(plan)
        assert own.parameters == own.gradients == pytest.approx(each / PLAN.dp)
        assert own.optimizer == pytest.approx(2.0 * each / PLAN.dp)  # moments as the parameters
        assert not own.update.any()


def test_fp8_keeps_a_copy_of_the_weights_unless_they_are_in_fp8():
    matrices = LLAMA_3.n_params() - LLAMA_3.embedding_params() - LLAMA_3.head_params() - LLAMA_3.final_norm_params()
    copied, own = (replace(plan_with(fp8_params=fp8), dtype="fp8") for fp8 in (False, True))
    bf16, with_copy, without = (
        memory(LLAMA_3, catalog.cluster("dgx-h100", 8), plan).worst.parameters_bytes for plan in (PLAN, copied, own)
    )
    assert with_copy - bf16 == pytest.approx(2.0 * matrices)
    assert without == bf16


def test_half_the_bytes_take_half_the_time_where_bandwidth_decides():
    few = replace(PLAN, overlap=replace(PLAN.overlap, dp=False))
    wide, narrow = seconds(few), seconds(replace(few, state_dtypes=StateDtypes(grad_reduce="bf16")))
    ratio = narrow.end_comm_s / wide.end_comm_s  # reduction 4 + gathering 2 bytes against 2 + 2
    assert ratio == pytest.approx(2 / 3, abs=0.01)
    in_fp8 = replace(few, dtype="fp8", state_dtypes=StateDtypes(grad_reduce="bf16", fp8_params=True))
    assert (seconds(in_fp8).end_comm_s < 0.85 * narrow.end_comm_s).all()


def test_fsdp_gathers_layers_in_fp8_and_reduces_as_told():
    fsdp = replace(PLAN, sharding="fsdp", zero_stage=0, dtype="fp8", overlap=replace(PLAN.overlap, dp=False))
    assert gradient_bytes(fsdp) == 2.0
    assert gradient_bytes(replace(fsdp, state_dtypes=StateDtypes(grad_reduce="fp32"))) == 4.0
    in_fp8 = replace(fsdp, state_dtypes=StateDtypes(fp8_params=True))
    wide, narrow = (seconds(plan).comm_s[0, 0, -1] for plan in (fsdp, in_fp8))
    root = LLAMA_3.embedding_params() + LLAMA_3.head_params()
    share = (LLAMA_3.n_params() - root) / LLAMA_3.n_params()
    assert narrow / wide == pytest.approx(1.0 - share / 2.0, abs=0.03)  # and latency, which stays


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ({}, 38.0),
        ({"grad_reduce": "bf16"}, 2 + 4 + 2 * 4 + 2 + 24 + 2),
        ({"grad_reduce": "bf16", "main_grads": "bf16"}, 2 * 2 + 2 + 24 + 2),
        ({"exp_avg": "bf16", "exp_avg_sq": "fp8"}, 38 - 2 * (2 + 3)),
    ],
)
def test_the_optimizer_moves_the_bytes_it_reads_and_writes(dtypes: dict[str, Any], expected: float):
    assert optimizer_bytes(plan_with(**dtypes)) == expected


def test_weight_gradients_are_added_to_a_narrower_sum_faster():
    assert (seconds(plan_with(grad_reduce="bf16")).compute_s <= seconds(PLAN).compute_s).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"state_dtypes": LOW},
        {"optimizer": "muon", "offload_optimizer": 0.5, "offload_activations": 0.5},
        {"zero_stage": 3, "offload_parameters": True, "offload_optimizer": True, "optimizer": "lion"},
        {"optimizer": "paged_adamw_8bit", "state_dtypes": StateDtypes(main_params="none"), "zero_stage": 2},
    ],
)
def test_a_search_uses_the_same_memory(changes: dict[str, Any]):
    kind = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 3}
    plan = replace(PLAN, **kind, **changes, tp=2, dp=4)
    job = Job(LLAMA_3, catalog.cluster("dgx-h100", 8), plan, preset("none"), framework="megatron-core")
    few: dict[str, Any] = {"tp": (1, 2), "pp": (1, 2), "cp": (1,), "micro_batch": (1,)}
    usual = default_space(job, any_framework=True)
    space = replace(usual, **few, schedule=("1f1b",), virtual_stages=(1,))
    evaluator = Evaluator(job, space)
    tables = [evaluator.block(index) for index in range(len(evaluator.layouts))]
    some = [(table, row) for table in tables for row in range(0, len(table), 17)]
    kinds = set()
    for table, row in some:
        one = table.take(np.array([row]))
        own = replace(job, plan=table.plan(row))
        kinds.add(own.plan.recompute)
        if not list(problems(own.plan, job.model, job.cluster)):
            assert peak_memory(one, evaluator.costs)[0] == pytest.approx(own.memory.total_bytes, rel=1e-12)
    assert kinds >= {"none", "full"}


def test_other_kinds_of_recomputation_do_not_inherit_options():
    plan = replace(PLAN, recompute="full", recompute_method="block", recompute_num_layers=3)
    table = PlanTable.of(plan)
    assert table.plan(0) == plan
    none = replace(table, recompute=np.array([0])).plan(0)
    assert (none.recompute, none.recompute_method, none.recompute_num_layers) == ("none", "uniform", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_dtypes": StateDtypes(grad_reduce="int8")}, "state_dtypes.grad_reduce = 'int8' is unknown"),
        ({"state_dtypes": StateDtypes(fp8_params=True)}, "It goes with dtype=fp8"),
        ({"recompute_modules": ("mlp",)}, "recompute_modules = is given, but recompute = none"),
        ({"recompute": "full", "recompute_method": "block"}, "recompute_num_layers is missing"),
        ({"recompute": "selective_layer"}, "recompute_num_layers is missing"),
        ({"recompute": "selective", "recompute_modules": ("mlps",)}, "'mlps' is unknown"),
        ({"recompute": "selective", "recompute_modules": ()}, "is empty"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        check_plan(replace(PLAN, **changes), LLAMA_3, catalog.cluster("dgx-h100", 8))

"""Formats of gradients, parameters and optimizer state: their bytes, and the time of what moves them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.core.errors import PlanError
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import StateFactors, memory, state_factors
from prism_jax.cost.partition import gradient_bytes
from prism_jax.cost.step import step_cost
from prism_jax.cost.step_end import optimizer_bytes
from prism_jax.framework.base import MEGATRON
from prism_jax.job.job import Job
from prism_jax.job.rules import check_plan, problems
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.plan_costs import peak_memory
from prism_jax.search.plan_table import PlanTable
from prism_jax.search.space import default_space
from prism_jax.system import catalog
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model as catalog_model

LLAMA = catalog_model("llama-3-8b")
PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=4096, dp=8, zero_stage=1)
LOW = StateDtypes(grad_reduce="bf16", main_grads="bf16", main_params="fp16", exp_avg="bf16", exp_avg_sq="fp8")


def plan_with(**dtypes: Any) -> ParallelPlan:
    return replace(PLAN, state_dtypes=StateDtypes(**dtypes))


def factors(plan: ParallelPlan) -> StateFactors:
    return state_factors(LLAMA, plan, MEGATRON)


def seconds(plan: ParallelPlan) -> Any:
    eff = replace(efficiency("hopper"), host_launch_s=0.0)
    return step_cost(LLAMA, catalog.cluster("dgx-h100", plan.n_devices), plan, eff)


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
    n = LLAMA.n_params()
    worst, busy = memory(LLAMA, cluster, short).worst, memory(LLAMA, cluster, long).worst
    assert worst.temporary_bytes + worst.activations_bytes == pytest.approx(4.0 * n, rel=1e-12)
    in_fp32 = memory(LLAMA, cluster, replace(long, state_dtypes=StateDtypes())).worst
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
    matrices = LLAMA.n_params() - LLAMA.embedding_params() - LLAMA.head_params() - LLAMA.final_norm_params()
    copied, own = (replace(plan_with(fp8_params=fp8), dtype="fp8") for fp8 in (False, True))
    bf16, with_copy, without = (
        memory(LLAMA, catalog.cluster("dgx-h100", 8), plan).worst.parameters_bytes for plan in (PLAN, copied, own)
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
    root = LLAMA.embedding_params() + LLAMA.head_params()
    share = (LLAMA.n_params() - root) / LLAMA.n_params()
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
    job = Job(LLAMA, catalog.cluster("dgx-h100", 8), plan, preset("none"), framework="megatron-core")
    space = replace(
        default_space(job, any_framework=True),
        tp=(1, 2),
        pp=(1, 2),
        cp=(1,),
        micro_batch=(1,),
        schedule=("1f1b",),
        virtual_stages=(1,),
    )
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
        check_plan(replace(PLAN, **changes), LLAMA, catalog.cluster("dgx-h100", 8))

"""Seconds of blocks, of sharded parameters, of what is offloaded, and of lanes that share a GPU."""

from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from experiments.capture.overlap.run import MOST_ROUNDS, TOLERANCE, iterated, pair_s, random_tasks
from experiments.capture.spec.run import captured, stated
from prism_jax import load_job
from prism_jax.calibration.surrogate import PROBES, outline_of
from prism_jax.core.errors import SpecError
from prism_jax.cost import lanes as block_lanes
from prism_jax.cost.block_cost import BlockCost, BlockCostModel
from prism_jax.cost.chunk_cost import behind, bucketed, cut_up, prefetched
from prism_jax.cost.efficiency import CostCorrection, efficiency
from prism_jax.cost.lanes import LaneTask, Overlapping, lane_times, laned_seconds
from prism_jax.cost.memory import memory
from prism_jax.cost.offload import host_memory, host_update_s, link_bytes_per_s, paging_s
from prism_jax.cost.partition import Gathered, copy_kernels
from prism_jax.cost.step import step_cost, step_cost_of
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.kernels import Kernel
from prism_jax.workload.base.workload import Comm, LanedRow, distinct_runs, kinds_of
from prism_jax.workload.catalog import model

PLANS = {
    "llama-2-7b": ParallelPlan(1, 32, 4096, tp=2, dp=16, sharding="fsdp", dtype="fp8"),
    "mixtral-8x7b": ParallelPlan(1, 32, 4096, tp=2, pp=2, dp=8, ep=8, zero_stage=1),
}
CORRECTIONS = (
    *PROBES,
    CostCorrection(gemm=1.1, attention=0.9, memory=1.3, fp8=0.8, expert=1.7, scale_up=1.2, network=2.0),
    CostCorrection(scale_up_call_s=1e-5, network_call_s=3e-5, host=2.0, overlap_window=0.5),
)


@pytest.mark.parametrize("name", PLANS)
def test_blocks_under_another_correction_are_those_made_from_scratch(name: str) -> None:
    spec, plan, eff = model(name), PLANS[name], efficiency("hopper")
    first = BlockCostModel(spec, cluster("dgx-h100", plan.n_devices), plan, eff)
    for correction in CORRECTIONS:
        anew = replace(first, eff=replace(eff, correction=correction))
        for kind in kinds_of(spec):
            shared, alone = first.under(correction).whole(kind), anew.whole(kind)
            for item in fields(BlockCost):
                assert np.array_equal(getattr(shared, item.name), getattr(alone, item.name)), (kind, item.name)


OTHERWISE = (
    {"attention": "eager"},
    {"norm": "eager", "compile": True},
    {"optimizer": "eager"},
    {"tuning": "vendor"},
    {"cuda_graphs": "layers"},
    {"dispatcher": "deepep"},
)


@pytest.mark.parametrize("name", [*PLANS, "muon"])
def test_steps_of_plans_like_one_that_was_costed_are_those_made_from_scratch(name: str) -> None:
    """Blocks, edges, ends and FLOPs, whatever the two share: software, precision, sharding."""
    spec, plan = model("llama-2-7b"), replace(PLANS["llama-2-7b"], sharding="none", optimizer="muon", zero_stage=1)
    if name in PLANS:
        spec, plan = model(name), PLANS[name]
    eff, machine = efficiency("hopper"), cluster("dgx-h100", plan.n_devices)
    first = BlockCostModel(spec, machine, plan, eff)
    step_cost_of(first)
    outline_of(first)
    others = [replace(plan, software=replace(plan.software, **fields_of)) for fields_of in OTHERWISE]
    others += [replace(plan, dtype="bf16"), replace(plan, micro_batch=2), replace(plan, recompute="full")]
    for other in others:
        for correction in (eff.correction, CORRECTIONS[-2]):
            shared = first.with_plan(other).under(correction)
            anew = BlockCostModel(spec, machine, other, replace(eff, correction=correction))
            pairs = [(step_cost_of(one), outline_of(one)) for one in (shared, anew)]
            for one, its_own in zip(*pairs, strict=True):
                for item in fields(its_own):
                    assert np.array_equal(getattr(one, item.name), getattr(its_own, item.name)), (other, item.name)


# --- Copies around the collectives of sharded parameters, as FSDP2 makes them; see `cost.sharded.copy_kernels` -------


PLAN = ParallelPlan(1, 8, dp=8, sharding="fsdp", shard_copies=True)
COUNT = 1000.0


def moved(plan: ParallelPlan, count: Gathered) -> dict[str, float]:
    """Bytes by name and pass."""
    found: dict[str, float] = defaultdict(float)
    for kernel in copy_kernels(plan, [count]):
        found[f"{kernel.name} {kernel.phase}"] += kernel.hbm_bytes
    return dict(found)


def test_parameters_are_copied_in_in_parts_and_out_as_a_whole_and_gradients_in():
    both = {f"gather_copy_in {phase}": 2 * 2 * COUNT / 8 for phase in "FB"}
    both |= {f"gather_copy_out {phase}": 2 * 2 * COUNT for phase in "FB"}
    assert moved(PLAN, Gathered(COUNT, 1)) == both | {"scatter_copy_in B": (2 + 2) * COUNT}
    assert moved(PLAN, Gathered(COUNT, 1, frozen_bytes=2.0)) == both


def test_gradients_are_written_in_the_format_that_they_are_added_in():
    wide = replace(PLAN, state_dtypes=StateDtypes(grad_reduce="fp32"))
    assert moved(wide, Gathered(COUNT, 1))["scatter_copy_in B"] == (2 + 4) * COUNT


@pytest.mark.parametrize("plan", [replace(PLAN, shard_copies=None), replace(PLAN, sharding="none")])
def test_nothing_is_copied_unless_a_plan_says_so_and_shards(plan: ParallelPlan):
    assert moved(plan, Gathered(COUNT, 1)) == {}
    assert moved(PLAN, Gathered(COUNT, 8)) == {}  # divided by the workload itself


def test_steps_grow_by_the_copies_alone():
    job = stated(load_job("llama2_7b_fsdp_64"))
    copying = replace(job, plan=replace(job.plan, shard_copies=True))
    before, after = (step_cost(one.model, one.cluster, one.plan, one.efficiency) for one in (job, copying))
    assert 0.02 < after.compute_s.sum() / before.compute_s.sum() - 1.0 < 0.15
    assert (after.end_compute_s == before.end_compute_s).all()


def test_a_job_that_copies_is_written_down_with_its_copies():
    job = stated(load_job("llama2_7b_fsdp_64"))
    job = replace(job, plan=replace(job.plan, shard_copies=True))
    own = captured(job)
    before, after = (step_cost(one.model, one.cluster, one.plan, job.efficiency) for one in (job, own))
    assert after.compute_s.sum() == pytest.approx(before.compute_s.sum(), rel=0.03)


# --- An optimizer on the host: closed forms of its time, and the memory that it frees --------------------------------


MODEL = model("llama-2-7b")
OFFLOAD_PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=2048, dp=8, zero_stage=2)
NODE = cluster("dgx-a100", 8)


ALL_CORES = replace(OFFLOAD_PLAN, offload_optimizer=True, offload_gradients=True, host_threads=0)


def test_the_published_time_of_ten_billion_parameters_on_one_node() -> None:
    """ZeRO-Offload, table 4: 2.57 s on a DGX-2, without parameters that come up; a node's devices share its memory."""
    up_s = 2.0 * 10e9 / link_bytes_per_s(cluster("dgx-v100", 1))
    assert host_update_s(cluster("dgx-v100", 1), ALL_CORES, 10e9) - up_s == pytest.approx(2.57, rel=0.1)
    eight = host_update_s(cluster("dgx-v100", 8), ALL_CORES, 10e9 / 8) - up_s / 8
    assert eight == pytest.approx(2.57, rel=0.1)


def test_nodes_update_their_shares_side_by_side() -> None:
    one, four = (host_update_s(cluster("dgx-a100", n), ALL_CORES, 8e9 / n) for n in (8, 32))
    assert four == pytest.approx(one / 4)


def test_a_step_waits_for_the_host_and_holds_no_states() -> None:
    offloaded = replace(OFFLOAD_PLAN, offload_optimizer=True)
    eff = efficiency("ampere")
    end, own = (float(step_cost(MODEL, NODE, plan, eff).end_compute_s[0]) for plan in (offloaded, OFFLOAD_PLAN))
    expected = host_update_s(NODE, offloaded, MODEL.n_params() / 8)
    assert end == pytest.approx(expected, rel=0.05)
    assert end > 10 * own
    freed = memory(MODEL, NODE, OFFLOAD_PLAN).worst.optimizer_bytes
    assert freed > 8e9
    assert memory(MODEL, NODE, offloaded).worst.optimizer_bytes == 0.0


def test_one_thread_is_as_slow_as_measured() -> None:
    """.926 s more per step of Qwen3-0.6B with Megatron's hybrid optimizer on one H100, half of it at half the share."""
    one, small = cluster("dgx-h100", 1), model("qwen3-0.6b")
    plan = ParallelPlan(micro_batch=4, global_batch=8, seq_len=4096, zero_stage=1, host_threads=1)
    eff = efficiency("hopper")
    ends = [
        float(step_cost(small, one, replace(plan, offload_optimizer=share), eff).end_compute_s[0])
        for share in (0, 0.5, 1)
    ]
    assert ends[2] - ends[0] == pytest.approx(0.926, rel=0.1)
    assert ends[1] - ends[0] == pytest.approx(0.45, rel=0.1)


def test_states_on_the_host_take_what_deepspeed_says() -> None:
    """16 bytes per parameter of the optimizer and its gradients, 18 with the parameters; two nodes share them."""
    big, four = model("llama-3-70b"), model("llama-3-405b")
    plan = replace(ALL_CORES, zero_stage=3, seq_len=4096, recompute="full")
    n = big.n_params()
    for changes, each in (({}, 16.0), ({"offload_parameters": True}, 18.0), ({"offload_optimizer": 0.5}, 8.0)):
        found = host_memory(big, cluster("dgx-h100", 8), replace(plan, **changes))
        assert found is not None
        assert found.fits
        assert found.total_bytes - found.rounding_bytes == pytest.approx(each * n, rel=0.01)
    found = host_memory(four, cluster("h200", 16), replace(plan, dp=16))
    assert found is not None
    assert not found.fits
    assert found.total_bytes - found.rounding_bytes == pytest.approx(8.0 * four.n_params(), rel=0.01)
    assert host_memory(big, cluster("dgx-h100", 8), replace(plan, offload_optimizer=0)) is None


def test_what_is_on_the_host_is_not_on_the_device() -> None:
    plan = replace(ALL_CORES, zero_stage=3, recompute="full")
    home = memory(MODEL, NODE, replace(plan, offload_optimizer=0, offload_gradients=False)).worst
    own = memory(MODEL, NODE, replace(plan, offload_parameters=True, offload_activations=True)).worst
    assert own.parameters_bytes == own.optimizer_bytes == own.activations_bytes == 0.0
    assert own.gradients_bytes < 0.1 * home.gradients_bytes
    assert own.communication_bytes == pytest.approx(home.communication_bytes)  # what is gathered for a layer stays


def test_fsdp_moves_parameters_gradients_and_optimizer_together() -> None:
    plan = replace(OFFLOAD_PLAN, zero_stage=0, sharding="fsdp", offload_parameters=True)
    own, found = memory(MODEL, NODE, plan).worst, host_memory(MODEL, NODE, plan)
    assert own.parameters_bytes == own.optimizer_bytes == 0.0
    assert found is not None
    assert found.total_bytes - found.rounding_bytes == pytest.approx(16.0 * MODEL.n_params(), rel=0.01)


def test_33_billion_parameters_do_not_fit_into_600_gb() -> None:
    """They took 750 to 800 GB with optimizer and parameters of ZeRO-3 on the host of eight A100 (DeepSpeed 3448)."""
    llama = replace(
        model("llama-2-70b"), name="llama-30b", n_layers=60, hidden=6656, n_heads=52, n_kv_heads=52, ffn_hidden=17920
    )
    assert llama.n_params() == pytest.approx(32.5e9, rel=0.01)
    node = replace(cluster("dgx-a100-40gb", 8), host_bytes=600e9)
    plan = replace(ALL_CORES, zero_stage=3, recompute="full", offload_parameters=True)
    found = host_memory(llama, node, plan)
    assert found is not None
    assert not found.fits
    assert found.total_bytes == pytest.approx(775e9, rel=0.15)
    assert found.rounding_bytes == pytest.approx(0.44 * 10 * llama.n_params(), rel=0.01)


@pytest.mark.parametrize("field", ["offload_parameters", "offload_activations"])
def test_copies_over_the_link_take_time_that_compute_hides(field: str) -> None:
    """A copy of all parameters, or activations, per pass bounds the passes from below, where it is longer than they are."""
    plan = replace(OFFLOAD_PLAN, zero_stage=3, recompute="none", **{field: True})
    slow = step_cost(MODEL, NODE, plan, efficiency("ampere"))
    fast = step_cost(MODEL, NODE, replace(plan, **{field: False}), efficiency("ampere"))
    for phase in (0, 1):
        total = [cost.compute_s[phase].sum() + cost.comm_s[phase].sum() for cost in (slow, fast)]
        assert total[0] > total[1]


def test_pages_cost_nothing_where_they_have_room() -> None:
    """8B parameters on 80 GB: 64 GB of fp32 moments beside 32 GB do not fit, those in 8 bits do (torchtune 990)."""
    one, pure = cluster("dgx-a100", 1), StateDtypes(main_params="none")
    plan = ParallelPlan(
        micro_batch=1, global_batch=1, seq_len=2048, state_dtypes=replace(pure, exp_avg="fp32", exp_avg_sq="fp32")
    )
    n = 8.03e9
    assert paging_s(one, replace(plan, optimizer="paged_adamw"), n) == pytest.approx(2 * 8 * n / link_bytes_per_s(one))
    assert paging_s(one, replace(plan, optimizer="paged_adamw_8bit"), n) == 0.0
    assert paging_s(one, replace(plan, optimizer="adamw"), n) == 0.0


@pytest.mark.parametrize(("zero_stage", "n_sharing"), [(0, 1), (1, 4)])
def test_whole_experts_below_tp_share_states_on_the_host_only_where_they_are_sharded(
    zero_stage: int, n_sharing: int
) -> None:
    """Each of eight devices holds half of the experts; four hold the same half, and share its states out under ZeRO."""
    qwen = model("qwen3-30b-a3b")
    plan = replace(OFFLOAD_PLAN, tp=8, ep=2, dp=1, zero_stage=zero_stage, offload_optimizer=True)
    found = host_memory(qwen, cluster("dgx-h100", 8), plan)
    assert found is not None
    counts = [own for run in distinct_runs(qwen) for own in run.count * [*qwen.block(run.kind, plan).parameters]]
    experts = sum(own.count for own in counts if own.group == "expert")
    others = sum(own.count for own in counts if own.group != "expert")
    assert found.gradients_bytes == pytest.approx(8 * 4.0 * (experts / n_sharing + others), rel=1e-6)


# --- Lanes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slows", [0.0, 0.19, 1.0])
@pytest.mark.parametrize(("work_s", "comm_s"), [(1.0, 0.3), (1.0, 1.0), (0.3, 2.0), (1e-6, 5.0)])
def test_one_kernel_beside_one_collective(work_s: float, comm_s: float, slows: float):
    found = lane_times([LaneTask(work_s, 0), LaneTask(comm_s, 1, slows=slows)]).total_s
    assert found == pytest.approx(pair_s(work_s, comm_s, slows), rel=1e-12)


def test_a_collective_that_gets_a_share_of_the_time_beside_compute():
    times = lane_times([LaneTask(1.0, 0), LaneTask(1.0, 1, share=0.5)])
    assert times.total_s == pytest.approx(1.5)  # half of it beside the kernel, the rest at full rate
    assert times.idle_s[1] == pytest.approx(0.5)


def test_tasks_of_a_lane_run_one_after_another_and_wait_for_others():
    times = lane_times([LaneTask(1.0, 0), LaneTask(2.0, 1, (0,)), LaneTask(1.0, 0, (1,)), LaneTask(0.0, 0)])
    assert times.start_s == [0.0, 1.0, 3.0, 4.0]
    assert times.total_s == 4.0
    assert times.idle_s == [0.0, 2.0]


def test_random_graphs_lie_between_unslowed_and_fully_slowed_and_at_the_fixed_point():
    rng = np.random.default_rng(5)
    for _ in range(60):
        tasks = random_tasks(rng)
        found = lane_times(tasks).total_s
        slowest = 1.0 + max(task.slows for task in tasks)
        free = [replace(task, slows=0.0) for task in tasks]
        full = [replace(task, work_s=task.work_s * (slowest if task.lane == 0 else 1.0)) for task in free]
        assert lane_times(free).total_s <= found * (1 + 1e-12)
        assert found <= lane_times(full).total_s * (1 + 1e-12)
        iterated_s, rounds = iterated(tasks)
        assert rounds <= MOST_ROUNDS
        assert iterated_s == pytest.approx(found, rel=2 * TOLERANCE)


def test_scaling_all_work_scales_all_times():
    tasks = random_tasks(np.random.default_rng(2))
    scaled = [replace(task, work_s=3.0 * task.work_s) for task in tasks]
    assert lane_times(scaled).total_s == pytest.approx(3.0 * lane_times(tasks).total_s)


@pytest.mark.parametrize("after", [(0,), (1,), (-1,)])
def test_a_task_cannot_wait_for_itself_or_a_later_one(after: tuple[int, ...]):
    with pytest.raises(SpecError, match="waits for"):
        lane_times([LaneTask(1.0, 0, after)])


def test_nothing_takes_no_time():
    assert lane_times([]).total_s == 0.0


# --- What of a block's communication shows, by the order of its rows -------------------------------------------------


FREE = Overlapping(0.0, 1.0)
TP = 0  # index of the axis


@dataclass
class Rows:
    """A block of rows."""

    laned: list[LanedRow]
    repeats: list[tuple[int, int, int]] = field(default_factory=list)


def kernel(index: int, phase: str = "F", times: int = 1) -> LanedRow:
    return LanedRow(index, phase, times, kernel=Kernel("mm", phase, "gemm"))


def comm(index: int, wait: int | None = None, phase: str = "F", times: int = 1, axis: str = "tp") -> LanedRow:
    return LanedRow(index, phase, times, Comm(axis, "all_reduce", phase, 1.0, 1, 2), wait=wait)


def found(block: Any, seconds: list[float], overlapping: Overlapping = FREE):
    return laned_seconds(block, seconds, [0] * len(seconds), 3, overlapping)


def test_a_collective_that_blocks_shows_whole():
    out = found(Rows([kernel(0), comm(1), kernel(2)]), [1.0, 0.5, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.hidden_s.sum() == 0.0
    assert out.compute_s[0, 0] == pytest.approx(3.0)


def test_a_collective_hides_behind_what_runs_until_it_is_waited_for():
    out = found(Rows([kernel(0), comm(1, wait=3), kernel(2), kernel(3)]), [1.0, 2.5, 2.0, 1.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.hidden_s[0, TP] == pytest.approx(2.0)


def test_two_that_block_one_after_another_both_show_though_the_second_does_not():
    out = found(Rows([comm(0), comm(1, wait=9, axis="dp"), kernel(2)]), [1.0, 0.5, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(1.0)
    assert out.hidden_s[0].sum() == pytest.approx(0.5)


def test_a_collective_slows_the_compute_beside_it():
    out = found(Rows([kernel(0), comm(1, wait=9), kernel(2)]), [1.0, 1.0, 2.0], Overlapping(0.25, 1.0))
    assert out.compute_s[0, 0] == pytest.approx(3.0 + 0.25 / 1.25)


def test_passes_do_not_overlap():
    out = found(Rows([kernel(0), comm(1, wait=9), kernel(2, "B")]), [1.0, 1.0, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(1.0)
    assert out.compute_s[1, 0] == pytest.approx(2.0)


def test_what_is_fetched_one_run_ahead_shows_once_if_it_is_shorter_than_a_run():
    rows = [comm(0), comm(1, wait=1, times=5), kernel(2, times=5)]
    out = found(Rows(rows, [(1, 3, 5)]), [0.5, 0.5, 1.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.compute_s[0, 0] == pytest.approx(5.0)


@pytest.mark.parametrize("seconds", [[0.3, 1.0, 0.4], [1.7, 1.0, 0.4]])
def test_a_few_runs_stand_for_many(seconds: list[float], monkeypatch: pytest.MonkeyPatch):
    rows = [comm(0, wait=0, times=200), kernel(1, times=200), comm(2, times=200, axis="dp")]
    block = Rows(rows, [(0, 3, 200)])
    whole = found(block, seconds, Overlapping(0.2, 1.0))
    monkeypatch.setattr(block_lanes, "MOST_TASKS", 50)
    few = found(block, seconds, Overlapping(0.2, 1.0))
    for name in ("compute_s", "exposed_s", "hidden_s"):
        np.testing.assert_allclose(getattr(few, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


# --- Exposure: nothing is lost between what shows and what hides -----------------------------------------------------


SECONDS = st.floats(0.0, 10.0)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(SECONDS, SECONDS, st.integers(1, 64))
def test_exposed_and_hidden_add_up(comm: float, window: float, n: int) -> None:
    for part in (behind(comm, window), cut_up(comm, window, n), bucketed(comm, window, n), bucketed(comm, window, 0)):
        assert part.exposed_s + part.hidden_s == pytest.approx(comm)
        assert part.exposed_s >= 0.0
        assert 0.0 <= part.hidden_s <= max(window, 0.0) + 1e-12


def test_a_wide_window_hides_everything_but_the_first_piece() -> None:
    assert behind(1.0, 2.0) == (0.0, 1.0)
    assert cut_up(1.0, 2.0, 8).exposed_s == pytest.approx(1 / 8)
    assert bucketed(1.0, 2.0, 10).exposed_s == pytest.approx(1 / 10)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(SECONDS, SECONDS, st.floats(0.0, 1.0))
def test_communication_shows_where_it_outlasts_its_share_of_the_window(
    comm: float, window: float, share: float
) -> None:
    part = behind(comm, window, share)
    assert part.exposed_s == pytest.approx(max(0.0, comm - share * window), abs=1e-12)
    assert part.hidden_s == pytest.approx(min(comm, share * window))


def test_what_has_nothing_beside_it_shows_whatever_the_window() -> None:
    assert prefetched(4.0, 1.0, 100.0) == (1.0, 3.0)
    assert prefetched(4.0, 1.0, 4.0, 0.5) == (2.0, 2.0)


def test_a_longer_communication_shows_from_a_knee_on_and_then_in_full() -> None:
    shown = [float(behind(comm, 2.0, 0.5).exposed_s) for comm in (0.5, 1.0, 1.5, 2.0)]
    assert shown == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_without_buckets_the_reduction_waits_for_the_end() -> None:
    assert bucketed(1.0, 5.0, 0) == (1.0, 0.0)

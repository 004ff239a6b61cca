"""An optimizer on the host: closed forms of its time, and the memory that it frees."""

from dataclasses import replace

import pytest

from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import memory
from prism_jax.cost.step import step_cost
from prism_jax.cost.step_end import HOST_UPDATE_S, host_update_s
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.catalog import model

MODEL = model("llama-2-7b")
PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=2048, dp=8, zero_stage=2)
NODE = cluster("dgx-a100", 8)


def test_the_published_time_of_ten_billion_parameters_on_one_node() -> None:
    assert host_update_s(cluster("dgx-v100", 1), 10e9) == pytest.approx(2.57, rel=0.01)
    assert host_update_s(NODE, 10e9 / 8) == pytest.approx(2.57, rel=0.01)  # eight devices share the node


def test_nodes_update_their_shares_side_by_side() -> None:
    one, four = host_update_s(NODE, 8e9 / 8), host_update_s(cluster("dgx-a100", 32), 8e9 / 32)
    assert four == pytest.approx(one / 4)


def test_a_step_waits_for_the_host_and_holds_no_states() -> None:
    offloaded = replace(PLAN, offload_optimizer=True)
    eff = efficiency("ampere")
    end, own = (float(step_cost(MODEL, NODE, plan, eff).end_compute_s[0]) for plan in (offloaded, PLAN))
    expected = HOST_UPDATE_S * MODEL.n_params() * eff.correction.optimizer
    assert end - own > 0.8 * expected
    freed = memory(MODEL, NODE, PLAN).worst.optimizer_bytes
    assert freed > 8e9
    assert memory(MODEL, NODE, offloaded).worst.optimizer_bytes == 0.0

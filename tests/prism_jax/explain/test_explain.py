"""Breakdown of a step, its critical operations and its phases of power."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

from prism_jax import Job, ParallelPlan
from prism_jax.cost.step import step_cost
from prism_jax.explain import critical_path
from prism_jax.explain.critical_path import (
    N_CRITICALITY_COLUMN,
    HostColumns,
    criticality,
    first_columns,
    slowest_weights,
)
from prism_jax.explain.explain import breakdown, explain, power_phases, timelines
from prism_jax.explain.owners import p95_owners
from prism_jax.explain.types import Timeline, words
from prism_jax.simulate.columns import one_chunk
from prism_jax.simulate.inputs import column_inputs, regime_factors
from prism_jax.simulate.predict import predict, replica_times, symmetric
from prism_jax.simulate.program import Program, by_class
from prism_jax.system.catalog import cluster
from prism_jax.system.power import step_power
from prism_jax.variability.config import preset
from prism_jax.variability.families import LogNormal, Normal
from prism_jax.variability.tree import Stall, Variability
from prism_jax.workload.catalog import model
from tests.support.jobs import EVERYTHING, compute_varies, make_job, make_program, network_varies

KEY = jax.random.key(0)
ONLY = {
    "gemm+attention+memory": Variability("t", compute_varies(gpu=LogNormal(0.03), call=Normal(0.02))),
    "all_gather": Variability(
        "t", {"all_gather": network_varies(node=LogNormal(0.1), regime=LogNormal(0.1))["all_gather"]}
    ),
    "step regime": Variability("t", step=LogNormal(0.02)),
    "stalls": Variability("t", stalls=(Stall(0.1, 0.0, 0.2),)),
}


@pytest.fixture(scope="module")
def program() -> Program:
    return make_program(EVERYTHING, dp=8)


@pytest.mark.parametrize("settings", [{}, {"blocking": True}, {"pp": 1}, {"schedule": "dualpipe"}], ids=str)
def test_breakdown_sums_to_the_mean_step(settings: dict[str, object]) -> None:
    program = make_program(EVERYTHING, **settings)
    result = symmetric(program, KEY, 512)
    parts = breakdown(program, result)
    assert sum(parts.values()) == pytest.approx(result.mean_s, rel=1e-6)
    assert all(value >= 0.0 for value in parts.values())
    assert parts["waiting_for_stragglers"] > 0.0


def test_breakdown_of_a_pipeline_without_communication_is_compute_and_bubble() -> None:
    """1F1B, equal stages: bubble / compute = (pp - 1) / n_micro_batch."""
    program = make_program(pp=4, n_micro_batch=8, tp_comm_s=0.0, p2p_s=0.0, end_comm_s=0.0, end_compute_s=0.0)
    parts = breakdown(program, symmetric(program, KEY, 256))
    assert parts["bubble"] / parts["compute"] == pytest.approx(3 / 8, rel=0.05)  # later stages are up to 3% slower
    assert {name for name, value in parts.items() if value > 1e-6} == {"compute", "bubble"}


def test_stalls_are_told_from_stragglers() -> None:
    program = make_program(ONLY["stalls"])
    result = symmetric(program, KEY, 256)
    parts = breakdown(program, result)
    assert parts["stalls"] == pytest.approx(result.mean_s - result.deterministic_s, rel=0.05)
    assert abs(parts["waiting_for_stragglers"]) < 0.05 * parts["stalls"]


@pytest.mark.parametrize("owner", ONLY)
def test_the_only_source_of_variability_owns_all_of_the_p95(owner: str) -> None:
    """Without it the p95 is the noise-free step, up to single precision."""
    program = make_program(ONLY[owner], dp=8)
    falls = p95_owners(replica_times(program, KEY, 512), KEY).value
    result = symmetric(program, KEY, 2048)
    assert [*falls] == [owner]
    assert falls[owner] == pytest.approx(result.quantile(0.95) - result.deterministic_s, rel=0.08)


def test_owners_are_sorted_and_name_what_varies(program: Program) -> None:
    falls = p95_owners(replica_times(program, KEY, 512), KEY).value
    assert set(falls) == {"gemm", "attention", "memory", "all_gather", "reduce_scatter", "p2p", "step regime"}
    assert [*falls.values()] == sorted(falls.values(), reverse=True)


def test_criticality_sums_to_one(program: Program) -> None:
    shares = criticality(program, KEY).value
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-6)
    assert [*shares.values()] == sorted(shares.values(), reverse=True)
    assert {"gemm", "attention", "memory", "tp communication", "pp communication"} < set(shares)


def test_criticality_of_a_job_that_only_computes_is_its_mix_of_classes() -> None:
    """One stage, one class ratio everywhere, no variability."""
    program = make_program(pp=1, dp=1, tp_comm_s=0.0, p2p_s=0.0, end_comm_s=0.0, end_compute_s=0.0)
    shares = criticality(program, KEY).value
    assert shares == pytest.approx({"gemm": 0.6, "attention": 0.3, "memory": 0.1}, abs=1e-5)


def test_criticality_of_noise_free_seconds_is_their_share_of_the_critical_path() -> None:
    """One stage: everything is on it."""
    program = make_program(pp=1, dp=1, n_micro_batch=4)
    shares, step = criticality(program, KEY).value, symmetric(program, KEY, 128).deterministic_s
    assert shares["tp communication"] * step == pytest.approx(8 * 0.15, rel=1e-4)
    assert shares["optimizer"] * step == pytest.approx(0.1, rel=1e-4)
    assert shares["gradient and parameter exchange"] * step == pytest.approx(0.4, rel=1e-4)


WALKED = {"1f1b": {}, "blocking": {"blocking": True}, "dualpipe": {"schedule": "dualpipe"}, "large group": {"tp": 32}}


@pytest.mark.parametrize("settings", WALKED.values(), ids=WALKED)
def test_paths_walked_back_are_those_of_the_columns_that_are_simulated(settings: dict[str, object]) -> None:
    """Their seconds add up to the time of the compiled scan on the same draws, whichever columns are walked at once."""
    program = by_class(make_program(EVERYTHING, **settings))
    _, chunk = first_columns(program, N_CRITICALITY_COLUMN, 0)
    columns = HostColumns.of(program, KEY, chunk, N_CRITICALITY_COLUMN)
    time_s, seconds = columns.seconds()
    inputs = column_inputs(program, regime_factors(program, np.zeros(1)))
    compiled = jax.jit(lambda inputs, key, chunk: one_chunk(inputs, key, chunk, N_CRITICALITY_COLUMN))
    np.testing.assert_allclose(time_s, compiled(inputs, KEY, chunk)[0], rtol=2e-5)
    np.testing.assert_allclose(seconds.sum(axis=1), time_s, rtol=1e-5)
    assert (seconds >= 0.0).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critical_path, "MOST_KEPT", 10 * program.graph.op.size)
        np.testing.assert_allclose(columns.seconds()[1], seconds, rtol=1e-6)


def test_seconds_on_the_path_are_the_derivative_of_the_step() -> None:
    """Columns are convex in the seconds of a class: their critical seconds are a slope between those to either side."""
    program = by_class(make_program(EVERYTHING))
    _, chunk = first_columns(program, N_CRITICALITY_COLUMN, 0)
    columns, step = HostColumns.of(program, KEY, chunk, N_CRITICALITY_COLUMN), 0.01
    time_s, seconds = columns.seconds()
    for k in range(len(program.classes)):
        factor = np.ones(len(program.classes) + 1)
        slopes = []
        for sign in (-1.0, 1.0):
            factor[k] = 1.0 + sign * step
            inputs = eqx.tree_at(
                lambda i, f=factor: i.graph.compute_s, columns.inputs, columns.inputs.graph.compute_s * factor
            )
            slopes.append((replace(columns, inputs=inputs).seconds()[0] - time_s) / (sign * step))
        assert (slopes[0] <= seconds[:, k] + 1e-3).all()
        assert (slopes[1] >= seconds[:, k] - 1e-3).all()
        np.testing.assert_allclose(slopes[0].mean(), slopes[1].mean(), rtol=0.02)


def test_slowest_column_of_many_replicas_carries_the_weight() -> None:
    times, weight = np.arange(8.0), np.ones(8)
    np.testing.assert_allclose(slowest_weights([(times, weight, 1)])[0], 1 / 8, rtol=1e-5)
    assert slowest_weights([(times, weight, 500)])[0][-1] > 0.999


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe"])
def test_timelines_are_possible(schedule: str) -> None:
    """Ops of a lane follow each other, wait for what they need, and the last end makes the step."""
    program = make_program(EVERYTHING, dp=8, schedule=schedule)
    result = symmetric(program, KEY, 512)
    graph = program.graph
    lines = timelines(program, result, KEY)
    assert [line.title for line in lines] == ["median step", "p99 step"]
    for line in lines:
        check_timeline(line, graph.dep_level, graph.dep_lane)
    assert lines[0].step_s < lines[1].step_s


def check_timeline(line: Timeline, dep_level: np.ndarray, dep_lane: np.ndarray) -> None:
    assert (line.end_s >= line.start_s).all()
    assert (line.start_s[1:] >= line.end_s[:-1] - 1e-6).all()
    level, lane, d = np.nonzero(dep_level >= 0)
    sent = line.end_s[dep_level[level, lane, d], dep_lane[level, lane, d]]
    assert (line.start_s[level, lane] >= sent - 1e-6).all()
    assert (line.end_s - line.start_s >= line.compute_s - 1e-5).all()
    assert line.end_of_lane_s.max() == pytest.approx(line.step_s, rel=1e-6)
    assert len(line.labels) == (line.label >= 0).sum()


def test_everything_is_explained_at_once() -> None:
    job = make_job(EVERYTHING)
    result = predict(job, key=KEY, n_samples=512)
    whole = explain(job, result, key=KEY)
    assert sum(whole.breakdown_s.values()) == pytest.approx(result.mean_s, rel=1e-6)
    assert sum(whole.criticality.values()) == pytest.approx(1.0, abs=1e-6)
    assert whole.allocation.std_s == result.std_s
    assert result.quantile(0.5) < whole.allocation.p95_s < result.quantile(0.95)


def test_words_are_what_people_say() -> None:
    assert words("gemm+memory") == "GEMM + memory-bound"
    assert words("gemm+attention+memory") == "GPUs (all compute)"
    assert words("step regime") == "step regime"


# --- Power phases ----------------------------------------------------------------------------------------------------
# Phases for the power of a step: they sum to the breakdown, and what compute loses to communication stands alone.


BREAKDOWN = {
    "compute": 1.0,
    "tp_comm": 0.05,
    "dp_comm": 0.1,
    "bubble": 0.2,
    "stalls": 0.0,
    "waiting_for_stragglers": 0.02,
}


def job(n_devices: int) -> Job:
    plan = ParallelPlan(micro_batch=2, global_batch=2 * n_devices, seq_len=4096, dp=n_devices, sharding="fsdp")
    return Job(model("llama2-7b"), cluster("dgx-h100", n_devices), plan, preset("none"), "llama", "fsdp")


def test_phases_sum_to_the_breakdown_and_are_known_to_the_law() -> None:
    found = power_phases(job(16), BREAKDOWN)
    assert sum(found.values()) == pytest.approx(sum(BREAKDOWN.values()))
    assert {name: found[name] for name in BREAKDOWN if name != "compute"} == {
        name: value for name, value in BREAKDOWN.items() if name != "compute"
    }
    assert step_power(found, job(16).cluster.device) is not None


def test_what_compute_loses_is_that_of_the_cost_model() -> None:
    one = job(2048)
    cost = step_cost(one.model, one.cluster, one.plan, one.efficiency)
    lost = one.efficiency.overlap_slowdown * cost.hidden_comm_s.sum() / cost.compute_s.sum()
    assert power_phases(one, BREAKDOWN)["slowed"] == pytest.approx(lost)
    assert power_phases(one, BREAKDOWN)["slowed"] > power_phases(job(16), BREAKDOWN)["slowed"] > 0.0


def test_a_job_on_one_gpu_loses_nothing() -> None:
    assert power_phases(job(1), BREAKDOWN)["slowed"] == 0.0

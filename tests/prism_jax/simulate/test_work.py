"""Work of micro-batches in predictions: the symmetric method against brute force, criticality, owners, what stays as it is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.core.errors import PlanError, SpecError
from prism_jax.cost.step import step_cost
from prism_jax.explain.critical_path import HostColumns, first_columns
from prism_jax.explain.explain import explain
from prism_jax.explain.owners import EVEN_LOADS, work_gains
from prism_jax.graph.draws import typed_key
from prism_jax.horizon.steps import step_sum
from prism_jax.job.load_job import loaded
from prism_jax.plan.packing import Data, law_of
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.columns import Chunk, column_times
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.predict import column_design, predict, replica_columns
from prism_jax.simulate.program import by_class, lower
from prism_jax.simulate.step_time import step_time
from prism_jax.simulate.work import LENGTHS, N_ROW, ROUTING
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.op_lists import expert_group
from prism_jax.workload.transformer.routing import ExpertRouting, concentration_of, mean_busiest
from tests.support.jobs_with_work import JOBS, LONG, POPULAR, drifting, job, with_routing


@pytest.mark.parametrize("name", JOBS)
def test_replica_columns_agree_with_every_replica_of_every_step(name: str) -> None:
    """p50, p95 and p99 within 3.5 of their combined errors."""
    own = JOBS[name]()
    columns, every = predict(own, key=1), predict(own, key=2, method="brute_force", n_samples=1500)
    assert columns.method == "symmetric"
    for p in (0.5, 0.95, 0.99):
        error = np.hypot(columns.mc_error(p), every.mc_error(p))
        assert abs(columns.quantile(p) - every.quantile(p)) <= 3.5 * error, p


def test_packed_sequences_are_those_of_a_job_without_lengths() -> None:
    """To the last bit: nothing is drawn, and all other draws stay."""
    shape: dict[str, Any] = {"global_batch": 64, "dp": 8, "tp": 2, "pp": 2}
    plain, packed = (
        predict(job("llama-3-8b", **shape), key=3),
        predict(job("llama-3-8b", LONG, "packed", **shape), key=3),
    )
    np.testing.assert_array_equal(plain.samples_s, packed.samples_s)


@pytest.mark.parametrize("name", ["padded", "both"])
def test_micro_batches_of_mean_work_last_as_the_noise_free_step(name: str) -> None:
    program = lower(replace(JOBS[name](), variability=preset("none")))
    assert program.work is not None
    work = program.work
    for source in work.names:
        work = work.without(source)
    program = replace(program, work=work)
    columns = replica_columns(program, typed_key(0), 64)
    times = column_times(columns.inputs, typed_key(0), columns.chunks, columns.width)
    np.testing.assert_allclose(times, deterministic(program), rtol=1e-6)


@pytest.mark.parametrize("packing", ["padded", "bucketed"])
def test_padded_sequences_last_as_the_cost_of_their_length(packing: str) -> None:
    """The shortest and the longest; short ones no less than the host takes to start their kernels."""
    own = job("llama-3-8b", LONG, packing, micro_batch=2, global_batch=128, dp=8, tp=2, pp=2)
    program = lower(own)
    assert program.work is not None
    law, compute_s, comm_s = law_of(own.plan), program.cost.compute_s.sum(), program.cost.comm_s.sum()
    for at in (0, -1):
        length = int(own.plan.tp * max(1.0, law.seq_len * (1.0 + law.tokens[at]) // own.plan.tp))
        alone = step_cost(own.model, own.cluster, replace(own.plan, seq_len=length, data=Data()), own.efficiency)
        found_s = compute_s * (1.0 + program.work.sources[0].excess[at]) + comm_s
        assert found_s == pytest.approx(alone.compute_s.sum() + alone.comm_s.sum(), rel=2e-3)


@pytest.mark.parametrize("name", JOBS)
def test_weighted_columns_have_the_mean_work(name: str) -> None:
    """Importance weights have mean one, are bounded, and weighted factors have the mean of plain ones."""
    program = lower(JOBS[name]())
    assert program.work is not None
    design = column_design(program, 1024, 5)
    assert design.work is not None
    assert design.weight.max() <= 1.0 / 0.25 + 1e-9 or program.n_replica < 7
    assert abs(design.weight.mean() - 1.0) <= 4.5 * design.weight.std() / np.sqrt(design.weight.size)
    weighted, plain = np.moveaxis(design.work, 1, 0) * design.weight, program.work.plain(1 << 14, 1)
    error = np.hypot(weighted.std(axis=(1, 2)) / np.sqrt(design.weight.size), plain.std(axis=1) / np.sqrt(1 << 14))
    assert (np.abs(weighted.mean(axis=(1, 2)) - plain.mean(axis=1)) <= 5.0 * error + 1e-9).all()


def test_paths_walked_on_the_host_are_as_long_as_the_engine_says() -> None:
    program = by_class(lower(JOBS["both"]()))
    _, chunk = first_columns(program, 16, 0)
    columns = HostColumns.of(program, typed_key(4), chunk, 16)
    time_s, seconds = columns.seconds()
    np.testing.assert_allclose(time_s, seconds.sum(axis=1), rtol=1e-5)
    stacked = Chunk(
        np.asarray(chunk.index)[None], np.asarray(chunk.peak_score)[None], work=np.asarray(chunk.work)[None]
    )
    found = column_times(columns.inputs, typed_key(4), stacked, 16)[0, 0]
    np.testing.assert_allclose(time_s, found, rtol=1e-5)


def test_lengths_and_routing_own_the_tail() -> None:
    own = JOBS["both"]()
    told = explain(own, predict(own, key=1), key=typed_key(1))
    assert {LENGTHS, ROUTING} <= set(told.p95_owner_s)
    assert told.p95_owner_s[ROUTING] > 0.0
    assert sum(told.criticality.values()) == pytest.approx(1.0)


def test_balanced_replicas_are_simulated_in_full_and_beat_the_masked_tail() -> None:
    shape: dict[str, Any] = {"global_batch": 128, "dp": 16, "tp": 2, "seq_len": 16384, "recompute": "full"}
    masked, balanced = (predict(job("llama-3-8b", LONG, rule, **shape), key=1) for rule in ("masked", "balanced"))
    assert balanced.method == "brute_force"
    assert "share out the documents" in balanced.notes[0]
    assert balanced.quantile(0.95) < masked.quantile(0.95)
    assert balanced.deterministic_s == pytest.approx(masked.deterministic_s)


def test_what_contradicts_itself_is_refused() -> None:
    spec = model("mixtral-8x7b")
    assert spec.moe is not None
    with pytest.raises(SpecError, match="imbalance and routing"):
        replace(spec.moe, imbalance=1.2, routing=ExpertRouting(0.2))
    with pytest.raises(PlanError, match=r"data\.packing"):
        replace(
            job("llama-3-8b", global_batch=8, dp=8), plan=ParallelPlan(1, 8, 4096, dp=8, data=Data(packing="padded"))
        ).check()


def test_tables_follow_the_order_of_work() -> None:
    for name in JOBS:
        work = lower(JOBS[name]()).work
        assert work is not None
        assert all((np.diff(source.load) >= -1e-12).all() and len(source.load) == N_ROW for source in work.sources)


@pytest.mark.parametrize("written", [{"gini": 0.3}, {}])
def test_routing_is_written_into_a_preset(written: dict[str, Any]) -> None:
    found = loaded(
        {
            "model": {"preset": "mixtral-8x7b", "moe": {"routing": written}},
            "cluster": {"preset": "dgx-h100", "n_devices": 64},
            "plan": {
                "micro_batch": 1,
                "global_batch": 64,
                "seq_len": 4096,
                "dp": 32,
                "tp": 2,
                "ep": 8,
                "zero_stage": 1,
            },
        }
    )
    assert found.model.moe.routing == ExpertRouting(**written)  # pyright: ignore[reportAttributeAccessIssue]
    assert lower(found).work is not None


@pytest.mark.parametrize("name", POPULAR)
def test_popularity_of_steps_agrees_with_every_micro_batch_of_every_replica(name: str) -> None:
    """p50, p95 and p99 within 3.5 of the errors of loads that are drawn one by one, and given to `step_time`."""
    own, n = POPULAR[name](), 1024
    plan, moe, rng = own.plan, own.model.moe, np.random.default_rng(5)  # pyright: ignore[reportAttributeAccessIssue]
    group, per = expert_group(own.model, plan), own.model.moe.n_layers_of(32) // plan.n_chunk  # pyright: ignore
    a = concentration_of(moe.routing.gini, 8)
    load = np.zeros((plan.n_replica, plan.n_chunk, plan.n_micro_batch, n))
    for chunk in range(plan.n_chunk):
        for _ in range(per):
            share = (
                rng.dirichlet(np.full(8, a), n)[:, None, None].repeat(plan.n_replica, 1).repeat(plan.n_micro_batch, 2)
            )
            of_rank = rng.multinomial(
                2 * group.n_tokens, share
            )  # so many that two different ones per token change nothing
            load[:, chunk] += np.moveaxis(of_rank.max(axis=-1), 0, -1) / (per * group.n_tokens / 4)
    even = np.ones((plan.n_replica, plan.n_micro_batch, n))
    work = {"experts": load / mean_busiest(moe.routing, group), "tokens": even, "attention": even}
    by_hand = np.asarray(step_time(own, work=work, key=3))
    found, again = predict(own, key=1), np.random.default_rng(0).choice(by_hand, (200, n))
    assert found.method == "symmetric"
    for p in (0.5, 0.95, 0.99):
        error = np.hypot(found.mc_error(p), np.quantile(again, p, axis=1).std())
        assert abs(found.quantile(p) - np.quantile(by_hand, p)) <= 3.5 * error, p


def test_drift_leaves_a_single_step_as_it_is_and_correlates_those_that_follow() -> None:
    slow, fast = (predict(drifting(drift), key=1) for drift in (0.05, 1.0))
    np.testing.assert_array_equal(slow.samples_s, fast.samples_s)
    every = predict(drifting(0.05), key=2, method="brute_force", n_samples=1600, steps_per_fleet=4)
    assert every.fleets_s is not None
    popular = lower(drifting(0.05)).work.popularity  # pyright: ignore[reportOptionalMemberAccess]
    assert popular is not None
    assert popular.ar1 > 0.8
    steps = every.fleets_s - every.fleets_s.mean()
    assert (steps[:, 1:] * steps[:, :-1]).mean() / (steps**2).mean() > 0.5
    for p in (0.5, 0.95):
        assert abs(slow.quantile(p) - every.quantile(p)) <= 3.5 * np.hypot(slow.mc_error(p), every.mc_error(p))


def test_popularity_of_steps_is_one_owner_and_can_be_taken_out() -> None:
    program = lower(drifting(0.1))
    assert program.work is not None
    assert ROUTING in program.work.names
    calm = program.work.without(ROUTING)
    assert not calm.names
    told = explain(program.job, predict(program.job, key=1), key=typed_key(1))
    assert told.p95_owner_s[ROUTING] == max(told.p95_owner_s.values())


def test_steps_as_a_function_draw_the_popularity_too() -> None:
    own = drifting(0.1, 0.38, pp=1, dp=8, global_batch=32)
    given = np.ones((own.plan.n_devices, 2048))
    fixed, drawn = (
        np.asarray(step_time(one, given, key=4))
        for one in (replace(own, model=with_routing(own.model, ExpertRouting(0.38))), own)
    )
    popular = lower(own).work.popularity  # pyright: ignore[reportOptionalMemberAccess]
    assert popular is not None
    found = drawn.std() / drawn.mean()
    assert found > 1.5 * fixed.std() / fixed.mean()
    assert found >= 0.9 * popular.sd


def test_runs_of_drifting_popularity_vary_as_their_steps_say() -> None:
    """Sums of steps: as many independent ones as its autocorrelation leaves."""
    sums = [step_sum(drifting(drift), key=typed_key(1)) for drift in (0.02, 1.0)]
    assert sums[0].mean_s == sums[1].mean_s
    assert sums[0].popularity_s == pytest.approx(sums[1].popularity_s)
    assert sums[0].within_variance(1) == pytest.approx(sums[1].within_variance(1))
    r, n = sums[0].popularity_ar1, 1000
    over = sums[0].within_variance(n) - sums[1].within_variance(n)
    own = sums[1].popularity_ar1
    closed = sums[0].popularity_s ** 2 * n * ((1 + r) / (1 - r) - (1 + own) / (1 - own))
    assert over == pytest.approx(closed, rel=0.05)


def test_other_packing_and_even_loads_are_worth_something() -> None:
    """Padding costs what it costs; what is worth nothing at all is not said."""
    gains = work_gains(lower(JOBS["padded"]()), typed_key(1))
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    assert gains["data.packing masked"] > gains["data.packing bucketed"] > 0.05
    assert set(work_gains(lower(JOBS["experts"]()), typed_key(1))) == {EVEN_LOADS}
    assert work_gains(lower(job("llama-3-8b", global_batch=8, dp=8)), typed_key(1)) == {}
    packed = work_gains(lower(job("llama-3-8b", LONG, "packed", global_batch=32, dp=8, seq_len=8192)), typed_key(1))
    assert packed["data.packing balanced"] >= packed["data.packing masked"] > 0.0 > packed["data.packing bucketed"]

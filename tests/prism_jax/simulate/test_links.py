"""Slow links: which groups they concern, and what they make of a step."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.kernels import NETWORK_AXES
from prism_jax.graph.members import ExplicitMembers
from prism_jax.graph.propagate import CommFactors, propagate
from prism_jax.plan.plan import AXES, ParallelPlan, device_layout
from prism_jax.simulate.inputs import known_gpus
from prism_jax.simulate.known_replicas import every_known_replica
from prism_jax.simulate.links import END, axis_groups, link_factors
from prism_jax.simulate.predict import brute_force, predict, symmetric
from prism_jax.simulate.program import Program, by_class
from prism_jax.simulate.step_time import step_time
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import Variability
from tests.support.jobs import EVERYTHING, make_job, make_program, network_varies

PLANS = {
    "all axes": {"tp": 2, "cp": 2, "dp": 4, "pp": 2},
    "stages innermost": {"tp": 2, "cp": 2, "dp": 4, "pp": 2, "axis_order": ("pp", "tp", "cp", "dp")},
    "cp outside dp": {"tp": 2, "cp": 2, "dp": 4, "pp": 2, "axis_order": ("tp", "dp", "cp", "pp")},
    "sharded copies": {"tp": 2, "cp": 1, "dp": 8, "pp": 2, "sharding": "hsdp", "dp_shard": 4},
    "experts as tensors": {"tp": 2, "dp": 8, "pp": 2, "ep": 4, "etp": 0},
    "whole experts": {"tp": 2, "dp": 8, "pp": 2, "ep": 8},
}


def plan_of(fields: dict) -> ParallelPlan:
    return ParallelPlan(micro_batch=1, global_batch=16, seq_len=1024, **fields)


def by_hand(plan: ParallelPlan, axis: str) -> set[frozenset[int]]:
    """Groups from the coordinates of the devices."""
    sizes = [getattr(plan, a) for a in plan.axis_order]
    places = [dict(zip(plan.axis_order, c[::-1], strict=True)) for c in product(*map(range, sizes[::-1]))]
    kept = {"tp": ("cp", "dp", "pp"), "cp": ("tp", "dp", "pp"), "end": ("tp", "pp")}[axis]
    groups: dict[tuple[int, ...], list[int]] = {}
    for device, place in enumerate(places):
        groups.setdefault(tuple(place[a] for a in kept), []).append(device)
    return set(map(frozenset, groups.values()))


@pytest.mark.parametrize("fields", PLANS.values(), ids=PLANS)
def test_groups_are_the_devices_that_differ_in_the_axis_alone(fields: dict) -> None:
    plan = plan_of(fields)
    found = axis_groups(plan)
    assert set(found) == set(NETWORK_AXES) - {"pp"}
    assert set(AXES) == {"tp", "cp", "dp", "pp"}
    for axis in ("tp", "cp", "end"):
        assert set(map(frozenset, found[axis].tolist())) == by_hand(plan, axis)
    assert found["dp"].shape[1] == plan.shard_group
    assert found["ep"].shape[1] == plan.ep
    stage = np.empty(plan.n_devices, int)
    stage[device_layout(plan)] = np.arange(plan.pp)[None, :, None]
    for members in found.values():
        assert sorted(members.ravel()) == list(range(plan.n_devices))
        assert (stage[members] == stage[members][:, :1]).all()
    ranks = {axis: {frozenset(group) for group in found[axis].tolist()} for axis in ("dp", "ep", "end")}
    for inner in ("dp", "ep")[: 1 if plan.expert_tp != plan.tp else 2]:
        assert all(any(group <= outer for outer in ranks["end"]) for group in ranks[inner])


def test_experts_share_ranks_as_their_layout_says() -> None:
    for fields in (PLANS["experts as tensors"], PLANS["whole experts"]):
        plan = plan_of(fields)
        _, stride = plan.expert_layout
        assert (np.diff(axis_groups(plan)["ep"], axis=1) == stride).all()


def test_a_slow_nic_concerns_groups_that_leave_its_node_and_a_slow_link_those_that_do_not() -> None:
    job = make_job(tp=8, pp=2, dp=4)  # nodes of 8: tp inside, replicas and stages over nodes
    size, plan = job.cluster.node_size, job.plan
    assert size == 8
    zero, slow = np.zeros(plan.n_devices), np.zeros(plan.n_devices)
    slow[16:24] = 2.0  # node 2: stage 0 of replica 2
    nic, link = link_factors(job, zero, slow), link_factors(job, slow, zero)
    tp = NETWORK_AXES.index("tp")
    where = np.array([[0, 0, 2, 0], [0, 0, 0, 0]], float)
    assert (link.slowest[tp] == where).all()
    assert not nic.slowest[tp].any()
    assert (nic.slowest[END] == [[2.0] * 4, [0.0] * 4]).all()
    assert not link.slowest[END].any()
    assert (nic.edge[:, 2] == 2.0).all()
    assert not nic.edge[:, [0, 1, 3]].any()
    assert not link.edge.any()


def test_one_slow_nic_of_a_node_concerns_the_group_of_its_gpu() -> None:
    job = make_job(tp=1, pp=1, dp=16)  # a replica is a GPU
    tp2 = replace(job, plan=replace(job.plan, tp=2, dp=8, axis_order=("dp", "tp", "cp", "pp")))
    slow = np.zeros(16)
    slow[3] = 1.5
    inside = axis_groups(tp2.plan)["tp"]
    assert [3, 11] in inside.tolist()  # eight apart: over nodes
    factors = link_factors(tp2, np.zeros(16), slow).slowest
    assert np.flatnonzero(factors[NETWORK_AXES.index("tp"), 0]).tolist() == [3]
    assert (factors[END] == 0.0).all()  # each row of replicas fills a node: over links


def test_factors_of_samples_may_be_traced() -> None:
    job = make_job(tp=8, pp=2, dp=4)
    rng = np.random.default_rng(0)
    link, nic = rng.lognormal(0.0, 0.2, (2, job.plan.n_devices, 3))
    for ours, theirs in zip(
        link_factors(job, link, nic), link_factors(job, jnp.asarray(link), jnp.asarray(nic)), strict=True
    ):
        assert ours.shape == theirs.shape
        assert np.allclose(ours, np.asarray(theirs), rtol=1e-6)


def walked(program: Program, link: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Step times [column] op by op, from factors of links [axis, lane, column] and of hand-overs [lane, column]."""
    graph, n = program.graph, program.graph.n_lane
    free, ends = np.zeros((n, link.shape[-1])), {}
    for level, lane in product(range(graph.n_level), range(n)):
        start = free[lane]
        for at, source, lag in zip(
            graph.dep_level[level, lane], graph.dep_lane[level, lane], graph.lag_s[level, lane], strict=True
        ):
            if at >= 0:
                pair = {int(source), lane}
                between = max(pair) if max(pair) - min(pair) == 1 else 0
                start = np.maximum(start, ends[at, source] + lag * np.maximum(link[-2, lane], edge[between]))
        sent = np.maximum(link[-2, lane], np.maximum(edge[lane], edge[(lane + 1) % n]))
        comm = graph.comm_s[level, lane] @ link[:4, lane] + graph.send_s[level, lane] * sent
        ends[level, lane] = start + graph.compute_s[level, lane].sum() + comm
        free = free.copy()
        free[lane] = ends[level, lane]
    last = graph.end_compute_s[:, None] + graph.end_comm_s[:, None] * link[-1]
    return (free + last).max(axis=0)


@pytest.mark.parametrize(
    "shape",
    [
        {"pp": 4},
        {"pp": 2},
        {"pp": 4, "blocking": True},
        {"pp": 4, "virtual_stages": 2, "schedule": "interleaved"},
        {"pp": 4, "schedule": "dualpipe", "n_micro_batch": 8},
    ],
    ids=str,
)
def test_the_engine_hands_over_at_the_pace_of_the_slower_end(shape: dict) -> None:
    program, rng = by_class(make_program(p2p_s=0.3, **shape)), np.random.default_rng(1)
    link = rng.lognormal(0.0, 0.4, (len(NETWORK_AXES), program.n_lane, 2)).astype(np.float32)
    edge = rng.lognormal(0.0, 0.6, link.shape[1:]).astype(np.float32)
    members = ExplicitMembers(np.ones((len(program.classes), 1, *link.shape[1:]), np.float32))
    network = CommFactors(link, np.ones((1, len(NETWORK_AXES)), np.float32), edge)
    found = np.asarray(propagate(program.arrays, members, network, None))[0]
    assert np.allclose(found, walked(program, link, edge), rtol=2e-6)


def test_a_job_with_a_slow_nic_takes_as_long_as_its_groups_say() -> None:
    """Nothing else varies: the step is the slowest replica of the walk with factors set group by group."""
    for tp, pp, dp in ((8, 2, 4), (4, 4, 4), (16, 2, 2)):
        program = by_class(make_program(tp=tp, pp=pp, dp=dp))
        plan, slow = program.job.plan, dict.fromkeys(range(16, 24), 2.0)
        known = known_gpus({"nic": slow}, plan.n_devices)
        layout = device_layout(plan)
        times = []
        for replica in range(program.n_replica):
            hit = np.atleast_1d(np.isin(layout[..., replica], list(slow)).any(axis=0))  # [lane]
            link, edge = np.ones((len(NETWORK_AXES), plan.pp, 1)), np.zeros((plan.pp, 1))
            if plan.tp > 8:
                link[0, hit] = 2.0
            ends = np.isin(layout, list(slow)).any(axis=(0, 2)) & (plan.stride("dp") * plan.dp > 8)
            link[-1, ends] = 2.0
            for lane in range(plan.pp):
                far = (layout[:, lane, replica] // 8 != layout[:, lane - 1, replica] // 8).any()
                edge[lane] = 2.0 * (far and (hit[lane] or hit[lane - 1]))
            times.append(walked(program, link, edge)[0])
        for method in ("symmetric", "brute_force"):
            own = every_known_replica(known, plan)
            found = (
                symmetric(program, jax.random.key(0), 64, own)
                if method == "symmetric"
                else brute_force(program, jax.random.key(0), 16, known)
            )
            assert found.quantile(0.5) == pytest.approx(max(times), rel=1e-5)


def test_known_nodes_replace_the_draws_of_links() -> None:
    program = by_class(make_program(Variability("t", network_varies(node=LogNormal(0.2))), tp=8, pp=2, dp=4))
    n = program.job.plan.n_devices
    every = known_gpus({"nic": dict.fromkeys(range(n), 1.0), "link": dict.fromkeys(range(n), 1.0)}, n)
    found = symmetric(program, jax.random.key(0), 64, every_known_replica(every, program.job.plan))
    assert found.quantile(0.95) == pytest.approx(found.quantile(0.05), rel=1e-6)
    drawn = symmetric(program, jax.random.key(0), 64)
    assert drawn.quantile(0.95) > 1.01 * drawn.quantile(0.05)


@pytest.mark.parametrize("shape", [{"tp": 8, "pp": 2}, {"tp": 4, "pp": 2, "dp": 8}, {"tp": 16, "pp": 2}], ids=str)
def test_symmetric_and_explicit_replicas_agree_with_a_slow_nic(shape: dict) -> None:
    program = by_class(make_program(EVERYTHING, **shape))
    known = known_gpus({"nic": dict.fromkeys(range(8, 16), 2.0)}, program.job.plan.n_devices)
    own = every_known_replica(known, program.job.plan)
    fast = symmetric(program, jax.random.key(1), 4096, own)
    slow = brute_force(program, jax.random.key(2), 4096, known)
    assert fast.quantile(0.5) > symmetric(program, jax.random.key(1), 4096).quantile(0.5)
    for p in (0.05, 0.5, 0.95):
        error = np.hypot(fast.mc_error(p), slow.mc_error(p))
        assert abs(fast.quantile(p) - slow.quantile(p)) < 4.0 * error + 3e-4 * fast.quantile(p)


def test_given_links_and_known_links_make_the_same_step() -> None:
    job = make_job(tp=8, pp=4, dp=4)
    n, rng = job.plan.n_devices, np.random.default_rng(3)
    nodes = dict(zip(("link", "nic"), rng.lognormal(0.0, 0.4, (2, n // 8)), strict=True))
    by_gpu = {name: dict(enumerate(np.repeat(own, 8).tolist())) for name, own in nodes.items()}
    known = predict(job, key=0, n_samples=16, method="brute_force", known=known_gpus(by_gpu, n))
    given = step_time(job, np.ones((n, 1)), links={name: own[:, None] for name, own in nodes.items()})
    assert float(given[0]) == pytest.approx(known.quantile(0.5), rel=1e-6)

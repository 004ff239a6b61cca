"""Slow links: which groups they concern, and what they make of a step."""

from dataclasses import replace
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.kernels import NETWORK_AXES
from prism_jax.plan.plan import AXES, ParallelPlan, device_layout
from prism_jax.simulate.links import END, axis_groups, link_factors
from tests.support.jobs import make_job

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

"""Ops that all replicas start together, and durations that are given column by column."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.kernels import NETWORK_AXES
from prism_jax.graph.propagate import CommFactors, GivenDurations, GraphArrays, Members, propagate, trail
from prism_jax.graph.step_graph import StepGraph, pad_graph, padded_depth, ring_rows

N_REPLICA, N_SAMPLE = 3, 4
N_COLUMN = N_REPLICA * N_SAMPLE


@pytest.fixture
def graph() -> StepGraph:
    """Two lanes of three levels; lane 1 meets the other replicas at level 1, lane 0 waits for that at level 2."""
    shape = (3, 2)
    dep_level = np.full((*shape, 1), -1, dtype=np.int32)
    dep_level[2, 0, 0] = 1
    dep_lane = np.ones_like(dep_level)
    meets = np.zeros(shape, dtype=bool)
    meets[1, 1] = True
    label = np.arange(6, dtype=np.int32).reshape(shape)
    zeros = np.zeros((*shape, 0))
    return StepGraph(zeros, zeros, dep_level, dep_lane, np.zeros(dep_level.shape), label, tuple("abcdef"), np.zeros(2),
                     np.zeros(2), meets=meets)  # fmt: skip


def lowered(graph: StepGraph, duration_s: np.ndarray, n_used: int | None = None) -> GraphArrays:
    shape = graph.op.shape
    depth = graph.ring_depth if n_used is None else padded_depth(graph.ring_depth)
    return GraphArrays(
        compute_s=jnp.asarray(duration_s, float),
        call_sd=jnp.zeros(shape),
        comm_s=jnp.zeros((*shape, 0)),
        comm_sd=jnp.zeros(shape),
        p2p_sd=jnp.zeros(()),
        dep=jnp.asarray(ring_rows(graph.dep_level, graph.dep_lane, depth), jnp.int32),
        lag_s=jnp.zeros(graph.lag_s.shape),
        end_compute_s=jnp.zeros((graph.n_lane, duration_s.shape[-1])),
        end_comm_s=jnp.zeros(graph.n_lane),
        n_used=None if n_used is None else jnp.asarray(n_used, jnp.int32),
        depth=depth,
        axes=(),
        meets=jnp.asarray(graph.meets) if graph.meets.any() else None,
        n_replica=N_REPLICA,
    )


def network(n_lane: int) -> CommFactors:
    n_axis = len(NETWORK_AXES)
    return CommFactors(jnp.ones((n_axis, n_lane, N_COLUMN)), jnp.ones((1, n_axis)))


def random_s(graph: StepGraph) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 2.0, (*graph.op.shape, N_COLUMN)).astype(np.float32)


def test_columns_are_replicas_and_within_them_samples(graph: StepGraph) -> None:
    """By hand: lane 1 starts its second op when the slowest replica of the same sample is ready."""
    d = random_s(graph).astype(np.float64)
    found = np.asarray(propagate(lowered(graph, d), GivenDurations(), network(2), None))[0]
    ready = d[0, 1].reshape(N_REPLICA, N_SAMPLE).max(axis=0)
    met = np.tile(ready, N_REPLICA) + d[1, 1]
    expected = np.maximum(np.maximum(d[0, 0] + d[1, 0], met) + d[2, 0], met + d[2, 1])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_one_late_replica_delays_all_behind_the_meeting(graph: StepGraph) -> None:
    d = random_s(graph)
    late = d.copy()
    late[0, 1, 0] += 100.0  # replica 0 of sample 0
    before, after = (trail(lowered(graph, x), GivenDurations(), network(2), None) for x in (d, late))
    moved = np.asarray(after.start_s) - np.asarray(before.start_s) > 1.0
    of_sample = np.arange(N_COLUMN) % N_SAMPLE == 0
    np.testing.assert_array_equal(moved[1, 1], of_sample)
    np.testing.assert_array_equal(moved[2], [of_sample, of_sample])
    assert not moved[0].any()
    assert not moved[1, 0].any()


def test_padding_does_not_change_a_number(graph: StepGraph) -> None:
    padded = pad_graph(graph)
    assert padded.meets.shape == padded.op.shape
    assert padded.meets.sum() == 1
    d = random_s(graph)
    wide = np.zeros((*padded.op.shape, N_COLUMN), np.float32)
    wide[:3, :2] = d
    plain = propagate(lowered(graph, d), GivenDurations(), network(2), None)
    same = propagate(lowered(padded, wide, n_used=3), GivenDurations(), network(padded.n_lane), None)
    np.testing.assert_array_equal(np.asarray(plain), np.asarray(same))


def test_without_meetings_replicas_do_not_touch(graph: StepGraph) -> None:
    alone = replace(graph, meets=np.zeros_like(graph.meets))
    d = random_s(graph)
    late = d.copy()
    late[0, 1, 0] += 100.0
    before, after = (np.asarray(propagate(lowered(alone, x), GivenDurations(), network(2), None)) for x in (d, late))
    np.testing.assert_array_equal(np.flatnonzero(before != after), [0])


def test_a_graph_without_meetings_or_sends_says_so() -> None:
    """What is not given is nowhere."""
    shape = (2, 1)
    dep = np.full((*shape, 1), -1, dtype=np.int32)
    graph = StepGraph(np.zeros((*shape, 1)), np.zeros((*shape, 0)), dep, np.zeros_like(dep), np.zeros(dep.shape),
                      np.zeros(shape, dtype=np.int32), ("a",), np.zeros(1), np.zeros(1))  # fmt: skip
    assert graph.meets.shape == graph.send_s.shape == shape
    assert not graph.meets.any()


def test_given_durations_draw_nothing() -> None:
    members = GivenDurations()
    assert isinstance(members, Members)
    assert members.n_draw == 0
    seconds = jnp.arange(6.0).reshape(2, 3)
    assert eqx.tree_equal(members.duration(seconds), seconds)

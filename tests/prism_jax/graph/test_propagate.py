"""Propagation through a graph, and meetings of replicas in it."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.kernels import NETWORK_AXES
from prism_jax.graph.build import build_graph
from prism_jax.graph.draws import key_words, residual_map, standardised
from prism_jax.graph.propagate import (
    CallNoise,
    CommFactors,
    ExplicitMembers,
    GivenDurations,
    GraphArrays,
    Members,
    propagate,
    trail,
)
from prism_jax.graph.step_graph import StepGraph, pad_graph, padded_depth, ring_rows
from prism_jax.schedule.order import Part, ScheduleOrder
from prism_jax.schedule.registry import make_schedule
from prism_jax.simulate.inputs import unit_network, unit_step
from prism_jax.simulate.program import graph_arrays
from prism_jax.variability.families import LogNormal
from tests.support.oracle import simulate
from tests.support.pipelines import random_cost, schedule_parts

SCHEDULES = [
    ("gpipe", 3, 5, 1),
    ("1f1b", 4, 6, 1),
    ("1f1b", 1, 3, 1),
    ("interleaved", 2, 6, 3),
    ("zb_h1", 3, 5, 1),
    ("zb_h2", 3, 7, 1),
    ("zb_v", 3, 5, 2),
    ("dualpipe", 4, 8, 1),
]
CLASSES = [[0], [1], [2]]  # every compute class is a factor of its own
N_MEMBER, N_COLUMN = 3, 2


def lowered(graph: StepGraph, sd: float = 0.0) -> GraphArrays:
    """A graph on the device, with residuals of the same spread everywhere."""
    spread = np.full(graph.op.shape, sd)
    return graph_arrays(graph, CLASSES, spread, spread, np.asarray(sd), None)


def random_chip(graph: StepGraph, n_column: int = N_COLUMN) -> np.ndarray:
    """Persistent factors [class, member, lane, column]."""
    return np.random.default_rng(1).lognormal(0.0, 0.2, (3, N_MEMBER, graph.n_lane, n_column))


def random_network(graph: StepGraph, n_column: int = N_COLUMN) -> CommFactors:
    rng = np.random.default_rng(2)
    link = rng.lognormal(0.0, 0.2, (len(NETWORK_AXES), graph.n_lane, n_column))
    return CommFactors(jnp.asarray(link), jnp.asarray(rng.lognormal(0.0, 0.2, (2, len(NETWORK_AXES)))))


def simulated_s(
    schedule: ScheduleOrder, graph: StepGraph, chip: np.ndarray, network: CommFactors, score: int, column: int
) -> float:
    """The event simulator on the same seconds, op by op and member by member."""
    regime = np.asarray(network.regime)[score]
    link = np.asarray(network.link)[:, :, column] * regime[:, None]
    level_of = [np.nonzero(graph.op[:, lane] >= 0)[0] for lane in range(graph.n_lane)]
    comm_s = (graph.comm_s * link[:4].T).sum(axis=-1)
    where = {part: (level, lane) for lane, order in enumerate(schedule.orders)
             for level, op in zip(level_of[lane], order, strict=True) for part in op.parts}  # fmt: skip

    def op_s(replica: int, stage: int, member: int, index: int) -> float:
        at = level_of[stage][index]
        compute = graph.compute_s[at, stage] @ chip[:, member, stage, column]
        return float(compute + comm_s[at, stage] + graph.send_s[at, stage] * link[-2, stage])

    def transfer_s(replica: int, part: tuple[str, int, int]) -> float:
        """The lag in front of the op that needs the part, which lies on the receiver's links."""
        kind, micro_batch, chunk = part
        reader = Part(kind, micro_batch, chunk + (1 if kind == "F" else -1))
        (level, lane), sender = where[reader], where[Part(*part)]
        for d in range(graph.dep_level.shape[-1]):
            if (graph.dep_level[level, lane, d], graph.dep_lane[level, lane, d]) == sender:
                return float(graph.lag_s[level, lane, d] * link[-2, lane])
        return 0.0

    run = simulate(schedule_parts(schedule), schedule.n_chunk, op_s, transfer_s, n_member=N_MEMBER)
    ends = []
    for lane, order in enumerate(schedule.orders):
        optimizer = graph.end_compute_s[lane] * chip[2, :, lane, column].max()
        ends.append(run.end_s[0, lane, len(order) - 1] + optimizer + graph.end_comm_s[lane] * link[-1, lane])
    return max(ends)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("shape", SCHEDULES, ids=lambda s: f"{s[0]}-{s[1]}")
def test_agrees_with_the_event_simulator(x64: None, shape: tuple[str, int, int, int], blocking: bool) -> None:
    """Random seconds, members, links and two network regimes; to 1e-12."""
    schedule = make_schedule(*shape)
    graph = build_graph(schedule, random_cost(schedule, 7, blocking))
    chip, network = random_chip(graph), random_network(graph)
    got = np.asarray(jax.jit(propagate)(lowered(graph), ExplicitMembers(jnp.asarray(chip)), network, None))
    expected = [[simulated_s(schedule, graph, chip, network, s, c) for c in range(N_COLUMN)] for s in range(2)]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.fixture(scope="module")
def small() -> StepGraph:
    schedule = make_schedule("1f1b", 3, 5, 1)
    return build_graph(schedule, random_cost(schedule, 3))


def noise() -> CallNoise:
    chain = standardised(residual_map(LogNormal(0.1)))
    return CallNoise(key_words(jax.random.key(1)), chain, chain)


def test_a_deeper_ring_buffer_changes_nothing(small: StepGraph) -> None:
    graph, members = lowered(small, 0.1), ExplicitMembers(jnp.asarray(random_chip(small), jnp.float32))
    network = jax.tree.map(lambda x: x.astype(jnp.float32), random_network(small))
    depth = graph.depth + 3
    inside = small.dep_level >= 0
    dep = np.where(inside, (small.dep_level % depth) * small.n_lane + small.dep_lane, depth * small.n_lane)
    deeper = replace(graph, depth=depth, dep=jnp.asarray(dep, jnp.int32))
    times = [np.asarray(propagate(g, members, network, noise())) for g in (graph, deeper)]
    np.testing.assert_array_equal(times[0], times[1])


def test_twice_the_seconds_take_twice_the_time(small: StepGraph) -> None:
    """A power of two, so bit for bit; relative residuals stay."""
    graph, members = lowered(small, 0.1), ExplicitMembers(jnp.asarray(random_chip(small), jnp.float32))
    network = jax.tree.map(lambda x: x.astype(jnp.float32), random_network(small))
    doubled = eqx.tree_at(
        lambda g: (g.compute_s, g.comm_s, g.lag_s, g.end_compute_s, g.end_comm_s), graph, replace_fn=lambda x: 2.0 * x
    )
    once, twice = (np.asarray(propagate(g, members, network, noise())) for g in (graph, doubled))
    np.testing.assert_array_equal(twice, 2.0 * once)


def test_network_scores_share_every_random_number(small: StepGraph) -> None:
    """Two equal scores give two equal rows; one score alone gives the same row."""
    graph, members = lowered(small, 0.1), ExplicitMembers(jnp.asarray(random_chip(small), jnp.float32))
    network = jax.tree.map(lambda x: x.astype(jnp.float32), random_network(small))
    same = CommFactors(network.link, jnp.stack([network.regime[0]] * 2))
    two = np.asarray(propagate(graph, members, same, noise()))
    one = np.asarray(propagate(graph, members, CommFactors(network.link, network.regime[:1]), noise()))
    np.testing.assert_array_equal(two[0], two[1])
    np.testing.assert_array_equal(two[0], one[0])


@pytest.mark.parametrize("shape", SCHEDULES[1:4], ids=lambda s: f"{s[0]}-{s[1]}")
def test_without_variability_every_column_is_the_deterministic_step(shape: tuple[str, int, int, int]) -> None:
    """Bit for bit, for as many members and columns as one likes."""
    schedule = make_schedule(*shape)
    graph = lowered(build_graph(schedule, random_cost(schedule, 7)))
    chip = jnp.ones((3, 4, schedule.pp, 64), jnp.float32)
    times = np.asarray(
        jax.jit(propagate)(graph, ExplicitMembers(chip), unit_network(schedule.pp, 64, chip.dtype), None)
    )
    assert (times == np.asarray(unit_step(graph))).all()


def step_of(
    values: tuple[jax.Array, ...], graph: GraphArrays, members: ExplicitMembers, network: CommFactors
) -> jax.Array:
    changed = eqx.tree_at(lambda g: (g.compute_s, g.comm_s, g.lag_s, g.end_compute_s, g.end_comm_s), graph, values)
    return propagate(changed, members, network, None)[0, 0]


def test_gradient_equals_finite_differences_and_obeys_euler(x64: None, small: StepGraph) -> None:
    """step = sum of seconds x derivative, since a maximum of sums is homogeneous; derivatives lie on the critical path only."""
    graph, chip, network = lowered(small), ExplicitMembers(jnp.asarray(random_chip(small))), random_network(small)
    values = (graph.compute_s, graph.comm_s, graph.lag_s, graph.end_compute_s, graph.end_comm_s)
    value, gradient = jax.jit(jax.value_and_grad(step_of))(values, graph, chip, network)
    euler = sum(float((v * g).sum()) for v, g in zip(values, gradient, strict=True))
    assert euler == pytest.approx(float(value), rel=1e-12)
    step = jax.jit(step_of)
    rng = np.random.default_rng(0)
    for which, (array, slope) in enumerate(zip(values, gradient, strict=True)):
        for flat in rng.choice(array.size, min(4, array.size), replace=False):
            at = np.unravel_index(flat, array.shape)
            h = 1e-6
            ends = [
                step((*values[:which], jnp.asarray(array).at[at].add(d), *values[which + 1 :]), graph, chip, network)
                for d in (h, -h)
            ]
            assert float(ends[0] - ends[1]) / (2 * h) == pytest.approx(float(slope[at]), abs=1e-6)


def test_trail_tells_how_the_time_came_about(x64: None, small: StepGraph) -> None:
    """Starts wait for the lane and for predecessors, ends follow starts, and the last ends make the step."""
    graph, members, network = (
        lowered(small, 0.1),
        ExplicitMembers(jnp.asarray(random_chip(small))),
        random_network(small),
    )
    seen = trail(graph, members, network, noise())
    start, end, compute = (np.asarray(x) for x in (seen.start_s, seen.end_s, seen.compute_s))
    assert (end >= start + compute * (1 - 1e-6)).all()
    np.testing.assert_array_equal(np.maximum(start[1:], end[:-1]), start[1:])
    level, lane, d = np.nonzero(small.dep_level >= 0)
    sent = end[small.dep_level[level, lane, d], small.dep_lane[level, lane, d]]
    assert (start[level, lane] >= sent).all()
    after = graph.end_compute_s[:, 2, None] * members.chip[2].max(axis=0)
    after += graph.end_comm_s[:, None] * network.regime[0, -1] * network.link[-1]
    step = np.asarray(propagate(graph, members, network, noise()))[0]
    np.testing.assert_allclose((end[-1] + np.asarray(after)).max(axis=0), step, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(seen.end_of_lane_s).max(axis=0), step)


def test_other_numbers_do_not_compile_again(small: StepGraph) -> None:
    n_trace = 0

    @eqx.filter_jit
    def times(graph: GraphArrays, members: ExplicitMembers, network: CommFactors, noise: CallNoise) -> jax.Array:
        nonlocal n_trace
        n_trace += 1
        return propagate(graph, members, network, noise)

    for seed in range(3):
        schedule = make_schedule("1f1b", 3, 5, 1)
        graph = lowered(build_graph(schedule, random_cost(schedule, seed)), 0.1 * seed)
        members = ExplicitMembers(jnp.asarray(random_chip(small), jnp.float32) * (1.0 + seed))
        network = jax.tree.map(lambda x: x.astype(jnp.float32), random_network(small))
        times(graph, members, network, replace(noise(), key_data=key_words(jax.random.key(seed))))
    assert n_trace == 1


# --- Ops that all replicas start together, and durations that are given column by column -----------------------------


N_REPLICA, N_SAMPLE = 3, 4
MEETS_N_COLUMN = N_REPLICA * N_SAMPLE


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


def meets_lowered(graph: StepGraph, duration_s: np.ndarray, n_used: int | None = None) -> GraphArrays:
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
    return CommFactors(jnp.ones((n_axis, n_lane, MEETS_N_COLUMN)), jnp.ones((1, n_axis)))


def random_s(graph: StepGraph) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 2.0, (*graph.op.shape, MEETS_N_COLUMN)).astype(np.float32)


def test_columns_are_replicas_and_within_them_samples(graph: StepGraph) -> None:
    """By hand: lane 1 starts its second op when the slowest replica of the same sample is ready."""
    d = random_s(graph).astype(np.float64)
    found = np.asarray(propagate(meets_lowered(graph, d), GivenDurations(), network(2), None))[0]
    ready = d[0, 1].reshape(N_REPLICA, N_SAMPLE).max(axis=0)
    met = np.tile(ready, N_REPLICA) + d[1, 1]
    expected = np.maximum(np.maximum(d[0, 0] + d[1, 0], met) + d[2, 0], met + d[2, 1])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_one_late_replica_delays_all_behind_the_meeting(graph: StepGraph) -> None:
    d = random_s(graph)
    late = d.copy()
    late[0, 1, 0] += 100.0  # replica 0 of sample 0
    before, after = (trail(meets_lowered(graph, x), GivenDurations(), network(2), None) for x in (d, late))
    moved = np.asarray(after.start_s) - np.asarray(before.start_s) > 1.0
    of_sample = np.arange(MEETS_N_COLUMN) % N_SAMPLE == 0
    np.testing.assert_array_equal(moved[1, 1], of_sample)
    np.testing.assert_array_equal(moved[2], [of_sample, of_sample])
    assert not moved[0].any()
    assert not moved[1, 0].any()


def test_padding_does_not_change_a_number(graph: StepGraph) -> None:
    padded = pad_graph(graph)
    assert padded.meets.shape == padded.op.shape
    assert padded.meets.sum() == 1
    d = random_s(graph)
    wide = np.zeros((*padded.op.shape, MEETS_N_COLUMN), np.float32)
    wide[:3, :2] = d
    plain = propagate(meets_lowered(graph, d), GivenDurations(), network(2), None)
    same = propagate(meets_lowered(padded, wide, n_used=3), GivenDurations(), network(padded.n_lane), None)
    np.testing.assert_array_equal(np.asarray(plain), np.asarray(same))


def test_without_meetings_replicas_do_not_touch(graph: StepGraph) -> None:
    alone = replace(graph, meets=np.zeros_like(graph.meets))
    d = random_s(graph)
    late = d.copy()
    late[0, 1, 0] += 100.0
    before, after = (
        np.asarray(propagate(meets_lowered(alone, x), GivenDurations(), network(2), None)) for x in (d, late)
    )
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

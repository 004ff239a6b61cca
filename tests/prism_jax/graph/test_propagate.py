"""Propagation through a graph, and meetings of replicas in it."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.kernels import NETWORK_AXES, PASSES
from prism_jax.graph.build import Portion, build_graph, work_terms
from prism_jax.graph.draws import key_words, residual_map, standardised
from prism_jax.graph.levels import level_table
from prism_jax.graph.members import ExplicitMembers, member_table
from prism_jax.graph.propagate import CallNoise, CommFactors, GraphArrays, WorkFactors, lane_ends, propagate
from prism_jax.graph.step_graph import StepGraph, decide, noise_free_s, pad_graph
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


@pytest.mark.parametrize("shape", SCHEDULES, ids=lambda s: f"{s[0]}-{s[1]}")
def test_every_part_lasts_as_long_as_its_micro_batch_has_work(x64: None, shape: tuple[str, int, int, int]) -> None:
    """Against the event simulator: one class with a factor per micro-batch, one with a factor per chunk, too, one with none."""
    schedule = make_schedule(*shape)
    cost = random_cost(schedule, 7)
    graph, table, n_micro_batch = build_graph(schedule, cost), level_table(schedule), schedule.n_micro_batch
    portions = Portion(cost.compute_s[..., 0]), Portion(cost.compute_s[..., 1], by_chunk=True)
    factor = np.random.default_rng(4).lognormal(0.0, 0.3, ((1 + schedule.n_chunk) * n_micro_batch, N_COLUMN))
    work = WorkFactors(factor - 1.0, *work_terms(schedule, table, cost, portions))
    chip = np.broadcast_to(random_chip(graph)[:1], (3, N_MEMBER, graph.n_lane, N_COLUMN))
    network = unit_network(graph.n_lane, N_COLUMN, jnp.dtype(float))
    got = np.asarray(propagate(lowered(graph), ExplicitMembers(jnp.asarray(chip)), network, None, work))[0]
    level_of = [np.nonzero(graph.op[:, lane] >= 0)[0] for lane in range(graph.n_lane)]

    def step_s(column: int) -> float:
        def op_s(replica: int, stage: int, member: int, index: int) -> float:
            at = level_of[stage][index], stage
            compute_s = graph.compute_s[at].sum()
            for kind, micro_batch, chunk in schedule.orders[stage][index].parts:
                more = factor[[micro_batch, (1 + chunk) * n_micro_batch + micro_batch], column] - 1.0
                compute_s += cost.compute_s[PASSES.index(kind), chunk, :2] @ more
            return compute_s * chip[0, member, stage, column] + graph.comm_s[at].sum()

        def transfer_s(replica: int, part: tuple[str, int, int]) -> float:
            return float(cost.p2p_s[part[2] if part[0] == "F" else part[2] - 1])

        run = simulate(schedule_parts(schedule), schedule.n_chunk, op_s, transfer_s, n_member=N_MEMBER)
        last_s = [run.end_s[0, lane, len(order) - 1] for lane, order in enumerate(schedule.orders)]
        slowest = chip[2, :, :, column].max(axis=0)
        return float((last_s + graph.end_compute_s * slowest + graph.end_comm_s).max())

    np.testing.assert_allclose(got, [step_s(column) for column in range(N_COLUMN)], rtol=1e-12)


def test_micro_batches_of_mean_work_change_nothing(small: StepGraph) -> None:
    """To rounding, whatever is drawn."""
    schedule = make_schedule("1f1b", 3, 5, 1)
    cost = random_cost(schedule, 3)
    terms = work_terms(schedule, level_table(schedule), cost, [Portion(cost.compute_s.sum(axis=-1))])
    np.testing.assert_allclose(terms.share[small.op >= 0].sum(axis=-1), 1.0)
    members, network = ExplicitMembers(jnp.asarray(random_chip(small))), random_network(small)
    given = [None, WorkFactors(np.zeros((5, N_COLUMN)), *terms)]
    times = [np.asarray(propagate(lowered(small, 0.1), members, network, noise(), work)) for work in given]
    np.testing.assert_allclose(*times, rtol=1e-6)


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


@pytest.mark.parametrize(
    ("shape", "table"),
    [(SCHEDULES[1], False), (SCHEDULES[3], True), (SCHEDULES[6], True), (SCHEDULES[7], False)],
    ids=lambda own: own[0] if isinstance(own, tuple) else "",
)
def test_derivatives_along_the_path_are_those_of_the_whole_recursion(
    x64: None, shape: tuple[str, int, int, int], table: bool
) -> None:
    """In every number, forwards and backwards; with residuals, drawn in single precision, two network scores, links and work."""
    schedule = make_schedule(*shape)
    cost = random_cost(schedule, 7)
    plain = build_graph(schedule, cost)
    graph, network = jax.tree.map(jnp.asarray, lowered(plain, 0.05)), random_network(plain)
    several = np.random.default_rng(5).lognormal(0.0, 0.1, plain.lag_s.shape)  # so that nothing arrives together
    lag_s = jnp.where(plain.dep_level < 0, -1.0, plain.lag_s * several)
    graph = replace(graph, lag_s=lag_s)
    terms = work_terms(schedule, level_table(schedule), cost, [Portion(cost.compute_s[..., 0])])
    excess = jnp.asarray(np.random.default_rng(6).normal(0.0, 0.1, (schedule.n_micro_batch, N_COLUMN)))
    chain, chip = standardised(residual_map(LogNormal(0.1))), jnp.asarray(random_chip(plain))
    members = member_table(graph.compute_s, graph.call_sd, chip, chain) if table else ExplicitMembers(chip)
    network = replace(network, edge=1.5 * network.link[0] if table else None)
    step = graph, members, network, noise(), WorkFactors(excess, *terms)
    leaves, structure = jax.tree.flatten(step)
    real = [k for k, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    values = [jnp.asarray(leaves[k]) for k in real]

    def total(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def of(values: list[jax.Array]) -> jax.Array:
            changed = dict(zip(real, values, strict=True))
            made = function(*structure.unflatten([changed.get(k, leaf) for k, leaf in enumerate(leaves)]))
            return (made * jnp.array([[1.0, 0.3], [0.2, 0.7]])).sum()

        return of

    expected = jax.jit(jax.grad(total(lambda *step: lane_ends(*step)[0].max(axis=0))))(values)
    found = jax.jit(jax.grad(total(propagate)))(values)
    largest = max(float(jnp.abs(own).max()) for own in expected)
    for own, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-7 * largest)  # of draws in single precision
    forwards = jax.jit(lambda at: jax.jvp(total(propagate), (at,), (at,))[1])(values)
    assert float(forwards) == pytest.approx(sum(float((v * g).sum()) for v, g in zip(values, found, strict=True)))


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("shape", SCHEDULES, ids=lambda s: f"{s[0]}-{s[1]}")
def test_the_host_runs_the_same_step_and_walks_its_path_back(
    x64: None, shape: tuple[str, int, int, int], blocking: bool
) -> None:
    """The seconds of the ops on the path and of the lags that decided a start add up to the end."""
    schedule = make_schedule(*shape)
    graph = build_graph(schedule, random_cost(schedule, 7, blocking))
    whole = propagate(
        lowered(graph),
        ExplicitMembers(jnp.ones((3, 1, graph.n_lane, 1))),
        unit_network(graph.n_lane, 1, jnp.dtype(float)),
        None,
    )
    assert noise_free_s(graph, np.dtype(float)) == pytest.approx(float(whole[0, 0]), rel=1e-12)
    assert noise_free_s(pad_graph(graph), np.dtype(float)) == noise_free_s(graph, np.dtype(float))
    op_s, transfer = np.random.default_rng(3).lognormal(0.0, 0.2, (2, *graph.op.shape, N_COLUMN))
    op_s[graph.op < 0] = 0.0
    done = decide(graph, op_s, transfer)
    level, lane, by = done.path(graph, done.end_s[-1].argmax(axis=0))
    column, runs = np.arange(N_COLUMN), level >= 0
    on_path_s = (op_s[level, lane, column] * runs).sum(axis=0)
    lag_s = graph.lag_s[level, lane, by - 1] * transfer[level, lane, column] * (runs & (by > 0))
    np.testing.assert_allclose(on_path_s + lag_s.sum(axis=0), done.end_s[-1].max(axis=0), rtol=1e-12)


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

"""Every figure of a prediction with given slowdowns against brute force with those GPUs, written here in NumPy.

The job has one stage, groups of two GPUs that meet after every op, and six replicas that meet at the end of the step:

    step = max over replicas of  sum over ops of  max over members of  sum_c seconds_c factor_c (1 + sd noise)

Each comparison may miss its band of four standard errors by chance once in 15,000.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.explain.critical_path import criticality, slowest_weights
from prism_jax.explain.explain import breakdown, timelines
from prism_jax.explain.given import given_slowdowns, slowest_nodes
from prism_jax.explain.owners import p95_owners
from prism_jax.explain.types import GIVEN, GIVEN_LINKS
from prism_jax.simulate.allocation import allocation_spread
from prism_jax.simulate.inputs import KnownGpus, deterministic, known_gpus
from prism_jax.simulate.known_replicas import contenders
from prism_jax.simulate.predict import replica_times, symmetric
from prism_jax.simulate.program import Program, by_class
from prism_jax.variability.families import LogNormal, Normal
from prism_jax.variability.tree import ClassVariability, Variability
from tests.support.jobs import EVERYTHING, make_program

TP, DP, N_MICRO_BATCH = 2, 6, 4
GPU_SD = {"gemm": 0.02, "attention": 0.03, "memory": 0.01}
CALL_SD = {"gemm": 0.02, "attention": 0.01, "memory": 0.03}
TREE = Variability("t", {c: ClassVariability(gpu=LogNormal(GPU_SD[c]), call=Normal(CALL_SD[c])) for c in GPU_SD})
KEY = jax.random.key(0)
FEW = {"all": {3: 1.05, 4: 1.01, 9: 1.04, 10: 0.97}}
EVERY = {"all": {gpu: 1.0 + 0.004 * gpu for gpu in range(TP * DP)}}
ONE_CLASS = {"gemm": {3: 1.08, 8: 1.06}, "memory": {11: 1.1}}
GIVEN_TABLES = {"few": FEW, "every GPU": EVERY, "one class each": ONE_CLASS}


@dataclass(frozen=True)
class Oracle:
    """Steps by brute force.

    Attributes:
        seconds: [op, class] of the job.
        end_s: what follows the last op: the optimizer, and what nobody varies.
        given: kernel class -> GPU -> factor.
        fixed: kernel classes whose drawn GPUs and calls do not vary.
    """

    seconds: np.ndarray
    optimizer_s: float
    end_s: float
    given: Mapping[str, Mapping[int, float]]
    fixed: tuple[str, ...] = ()

    def steps(self, n_fleet: int, n_step: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Step times [fleet, step], and seconds of each class on the slowest replica's critical path [class], expected."""
        rng = np.random.default_rng(seed)
        score = rng.standard_normal((n_fleet, DP, TP))
        factor = np.stack(
            [self._factor(name, score) for name in COMPUTE_CLASSES], axis=-1
        )  # fleet, replica, member, class
        drawn = [self._one(factor, rng) for _ in range(n_step)]
        return np.stack([step for step, _ in drawn], axis=1), np.mean([seconds for _, seconds in drawn], axis=0)

    def _factor(self, name: str, score: np.ndarray) -> np.ndarray:
        sd = np.sqrt(np.log1p(GPU_SD[name] ** 2))
        factor = np.ones_like(score) if name in self.fixed else np.exp(sd * score - 0.5 * sd**2)
        for table in ("all", name):
            for gpu, value in self.given.get(table, {}).items():
                factor[:, gpu // TP, gpu % TP] = value
        return factor

    def _one(self, factor: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        sds = np.array([0.0 if name in self.fixed else CALL_SD[name] for name in COMPUTE_CLASSES])
        total = np.zeros(factor.shape[:2])
        seconds = np.zeros((*factor.shape[:2], factor.shape[-1]))
        for own in self.seconds:
            sd = np.sqrt(((own * sds) ** 2).sum()) / own.sum()
            noise = 1.0 + sd * rng.standard_normal(factor.shape[:3])
            member_s = (factor @ own) * noise
            slowest = member_s.argmax(axis=-1)[..., None]
            total += np.take_along_axis(member_s, slowest, -1)[..., 0]
            at = np.take_along_axis(factor, slowest[..., None], 2)[:, :, 0]
            seconds += at * own * np.take_along_axis(noise, slowest, -1)
        memory = factor[..., COMPUTE_CLASSES.index("memory")].max(axis=-1)
        total += self.optimizer_s * memory + self.end_s
        slowest = total.argmax(axis=1)
        return total.max(axis=1), seconds[np.arange(len(slowest)), slowest].mean(axis=0)


@pytest.fixture(scope="module")
def program() -> Program:
    return by_class(make_program(TREE, tp=TP, pp=1, dp=DP, n_micro_batch=N_MICRO_BATCH, tp_comm_s=0.0, p2p_s=0.0))


def oracle(program: Program, given: Mapping[str, Mapping[int, float]], fixed: tuple[str, ...] = ()) -> Oracle:
    cost = program.cost
    forward, *backward = cost.compute_s[:, 0]  # of the only chunk; gradients of inputs and of weights are one op here
    ops = np.stack([forward, np.sum(backward, axis=0)])
    return Oracle(
        np.tile(ops, (N_MICRO_BATCH, 1)), float(cost.end_compute_s[0]), float(cost.end_comm_s[0]), given, fixed
    )


def known_of(given: Mapping[str, Mapping[int, float]]) -> KnownGpus:
    return known_gpus(given, TP * DP)


def p95_and_error(time_s: np.ndarray) -> tuple[float, float]:
    parts = [np.quantile(part, 0.95) for part in np.array_split(time_s.ravel(), 16)]
    return float(np.quantile(time_s, 0.95)), float(np.std(parts, ddof=1) / 4.0)


def fall_of(before: np.ndarray, after: np.ndarray) -> tuple[float, float]:
    """Fall of the p95 on the same draws, and its error."""
    parts = zip(np.array_split(before.ravel(), 16), np.array_split(after.ravel(), 16), strict=True)
    each = [np.quantile(one, 0.95) - np.quantile(other, 0.95) for one, other in parts]
    return float(np.quantile(before, 0.95) - np.quantile(after, 0.95)), float(np.std(each, ddof=1) / 4.0)


def assert_within(found: tuple[float, float], right: tuple[float, float], least: float = 0.0) -> None:
    """Within four standard errors of both; `least`: what single precision leaves."""
    assert abs(found[0] - right[0]) <= 4.0 * np.hypot(found[1], right[1]) + least, (found, right)


N = 40_000
ROUNDING_S = 1e-5


@pytest.mark.parametrize("name", GIVEN_TABLES)
def test_owners_of_the_p95_are_those_of_the_given_gpus(program: Program, name: str) -> None:
    given = GIVEN_TABLES[name]
    own = contenders(program, known_of(given), KEY)
    found = p95_owners(replica_times(program, KEY, 512, own), KEY)
    before, _ = oracle(program, given).steps(N)
    p95 = symmetric(program, KEY, 512, own)
    assert_within((p95.quantile(0.95), p95.mc_error(0.95)), p95_and_error(before))
    assert set(found.value) == {*COMPUTE_CLASSES, GIVEN}
    for owner, value in found.value.items():
        other = oracle(program, {}) if owner == GIVEN else oracle(program, given, fixed=(owner,))
        assert_within((value, found.error[owner]), fall_of(before, other.steps(N)[0]), ROUNDING_S)


def without(given: Mapping[str, Mapping[int, float]], nodes: Sequence[int]) -> dict[str, dict[int, float]]:
    return {
        name: {gpu: factor for gpu, factor in table.items() if gpu // 8 not in nodes} for name, table in given.items()
    }


@pytest.mark.parametrize("name", GIVEN_TABLES)
def test_costs_of_nodes_are_those_of_other_gpus_in_their_place(program: Program, name: str) -> None:
    given, key = GIVEN_TABLES[name], jax.random.key(1)
    gpus = known_of(given)
    nodes = slowest_nodes(program, gpus)
    listed = [device for node in nodes for device in node.devices]
    times = replica_times(program, key, 512, contenders(program, gpus, key, listed))
    found = given_slowdowns(gpus, nodes, times, key)
    known = {gpu for table in given.values() for gpu in table}
    assert found.n_gpus == len(known)
    assert {node.node for node in found.nodes} == {gpu // 8 for gpu in known}
    before, _ = oracle(program, given).steps(N)
    for k, node in enumerate(found.nodes):
        assert node.stages == (0,)
        assert node.replicas == tuple(sorted({gpu // TP for gpu in known if gpu // 8 == node.node}))
        alone, _ = oracle(program, without(given, [node.node])).steps(N)
        assert_within((node.cost_s, node.cost_error_s), fall_of(before, alone), ROUNDING_S)
        slower, _ = oracle(program, without(given, [one.node for one in found.nodes[: k + 1]])).steps(N)
        assert_within((node.with_slower_s, node.with_slower_error_s), fall_of(before, slower), ROUNDING_S)


@pytest.mark.parametrize("name", GIVEN_TABLES)
def test_spreads_are_those_of_allocations_that_hold_the_given_gpus(program: Program, name: str) -> None:
    given = GIVEN_TABLES[name]
    own = contenders(program, known_of(given), KEY)
    whole = symmetric(program, KEY, 512, own)
    found = allocation_spread(program, whole, KEY, own)
    n_step = 8
    steps, _ = oracle(program, given).steps(10_000, n_step)
    share = []
    for part in np.array_split(steps, 16):
        within = part.var(axis=1, ddof=1).mean()
        between = part.mean(axis=1).var(ddof=1) - within / n_step
        share.append(between / (between + within))
    assert_within((found.share, found.share_error), (float(np.mean(share)), float(np.std(share, ddof=1)) / 4.0))
    if name == "every GPU":
        assert (found.share, found.between_s) == (0.0, 0.0)
    means = steps.mean(axis=1)
    typical = steps[np.abs(means - np.median(means)).argsort()[:1000]]
    slack = 0.02 * steps.std()  # the mean of eight steps tells a typical allocation but roughly
    assert_within((found.p95_s, found.p95_error_s), p95_and_error(typical), slack)


@pytest.mark.parametrize("name", GIVEN_TABLES)
def test_the_critical_path_is_that_of_the_slowest_replica(program: Program, name: str) -> None:
    given = GIVEN_TABLES[name]
    times = replica_times(program, KEY, 512, contenders(program, known_of(given), KEY))
    found = criticality(program, KEY, times)
    steps, seconds = oracle(program, given).steps(N)
    for one, value in zip(COMPUTE_CLASSES, seconds / steps.mean(), strict=True):
        assert abs(found.value[one] - value) <= 4.0 * found.error[one] + 5e-4
    assert sum(found.value.values()) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("name", GIVEN_TABLES)
def test_the_breakdown_has_the_average_gpu_as_slow_as_given(program: Program, name: str) -> None:
    given = GIVEN_TABLES[name]
    gpus = known_of(given)
    whole = symmetric(program, KEY, 512, contenders(program, gpus, KEY))
    parts = breakdown(program, whole, gpus)
    own = oracle(program, given)
    mean = np.where(np.isnan(gpus.factor), 1.0, gpus.factor).mean(axis=1)
    assert parts["compute"] == pytest.approx((own.seconds @ mean).sum() + own.optimizer_s * mean[2], rel=1e-5)
    assert sum(parts.values()) == pytest.approx(whole.mean_s, rel=1e-6)
    steps, _ = own.steps(N)
    waited = steps.mean() - parts["compute"] - own.end_s
    assert parts["waiting_for_stragglers"] == pytest.approx(waited, abs=2e-3 * steps.mean())


def test_a_timeline_is_one_of_the_slowest_known_replica(program: Program) -> None:
    given = {"all": {3: 1.3}}
    whole = symmetric(program, KEY, 512, contenders(program, known_of(given), KEY))
    lines = timelines(program, whole, KEY, known_of(given))
    for line, p in zip(lines, (0.5, 0.99), strict=True):
        assert line.step_s == pytest.approx(whole.quantile(p), rel=0.01)


def test_replicas_that_cannot_be_the_slowest_are_not_simulated(program: Program) -> None:
    gpus = known_of({"all": {0: 1.3, 5: 0.9, 11: 1.15}})
    assert contenders(program, gpus, KEY).replicas.tolist() == [0]
    assert contenders(program, gpus, KEY, listed=[0]).replicas.tolist() == [0, 5]  # what is left once it is replaced


def test_kinds_of_columns_share_the_chance_to_be_the_slowest() -> None:
    """Two replicas of one kind and one of another, all alike: each has a third."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 4000))
    ones = np.ones(4000)
    found = slowest_weights([(first, ones, 2), (second, ones, 1)])
    assert found[0].sum() == pytest.approx(2 / 3, abs=0.02)
    assert found[1].sum() == pytest.approx(1 / 3, abs=0.02)
    assert found[0].sum() + found[1].sum() == pytest.approx(1.0)


def test_two_nodes_that_are_equally_slow_cost_nothing_one_by_one(program: Program) -> None:
    quiet = replace(program, job=replace(program.job, variability=Variability()))
    still = by_class(quiet)
    gpus = known_of({"all": {0: 1.1, 8: 1.1}})
    nodes = slowest_nodes(still, gpus)
    times = replica_times(still, KEY, 512, contenders(still, gpus, KEY, [0, 8]))
    found = given_slowdowns(gpus, nodes, times, KEY)
    assert [node.cost_s for node in found.nodes] == pytest.approx([0.0, 0.0], abs=1e-5)
    whole_s = sum(0.1 * own.sum() for own in oracle(still, {}).seconds) + 0.1 * float(still.cost.end_compute_s[0])
    assert found.nodes[1].with_slower_s == pytest.approx(whole_s, rel=1e-4)


def test_a_slow_nic_owns_the_p95_and_its_node_is_named() -> None:
    program = by_class(make_program(EVERYTHING, tp=8, pp=2, dp=4))
    slow, gpu = {"nic": dict.fromkeys(range(8, 16), 2.0)}, {"all": {3: 1.005}}
    known = known_gpus(slow | gpu, program.job.plan.n_devices)
    nodes = slowest_nodes(program, known)
    own = contenders(program, known, KEY, listed=known.devices.tolist())
    times = replica_times(program, KEY, 512, own)
    found = p95_owners(times, KEY)
    others = {GIVEN: slow, GIVEN_LINKS: gpu}
    for owner, given in others.items():
        rest = contenders(program, known_gpus(given, program.job.plan.n_devices), KEY)
        other = symmetric(program, KEY, 512, rest)
        falls = times.steps().quantile(0.95) - other.quantile(0.95)
        assert abs(found.value[owner] - falls) <= 4.0 * np.hypot(found.error[owner], other.mc_error(0.95))
    assert max(found.value, key=lambda owner: found.value[owner]) == GIVEN_LINKS
    told = given_slowdowns(known, nodes, times, KEY)
    assert [(one.node, one.link_slowdown) for one in told.nodes] == [(1, 2.0), (0, 1.0)]
    assert told.step_s > 1.02 * deterministic(program)
    assert told.nodes[0].cost_s == pytest.approx(found.value[GIVEN_LINKS], rel=1e-6)

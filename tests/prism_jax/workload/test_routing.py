"""The load of the busiest rank of an expert-parallel group against brute force, token by token."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.routing import (
    ExpertCounts,
    ExpertGroup,
    ExpertRouting,
    busiest_loads,
    concentration_of,
    dropped_tokens,
    gini_of,
    loads_of_layers,
    loads_of_steps,
    mean_busiest,
)

CASES = [  # experts, top k, ranks, tokens of the group, Gini coefficient
    (8, 2, 4, 2048, 0.10),
    (8, 2, 8, 1024, 0.38),
    (64, 6, 4, 1024, 0.20),
    (64, 6, 32, 512, 0.38),
    (256, 8, 8, 256, 0.10),
    (256, 8, 32, 256, 0.20),
]
N = 150  # micro-batches by hand
MOST_ERRORS = 4.0  # 40 comparisons: one false alarm in 400 runs


def gini(load: np.ndarray) -> float:
    ordered, n = np.sort(load), len(load)
    return float((ordered * (2.0 * np.arange(1, n + 1) - n - 1.0)).sum() / (n * ordered.sum()))


def tokens_of_experts(share: np.ndarray, top_k: int, n_token: int, rng: np.random.Generator) -> np.ndarray:
    """Tokens [expert]: every token takes k different experts, each as often as its share of all tokens says.

    Experts stand in a row in random order, each as wide as its share of k; those that k points, one apart, fall on are taken.
    """
    wanted = top_k * share
    while (wanted > 1.0).any():  # nobody can be taken by more than all tokens
        over, rest = np.maximum(wanted - 1.0, 0.0).sum(), np.where(wanted < 1.0, wanted, 0.0)
        wanted = np.minimum(wanted, 1.0) + over * rest / rest.sum()
    order = rng.permuted(np.tile(np.arange(len(share)), (n_token, 1)), axis=1)
    ends = np.cumsum(wanted[order], axis=1) - rng.random((n_token, 1))
    taken = np.diff(np.ceil(np.round(ends, 9)), axis=1, prepend=0.0)
    return np.bincount(order.ravel(), taken.ravel(), len(share))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_busiest_rank_is_as_loaded_as_token_by_token_and_as_many_are_dropped(
    case: tuple[int, int, int, int, float],
) -> None:
    n_experts, top_k, ep, n_token, wanted = case
    rng, a = np.random.default_rng(11), concentration_of(wanted, n_experts)
    shares = rng.dirichlet(np.full(n_experts, a), N)
    loads = np.array([tokens_of_experts(share, top_k, n_token, rng) for share in shares])
    assert (loads.sum(axis=1) == n_token * top_k).all()
    ginis = [gini(share) for share in shares]
    assert abs(np.mean(ginis) - wanted) <= MOST_ERRORS * np.std(ginis) / np.sqrt(N)
    by_hand = loads.reshape(N, ep, -1).sum(axis=2).max(axis=1) * ep / (n_token * top_k)
    found = busiest_loads(ExpertRouting(wanted), ExpertGroup(n_experts, top_k, ep, n_token))
    assert abs(found.mean() - by_hand.mean()) <= MOST_ERRORS * by_hand.std(ddof=1) / np.sqrt(N)
    square = (by_hand - by_hand.mean()) ** 2
    assert abs(found.var() - square.mean()) <= MOST_ERRORS * square.std(ddof=1) / np.sqrt(N)
    for p in (0.5, 0.9):
        assert abs((by_hand <= np.quantile(found, p)).mean() - p) <= MOST_ERRORS * np.sqrt(p * (1 - p) / N)
    for capacity in (1.0, 1.25, 2.0):
        room = np.ceil(n_token * top_k / n_experts * capacity)
        over = np.maximum(loads - room, 0.0).sum(axis=1) / (n_token * top_k)
        dropped = dropped_tokens(ExpertRouting(wanted), ExpertGroup(n_experts, top_k, 1, n_token), capacity)
        assert abs(dropped.mean - over.mean()) <= MOST_ERRORS * over.std(ddof=1) / np.sqrt(N) + 1e-4
        if dropped.p95 > 0.0:
            assert abs((over <= dropped.p95).mean() - 0.95) <= MOST_ERRORS * np.sqrt(0.95 * 0.05 / N)


def test_gini_and_concentration_are_inverses() -> None:
    for n_experts in (2, 8, 256):
        for wanted in (0.05, 0.2, 0.38):
            assert gini_of(concentration_of(wanted, n_experts), n_experts) == pytest.approx(wanted, rel=1e-6)


def test_layers_average_their_scatter() -> None:
    group, routing = ExpertGroup(64, 6, 8, 4096), ExpertRouting(0.2)
    one, four = (loads_of_layers(routing, group, n) for n in (1, 4))
    assert one.mean() == pytest.approx(0.0, abs=1e-12)
    assert four.std() == pytest.approx(one.std() / 2.0, rel=0.02)
    assert (np.diff(one) >= 0.0).all()


def test_even_routing_is_no_routing() -> None:
    with pytest.raises(SpecError, match="routing left out"):
        ExpertRouting(0.0)


def drifting(a: float, n_expert: int, drift: float, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Shares [step, expert] of two steps in a row, by the recursion as it is written."""
    before = rng.gamma(a, size=(n, n_expert))
    after = rng.beta(a * (1.0 - drift), a * drift, before.shape) * before + rng.gamma(a * drift, size=before.shape)
    return before / before.sum(axis=1, keepdims=True), after / after.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("drift", [0.02, 0.3, 1.0 - 1e-9])
def test_popularity_drifts_and_stays_what_it_is(drift: float) -> None:
    """Two steps have one law, correlated by 1 - drift; ranks as the busiest load is."""
    rng, n, gini_of_experts, group = np.random.default_rng(13), 20_000, 0.25, ExpertGroup(16, 2, 4, 8192)
    before, after = drifting(concentration_of(gini_of_experts, 16), 16, drift, n, rng)
    assert abs(before.var() - after.var()) <= 5.0 * before.var() / np.sqrt(n)
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] == pytest.approx(1.0 - drift, abs=0.01)
    busiest = [own.reshape(n, 4, 4).sum(axis=2).max(axis=1) for own in (before, after)]
    found = loads_of_steps(ExpertRouting(gini_of_experts, drift), group, (3, 2), 4000)
    assert found.ar1 == pytest.approx(np.corrcoef(*busiest)[0, 1], abs=0.03)


def test_steps_have_the_loads_of_micro_batches_whatever_the_drift() -> None:
    group = ExpertGroup(64, 6, 8, 2048)
    each = busiest_loads(ExpertRouting(0.2), group)
    found = [loads_of_steps(ExpertRouting(0.2, drift), group, (1, 0, 4), 1 << 14) for drift in (0.01, 0.5)]
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    one, none, four = found[0].mean.T
    assert not none.any()
    assert abs(one.mean()) <= 4.0 * one.std() / np.sqrt(len(one))
    assert four.std() == pytest.approx(one.std() / 2.0, rel=0.03)
    both = np.sqrt(one.var() + found[0].scatter.var())
    assert both == pytest.approx(each.std() / each.mean(), rel=0.05)


def recorded(n_step: int = 40, n_layer: int = 3, n_expert: int = 8, rho: float = 0.9) -> ExpertCounts:
    rng, a, steps = np.random.default_rng(14), 5.0, []
    g = rng.gamma(a, size=(n_layer, n_expert))
    for _ in range(n_step):
        steps.append(np.round(4096 * g / g.sum(axis=1, keepdims=True)))
        g = rng.beta(a * rho, a * (1 - rho), g.shape) * g + rng.gamma(a * (1 - rho), size=g.shape)
    return ExpertCounts(np.array(steps), "log.csv")


def test_recorded_steps_are_drawn_as_they_are() -> None:
    """The busiest rank of every recorded step and layer; layers of the model are spread over the recorded ones."""
    counts, group = recorded(), ExpertGroup(8, 2, 4, 1 << 30)  # so many tokens that nothing scatters
    found = loads_of_steps(ExpertRouting(counts=counts), group, (4, 2))
    of_rank = counts.tokens.reshape(40, 3, 4, 2).sum(axis=3)
    busiest = 4.0 * of_rank.max(axis=2) / of_rank.sum(axis=2)
    by_hand = np.stack([busiest[:, [0, 0, 1, 1]].mean(axis=1), busiest[:, [2, 2]].mean(axis=1)], axis=1)
    np.testing.assert_allclose(1.0 + found.mean, by_hand / mean_busiest(ExpertRouting(counts=counts), group), rtol=1e-4)
    assert mean_busiest(ExpertRouting(counts=counts), group) == pytest.approx(busiest.mean(), rel=0.01)
    own = busiest - busiest.mean(axis=0)
    assert found.ar1 == pytest.approx((own[1:] * own[:-1]).mean() / (own**2).mean())


def test_even_counts_of_many_tokens_wait_for_nobody() -> None:
    counts = ExpertCounts(np.full((2, 2, 8), 100.0))
    routing, group = ExpertRouting(counts=counts), ExpertGroup(8, 2, 8, 1 << 30)
    assert mean_busiest(routing, group) == pytest.approx(1.0, abs=1e-3)
    assert dropped_tokens(routing, group, 1.0).mean < 1e-3


def test_drift_and_counts_that_contradict_themselves_are_refused() -> None:
    for drift in (0.0, -0.1, 1.5):
        with pytest.raises(SpecError, match="drift"):
            ExpertRouting(0.2, drift)
    with pytest.raises(SpecError, match="drift and counts"):
        ExpertRouting(0.2, 0.5, recorded())
    with pytest.raises(SpecError, match="needs tokens"):
        ExpertCounts(np.zeros((2, 2, 8)))
    spec: Any = model("mixtral-8x7b")
    with pytest.raises(SpecError, match="4 experts, but n_experts = 8"):
        replace(spec.moe, routing=ExpertRouting(counts=recorded(n_expert=4)))

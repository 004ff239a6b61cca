"""The load of the busiest rank of an expert-parallel group against brute force, token by token."""

import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.workload.transformer.routing import (
    ExpertGroup,
    ExpertRouting,
    busiest_loads,
    concentration_of,
    gini_of,
    loads_of_layers,
)

CASES = [  # experts, top k, ranks, tokens of the group, Gini coefficient
    (8, 2, 4, 2048, 0.10),
    (8, 2, 8, 1024, 0.20),
    (8, 2, 8, 1024, 0.38),
    (64, 6, 4, 1024, 0.20),
    (64, 6, 8, 512, 0.10),
    (64, 6, 32, 512, 0.38),
    (256, 8, 8, 256, 0.10),
    (256, 8, 32, 256, 0.20),
    (256, 8, 32, 256, 0.38),
]
N = 150  # micro-batches by hand
MOST_ERRORS = 4.0  # 27 comparisons: one false alarm in 600 runs


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
def test_the_busiest_rank_is_as_loaded_as_token_by_token(case: tuple[int, int, int, int, float]) -> None:
    n_experts, top_k, ep, n_token, wanted = case
    rng = np.random.default_rng(11)
    a = concentration_of(wanted, n_experts)
    busiest, ginis = [], []
    for _ in range(N):
        share = rng.dirichlet(np.full(n_experts, a))
        load = tokens_of_experts(share, top_k, n_token, rng)
        assert load.sum() == n_token * top_k
        busiest.append(load.reshape(ep, -1).sum(axis=1).max() * ep / load.sum())
        ginis.append(gini(share))
    assert abs(np.mean(ginis) - wanted) <= MOST_ERRORS * np.std(ginis) / np.sqrt(N)
    found, by_hand = busiest_loads(ExpertRouting(wanted), ExpertGroup(n_experts, top_k, ep, n_token)), np.array(busiest)
    assert abs(found.mean() - by_hand.mean()) <= MOST_ERRORS * by_hand.std(ddof=1) / np.sqrt(N)
    square = (by_hand - by_hand.mean()) ** 2
    assert abs(found.var() - square.mean()) <= MOST_ERRORS * square.std(ddof=1) / np.sqrt(N)
    for p in (0.5, 0.9):
        assert abs((by_hand <= np.quantile(found, p)).mean() - p) <= MOST_ERRORS * np.sqrt(p * (1 - p) / N)


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

"""How unevenly routers load the ranks of an expert-parallel group: the law of the busiest of them, per layer and micro-batch.

The popularity of the experts of a layer, in one micro-batch, is a symmetric Dirichlet draw; its concentration a per expert
follows from the Gini coefficient G of the loads of E experts. A rank with E / ep experts has the sum of their shares, which is
Dirichlet again:

    G = (E - 1) / E  Gamma(a + 1/2) / (Gamma(a + 1) sqrt(pi))        x ~ Dirichlet(a E / ep, ..., a E / ep)

N tokens go to k different experts each. Given x, the loads of ranks scatter as a multinomial of N k draws does, with variances
times (E - k) / (E - 1) since no token takes an expert twice; N k is thousands, so that the scatter is normal. What a rank works
on, over the mean of all:

    load_r = ep (x_r + sqrt(c / N k) (sqrt(x_r) z_r - x_r sum_s sqrt(x_s) z_s))        c = (E - k) / (E - 1)

Everybody waits for the largest. Layers and micro-batches are independent, so a stage waits for a sum. With a capacity factor
inputs are padded to it, whatever the load.

Source: Gini coefficients of .10 to .38 in five models, arXiv 2605.20982.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ...core.arrays import Floats
from ...core.errors import SpecError
from ...core.lazy import np
from ...plan.micro_batch_work import N_ROW

LEAST_GINI, MOST_GINI = 0.005, 0.95
MOST_CELLS = 1 << 22  # rows times ranks that are drawn for a table


@dataclass(frozen=True)
class ExpertRouting:
    """How routers load experts.

    Attributes:
        gini: Gini coefficient of the tokens of experts, of one layer and micro-batch; 0.005 to 0.95.
    """

    gini: float = 0.2  # in the middle of the published ones

    def __post_init__(self) -> None:
        if not LEAST_GINI <= self.gini <= MOST_GINI:
            raise SpecError(
                f"moe.routing: gini = {self.gini}, but a Gini coefficient of loads lies in {LEAST_GINI} to {MOST_GINI}. Even "
                "loads are routing left out."
            )


@dataclass(frozen=True)
class ExpertGroup:
    """Who shares out the experts of a layer, and what is routed among them.

    Attributes:
        n_experts, top_k: of the layer.
        ep: ranks.
        n_tokens: of a micro-batch, of all ranks together.
    """

    n_experts: int
    top_k: int
    ep: int
    n_tokens: int


def gini_of(concentration: float, n_experts: int) -> float:
    """Expected Gini coefficient of symmetric Dirichlet shares."""
    log = math.lgamma(concentration + 0.5) - math.lgamma(concentration + 1.0) - 0.5 * math.log(math.pi)
    return (n_experts - 1) / n_experts * math.exp(log)


@lru_cache(maxsize=256)
def concentration_of(gini: float, n_experts: int) -> float:
    """Dirichlet concentration per expert at which shares have this Gini coefficient."""
    low, high = -12.0, 16.0  # of its logarithm
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gini_of(math.exp(middle), n_experts) > gini else (low, middle)
    return math.exp(0.5 * (low + high))


@lru_cache(maxsize=32)
def busiest_loads(routing: ExpertRouting, group: ExpertGroup) -> Floats:
    """[row] equally likely loads of the busiest rank over the mean, in no order."""
    rng, ep = np.random.default_rng(0), group.ep
    n = int(min(N_ROW, MOST_CELLS // ep))
    per_rank = concentration_of(routing.gini, group.n_experts) * group.n_experts / ep
    share = rng.standard_gamma(per_rank, (n, ep), dtype=np.float32)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-30)
    spread = (group.n_experts - group.top_k) / max(group.n_experts - 1, 1) / (group.n_tokens * group.top_k)
    scatter = np.sqrt(share) * rng.standard_normal((n, ep), dtype=np.float32)
    scatter -= share * scatter.sum(axis=1, keepdims=True)
    return np.asarray(ep * (share + math.sqrt(spread) * scatter).max(axis=1), dtype=np.float64)


@lru_cache(maxsize=32)
def mean_busiest(routing: ExpertRouting, group: ExpertGroup) -> float:
    """Mean load of the busiest rank over the mean of all."""
    return float(busiest_loads(routing, group).mean())


@lru_cache(maxsize=32)
def loads_of_layers(routing: ExpertRouting, group: ExpertGroup, n_layer: int) -> Floats:
    """[row] equally likely means over `n_layer` layers of the busiest rank's load, from the least, over the mean less one."""
    one, rng = busiest_loads(routing, group), np.random.default_rng(1)
    total = sum(rng.permutation(one) for _ in range(min(n_layer, 64))) / min(n_layer, 64)
    row = np.sort(np.asarray(total))[(np.arange(N_ROW) * len(one)) // N_ROW]
    return row / row.mean() - 1.0

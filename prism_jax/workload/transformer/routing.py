"""Load of the ranks of an expert-parallel group: the law of the busiest of them, per layer and micro-batch.

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

With a drift d the popularity is that of a step: unnormalised weights g of a layer's experts keep their Gamma law from step to
step, a share of each replaced by a fresh one,

    g' = B g + e        B ~ Beta(a (1 - d), a d), e ~ Gamma(a d)        correlation of steps n apart: (1 - d)^n

so that the popularity of every single step is the Dirichlet draw above, whatever d, and sums of experts of a rank follow the
same law with their own a. Counts that were recorded take its place: a step has the shares of a recorded step, in all layers.

Source: beta-gamma autoregression, Lewis, McKenzie and Hugus, Stochastic Models 5 (1989).

Source: Gini coefficients of .10 to .38 in five models, arXiv 2605.20982.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ...core.arrays import Floats
from ...core.content import ByContent
from ...core.errors import SpecError
from ...core.lazy import np
from ...plan.packing import N_ROW

LEAST_GINI, MOST_GINI = 0.005, 0.95
LEAST_DRIFT, MOST_AR1 = 1e-6, 1.0 - 1e-7
MOST_DRAWN = 16  # micro-batches of a popularity whose scatter is drawn
MOST_CELLS = 1 << 22  # rows times ranks that are drawn for a table


@dataclass(frozen=True, eq=False)
class ExpertCounts(ByContent):
    """Recorded tokens of experts.

    Attributes:
        tokens: [step, layer, expert], steps in their order; every layer of a step has some.
        file: they were read from.
    """

    tokens: Floats
    file: str = ""

    def __post_init__(self) -> None:
        if self.tokens.ndim != 3 or not (self.tokens.sum(axis=-1) > 0.0).all():
            raise SpecError(
                f"moe.routing.counts: {self.tokens.shape}, but every step and layer needs tokens of experts"
            )

    @property
    def written(self) -> str:
        """Value in a job file."""
        return self.file

    def shares(self, ep: int) -> Floats:
        """Shares of the tokens of a layer, [step, layer, rank]; ranks hold experts in their order, as many each."""
        of_rank = self.tokens.reshape(*self.tokens.shape[:2], ep, -1).sum(axis=-1)
        return of_rank / of_rank.sum(axis=-1, keepdims=True)


@dataclass(frozen=True)
class ExpertRouting:
    """Loads of experts by a router.

    Attributes:
        gini: Gini coefficient of the tokens of experts, of one layer and micro-batch; 0.005 to 0.95.
        drift: share of the popularity of experts that a step replaces; all micro-batches and replicas of a step have the same.
            None: every layer and micro-batch has its own.
        counts: recorded, in the place of both; all micro-batches and replicas of a step have the popularity of a recorded one.
    """

    gini: float = 0.2  # in the middle of the published ones
    drift: float | None = None
    counts: ExpertCounts | None = None

    def __post_init__(self) -> None:
        if not LEAST_GINI <= self.gini <= MOST_GINI:
            raise SpecError(
                f"moe.routing: gini = {self.gini}, but a Gini coefficient of loads lies in {LEAST_GINI} to {MOST_GINI}. Even "
                "loads are routing left out."
            )
        if self.drift is not None and not LEAST_DRIFT <= self.drift <= 1.0:
            raise SpecError(
                f"moe.routing: drift = {self.drift}, but the share of popularity that a step replaces lies in {LEAST_DRIFT} to 1"
            )
        if self.counts is not None and self.drift is not None:
            raise SpecError("moe.routing: drift and counts both say how popularity changes. Leave one of them out.")

    @property
    def of_steps(self) -> bool:
        """Whether popularity is that of a step, and not of every micro-batch."""
        return self.drift is not None or self.counts is not None


@dataclass(frozen=True)
class ExpertGroup:
    """Ranks that share out the experts of a layer, and tokens that are routed among them.

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
    """Equally likely loads of the busiest rank over the mean, in no order, [row]."""
    rng, ep = np.random.default_rng(0), group.ep
    share = _popularity(routing, group, int(min(N_ROW, MOST_CELLS // ep)), rng)
    return _loads(share, group, rng).max(axis=1)


def _popularity(routing: ExpertRouting, group: ExpertGroup, n: int, rng: np.random.Generator) -> Floats:
    """Shares of the tokens of a layer, of any layer and step, [row, rank]."""
    if routing.counts is not None:
        own = routing.counts.shares(group.ep).reshape(-1, group.ep)
        return own[rng.integers(len(own), size=n)]
    share = rng.standard_gamma(_per_rank(routing, group), (n, group.ep), dtype=np.float32)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-30)
    return share


def _per_rank(routing: ExpertRouting, group: ExpertGroup) -> float:
    """Dirichlet concentration of a rank."""
    return concentration_of(routing.gini, group.n_experts) * group.n_experts / group.ep


def _loads(share: Floats, group: ExpertGroup, rng: np.random.Generator) -> Floats:
    """Loads over their mean, of micro-batches whose popularity is `share`, [row, rank]."""
    spread = (group.n_experts - group.top_k) / max(group.n_experts - 1, 1) / (group.n_tokens * group.top_k)
    scatter = np.sqrt(share) * rng.standard_normal(share.shape, dtype=np.float32)
    scatter -= share * scatter.sum(axis=-1, keepdims=True)
    return np.asarray(group.ep * (share + math.sqrt(spread) * scatter), dtype=np.float64)


@lru_cache(maxsize=32)
def mean_busiest(routing: ExpertRouting, group: ExpertGroup) -> float:
    """Mean load of the busiest rank over the mean of all."""
    return float(busiest_loads(routing, group).mean())


@lru_cache(maxsize=32)
def loads_of_layers(routing: ExpertRouting, group: ExpertGroup, n_layer: int) -> Floats:
    """Equally likely means over `n_layer` layers of the busiest rank's load, from the least, over the mean less one, [row].

    Notes: where popularity is that of steps, only what micro-batches scatter around it.
    """
    one, rng = busiest_loads(routing, group), np.random.default_rng(1)
    if routing.of_steps:
        one = 1.0 + loads_of_steps(routing, group, (1,)).scatter
    total = sum(rng.permutation(one) for _ in range(min(n_layer, 64))) / min(n_layer, 64)
    row = np.sort(np.asarray(total))[(np.arange(N_ROW) * len(one)) // N_ROW]
    return row / row.mean() - 1.0


class StepLoads(NamedTuple):
    """Loads of the busiest rank in steps, all micro-batches of which have the same popularity.

    Attributes:
        mean: [step, chunk] of micro-batches, over layers, over the mean of all less one; steps equally likely.
        scatter: [row] of micro-batches of one layer around it, over the mean of all.
        ar1: autocorrelation of a layer's load from one step to the next.
    """

    mean: Floats
    scatter: Floats
    ar1: float


@lru_cache(maxsize=32)
def loads_of_steps(routing: ExpertRouting, group: ExpertGroup, layers: tuple[int, ...], n_step: int = 1) -> StepLoads:
    """Loads of `n_step` steps whose popularity drifts, or of those that were recorded.

    Args:
        layers: with experts of every chunk, chunk after chunk; recorded ones are spread over them in their order.
    """
    rng, whole = np.random.default_rng(2), mean_busiest(routing, group)
    if routing.counts is not None:
        share = routing.counts.shares(group.ep)
        own = (np.arange(sum(layers)) * share.shape[1]) // max(sum(layers), 1)
        clean = group.ep * share.max(axis=-1)
        of_layers, n_step, ar1 = iter(clean[:, own].T), len(clean), _autocorrelation(clean)
    else:
        share = _popularity(routing, group, int(min(N_ROW, MOST_CELLS // group.ep)), rng)
        clean, n_step = group.ep * share.max(axis=-1), min(n_step, len(share))
        ar1, of_layers = _drifting(routing, group), (rng.permutation(clean)[:n_step] for _ in range(sum(layers)))
    n_draw = min(max(1, MOST_CELLS // share.size), MOST_DRAWN)  # micro-batches of a popularity
    scatter = np.concatenate([(_loads(share, group, rng).max(axis=-1) - clean).ravel() for _ in range(n_draw)])
    shift, mean = float(scatter.mean()), np.full((n_step, len(layers)), whole)
    for chunk, n in enumerate(layers):
        if n:
            mean[:, chunk] = np.mean([next(of_layers) for _ in range(n)], axis=0) + shift
    return StepLoads(mean / whole - 1.0, (scatter - shift) / whole, ar1)


def _autocorrelation(load: Floats) -> float:
    """Autocorrelation of recorded loads [step, layer] from step to step, all layers together; 0 of fewer than three steps."""
    own = load - load.mean(axis=0)
    square = float((own**2).mean())
    return 0.0 if len(own) < 3 or square == 0.0 else float(np.clip((own[1:] * own[:-1]).mean() / square, 0.0, MOST_AR1))


def _drifting(routing: ExpertRouting, group: ExpertGroup) -> float:
    """Autocorrelation of the largest share under the drift."""
    rng, drift = np.random.default_rng(3), routing.drift or 1.0
    a, shape = _per_rank(routing, group), (int(min(N_ROW // 4, MOST_CELLS // (4 * group.ep))), group.ep)
    stays, goes, comes = (rng.standard_gamma(own, shape) for own in (a * (1.0 - drift), a * drift, a * drift))
    before, after = ((stays + own).max(axis=1) / (stays + own).sum(axis=1) for own in (goes, comes))
    return float(np.clip(np.corrcoef(before, after)[0, 1], 0.0, MOST_AR1))


@dataclass(frozen=True)
class DroppedTokens:
    """Shares of the choices of tokens that find their expert full, of a device's micro-batch in a layer.

    Attributes:
        mean, p95: over layers and micro-batches.
    """

    mean: float
    p95: float


@lru_cache(maxsize=32)
def dropped_tokens(routing: ExpertRouting, group: ExpertGroup, capacity_factor: float) -> DroppedTokens:
    """Returns the share of tokens dropped where an expert takes `capacity_factor` times the mean, rounded up.

    Args:
        group: with the tokens of one device, which fills the experts' places for its own tokens by itself.

    Source: Megatron-Core, `get_capacity` and `topk_routing_with_score_function` (transformer.moe.moe_utils).
    """
    every, rng = replace(group, ep=group.n_experts), np.random.default_rng(4)
    share = _popularity(routing, every, int(min(N_ROW, MOST_CELLS // (4 * group.n_experts))), rng)
    tokens = rng.binomial(group.n_tokens, np.minimum(group.top_k * share.astype(np.float64), 1.0))  # once each at most
    chosen = group.n_tokens * group.top_k
    over = np.maximum(tokens - math.ceil(chosen / group.n_experts * capacity_factor), 0).sum(axis=1) / chosen
    return DroppedTokens(float(over.mean()), float(np.quantile(over, 0.95)))

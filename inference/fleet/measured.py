"""Shares of chips, nodes and runs in the variance of a measured fleet, and its GPUs and nodes that lie far from the others.

Spreads of a fit are those of the population, from which the next fleet's GPUs are drawn. What a person asks of a table is how
*these* GPUs differ: a chip at 15 standard deviations is in their variance with the place it has, and does not widen what is said
of a population. So for each posterior draw of the population, the effects of the measured nodes and chips are drawn given their
measurements, and the variance of the drawn effects is one draw of the fleet's own (the finite-population standard deviation:
Gelman, Annals of Statistics 33, 2005, section 3.5).

That is known better than the population's, but not exactly: a node's mean is its own effect plus the mean of its chips' effects,
and no number of runs tells the two apart. Of n nodes of g chips, the variance of the node effects b is uncertain by some
2 sd(b) sd(chip) / sqrt(g n): 2 points of all for 64 nodes of 4 to 8 chips, whoever estimates. A share that is known worse than to
`KNOWN_TO` is said as a range.

A share of slow chips is a question about the fleet; which chip is slow is one about the chip, and a single chip at ten standard
deviations answers it whatever the share. So chips are compared with the other chips of their kernel, and nodes with the other
nodes. A chip counts as it lies in its node, whose own deviation is taken out as far as it is known (shrunk by its noise; a node
that is itself named, wholly). Scatter is estimated without what is named (trimmed, made consistent for a Normal law). The limit
is that of Student's t at which `FALSE_NAMES` chips, and as many nodes, of a fleet are named by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from prism_jax.core.arrays import Floats
from prism_jax.core.robust import robust_sd

from ..engine.model import Draws
from .data import FleetData
from .predict import FleetParameters, draw_cell_effects, each_draw

N_DRAW = 400  # of the posterior's: standard error of a median 6% of the share's standard deviation


def measured_variances(data: FleetData, draws: Draws) -> tuple[Floats, Floats, Floats]:
    """Variance of the effects of the measured chips, of the nodes, and of their sums [draw, kernel], in squares of log time.

    About the mean of a series, over cells: a node counts as often as GPUs were measured on it. Draws are thinned to `N_DRAW`.
    """

    def one(fleet: FleetData, law: FleetParameters, key: jax.Array) -> jax.Array:
        node, chip = draw_cell_effects(fleet, law, key)
        return jnp.stack([_variance(fleet, effect) for effect in (chip, node, chip + node)])

    found = each_draw(data, one, {name: value[_thinned(draws)] for name, value in draws.items()}, jax.random.key(0))
    return found[:, 0], found[:, 1], found[:, 2]


def _variance(data: FleetData, effect: jax.Array) -> jax.Array:
    """Mean square of the cells' effects about the mean of their series [kernel]."""
    ones = jnp.ones_like(data.count)
    n_series = len(data.series)
    mean = jax.ops.segment_sum(effect, data.cell_series, n_series) / jnp.maximum(
        jax.ops.segment_sum(ones, data.cell_series, n_series), 1.0
    )
    square = (effect - mean[data.cell_series]) ** 2
    n_kernel = len(data.kernel)
    return jax.ops.segment_sum(square, data.cell_kernel, n_kernel) / jnp.maximum(
        jax.ops.segment_sum(ones, data.cell_kernel, n_kernel), 1.0
    )


def _thinned(draws: Draws) -> slice:
    return slice(None, None, max(len(draws["slow_prob"]) // N_DRAW, 1))


def run_variance(data: FleetData, draws: Draws) -> Floats:
    """Variance of log time within a GPU [draw, kernel], disturbed rows and what covariates explain in it; thinned likewise."""
    draws = {name: value[_thinned(draws)] for name, value in draws.items()}
    run = draws["rest_spread"] ** 2 + data.disturbed_square
    if "run_spread" in draws:
        run = run + draws["run_spread"] ** 2
    if "slope" in draws:
        slope = draws["slope"]
        run = run + np.einsum("dkc,kce,dke->dk", slope, data.sxx, slope) / np.maximum(data.dof, 1.0)
    return run


def variance_shares(data: FleetData, draws: Draws) -> dict[str, Floats]:
    """Share of each level [draw, kernel]: GPU, node and run; GPU and node together where rows name no nodes."""
    gpu, node, both = measured_variances(data, draws)
    run = run_variance(data, draws)
    parts = {"gpu": gpu, "node": node, "run": run} if data.has_nodes else {"gpu and node": both, "run": run}
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


FALSE_NAMES = 1e-3  # expected in a fleet whose chips are Normal
CLIP = 3.0
FEWEST = 6  # chips, or nodes, of which the scatter can be told
ROUNDS = 8
LEAST_SD = 1e-6


@dataclass(frozen=True)
class Outlier:
    """A GPU or a node that lies far from the others.

    Attributes:
        gpu: its name; empty for a node.
        node: its name; empty where the GPU is alone on a node without a name.
        kernel: with which it does.
        excess: its time over that of the others, less one; of a GPU within its node.
        sigma: the same in standard deviations of the others.
    """

    gpu: str
    node: str
    kernel: str
    excess: float
    sigma: float

    @property
    def name(self) -> str:
        """Name of the GPU with its node, or of the node."""
        if not self.gpu:
            return self.node
        return self.gpu if not self.node or self.gpu.startswith(f"{self.node}:") else f"{self.gpu} on {self.node}"


@dataclass(frozen=True)
class Outliers:
    """Outliers of a fleet, farthest first."""

    chips: tuple[Outlier, ...]
    nodes: tuple[Outlier, ...]


def outliers(data: FleetData) -> Outliers:
    """The GPUs and nodes that are named."""
    chips: list[Outlier] = []
    nodes: list[Outlier] = []
    for series in range(len(data.series)):
        cell = np.flatnonzero(data.cell_series == series)
        if len(cell) >= FEWEST:
            found = _of_series(data, cell, series)
            chips += found.chips
            nodes += found.nodes
    return Outliers(_worst(chips), _worst(nodes))


def _worst(found: list[Outlier]) -> tuple[Outlier, ...]:
    """Each once, with the kernel in which it lies farthest."""
    best: dict[tuple[str, str], Outlier] = {}
    for one in sorted(found, key=lambda one: -abs(one.sigma)):
        best.setdefault((one.gpu, one.node), one)
    return tuple(best.values())


def _of_series(data: FleetData, cell: NDArray[np.intp], series: int) -> Outliers:
    gpu = data.cell_gpu[cell]
    node_of = data.gpu_node[gpu]
    names, node = np.unique(node_of, return_inverse=True)
    size = np.bincount(node)
    x = data.mean_log[cell] - data.series_median[series]
    kernel = int(data.cell_kernel[cell[0]])
    rest = float(data.syy[kernel] / max(data.dof[kernel], 1.0)) / data.count[cell]
    alone = bool((size == 1).all())
    chip_sd, far_chip = _scatter(x - _others(x, node, size), rest)
    mean, n_kept = _means(x, node, far_chip, size)
    inner = chip_sd**2 / n_kept
    _, far_node, node_sigma = _named(mean, inner)
    own = _scatter_of(mean[~far_node], inner[~far_node])
    weight = np.where(far_node, 1.0, own**2 / np.maximum(own**2 + inner, 1e-30))
    effect = np.zeros_like(x) if alone else (weight * (mean - np.median(mean)))[node]
    left = x - np.median(mean) - effect if not alone else x - np.median(x)
    known = (1.0 - weight)[node] * inner[node] * 0.5 if not alone else np.zeros_like(x)
    _, far, sigma = _named(left, rest + known)
    several = len(data.series) > 1
    label = data.series[series] if several else ""
    chips = [
        Outlier(str(data.gpu[gpu[i]]), _node_name(data, node_of[i]), label, float(np.expm1(left[i])), float(sigma[i]))
        for i in np.flatnonzero(far).tolist()
    ]
    nodes = [
        Outlier("", str(data.node[names[i]]), label, float(np.expm1(mean[i] - np.median(mean))), float(node_sigma[i]))
        for i in np.flatnonzero(far_node & (size > 1)).tolist()
    ]
    return Outliers(tuple(chips), () if alone else tuple(nodes))


def _node_name(data: FleetData, node: int) -> str:
    name = str(data.node[node])
    return "" if name.startswith("of ") else name


def _others(x: Floats, node: NDArray[np.intp], size: NDArray[np.intp]) -> Floats:
    """Median of the other GPUs of a GPU's node; of all, where it has fewer than two others [cell]."""
    found = np.full(len(x), float(np.median(x)))
    for n in np.flatnonzero(size > 2).tolist():
        members = np.flatnonzero(node == n)
        for i in members.tolist():
            found[i] = float(np.median(x[members[members != i]]))
    return found


def _means(x: Floats, node: NDArray[np.intp], far: NDArray[np.bool_], size: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Mean of the GPUs of a node that are not far, of all where all are; and how many they are [node]."""
    kept = np.bincount(node, ~far, len(size))
    use = ~far | (kept[node] == 0)
    n = np.bincount(node, use, len(size)).astype(np.float64)
    return np.bincount(node, x * use, len(size)) / n, n


def _scatter(values: Floats, noise: Floats) -> tuple[float, NDArray[np.bool_]]:
    """Standard deviation beyond the noise, and which values are far."""
    centre, far, _ = _named(values, noise)
    return max(_scatter_of(values[~far] - centre, noise[~far]), LEAST_SD), far


def _scatter_of(values: Floats, noise: Floats) -> float:
    """Standard deviation of values beyond noise of known variances."""
    if len(values) < 2:
        return 0.0
    return float(np.sqrt(max(_sd(values) ** 2 - float(np.median(noise)), 0.0)))


def _sd(values: Floats) -> float:
    """Standard deviation of the values within `CLIP` of the median, as of a Normal law."""
    from scipy.stats import norm  # half a second, which reading measurements does not pay

    centre = float(np.median(values))
    sd = max(robust_sd(values, centre), LEAST_SD)
    inside = 1.0 - 2.0 * CLIP * norm.pdf(CLIP) / (2.0 * norm.cdf(CLIP) - 1.0)
    for _ in range(ROUNDS):
        kept = values[np.abs(values - centre) <= CLIP * sd]
        sd = max(float(np.sqrt(((kept - centre) ** 2).mean() / inside)), LEAST_SD)
    return sd


def _named(values: Floats, noise: Floats) -> tuple[float, NDArray[np.bool_], Floats]:
    """Median, which values lie beyond the limit, and how far all do in standard deviations."""
    from scipy.stats import t

    centre, n = float(np.median(values)), len(values)
    if n < FEWEST:
        return centre, np.zeros(n, bool), np.zeros(n)
    own = _scatter_of(values, noise)
    scaled = (values - centre) / np.sqrt(np.maximum(own**2 + noise, LEAST_SD**2))
    far = np.zeros(n, bool)
    for _ in range(ROUNDS):
        sd = _sd(scaled[~far])
        limit = float(t.isf(0.5 * FALSE_NAMES / n, max(int((~far).sum()) - 1, 1)))
        new = np.abs(scaled) > limit * sd
        if (new == far).all() or new.mean() > 0.5:
            break
        far = new
    return centre, far, scaled / sd

"""Model of the differences between GPUs and nodes of a fleet: log kernel time = kernel + node + GPU + run.

    log t = mu[series] + nu[kernel] b[node] + tau[kernel] z[GPU] + omega[kernel] e[GPU, kernel]
            + rho[kernel] u[node, run] + beta . (x - mean x of the GPU) + sigma[kernel] eps

`b` is normal with a share of nodes that lie far, `z` a bulk N(0, 1) plus a component of slow (or fast) chips; one score per GPU
for all kernels. GPUs and nodes are integrated out (`predict`), so that a fleet of any size leaves some ten numbers to sample. `e`
is present where GPUs were measured with several kernels, `u` where the GPUs of a node share runs, `x` (clock, temperature, power)
where they were logged: what they do to one GPU over time. What they explain *between* GPUs is a result, not a correction: a chip
is slow because it clocks low, and the next fleet will hold such chips too.

A fit says shares of variance per level, slow chips, what the clock does, and the Variability they amount to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.fits.report import KNOWN_TO
from prism_jax.variability.families import CONSTANT, Family, LogNormal
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import ClassVariability, Variability

from ..engine.diagnostics import Checks
from ..engine.model import Draws, GroupScore, Model, interval
from ..engine.program import Scale, traced
from .data import COLUMNS, FleetData, fleet_data
from .measured import Outlier, outliers, variance_shares
from .predict import (
    POSITIVE,
    SLOW_PROB,
    Component,
    FleetParameters,
    far_nodes,
    laws_of,
    log_nodes,
    replicate,
    score_split,
    slow_chips,
)

# GPUs of one model: 1.6-14% GEMM spread over 20,000 GPUs (arXiv 2510.15596), 0.7-2% on small fleets: 0.15-7% within two
# factors.
GPU_SPREAD = Scale(0.010, 2.7)
# Nodes share power, cooling and a host: a fifth of the chips' spread, but all of it where one job spans the node (two factors
# up).
NODE_SPREAD = Scale(0.002, 4.0)
# A kernel's own response of a chip, beyond the score it shares with the other kernels of that chip.
KERNEL_SPREAD = Scale(0.003, 3.0)
# Repeats on one GPU: 0.1% for medians of 100 calls, 1-6.5% for single calls (arXiv 2510.15596).
RUN_SPREAD = Scale(0.004, 4.0)

# A kernel's typical time is set by the data: 0.5 in log, around the measured median, is no constraint.
LOCATION_SD = 0.5
# Their distance from the bulk in bulk spreads, either way (a fleet may hold a fast batch): 4 covers 7% slow at 1.6% spread.
SLOW_SHIFT_SD = 4.0
# Their own spread, in bulk spreads.
SLOW_SPREAD = Scale(1.5, 2.0)
# Nodes that lie far from the others: their spread over that of the others, less one; from twice to ten times. Share: as slow
# chips.
FAR_ABOVE = Scale(2.0, 2.5)
# Change of log time per unit of log clock, log power or 10 K within one GPU: between -1 (compute bound) and a little.
SLOPE_SD = 1.0

LARGEST_PROB = 0.999  # of the slower component of a `Mixture`
SMALLEST_CV = 1e-5
CLASS_WORDS = {  # part of a kernel's name -> kernel class
    "gemm": ("gemm", "matmul", "cublas", "linear", "conv"),
    "attention": ("attention", "attn", "flash", "sdp"),
    "memory": ("pagerank", "copy", "memcpy", "bandwidth", "stream", "norm", "elementwise", "softmax"),
}


MOST_NAMED = 12


def _named(kind: str, found: Sequence[Outlier]) -> list[str]:
    """Notes on the GPUs or nodes that lie far from the others."""
    if not found:
        return []
    told = [
        f"{one.name} {one.excess:+.1%}, {abs(one.sigma):.0f} sigma{f' ({one.kernel})' if one.kernel else ''}"
        for one in found[:MOST_NAMED]
    ]
    more = f"; and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
    return [f"{len(found):,} {kind}{'' if len(found) == 1 else 's'} far from the others: {'; '.join(told)}{more}"]


def _facts(found: Sequence[Outlier]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "gpu": one.gpu, "node": one.node, "excess": one.excess, "sigma": one.sigma} for one in found
    ]


def _not_found(name: str, members: str, component: Component, named: int) -> list[str]:
    if component.is_found:
        return []
    most = np.quantile(component.share, 0.95)
    start = f"apart from those named, no {name} stand out" if named else f"no {name} stand out from the others"
    return [
        f"{start} (Bayes factor {component.bayes_factor:.2g}, below {POSITIVE:g}); at most {most:.0%} of the {members} may be "
        "such (95%). How far they would lie is not known and is left open in predictions"
    ]


def _no_nodes(data: FleetData) -> str:
    """Why there is no share of nodes."""
    why = "all GPUs are on one node" if len(data.node) == 1 else "rows name no node that holds several GPUs"
    return (
        f"{why}: how nodes differ is not known, and is within the share of the GPUs. Name nodes with --map node=COLUMN"
    )


def _known_to(intervals: Mapping[str, Mapping[str, float]], data: FleetData) -> list[str]:
    """Lists shares that are ranges, why, and which data would narrow them."""
    half = {name: 0.5 * (part["p95"] - part["p5"]) for name, part in intervals.items()}
    wide = [name for name, points in half.items() if points > KNOWN_TO]
    if not wide:
        return []
    worst = max(half.values())
    told = ", ".join(f"{name} {100.0 * intervals[name]['p5']:.0f} to {intervals[name]['p95']:.0%}" for name in wide)
    each = len(data.gpu) / len(data.node)
    means = (
        f": a node's mean holds the mean of its {each:.3g} GPUs, which no number of runs tells from the node. About "
        f"{np.ceil((worst / KNOWN_TO) ** 2 * len(data.node)):,.0f} nodes would tell to {100.0 * KNOWN_TO:.0f} points, "
        f"{len(data.node):,} are here"
        if data.has_nodes
        else ""
    )
    return [f"shares not known to {100.0 * KNOWN_TO:.0f} points are ranges (90%): {told}{means}"]


def _kernel(data: FleetData, draws: Draws, k: int, parts: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Describes one kernel: shares of the measured fleet, spreads of the population.

    Args:
        parts: draws of the shares [draw, kernel].
    """
    gpu = draws["gpu_spread"][:, k] ** 2 * _score_variance(draws)
    if "kernel_spread" in draws:
        gpu = gpu + draws["kernel_spread"][:, k] ** 2
    far = 1.0 + draws["far_prob"] * (draws["far_spread"] ** 2 - 1.0)
    known = {name: interval(part[:, k]) for name, part in parts.items()}
    return {
        "variance_shares": {name: share["median"] for name, share in known.items()},
        "variance_share_intervals": known,
        "gpu_cv": interval(np.sqrt(gpu)),
        "gpu_bulk_cv": interval(draws["gpu_spread"][:, k]),
        **({"node_cv": interval(draws["node_spread"][:, k] * np.sqrt(far))} if data.has_nodes else {}),
        **({"shared_run_cv": interval(draws["run_spread"][:, k])} if "run_spread" in draws else {}),
        "rest_cv": interval(draws["rest_spread"][:, k]),
        "disturbed_share": float(data.n_disturbed[k] / data.n_row[k]),
        "disturbed_excess": float(np.expm1(data.disturbed_excess[k])),
    }


def _score_variance(draws: Draws) -> np.ndarray:
    """Variance of the score of a chip, both components together; in the shape of the draws."""
    p, shift, spread = draws["slow_prob"], draws["slow_shift"], draws["slow_spread"]
    return (1.0 - p) + p * spread**2 + p * (1.0 - p) * shift**2


def _covariates(data: FleetData, draws: Draws) -> dict[str, Any]:
    """Correlation of each covariate with the time across GPUs, share of their variance it explains, and slope within a GPU."""
    found: dict[str, Any] = {}
    for c, name in enumerate(data.covariate):
        per_kernel = {}
        for k, kernel in enumerate(data.kernel):
            cell = np.flatnonzero(data.cell_kernel == k)
            time = data.mean_log[cell] - data.series_median[data.cell_series[cell]]
            r = float(np.corrcoef(time, data.gpu_covariate[data.cell_gpu[cell], c])[0, 1])
            per_kernel[kernel] = {
                "correlation_across_gpus": r,
                "correlation_interval_90": _fisher(r, len(cell)),
                "explained_share": r * r,
                "slope_within_gpu": interval(draws["slope"][:, k, c]),
            }
        found[name] = per_kernel
    return found


def _fisher(r: float, n: int) -> list[float]:
    """90% interval of a correlation of `n` pairs (Fisher's z)."""
    half = 1.6449 / np.sqrt(max(n - 3, 1))
    return [float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half))]


def kernel_class(name: str) -> str | None:
    """Kernel class of a kernel's name; None where the name tells none."""
    lower = name.lower()
    return next((kind for kind, words in CLASS_WORDS.items() if any(word in lower for word in words)), None)


def _factors(draw: Mapping[str, np.ndarray], kernels: list[int]) -> ClassVariability:
    """Factors of the kernel in the middle, of several kernels of a class."""
    k = sorted(kernels, key=lambda i: float(draw["gpu_spread"][i]))[len(kernels) // 2]
    rest = float(draw["rest_spread"][k])
    shared = float(draw["run_spread"][k]) if "run_spread" in draw else 0.0
    return ClassVariability(
        gpu=_gpu_family(draw, k),
        node=_node_family(draw, k),
        call=LogNormal(max(float(np.hypot(rest, shared)), SMALLEST_CV)),
    )


def _node_family(draw: Mapping[str, np.ndarray], k: int) -> Family:
    nu = float(draw["node_spread"][k])
    if nu < SMALLEST_CV:
        return CONSTANT
    return Mixture(nu, float(draw["far_prob"]), 1.0, nu * float(draw["far_spread"]))


def _gpu_family(draw: Mapping[str, np.ndarray], k: int) -> Family:
    """The two components, the faster one as the bulk (its probability may be the smaller)."""
    tau, p = float(draw["gpu_spread"][k]), float(draw["slow_prob"])
    own = float(draw["kernel_spread"][k]) if "kernel_spread" in draw else 0.0
    shift = tau * float(draw["slow_shift"])
    bulk, slow = np.hypot(tau, own), np.hypot(tau * float(draw["slow_spread"]), own)
    if shift >= 0.0:
        return Mixture(float(bulk), _prob(p), float(np.exp(shift)), float(slow))
    return Mixture(float(slow), _prob(1.0 - p), float(np.exp(-shift)), float(bulk))


def _prob(drawn: float) -> float:
    """Bounds the probability of the slower component of a mixture: draws may put all chips into one of the two."""
    return min(max(drawn, 1.0 - LARGEST_PROB), LARGEST_PROB)


REPORTED = (
    "typical_log_s", "gpu_spread", "node_spread", "run_spread", "rest_spread", "kernel_spread", "slow_prob",
    "slow_shift", "slow_spread", "far_prob", "far_spread", "slope",
)  # fmt: skip


class FleetModel(Model[FleetData]):
    """The fleet model; see the module."""

    name = "fleet"
    holdout_method = "svi"
    columns = COLUMNS
    reported = REPORTED
    holdout = "halves"

    def prepare(self, frame: pd.DataFrame) -> FleetData:
        """The data of a checked table.

        Raises:
            DataError: there are fewer than four GPUs.
        """
        return fleet_data(frame)

    def program(self, data: FleetData) -> None:
        """The NumPyro model of log seconds; arrays of `data` are traced."""
        n_kernel = len(data.kernel)
        nothing = jnp.zeros(n_kernel)

        def spread(name: str, prior: Scale) -> Any:
            return numpyro.sample(name, prior.law().expand([n_kernel]).to_event(1))

        law = FleetParameters(
            typical_log_s=numpyro.sample(
                "typical_log_s", dist.Normal(jnp.asarray(data.series_median), LOCATION_SD).to_event(1)
            ),
            gpu_spread=spread("gpu_spread", GPU_SPREAD),
            node_spread=spread("node_spread", NODE_SPREAD),
            run_spread=spread("run_spread", RUN_SPREAD) if data.shared_runs else nothing,
            rest_spread=spread("rest_spread", RUN_SPREAD),
            kernel_spread=spread("kernel_spread", KERNEL_SPREAD) if data.several_kernels else nothing,
            slow_prob=numpyro.deterministic("slow_prob", 0.5 * numpyro.sample("slow_half", dist.Beta(*SLOW_PROB))),
            slow_shift=numpyro.sample("slow_shift", dist.Normal(0.0, SLOW_SHIFT_SD)),
            slow_spread=numpyro.sample("slow_spread", SLOW_SPREAD.law()),
            far_prob=numpyro.deterministic("far_prob", 0.5 * numpyro.sample("far_half", dist.Beta(*SLOW_PROB))),
            far_spread=numpyro.deterministic("far_spread", 1.0 + numpyro.sample("far_above", FAR_ABOVE.law())),
        )
        _runs(data, law.run_spread, law.rest_spread)
        numpyro.factor("nodes", log_nodes(data, law).sum())

    def start(self, data: FleetData) -> dict[str, Any]:
        """Values of the sites at which chains begin, from moments of the data."""
        rest = data.mean_log - data.series_median[data.cell_series]
        total = np.array([_robust_sd(rest[data.cell_kernel == k]) for k in range(len(data.kernel))])
        run = np.sqrt(data.syy / np.maximum(data.dof, 1.0))
        start: dict[str, Any] = {
            "typical_log_s": data.series_median,
            "gpu_spread": total * (0.3 if data.on_nodes else 1.0),
            "node_spread": total * (1.0 if data.on_nodes else 0.2),
            "rest_spread": np.maximum(run, 1e-5),
            "slow_half": 0.1,
            "slow_shift": 3.0 * np.sign(_skew(rest)),
            "slow_spread": 1.5,
            "far_half": 0.1,
            "far_above": 2.0,
        }
        if data.shared_runs:
            start["run_spread"] = np.maximum(run, 1e-5)
        if data.several_kernels:
            start["kernel_spread"] = np.maximum(0.3 * total, 1e-5)
        if data.covariate:
            start["slope"] = np.zeros((len(data.kernel), len(data.covariate)))
        return start

    def describe(self, data: FleetData, draws: Draws) -> dict[str, Any]:
        """Shares of variance, spreads, slow chips, correlations with what was logged; all with 90% intervals."""
        apart = outliers(data)
        parts = variance_shares(data, draws)
        kernels = {name: _kernel(data, draws, k, parts) for k, name in enumerate(data.kernel)}
        first = next(iter(kernels.values()))
        slow, far = slow_chips(data, draws), far_nodes(data, draws)
        return {
            "n_gpus": len(data.gpu),
            "n_nodes": len(data.node),
            "n_rows": int(data.n_row.sum()),
            "variance_shares": first["variance_shares"],
            "variance_share_intervals": first["variance_share_intervals"],
            "kernels": kernels,
            "slow_chips": {
                "named": _facts(apart.chips),
                "bayes_factor": slow.bayes_factor,
                "prob": interval(slow.share),
                "shift_in_bulk_spreads": interval(draws["slow_shift"]) if slow.is_found else None,
                "spread_in_bulk_spreads": interval(draws["slow_spread"]) if slow.is_found else None,
            },
            "far_nodes": {
                "named": _facts(apart.nodes),
                "bayes_factor": far.bayes_factor,
                "prob": interval(far.share),
                "spread_in_node_spreads": interval(draws["far_spread"]) if far.is_found else None,
            },
            "covariates": _covariates(data, draws),
            "notes": [
                *_named("chip", apart.chips),
                *_named("node", apart.nodes),
                *_not_found("slow chips", "chips", slow, len(apart.chips)),
                *(_not_found("far nodes", "nodes", far, len(apart.nodes)) if data.has_nodes else [_no_nodes(data)]),
                *_known_to(first["variance_share_intervals"], data),
                *data.notes,
            ],
        }

    def judged(self, data: FleetData, draws: Draws) -> Draws:
        """Draws that data can determine [chain, draw, ...]: the spread of all chips, and no component that is not found."""
        draws = {name: value for name, value in draws.items() if name in REPORTED}
        unknown = [] if slow_chips(data, draws).is_found else ["slow_shift", "slow_spread"]
        unknown += [] if far_nodes(data, draws).is_found else ["far_spread"]
        spread = draws["gpu_spread"] * np.sqrt(_score_variance(draws))[..., None]
        return {**{name: value for name, value in draws.items() if name not in unknown}, "spread_of_all_gpus": spread}

    def variability(self, data: FleetData, draw: Mapping[str, np.ndarray]) -> Variability:
        """The tree of one draw: persistent GPU and node factors and residual per kernel class, disturbed runs left out.

        Kernels that name no class (training iterations) stand for every compute class that no kernel of the fleet names.
        """
        of_class: dict[str, list[int]] = {}
        for k, name in enumerate(data.kernel):
            of_class.setdefault(kernel_class(name) or "", []).append(k)
        rest = of_class.pop("", None) or of_class.get("gemm") or next(iter(of_class.values()))
        classes = {name: _factors(draw, of_class.get(name, rest)) for name in COMPUTE_CLASSES}
        return Variability(
            name="fitted fleet", classes=classes, source=f"fit to {len(data.gpu)} GPUs on {len(data.node)} nodes"
        )

    def score(
        self, data: FleetData, draws: Draws, left_out: pd.DataFrame, column: str, key: jax.Array
    ) -> list[GroupScore]:
        """One score of a split: the GPUs left out are points of the predicted distribution."""
        return [score_split(data, draws, left_out, key)]

    def replicate(self, data: FleetData, draws: Draws, key: jax.Array) -> Checks:
        """Mean log seconds of every GPU and kernel, as of a GPU that was not measured on the same node."""
        return replicate(data, draws, key)

    def log_likelihood(self, data: FleetData, draws: Draws) -> tuple[np.ndarray, str]:
        """[draw, node] and what a group is."""
        arrays, rebuild = traced(data)
        laws = laws_of(draws)
        each = jax.jit(lambda given, laws: jax.lax.map(lambda law: log_nodes(rebuild(given), law), laws))
        return np.asarray(each(arrays, laws)), "node"


def _runs(data: FleetData, rho: jax.Array, sigma: jax.Array) -> None:
    """Repeats: sums of squares of shared runs, and of the rest less what the covariates explain."""
    squares, run_squares = data.syy, data.block_square
    if data.covariate:
        shape = (len(data.kernel), len(data.covariate))
        slope = numpyro.sample("slope", dist.Normal(0.0, SLOPE_SD).expand(shape).to_event(2))
        explained = 2.0 * (slope * data.sxy).sum(-1) - jnp.einsum("kc,kcd,kd->k", slope, data.sxx, slope)
        squares = squares - explained
        of_block = jnp.asarray(slope)[data.block_kernel]
        run_squares = run_squares - 2.0 * (of_block * data.block_sxy).sum(-1)
        run_squares += jnp.einsum("bc,bcd,bd->b", of_block, data.block_sxx, of_block)
    if data.shared_runs:
        k = data.block_kernel
        variance = sigma[k] ** 2 + data.block_gpus * rho[k] ** 2
        shared = -0.5 * (data.block_dof * jnp.log(variance) + run_squares / variance)
        numpyro.factor("shared_runs", shared.sum())
    numpyro.factor("runs", (-data.dof * jnp.log(sigma) - 0.5 * squares / sigma**2).sum())


def _robust_sd(values: np.ndarray) -> float:
    low, high = np.quantile(values, [0.16, 0.84])
    return max(float(high - low) / 2.0, 1e-4)


def _skew(values: np.ndarray) -> float:
    low, middle, high = np.quantile(values, [0.01, 0.5, 0.99])
    return float(high + low - 2.0 * middle) or 1.0

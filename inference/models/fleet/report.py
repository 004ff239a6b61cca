"""What a fitted fleet says: shares of variance per level, slow chips, the clock; and the Variability it amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.kernels import COMPUTE_CLASSES
from prism_jax.variability.families import CONSTANT, Family, LogNormal, Mixture
from prism_jax.variability.tree import ClassVariability, Variability

from ...model import Draws
from ...summary import interval
from .data import FleetData
from .evidence import POSITIVE, Component, far_nodes, slow_chips

LARGEST_PROB = 0.999  # of the slower component of a `Mixture`
SMALLEST_CV = 1e-5
CLASS_WORDS = {  # part of a kernel's name -> kernel class
    "gemm": ("gemm", "matmul", "cublas", "linear", "conv"),
    "attention": ("attention", "attn", "flash", "sdp"),
    "memory": ("pagerank", "copy", "memcpy", "bandwidth", "stream", "norm", "elementwise", "softmax"),
}


def describe(data: FleetData, draws: Draws) -> dict[str, Any]:
    """Shares of variance, spreads, slow chips, correlations with what was logged; all with 90 % intervals."""
    kernels = {name: _kernel(data, draws, k) for k, name in enumerate(data.kernel)}
    first = next(iter(kernels.values()))
    slow, far = slow_chips(data, draws), far_nodes(data, draws)
    return {
        "n_gpus": len(data.gpu),
        "n_nodes": len(data.node),
        "n_rows": int(data.n_row.sum()),
        "variance_shares": first["variance_shares"],
        "kernels": kernels,
        "slow_chips": {
            "bayes_factor": slow.bayes_factor,
            "prob": interval(slow.share),
            "shift_in_bulk_spreads": interval(draws["slow_shift"]) if slow.is_found else None,
            "spread_in_bulk_spreads": interval(draws["slow_spread"]) if slow.is_found else None,
        },
        "far_nodes": {
            "bayes_factor": far.bayes_factor,
            "prob": interval(far.share),
            "spread_in_node_spreads": interval(draws["far_spread"]) if far.is_found else None,
        },
        "covariates": _covariates(data, draws),
        "notes": [*_not_found("slow chips", "chips", slow), *_not_found("far nodes", "nodes", far)],
    }


def judged(data: FleetData, draws: Draws) -> dict[str, np.ndarray]:
    """What the data can tell, as draws [chain, draw, ...]: the spread of all chips, and no component that is not found."""
    unknown = [] if slow_chips(data, draws).is_found else ["slow_shift", "slow_spread"]
    unknown += [] if far_nodes(data, draws).is_found else ["far_spread"]
    spread = draws["gpu_spread"] * np.sqrt(_score_variance(draws))[..., None]
    return {**{name: value for name, value in draws.items() if name not in unknown}, "spread_of_all_gpus": spread}


def _not_found(name: str, members: str, component: Component) -> list[str]:
    if component.is_found:
        return []
    most = np.quantile(component.share, 0.95)
    return [
        f"no {name} stand out from the others (Bayes factor {component.bayes_factor:.2g}, below {POSITIVE:g}); at most "
        f"{most:.0%} of the {members} may be such (95 %). How far they would lie cannot be told and is left open in predictions"
    ]


def _kernel(data: FleetData, draws: Draws, k: int) -> dict[str, Any]:
    gpu, node, run = _variances(data, draws, k)
    total = gpu + node + run
    shares = {name: interval(part / total) for name, part in (("gpu", gpu), ("node", node), ("run", run))}
    return {
        "variance_shares": {name: share["median"] for name, share in shares.items()},
        "variance_share_intervals": shares,
        "gpu_cv": interval(np.sqrt(gpu)),
        "gpu_bulk_cv": interval(draws["gpu_spread"][:, k]),
        "node_cv": interval(np.sqrt(node)),
        **({"shared_run_cv": interval(draws["run_spread"][:, k])} if "run_spread" in draws else {}),
        "rest_cv": interval(draws["rest_spread"][:, k]),
        "disturbed_share": float(data.n_disturbed[k] / data.n_row[k]),
        "disturbed_excess": float(np.expm1(data.disturbed_excess[k])),
    }


def _variances(data: FleetData, draws: Draws, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Variance of log time per level [draw]; the runs' holds disturbed rows and what covariates explain within a GPU."""
    gpu = draws["gpu_spread"][:, k] ** 2 * _score_variance(draws)
    if "kernel_spread" in draws:
        gpu = gpu + draws["kernel_spread"][:, k] ** 2
    node = draws["node_spread"][:, k] ** 2 * (1.0 + draws["far_prob"] * (draws["far_spread"] ** 2 - 1.0))
    run = draws["rest_spread"][:, k] ** 2 + data.disturbed_square[k]
    if "run_spread" in draws:
        run = run + draws["run_spread"][:, k] ** 2
    if "slope" in draws:
        slope = draws["slope"][:, k]
        run = run + np.einsum("dc,ce,de->d", slope, data.sxx[k], slope) / max(data.dof[k], 1.0)
    return gpu, node, run


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
    """90 % interval of a correlation of `n` pairs (Fisher's z)."""
    half = 1.6449 / np.sqrt(max(n - 3, 1))
    return [float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half))]


def fleet_variability(data: FleetData, draw: Mapping[str, np.ndarray]) -> Variability:
    """The tree of one draw: persistent GPU and node factors and residual per kernel class, disturbed runs left out.

    Kernels that name no class (training iterations) stand for every compute class that no kernel of the fleet names.
    """
    of_class: dict[str, list[int]] = {}
    for k, name in enumerate(data.kernel):
        of_class.setdefault(kernel_class(name) or "", []).append(k)
    rest = of_class.pop("", None) or of_class.get("gemm") or next(iter(of_class.values()))
    classes = {name: _factors(data, draw, of_class.get(name, rest)) for name in COMPUTE_CLASSES}
    return Variability(
        name="fitted fleet", classes=classes, source=f"fit to {len(data.gpu)} GPUs on {len(data.node)} nodes"
    )


def kernel_class(name: str) -> str | None:
    """Kernel class of a kernel's name; None where the name tells none."""
    lower = name.lower()
    return next((kind for kind, words in CLASS_WORDS.items() if any(word in lower for word in words)), None)


def _factors(data: FleetData, draw: Mapping[str, np.ndarray], kernels: list[int]) -> ClassVariability:
    """Of several kernels of a class, the one in the middle."""
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
    """What a mixture takes for the probability of its slower component: draws may put all chips into one of the two."""
    return min(max(drawn, 1.0 - LARGEST_PROB), LARGEST_PROB)

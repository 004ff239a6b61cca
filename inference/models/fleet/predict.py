# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""GPUs that were not measured, as a fitted fleet has them, and the score of those that were left out."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

from ...engine.checks import Checks
from ...engine.pytree import traced
from ...model import Draws, Score
from .data import FleetData, labelled
from .likelihood import draw_node_scores, laws_of

N_DRAW = 1000  # posterior draws behind a prediction


def new_gpus(
    data: FleetData, draws: Draws, *, series: str, nodes: Sequence[str | None], key: jax.Array, n_draw: int = N_DRAW
) -> np.ndarray:
    """Log seconds [draw, GPU] that GPUs not measured would take, without the noise of runs.

    Args:
        series: one of `data.series`.
        nodes: per GPU the name of a measured node, or None (or any other name) for a node that was not measured; GPUs with the
        same
            other name share a new node.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key), dtype=np.uint32))
    chosen = rng.integers(len(draws["gpu_spread"]), size=n_draw)
    s = data.series.index(series)
    k = int(data.cell_kernel[data.cell_series == s][0])
    part = {name: value[chosen] for name, value in draws.items()}
    score = _chip_scores(part, len(nodes), rng)
    own = part["kernel_spread"][:, k, None] * rng.standard_normal(score.shape) if "kernel_spread" in part else 0.0
    node = _node_effects(data, part, k, nodes, rng, key)
    return part["typical_log_s"][:, s, None] + node + part["gpu_spread"][:, k, None] * score + own


def _chip_scores(part: Draws, n_gpu: int, rng: np.random.Generator) -> np.ndarray:
    """z [draw, GPU]: bulk or slow component."""
    normal = rng.standard_normal((len(part["slow_prob"]), n_gpu))
    slow = rng.random(normal.shape) < part["slow_prob"][:, None]
    return np.where(slow, part["slow_shift"][:, None] + part["slow_spread"][:, None] * normal, normal)


def _node_effects(
    data: FleetData, part: Draws, kernel: int, nodes: Sequence[str | None], rng: np.random.Generator, key: jax.Array
) -> np.ndarray:
    """[draw, GPU]: posterior of measured nodes, the population for others."""
    place = {name: i for i, name in enumerate(data.node)}
    labels = [name if name is not None else f"new {i}" for i, name in enumerate(nodes)]
    unknown = sorted({name for name in labels if name not in place})
    fresh = _population(part, (len(part["far_prob"]), len(unknown)), rng)
    both = np.concatenate([measured_node_scores(data, part, key), fresh], axis=1)
    place |= {name: len(data.node) + i for i, name in enumerate(unknown)}
    return part["node_spread"][:, kernel, None] * both[:, [place[name] for name in labels]]


def _population(part: Draws, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Scores of nodes that were not measured [draw, node]."""
    far = rng.random(shape) < part["far_prob"][:, None]
    return np.where(far, part["far_spread"][:, None], 1.0) * rng.standard_normal(shape)


def measured_node_scores(data: FleetData, part: Draws, key: jax.Array) -> np.ndarray:
    """One posterior draw [draw, node] of the measured nodes' scores for each draw of the population."""
    laws = laws_of(part)
    arrays, rebuild = traced(data)
    with jax.enable_x64(True):
        one = jax.jit(
            lambda given, pairs: jax.lax.map(
                lambda pair: draw_node_scores(rebuild(given), pair[0], pair[1]), pairs, batch_size=16
            )
        )
        return np.asarray(one(arrays, (laws, jax.random.split(key, len(part["slow_prob"])))))


def replicate(data: FleetData, draws: Draws, key: jax.Array) -> Checks:
    """Every cell's mean log seconds, over its series' median, against GPUs of the same node that were not measured."""
    measured, predicted = [], []
    for s, name in enumerate(data.series):
        cell = np.flatnonzero(data.cell_series == s)
        nodes = [str(data.node[n]) for n in data.gpu_node[data.cell_gpu[cell]]]
        drawn = new_gpus(data, draws, series=name, nodes=nodes, key=key)
        drawn = drawn + _run_noise(data, draws, s, data.count[cell], len(drawn), key)
        measured.append(data.mean_log[cell] - data.series_median[s])
        predicted.append(drawn - data.series_median[s])
    return Checks(np.concatenate(measured), np.concatenate(predicted, axis=1), "mean log time of a GPU over the median")


def score_split(data: FleetData, draws: Draws, left_out: pd.DataFrame, key: jax.Array) -> Score:
    """One score for all GPUs left out: medians over series where there are several."""
    rows = labelled(left_out)
    calm = rows[~rows["disturbed"]]
    cells = calm.groupby(["series", "gpu"])["log_s"].agg(["size", "mean"])
    node_of = rows.groupby("gpu")["node"].agg(lambda names: names.mode().iloc[0])
    found = []
    for index, (name, part) in enumerate(cells.groupby(level="series")):
        if name not in data.series:
            continue
        cell = part.droplevel("series")
        nodes = [str(node) for node in node_of[cell.index]]
        found.append(_score_series(data, draws, str(name), cell, nodes, jax.random.fold_in(key, index)))
    if not found:
        return Score("left out")
    figures = np.median(np.array(found), axis=0)
    return Score("left out", *(float(value) for value in figures))


def _score_series(
    data: FleetData, draws: Draws, series: str, cell: pd.DataFrame, nodes: list[str], key: jax.Array
) -> tuple[float, ...]:
    """ks, ks_empirical, coverage_90, p95_p50_ape, p99_p50_ape of one series."""
    s = data.series.index(series)
    measured = cell["mean"].to_numpy(dtype=float)
    predicted = new_gpus(data, draws, series=series, nodes=nodes, key=key)
    predicted = predicted + _run_noise(data, draws, s, cell["size"].to_numpy(dtype=float), len(predicted), key)
    known = data.mean_log[data.cell_series == s]
    low, high = np.quantile(predicted, [0.05, 0.95], axis=0)
    ratio = [abs(_over_median(predicted, q) / _over_median(measured, q) - 1.0) for q in (0.95, 0.99)]
    coverage = float(np.mean((measured >= low) & (measured <= high)))
    pooled = predicted.ravel()
    return float(ks_2samp(measured, pooled).statistic), float(ks_2samp(measured, known).statistic), coverage, *ratio


def _run_noise(data: FleetData, draws: Draws, s: int, size: np.ndarray, n_draw: int, key: jax.Array) -> np.ndarray:
    """What is left of the runs' noise in means of `size` runs [draw, GPU]."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.fold_in(key, 1)), dtype=np.uint32))
    k = int(data.cell_kernel[data.cell_series == s][0])
    sigma = float(np.mean(draws["rest_spread"][:, k]))
    return sigma / np.sqrt(size) * rng.standard_normal((n_draw, len(size)))


def _over_median(log_s: np.ndarray, q: float) -> float:
    return float(np.exp(np.quantile(log_s, q) - np.median(log_s)))

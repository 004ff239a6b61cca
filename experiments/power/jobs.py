# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Power of whole training jobs from the power of nodes, with runs of a system and benchmark left out.

    node watts / 8 = host + training (1 - start / duration) + idle start / duration,    start = seconds x log2(1 + nodes)

The host's share is the least reading of a node of the other runs less eight idle GPUs; what GPUs draw while they train, and the
seconds of a start, are fitted to the other runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from prism_jax.system.catalog import device
from prism_jax.system.power import power_law

GPUS = 8
GPU = device("h100-sxm")


@dataclass(frozen=True)
class JobErrors:
    """Relative errors [run] of what GPUs draw: the law's and that of TDP; and of whole nodes."""

    law: np.ndarray
    tdp: np.ndarray
    node: np.ndarray


def left_out(runs: pd.DataFrame) -> JobErrors:
    """Each row predicted from the others."""
    law, tdp, node = [], [], []
    watts = runs["node_power_mean_w"].to_numpy() / GPUS
    for row in range(len(runs)):
        others = np.arange(len(runs)) != row
        host = _host_watts(runs[others])
        start_s, training = _fitted(runs[others], watts[others] - host)
        found = _gpu_watts(runs.iloc[[row]], start_s, training)[0]
        measured = watts[row] - host
        law.append(found / measured - 1.0)
        tdp.append(GPU.power_watts / measured - 1.0)
        node.append((found + host) / watts[row] - 1.0)
    return JobErrors(np.abs(law), np.abs(tdp), np.abs(node))


def _idle_watts() -> float:
    law = power_law(GPU)
    assert law is not None
    return law.idle_share * GPU.power_watts


def _host_watts(runs: pd.DataFrame) -> float:
    """Per GPU: the median over runs of the least reading, less idle GPUs."""
    return float(np.median(runs["least_w"])) / GPUS - _idle_watts()


def _gpu_watts(runs: pd.DataFrame, start_s: float, training: float) -> np.ndarray:
    nodes = runs["gpus"].to_numpy() / GPUS
    start = np.minimum(start_s * np.log2(1.0 + nodes) / runs["duration_s"].to_numpy(), 0.9)
    return training * (1.0 - start) + _idle_watts() * start


def _fitted(runs: pd.DataFrame, watts: np.ndarray) -> np.ndarray:
    """Seconds of a start, and watts in training: least robust logarithmic error."""
    return least_squares(
        lambda at: np.log(_gpu_watts(runs, *at) / watts),
        [5.0, 600.0],
        bounds=([0.0, 50.0], [60.0, 1000.0]),
        loss="soft_l1",
        f_scale=0.05,
    ).x

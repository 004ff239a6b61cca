"""The fleet model is calibrated: truths drawn from its priors have uniform ranks among the draws of fits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from inference.fleet.data import FleetData
from inference.fleet.model import FleetModel
from tests.inference.calibration import CHAINS, Calibration, Sites, calibrate

GPUS_PER_NODE, N_RUN = 4, 4
CENTRE = np.log(1e-3)  # log seconds of the prior of typical times, which in a fit of measurements is their median
CLOCK_SD = 0.01  # of log clock from row to row
CHAIN = replace(CHAINS, n_chain=1, n_draw=900)
N_FIT = 60


class Centred(FleetModel):
    """The model with the prior of typical times at `CENTRE` whatever was measured; a fit begins at the medians all the same."""

    def prepare(self, frame: pd.DataFrame) -> FleetData:
        data = super().prepare(frame)
        moved = data.series_median - CENTRE
        return replace(data, series_median=np.full_like(moved, CENTRE), node_median=data.node_median + np.mean(moved))

    def start(self, data: FleetData) -> dict[str, Any]:
        median = [np.median(data.mean_log[data.cell_series == s]) for s in range(len(data.series))]
        return super().start(replace(data, series_median=np.array(median)))


def table(
    true: Sites, rng: np.random.Generator, kernels: tuple[str, ...], n_node: int, shared_runs: bool
) -> pd.DataFrame:
    """Rows of every GPU, kernel and run: log t = kernel + node + GPU + GPU and kernel + run + clock + rest."""
    n_gpu, n_run = GPUS_PER_NODE, N_RUN
    far = rng.random(n_node) < true["far_prob"]
    node = np.where(far, true["far_spread"], 1.0) * rng.standard_normal(n_node)
    slow = rng.random((n_node, n_gpu)) < true["slow_prob"]
    chip = rng.standard_normal((n_node, n_gpu))
    chip = np.where(slow, true["slow_shift"] + true["slow_spread"] * chip, chip)
    n, g, r = (a.ravel() for a in np.meshgrid(np.arange(n_node), np.arange(n_gpu), np.arange(n_run), indexing="ij"))
    parts = []
    for k, kernel in enumerate(kernels):
        own = true["kernel_spread"][k] * rng.standard_normal((n_node, n_gpu)) if len(kernels) > 1 else 0.0 * chip
        run = true["run_spread"][k] * rng.standard_normal((n_node, n_run)) if shared_runs else np.zeros((n_node, n_run))
        clock = CLOCK_SD * rng.standard_normal((n_node, n_gpu, n_run))
        log_s = (
            true["typical_log_s"][k]
            + true["node_spread"][k] * node[:, None, None]
            + (true["gpu_spread"][k] * chip + own)[:, :, None]
            + run[:, None, :]
            + true["slope"][k, 0] * (clock - clock.mean(axis=2, keepdims=True))
            + true["rest_spread"][k] * rng.standard_normal(clock.shape)
        )
        columns = {"clock_mhz": 1400.0 * np.exp(clock).ravel(), "duration_s": np.exp(log_s).ravel(), "kernel": kernel}
        parts.append(pd.DataFrame({"gpu": 10 * n + g, "node": n, "run": r, **columns}))
    rows = pd.concat(parts, ignore_index=True)
    rows["gpu"], rows["node"] = (rows[name].map("{:03d}".format) for name in ("gpu", "node"))
    return rows if shared_runs else rows.drop(columns="run")


def run(kernels: tuple[str, ...], n_node: int, shared_runs: bool, n_fit: int = N_FIT) -> Calibration:
    model, n_kernel = Centred(), len(kernels)
    one = np.full(n_kernel, 0.01)
    spreads = ("gpu_spread", "node_spread", "run_spread", "rest_spread", "kernel_spread")
    some = dict.fromkeys(spreads, one) | {"typical_log_s": np.full(n_kernel, CENTRE), "slope": np.zeros((n_kernel, 1))}
    some |= {"slow_prob": 0.05, "slow_shift": 4.0, "slow_spread": 1.5, "far_prob": 0.05, "far_spread": 3.0}
    skeleton = model.prepare(table(some, np.random.default_rng(0), kernels, n_node, shared_runs))
    return calibrate(
        model,
        skeleton,
        lambda true, rng: model.prepare(table(true, rng, kernels, n_node, shared_runs)),
        n_fit=n_fit,
        seed=24,
        settings=CHAIN,
    )


ALWAYS = {name for name in FleetModel.reported if name not in ("run_spread", "kernel_spread")}


@pytest.mark.slow
def test_ranks_of_true_values_are_uniform_with_runs_that_gpus_share() -> None:
    """Eleven numbers, each with a false-alarm rate of 1e-4: 1.1e-3 in all."""
    run(("gemm",), 20, True).assert_uniform(sorted(ALWAYS | {"run_spread"}), max_failed=0.2)


@pytest.mark.slow
def test_ranks_of_true_values_are_uniform_with_several_kernels() -> None:
    """23 numbers, each with a false-alarm rate of 1e-4: 2.3e-3 in all.

    Three kernels: from two, covariances do not tell the score that they share from what is a kernel's own.
    """
    run(("copy", "gemm", "sort"), 10, False).assert_uniform(sorted(ALWAYS | {"kernel_spread"}), max_failed=0.3)

"""The collectives model is calibrated: truths drawn from its priors have uniform ranks among the draws of fits."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from inference.collectives.data import CollectivesData, from_frame
from inference.collectives.laws import REFERENCE_GPUS, SLOPE, priors
from inference.collectives.model import Collectives
from inference.collectives.predict import SMALLEST_SPREAD
from tests.inference.calibration import CHAINS, Calibration, Sites, calibrate

MODEL = Collectives("alpha_beta")  # a third of the time of the default law, whose parameters are barely told apart
PLACES = ((8, 1), (16, 2), (64, 8))  # GPUs, nodes
SIZES: np.ndarray = 2.0 ** np.arange(15.0, 21.0, 0.5)
CHAIN = replace(CHAINS, n_chain=1, max_tree_depth=8)  # its steps are long: one chain
N_FIT = 90


def skeleton() -> CollectivesData:
    """All-reduce in a node and across nodes, out of place and in place, twice each."""
    rows = [
        {"op": "all_reduce", "message_bytes": size, "n_gpus": n, "n_nodes": nodes, "in_place": side, "duration_s": 1.0}
        for n, nodes in PLACES
        for size in SIZES
        for side in ("out", "in", "out", "in")
    ]
    return from_frame(pd.DataFrame(rows))


def measured(data: CollectivesData, true: Sites, rng: np.random.Generator) -> CollectivesData:
    """Medians of cells, and repeats around them, as the model's documentation says."""
    at_cell = between(curves(data, true, rng), data.curve, data)
    doublings, restless = np.log2(data.n_gpus / REFERENCE_GPUS), between(true["profile"][None], 0 * data.curve, data)
    uneven = np.exp(true["log_uneven"] + true["uneven_growth"] * doublings + restless)
    shared = np.exp(true["log_noise"] + true["noise_growth"] * doublings) / np.sqrt(data.n_row)
    centre = at_cell + true["in_place"] * data.in_place
    spread = np.sqrt(uneven**2 / data.trust + shared**2 + SMALLEST_SPREAD**2)
    log_s = centre + spread * rng.standard_normal(len(centre))
    noise = np.exp(true["log_noise"] + true["noise_growth"] * np.log2(data.repeat_gpus / REFERENCE_GPUS))
    repeat = true["in_place"] * data.repeat_in_place + noise * rng.standard_t(true["noise_df"], len(data.repeat))
    return replace(data, log_s=log_s, repeat=repeat)


def curves(data: CollectivesData, true: Sites, rng: np.random.Generator) -> np.ndarray:
    """Log seconds [curve, knot]: the law, and a residual that walks along scale, one smooth normal step after another.

    Drawn here, since the program integrates the residual out, and has the law's prior as a factor.
    """
    residual, out = np.zeros(len(data.knots)), []
    law = {
        name: rng.normal(prior.median, np.hypot(prior.sd, prior.between))
        for name, prior in priors(MODEL.size_law).items()
    }
    for i in range(len(data.curve_gpus)):
        step = np.sqrt(true["step_scale"] ** 2 * data.curve_step[i] + true["across_scale"] ** 2 * data.curve_across[i])
        scale = true["curve_scale"] if i == 0 else step
        residual = residual + scale * np.exp(true["profile"]) * (data.smooth @ rng.standard_normal(len(data.knots)))
        n_bytes = 2.0 ** (data.knots + SLOPE * np.log2(data.curve_gpus[i]))
        out.append(np.log(law_s(data, law | {"two_node": float(true["two_node"][0])}, i, n_bytes)) + residual)
    return np.array(out)


def law_s(data: CollectivesData, p: Mapping[str, float], curve: int, n_bytes: np.ndarray) -> np.ndarray:
    """Seconds by the law "alpha_beta" of the one fabric: latency and wire."""
    n_gpus, n_nodes = data.curve_gpus[curve], data.curve_nodes[curve]
    several = n_nodes > 1
    hops, net_hops = 2.0 * (n_gpus / n_nodes - 1.0), 2.0 * np.log2(n_nodes)  # of all-reduce: there and back
    kept = 1.0 / (1.0 + np.exp(-p["logit_hop_share"])) if several else 1.0
    latency = np.exp(p["log_base_s"]) + np.exp(p["log_hop_s"]) * hops * kept + np.exp(p["log_net_hop_s"]) * net_hops
    rate = p["log_net_bytes_per_s"] + p["two_node"] * (n_nodes == 2) if several else p["log_bytes_per_s"]
    return latency + (2.0 * (n_gpus - 1.0) / n_gpus + np.exp(p["log_copy"])) * np.exp(-rate) * n_bytes


def between(table: np.ndarray, row: np.ndarray, data: CollectivesData) -> np.ndarray:
    """Values at the cells of a table [row, knot], linear between knots."""
    return np.array(
        [
            np.interp(data.knots[k] + w * (data.knots[1] - data.knots[0]), data.knots, table[r])
            for r, k, w in zip(row, data.knot, data.weight, strict=True)
        ]
    )


def run(n_fit: int = N_FIT) -> Calibration:
    data = skeleton()
    return calibrate(MODEL, data, lambda true, rng: measured(data, true, rng), n_fit=n_fit, seed=22, settings=CHAIN)


@pytest.mark.slow
def test_ranks_of_true_values_are_uniform() -> None:
    """Eight numbers, each with a false-alarm rate of 1e-4: 8e-4 in all."""
    run().assert_uniform(Collectives.reported, max_failed=0.25)

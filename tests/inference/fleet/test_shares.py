"""Shares of variance are those of the measured chips, nodes and runs, as well known as the table tells them."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare, norm

from inference.engine.program import traced
from inference.fleet.data import FleetData, fleet_data
from inference.fleet.measured import measured_variances, variance_shares
from inference.fleet.model import FleetModel
from inference.fleet.predict import FleetParameters, draw_cell_effects, log_nodes
from prism_jax.fits.report import KNOWN_TO

N_NODE, PER_NODE, N_RUN = 12, 4, 6
LAW = {
    "typical_log_s": np.array([-7.0]),
    "gpu_spread": np.array([0.01]),
    "node_spread": np.array([0.006]),
    "run_spread": np.array([0.006]),
    "rest_spread": np.array([0.004]),
    "kernel_spread": np.array([0.0]),
    "slow_prob": np.array(1e-12),
    "slow_shift": np.array(5.0),
    "slow_spread": np.array(1.5),
    "far_prob": np.array(1e-12),
    "far_spread": np.array(6.0),
}
TWO_KERNELS = {name: np.repeat(value, 2) if value.ndim else value for name, value in LAW.items()} | {
    "gpu_spread": np.array([0.01, 0.004]),
    "kernel_spread": np.array([0.003, 0.005]),
    "slow_prob": np.array(0.1),
    "far_prob": np.array(0.15),
}


def fleet(law: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Rows; and the true effects of nodes [kernel, node] and chips [kernel, node, GPU]."""
    shape, n_kernel = (N_NODE, PER_NODE), len(law["gpu_spread"])
    far, slow = rng.random(N_NODE) < law["far_prob"], rng.random(shape) < law["slow_prob"]
    node = law["node_spread"][:, None] * np.where(far, law["far_spread"], 1.0) * rng.standard_normal(N_NODE)
    score = rng.standard_normal(shape)
    score = np.where(slow, law["slow_shift"] + law["slow_spread"] * score, score)
    own = law["kernel_spread"][:, None, None] * rng.standard_normal((n_kernel, *shape))
    chip = law["gpu_spread"][:, None, None] * score + own
    parts = []
    n, g, r = (a.ravel() for a in np.meshgrid(*map(np.arange, (*shape, N_RUN)), indexing="ij"))
    for k in range(n_kernel):
        run = law["run_spread"][k] * rng.standard_normal((N_NODE, 1, N_RUN))
        rest = law["rest_spread"][k] * rng.standard_normal((*shape, N_RUN))
        log_s = law["typical_log_s"][k] + node[k][:, None, None] + chip[k][:, :, None] + run + rest
        frame = {"gpu": 100 * n + g, "node": n, "run": r, "kernel": f"k{k}", "duration_s": np.exp(log_s).ravel()}
        parts.append(pd.DataFrame(frame))
    rows = pd.concat(parts, ignore_index=True)
    return (
        rows.assign(**{name: [f"{name}{value:04d}" for value in rows[name]] for name in ("gpu", "node", "run")}),
        node,
        chip,
    )


class Drawn:
    """Draws of what nodes and chips add [draw, cell], of fleets of one shape, under a law that is known."""

    def __init__(self, law: dict[str, np.ndarray], n_draw: int) -> None:
        self.law, self.n_draw = law, n_draw
        self.compiled = None

    def __call__(self, data: FleetData, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        arrays, rebuild = traced(data)
        with jax.enable_x64(True):
            law = FleetParameters(**{name: jnp.asarray(value) for name, value in self.law.items()})
            if self.compiled is None:
                one = lambda given, key: draw_cell_effects(rebuild(given), law, key)  # noqa: E731
                self.compiled = jax.jit(jax.vmap(one, in_axes=(None, 0)))
            node, chip = self.compiled(arrays, jax.random.split(jax.random.key(seed), self.n_draw))
        return np.asarray(node), np.asarray(chip)


def test_effects_of_a_normal_fleet_have_their_closed_form() -> None:
    """Node, chip, run and rest are Normal, conditioned on the cell means as in any linear model; 5 standard errors."""
    data = fleet_data(fleet(LAW, np.random.default_rng(0))[0])
    n_draw = 4000
    node, chip = Drawn(LAW, n_draw)(data)
    tau2, nu2 = LAW["gpu_spread"][0] ** 2, LAW["node_spread"][0] ** 2
    same = data.gpu_node[data.cell_gpu][:, None] == data.gpu_node[data.cell_gpu]
    eye = np.eye(len(same))
    of_mean = eye * (tau2 + LAW["rest_spread"][0] ** 2 / N_RUN) + same * (nu2 + LAW["run_spread"][0] ** 2 / N_RUN)
    gain = np.linalg.inv(of_mean) @ (data.mean_log - LAW["typical_log_s"][0])
    for drawn, prior in ((node, nu2 * same), (chip, tau2 * eye)):
        mean = prior @ gain
        sd = np.sqrt(np.diag(prior - prior @ np.linalg.solve(of_mean, prior)))
        assert np.abs((drawn.mean(axis=0) - mean) / sd).max() < 5.0 / np.sqrt(n_draw)
        np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=5.0 / np.sqrt(2.0 * n_draw))
    covariance = np.mean((node - node.mean(axis=0)) * (chip - chip.mean(axis=0)), axis=0)
    exact = -np.diag((nu2 * same) @ np.linalg.solve(of_mean, tau2 * eye))
    np.testing.assert_allclose(covariance, exact, atol=5.0 * np.sqrt(nu2 * tau2 / n_draw))


@pytest.mark.parametrize("law", [LAW, TWO_KERNELS], ids=["one kernel", "two kernels, slow chips, far nodes"])
def test_variances_of_simulated_fleets_have_uniform_ranks_among_the_draws(law: dict[str, np.ndarray]) -> None:
    """Truths and draws under one law: 96 ranks in 8 bins; one of 2 or 4 chi-squares below 1e-4 is false once in 2,500."""
    n_fleet, n_draw, n_bin = 96, 47, 8
    rng, draw = np.random.default_rng(1), Drawn(law, n_draw)
    ranks = []
    for seed in range(n_fleet):
        rows, node, chip = fleet(law, rng)
        data = fleet_data(rows)
        drawn = draw(data, seed)
        for k in range(len(node)):
            cell = data.cell_kernel == k
            for true, found in zip((node[k], chip[k]), drawn, strict=True):
                ranks.append((found[:, cell].var(axis=1) < true.var()).sum())
    for each in np.array(ranks).reshape(n_fleet, -1).T:
        assert chisquare(np.bincount(each * n_bin // (n_draw + 1), minlength=n_bin)).pvalue > 1e-4


def draws_of(law: dict[str, np.ndarray], n_draw: int) -> dict[str, np.ndarray]:
    """A population that is known exactly."""
    return {name: np.repeat(value[None], n_draw, axis=0) for name, value in law.items() if value.any()}


def test_shares_of_a_draw_sum_to_one_and_runs_are_what_was_put_in() -> None:
    rows, node, chip = fleet(LAW, np.random.default_rng(2))
    shares = variance_shares(fleet_data(rows), draws_of(LAW, 400))
    np.testing.assert_allclose(sum(shares.values()), 1.0)
    run = LAW["run_spread"][0] ** 2 + LAW["rest_spread"][0] ** 2
    assert np.median(shares["run"]) == pytest.approx(run / (node.var() + chip.var() + run), abs=0.05)


def test_a_chip_far_off_is_in_the_share_of_chips_and_a_node_in_that_of_nodes() -> None:
    law = LAW | {"slow_prob": np.array(0.02), "slow_spread": np.array(10.0), "far_prob": np.array(0.1)}
    rows, node, chip = fleet(LAW, np.random.default_rng(3))
    slow_chip, slow_node = rows.copy(), rows.copy()
    slow_chip.loc[rows["gpu"] == "gpu0301", "duration_s"] *= np.exp(0.15)
    slow_node.loc[rows["node"] == "node0003", "duration_s"] *= np.exp(0.10)
    chip[0, 3, 1] += 0.15
    gpu_variance, node_variance, _ = measured_variances(fleet_data(slow_chip), draws_of(law, 400))
    assert np.median(gpu_variance) == pytest.approx(chip.var(), rel=0.1)
    assert np.median(node_variance) < 3.0 * LAW["node_spread"][0] ** 2
    node[0, 3] += 0.10
    _, node_variance, _ = measured_variances(fleet_data(slow_node), draws_of(law, 400))
    assert np.median(node_variance) == pytest.approx(node.var(), rel=0.15)  # 2 s / (b sqrt(4)) of one node: 10%


def test_rows_without_nodes_share_the_variance_of_the_measured_means() -> None:
    rows = fleet(LAW, np.random.default_rng(4))[0].drop(columns=["node", "run"])
    rows["gpu"] = "GPU-" + rows["gpu"].str.replace("0", "ab") + "x"
    data = fleet_data(rows)
    assert not data.has_nodes
    rest = data.syy[0] / data.dof[0]
    draws = draws_of(LAW | {"run_spread": np.array([0.0]), "rest_spread": np.array([np.sqrt(rest)])}, 400)
    shares = variance_shares(data, draws)
    assert set(shares) == {"gpu and node", "run"}
    both = data.mean_log.var() - rest / N_RUN
    assert np.median(shares["gpu and node"]) == pytest.approx(both / (both + rest), abs=0.02)


def test_a_share_that_the_table_cannot_tell_is_a_range_with_the_reason() -> None:
    data = fleet_data(fleet(LAW, np.random.default_rng(5))[0])
    said = FleetModel().describe(data, draws_of(LAW, 200))
    wide = [n for n, part in said["variance_share_intervals"].items() if part["p95"] - part["p5"] > 2.0 * KNOWN_TO]
    assert "node" in wide
    (note,) = [note for note in said["notes"] if "are ranges" in note]
    assert "node" in note
    assert "mean of its 4 GPUs" in note
    assert "12 are here" in note


def test_a_table_without_nodes_says_nothing_of_how_they_differ() -> None:
    """The density of its means is that of chips alone, whatever the spread of nodes; all Normal."""
    rows = fleet(LAW, np.random.default_rng(6))[0].drop(columns=["node", "run"])
    data = fleet_data(rows.assign(gpu=rows["gpu"].str.removeprefix("gpu").astype(int)))
    assert not data.has_nodes
    variance = LAW["gpu_spread"][0] ** 2 + LAW["rest_spread"][0] ** 2 / data.count
    exact = norm.logpdf(data.mean_log, LAW["typical_log_s"][0], np.sqrt(variance))
    for spread in (1e-4, 0.1):
        law = LAW | {"run_spread": np.array([0.0]), "node_spread": np.array([spread])}
        with jax.enable_x64(True):
            np.testing.assert_allclose(log_nodes(data, FleetParameters(**law)), exact, rtol=1e-6)

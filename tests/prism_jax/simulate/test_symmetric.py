"""The symmetric method agrees with brute force, which draws every GPU of every replica of every step."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.simulate.inputs import known_gpus
from prism_jax.simulate.predict import brute_force, symmetric
from prism_jax.simulate.program import Program, by_class
from prism_jax.variability.families import LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.tree import Stall, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_program, network_varies

QUANTILES = (0.05, 0.5, 0.95, 0.99)
N_RUN, N_STEP = 6, 8192

TREES = {
    "GPU spread": Variability("t", compute_varies(gpu=LogNormal(0.03))),
    "node spread": Variability("t", compute_varies(node=LogNormal(0.03))),
    "call noise": Variability("t", compute_varies(call=Normal(0.03))),
    "network regime": Variability("t", network_varies(regime=LogNormal(0.1))),
    "links": Variability("t", network_varies(node=LogNormal(0.1))),
    "calls of the network": Variability("t", network_varies(call=Normal(0.1))),
    "stalls": Variability(
        "t", compute_varies(call=Normal(0.03)), stalls=(Stall(0.05, 0.0, 0.2), Stall(0.0, 0.001, 0.5))
    ),
    "slow chips": Variability("t", compute_varies(gpu=Mixture(0.01, 0.02, 1.1, 0.02))),
    "heavy-tailed chips": Variability("t", compute_varies(gpu=StudentT(0.02, 3.0))),
    "everything": EVERYTHING,
}
SHAPES: dict[str, dict[str, object]] = {
    "one stage": {"pp": 1, "dp": 8},
    "one replica": {"dp": 1},
    "DualPipe": {"dp": 8, "schedule": "dualpipe"},
    "group of two nodes": {"dp": 4, "tp": 12},
    "group of four nodes": {"dp": 4, "tp": 32},
    "64 replicas": {"dp": 64},
}


def order_error(samples_s: np.ndarray, p: float) -> float:
    """Standard error of a quantile of independent samples, from the order statistics one standard error away."""
    step = np.sqrt(p * (1 - p) / len(samples_s))
    low, high = np.quantile(samples_s, [max(p - step, 0.0), min(p + step, 1.0)])
    return float(high - low) / 2


def assert_agree(runs: list[StepTimeDistribution], oracle: StepTimeDistribution) -> None:
    """|z| < 4.5 for every quantile, allowing 0.03 % of the step for what interpolation leaves.

    Errors of the runs' mean have 5 degrees of freedom, so one comparison in 150 would fail by chance if they were
    all there is; the oracle's own error dominates, keys are fixed.
    """
    for p in QUANTILES:
        values = np.array([run.quantile(p) for run in runs])
        error = np.hypot(order_error(oracle.samples_s, p), values.std(ddof=1) / np.sqrt(len(values)))
        gap = abs(values.mean() - oracle.quantile(p))
        assert gap < 4.5 * error + 3e-4 * oracle.quantile(p), (p, values.mean(), oracle.quantile(p), error)


def compare(program: Program, n_step: int = N_STEP) -> None:
    runs = [symmetric(program, jax.random.key(100 + i), 2048) for i in range(N_RUN)]
    assert_agree(runs, brute_force(program, jax.random.key(3), n_step))


@pytest.mark.parametrize("name", TREES)
def test_agrees_with_brute_force_whatever_varies(name: str) -> None:
    compare(make_program(TREES[name], dp=8))


@pytest.mark.parametrize("name", SHAPES)
def test_agrees_with_brute_force_in_every_shape(name: str) -> None:
    compare(make_program(EVERYTHING, **SHAPES[name]), 4096)


@pytest.mark.parametrize("devices", [(5,), (0, 1, 2, 9, 20, 31)])
def test_agrees_with_brute_force_with_known_slow_gpus(devices: tuple[int, ...]) -> None:
    program = by_class(make_program(EVERYTHING, dp=8))
    known = known_gpus({"all": dict.fromkeys(devices, 1.1), "gemm": {3: 1.02}}, 32)
    runs = [symmetric(program, jax.random.key(100 + i), 2048, known) for i in range(N_RUN)]
    assert_agree(runs, brute_force(program, jax.random.key(3), N_STEP, known))


def test_all_replicas_may_be_known() -> None:
    program = by_class(make_program(EVERYTHING, dp=4))
    known = known_gpus({"all": {4 * replica // 2: 1.05 for replica in range(8)}}, 16)
    runs = [symmetric(program, jax.random.key(100 + i), 2048, known) for i in range(N_RUN)]
    assert_agree(runs, brute_force(program, jax.random.key(3), N_STEP, known))


@pytest.mark.parametrize(("law", "n"), [(symmetric, 2048), (brute_force, 1024)])
def test_reported_error_is_the_spread_over_seeds(law: Callable[..., Any], n: int) -> None:
    """Root mean square of the reported error against the spread of p95 over 24 seeds, within a factor of 1.8 either way.

    Seven and 23 degrees of freedom: the ratio leaves that range by chance once in a thousand.
    """
    program = make_program(EVERYTHING, dp=8)
    runs = [law(program, jax.random.key(seed), n) for seed in range(24)]
    for p in (0.5, 0.95):
        spread = np.std([run.quantile(p) for run in runs], ddof=1)
        reported = np.sqrt(np.mean([run.mc_error(p) ** 2 for run in runs]))
        assert 1 / 1.8 < reported / spread < 1.8

"""Spreads within and between allocations: closed forms, and brute force whose fleets live for several steps."""

import jax
import numpy as np
import pytest

from prism_jax.result.spread import AllocationSpread
from prism_jax.simulate.allocation import allocation_spread
from prism_jax.simulate.predict import brute_force, symmetric
from prism_jax.simulate.program import Program
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import Stall, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_program, network_varies

KEY = jax.random.key(0)
N_STEP, N_FLEET = 16, 2000
PLAIN = {"tp_comm_s": 0.0, "p2p_s": 0.0, "end_comm_s": 0.0, "end_compute_s": 0.0}


def spread(program: Program) -> AllocationSpread:
    return allocation_spread(program, symmetric(program, KEY, 1024), KEY)


def test_share_of_one_gpu_is_that_of_the_product_of_its_factors() -> None:
    """T = c G S with both of mean one: var(G) / (var(G) + var(S) + var(G) var(S))."""
    gpu, step = 0.03, 0.02
    tree = Variability("t", compute_varies(gpu=LogNormal(gpu)), step=LogNormal(step))
    found = spread(make_program(tree, tp=1, pp=1, dp=1, n_micro_batch=1, **PLAIN))
    assert found.share == pytest.approx(gpu**2 / (gpu**2 + step**2 + (gpu * step) ** 2), abs=0.02)
    assert np.hypot(found.between_s, found.within_s) == pytest.approx(found.std_s)


@pytest.mark.parametrize("plan", [{"tp": 1, "dp": 8}, {"tp": 4, "dp": 1}, {"tp": 32, "dp": 2}, {"pp": 1, "dp": 64}])
def test_everything_lies_between_allocations_where_only_gpus_differ(plan: dict[str, int]) -> None:
    found = spread(make_program(Variability("t", compute_varies(gpu=LogNormal(0.03))), **plan))
    assert found.share == pytest.approx(1.0, abs=0.01 + 4.0 * found.share_error)
    assert found.within_s < 0.2 * found.std_s


@pytest.mark.parametrize(
    "tree",
    [
        Variability("t", compute_varies(call=LogNormal(0.05))),
        Variability("t", network_varies(regime=LogNormal(0.2))),
        Variability("t", step=LogNormal(0.05), stalls=(Stall(0.1, 0.0, 0.2),)),
    ],
    ids=["call", "network", "step"],
)
def test_nothing_lies_between_allocations_of_equal_gpus(tree: Variability) -> None:
    program = make_program(tree, tp=2, dp=4)
    whole = symmetric(program, KEY, 512)
    found = allocation_spread(program, whole, KEY)
    assert (found.share, found.between_s, found.p95_s) == (0.0, 0.0, whole.quantile(0.95))


@pytest.mark.parametrize("plan", [{"dp": 1}, {"dp": 4}, {"tp": 32, "dp": 1}, {"dp": 16}], ids=str)
def test_spreads_are_those_of_fleets_that_live_for_several_steps(plan: dict[str, int]) -> None:
    """Share within 3 points and four standard errors, quantile within 0.3 %; the table of large groups in both."""
    program = make_program(EVERYTHING, **{"tp": 2, "pp": 2, **plan})
    found = spread(program)
    whole = brute_force(program, jax.random.key(9), N_STEP * N_FLEET, explicit=False, steps_per_fleet=N_STEP)
    steps = whole.by_fleet_s
    mean_s = steps.mean(axis=1)
    share = (mean_s.var(ddof=1) - steps.var(axis=1, ddof=1).mean() / N_STEP) / whole.std_s**2
    assert found.share == pytest.approx(share, abs=0.03 + 4.0 * found.share_error)
    typical = np.argsort(mean_s)[int(0.45 * N_FLEET) : int(0.55 * N_FLEET)]
    assert found.p95_s == pytest.approx(np.quantile(steps[typical], 0.95), rel=3e-3)

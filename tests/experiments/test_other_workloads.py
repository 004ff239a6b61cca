# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)
"""The hierarchical model of slow steps finds effects that were put in, and is wide where few machines were seen."""

import numpy as np
import pandas as pd
import pytest

from experiments.other_workloads.model import fit
from experiments.other_workloads.runs import runs_of

INTERVAL = (0.05, 0.5, 0.95)


def made(n_machine, seed=0, machine_sd=0.3):
    """Runs whose log excess is 1 higher in half precision, with effects of machines and of runs."""
    rng = np.random.default_rng(seed)
    rows, log_excess = [], []
    for machine in range(n_machine):
        own = rng.normal(0.0, machine_sd)
        for model in "abc":
            for work in ("train half", "train float"):
                for gpus in (1, 2):
                    rows.append((f"m{machine}", "gpu", gpus, work, model, rng.uniform(0.1, 0.3)))
                    log_excess.append(-4.0 + (work == "train half") + own + rng.normal(0.0, 0.2))
    return pd.DataFrame(rows, columns=["machine", "gpu", "gpus", "work", "model", "step_s"]), np.array(log_excess)


def told(n_machine, seed=0):
    runs, log_excess = made(n_machine, seed)
    out = (runs.machine == "m0").to_numpy()
    return fit(runs[~out], log_excess[~out]).predict(runs[out], INTERVAL), log_excess[out], runs[out]


def test_effects_of_work_are_found_on_a_machine_that_was_not_seen():
    found, _, runs = told(9)
    half = (runs.work == "train half").to_numpy()
    assert found[1][half].mean() - found[1][~half].mean() == pytest.approx(1.0, abs=0.2)


def test_intervals_hold_what_was_left_out():
    inside = [
        ((found[0] <= measured) & (measured <= found[2])).mean() for found, measured, _ in map(told, [9] * 6, range(6))
    ]
    assert np.mean(inside) > 0.75


def test_intervals_are_wider_where_fewer_machines_were_seen():
    few, many = (np.ptp(told(n)[0][[0, 2]], axis=0).mean() for n in (3, 12))
    assert few > many


def test_runs_are_told_by_their_median():
    table = pd.DataFrame({"machine": "m", "us": [*([2.0] * 96), *([3.0] * 4)]})
    (run,) = runs_of(table, "us", ["machine"]).itertuples()
    assert (run.step_s, run.p95, run.p99) == pytest.approx((2e-6, 1.0, 1.5), abs=1e-9)

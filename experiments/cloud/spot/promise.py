# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)
"""What is promised of jobs that begin at many moments of a trace that was not fitted, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import numpy as np
import pandas as pd

import inference
from inference.durations import revocation as predict
from inference.durations.revocation import Revocation
from inference.durations.revocation_data import from_frame
from prism_jax.cloud.completion import Ran, SpotTask, simulate
from prism_jax.cloud.policies import POLICIES

from .tables import DAY_S, before, recorded

WORK_H = (6.0, 24.0, 72.0)
SLACK = (1.15, 1.3, 1.6, 2.0, 3.0, 5.0)  # deadline over work
RESTART_S, SAVED_EVERY_S, BLOCKING_S = 360.0, 1800.0, 20.0
ON_DEMAND_USD_PER_H, SPOT_USD_PER_H = 3.06, 0.918  # p3.2xlarge, us-east-1, April 2023
BACK_S = 30 * DAY_S
FIRST_DAY, LAST_DAY = 3, 43
N_WORLDS = 512
MENU = ("on_demand", "spot", "spot_with_fallback", "mixture")


@dataclass
class Outcomes:
    """One row per zone, start, work, deadline and policy."""

    rows: list[dict[str, float | str]] = field(default_factory=list)

    def frame(self) -> pd.DataFrame:
        """As a table."""
        return pd.DataFrame(self.rows)


def task(work_h: float) -> SpotTask:
    """A job on one node."""
    return SpotTask.cut(work_h * 3600.0, SAVED_EVERY_S, BLOCKING_S, RESTART_S, 0.0)


def of_zone(table: pd.DataFrame, zone: str, n_start: int, seed: int) -> pd.DataFrame:
    """Promises and outcomes of `n_start` moments of a zone, population from the other zones alone."""
    others = table[table["zone"] != zone].reset_index(drop=True)
    fit = inference.fit(others, model="revocation", key=jax.random.key(seed), method="map")
    family = predict.chosen_families(fit.data, fit.draws)
    rows = table[table["zone"] == zone]
    found = Outcomes()
    starts = np.linspace(FIRST_DAY, LAST_DAY, n_start, endpoint=False) * DAY_S
    starts = starts + np.random.default_rng(seed).random(n_start) * DAY_S * (LAST_DAY - FIRST_DAY) / n_start
    worlds = {work_h: _replayed(rows, starts, work_h) for work_h in WORK_H}
    for index, at_s in enumerate(starts):
        seen, is_up, age_s = before(rows, float(at_s), BACK_S)
        data = from_frame(inference.measured(seen, Revocation()).frame)
        market = predict.of_group(fit.data, fit.draws, data, 0, family).now(is_up, age_s)
        for work_h in WORK_H:
            _one(found, zone, index, work_h, market, worlds[work_h], seed)
    return found.frame()


def _replayed(rows: pd.DataFrame, starts: np.ndarray, work_h: float) -> dict[tuple[str, float], Ran]:
    paths = recorded(rows).beginning_at(starts, 1, horizon_s(work_h))
    return {
        (name, slack): simulate(
            task(work_h),
            paths,
            POLICIES.named(name),
            np.ones(len(starts)),
            _deadline_s(work_h, slack),
            key=jax.random.key(0),
        )
        for name in MENU
        for slack in SLACK
    }


def _one(found: Outcomes, zone: str, index: int, work_h: float, market, replayed, seed: int) -> None:
    paths = market.draw(1, N_WORLDS, horizon_s(work_h), np.random.default_rng([seed, index]))
    for slack in SLACK:
        deadline_s = _deadline_s(work_h, slack)
        for name in MENU:
            ran = simulate(
                task(work_h), paths, POLICIES.named(name), np.ones(N_WORLDS), deadline_s, key=jax.random.key(0)
            )
            real = replayed[(name, slack)]
            found.rows.append({
                "zone": zone, "start": index, "work_h": work_h, "slack": slack, "policy": name,
                "promised": float((ran.time_s <= deadline_s).mean()),
                "expected_usd": float(_cost(ran, deadline_s).mean()),
                "kept": float(real.time_s[index] <= deadline_s),
                "paid_usd": float(_cost(real, deadline_s)[index]),
            })  # fmt: skip


def horizon_s(work_h: float) -> float:
    """Beyond the latest deadline."""
    return work_h * 3600.0 * max(SLACK) + DAY_S


def _deadline_s(work_h: float, slack: float) -> float:
    return work_h * 3600.0 * slack + 2.0 * RESTART_S


def _cost(ran: Ran, deadline_s: float) -> np.ndarray:
    """Money; a job that is never done pays what it had used when the path ended."""
    return ran.cost_usd(ON_DEMAND_USD_PER_H, SPOT_USD_PER_H)


def reliability_gap(table: pd.DataFrame, n_bin: int = 10) -> tuple[float, pd.DataFrame]:
    """Mean absolute gap between promised and observed share, weighted by jobs, in bins of what was promised."""
    place = np.minimum((table["promised"] * n_bin).astype(int), n_bin - 1)
    by = table.groupby(place).agg(n=("kept", "size"), promised=("promised", "mean"), kept=("kept", "mean"))
    gap = float(((by["promised"] - by["kept"]).abs() * by["n"]).sum() / by["n"].sum())
    return gap, by


def chosen_rows(table: pd.DataFrame, least_prob: float = 0.95) -> pd.DataFrame:
    """The policy of least expected cost among those that are promised to be in time; else the likeliest."""
    best = []
    for _, group in table.groupby(["zone", "start", "work_h", "slack"], sort=False):
        enough = group[group["promised"] >= least_prob]
        best.append(enough["expected_usd"].idxmin() if len(enough) else group["promised"].idxmax())
    return table.loc[best]


def best_fixed(table: pd.DataFrame, least_prob: float = 0.95) -> pd.DataFrame:
    """In hindsight: for each zone, work and deadline the one policy that paid least over all starts and kept enough deadlines."""
    rows = []
    for _, group in table.groupby(["zone", "work_h", "slack"], sort=False):
        by = group.groupby("policy").agg(paid=("paid_usd", "sum"), kept=("kept", "mean"))
        enough = by[by["kept"] >= least_prob]
        name = (enough if len(enough) else by[by["kept"] == by["kept"].max()])["paid"].idxmin()
        rows.append(group[group["policy"] == name])
    return pd.concat(rows)

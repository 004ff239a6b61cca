"""Small models are calibrated: truths drawn from their priors have uniform ranks among the draws of fits.

Every number has a false-alarm rate of 1e-4 (`tests.inference.calibration`); some fifty numbers in all, 5e-3. `revocation` is a
product of populations that share nothing, and one of each kind is tried: spells with a shape, spells without one, losses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.variability_presets.tail_model import TAIL, Tails, TailsData
from inference.durations import durations
from inference.durations.failures import Failures, from_frame as failures_data
from inference.durations.repair_data import CENTRE, QUANTITIES, SPREAD_CENTRE, SPREAD_WIDTH, WIDTH, exponents_on_line
from inference.durations.repairs import Repairs, RepairsData
from inference.durations.revocation_data import CENTRE as SPELL_CENTRE, SPREAD_CENTRE as SPELL_SPREAD
from inference.durations.revocation_populations import (
    SLOPE,
    SLOPE_SD,
    LossData,
    LossPopulation,
    SpellData,
    SpellPopulation,
)
from inference.ladder import TAIL as LADDER_TAIL, Ladder
from inference.links import NodeLinks
from inference.saves import SavesModel
from inference.startup import REGION_SD, TAIL as STARTUP_TAIL, Startup
from inference.sums import TAIL as SUMS_TAIL
from tests.inference.calibration import Calibration, Simulate, Sites, calibrate

Rng = np.random.Generator


@dataclass(frozen=True)
class Case:
    """A model, data of the shape of all that are simulated, and how they are.

    Attributes:
        max_failed: share of the fits whose approximation may fail its own verdict (`fit` then asks for nuts).
    """

    model: Any
    skeleton: Any
    simulate: Callable[[Any, Sites, Rng], Any]
    n_fit: int = 100
    max_failed: float = 0.2


def tails() -> Case:
    rng = np.random.default_rng(0)
    n = 24
    data = TailsData(np.resize([-0.5, 0.5], n), rng.uniform(-6.0, 5.0, n), np.zeros((n, 2)), np.ones(n))

    def simulate(data: TailsData, true: Sites, rng: Rng) -> TailsData:
        alike = float(true["alike"])
        wide = np.exp(true["growth"] * data.log2_gpus)[:, None] * true["scale"]
        z = rng.standard_normal((n, 2)) @ np.linalg.cholesky([[1.0, alike], [alike, 1.0]]).T
        z /= np.sqrt(rng.chisquare(TAIL, n) / TAIL)[:, None]
        return replace(data, log_ratio=true["kind"] * data.own[:, None] + wide * z)

    return Case(Tails(), data, simulate)


def startup() -> Case:
    rows = [(tier, region) for tier in ("spot", "on demand") for region in "abc" for _ in range(6)]
    table = pd.DataFrame(rows, columns=["tier", "region"])
    parts = Startup.columns[:3]
    data = Startup().prepare(table.assign(**{part.name: 10.0 for part in parts}))

    def simulate(data: Any, true: Sites, rng: Rng) -> Any:
        error = true["error"][data.tier] * rng.standard_t(STARTUP_TAIL, data.log_s.shape)
        return replace(data, log_s=true["level"][data.tier] + REGION_SD * true["region"][data.region] + error)

    return Case(Startup(), data, simulate)


def links() -> Case:
    rows = [
        (f"n{node}", f"2025-01-{1 + day:02}", scale)
        for scale in (1, 2) for node in range(20) for day in range(6) for _ in range(3)
    ]  # fmt: skip
    data = NodeLinks().prepare(pd.DataFrame(rows, columns=["node", "day", "n_nodes"]).assign(duration_s=1.0))

    def simulate(data: Any, true: Sites, rng: Rng) -> Any:
        far = np.where(rng.random(len(data.units)) < true["far_prob"], true["far_spread"], 1.0)
        persistent = true["persistent"][data.scale] * far * rng.standard_normal(len(data.units))
        of_day = data.scale[data.unit]
        spread = np.hypot(true["passing"][of_day], true["noise"][of_day] / np.sqrt(data.n))
        mean = (true["level"][data.scale] + persistent)[data.unit] + spread * rng.standard_normal(len(data.n))
        return replace(data, mean=mean, square=true["noise"] ** 2 * rng.chisquare(data.dof))

    return Case(NodeLinks(), data, simulate)


def saves() -> Case:
    rng = np.random.default_rng(0)
    sizes = {
        f"{name}_bytes": 10.0 ** rng.uniform(low, low + 2.0, 20)
        for name, low in (("weights", 7), ("index", 3), ("meta", 5))
    }
    table = pd.DataFrame({"model": [f"m{i}" for i in range(20)], "source": np.resize(["a", "b"], 20), **sizes})
    data = SavesModel().prepare(pd.concat([table] * 3, ignore_index=True).assign(save_s=1.0))

    def simulate(data: Any, true: Sites, rng: Rng) -> Any:
        mean = np.log(data.size @ np.exp(true["log_factor"]))
        mean = mean + data.member @ (data.spread[data.level] * true["deviation"])
        scale = np.sqrt(true["misfit"] ** 2 + true["noise"] ** 2 / data.n)
        return replace(
            data,
            log_s=mean + scale * rng.standard_t(SUMS_TAIL, len(mean)),
            within=np.array(true["noise"] ** 2 * rng.chisquare(data.n_within)),
        )

    return Case(SavesModel(), replace(data, within=np.array(data.within)), simulate)


def ladder() -> Case:
    table = pd.DataFrame(
        [(f"gpu {i}", batch) for i in range(3) for batch in (1, 2, 4, 8, 16)], columns=["setup", "batch"]
    )
    data = Ladder().prepare(table.assign(step_s=0.1, batch=table.batch.astype(float)))

    def simulate(data: Any, true: Sites, rng: Rng) -> Any:
        floor = true["floor"][data.of]
        mean = true["log_top"][data.of] + np.log(floor + (1.0 - floor) * data.batch / data.top[data.of])
        return replace(data, log_s=mean + true["noise"] * rng.standard_t(LADDER_TAIL, len(mean)))

    return Case(Ladder(), data, simulate)


def failures() -> Case:
    rng = np.random.default_rng(0)
    rows = [
        {"cluster": f"c{c}", "gpus": float(8 * 2 ** rng.integers(3, 9)), "hours": 2000.0, "kind": kind, "count": 1.0}
        for c in range(8)
        for kind in ("gpu", "node", "job")
    ]
    data = failures_data(pd.DataFrame(rows).assign(node_size=8.0))

    def simulate(data: Any, true: Sites, rng: Rng) -> Any:
        factor = rng.gamma(true["shape"], size=data.n_group) / true["shape"]
        mean = data.exposure_h @ (np.exp(true["log_rate"]) * data.levels)
        return replace(data, count=rng.poisson(mean * factor[data.group]).astype(float))

    return Case(Failures(), data, simulate)


class Losses(LossPopulation):
    """What losses take."""

    reported = ("class", "concentration")


def losses() -> Case:
    data = LossData(np.full((8, 3), 10.0))

    def simulate(data: LossData, true: Sites, rng: Rng) -> LossData:
        share = rng.dirichlet(np.maximum(true["class"] * true["concentration"], 1e-6), len(data.losses))
        return LossData(np.array([rng.multinomial(30, one) for one in share], dtype=float))

    return Case(Losses(), data, simulate)


N_GROUP, N_TIME, TICK_S = 6, 12, 1.0


def seconds(law: str, theta: np.ndarray, rng: Rng) -> durations.Times:
    """`N_TIME` times of a group of log median and log spread `theta`."""
    if law == "log-normal":
        log_s = theta[0] + np.exp(theta[1]) * rng.standard_normal(N_TIME)
    else:
        per_shape = np.exp(theta[1] - durations.EXPONENTIAL)
        log_s = theta[0] + per_shape * (np.log(rng.exponential(size=N_TIME)) - durations.LOG_LOG_2)
    return durations.times(np.exp(np.clip(log_s, -5.0, 22.0)), np.zeros(0), TICK_S)


class Spells(SpellPopulation):
    """How long nodes stay, under a law with a shape."""

    reported = ("location", "slope", "between_sd", "log_spread", "spread_sd")


class Memoryless(SpellPopulation):
    """The same under the exponential law."""

    reported = ("location", "slope", "between_sd")


def spells(law: str) -> Case:
    trait = np.stack([np.linspace(0.0, 3.0, N_GROUP), np.resize([0.0, 1.0], N_GROUP)], axis=1)
    with_shape = law != "exponential"
    centre, width = ((SPELL_CENTRE, SPELL_SPREAD), (3.0, 1.0)) if with_shape else ((SPELL_CENTRE,), (3.0,))

    def of(times: list[durations.Times]) -> SpellData:
        theta, log_weight = durations.on_grids(times, law, centre, width)
        return SpellData(trait, SLOPE[0], SLOPE_SD[0], theta[None], log_weight[None])

    def simulate(data: SpellData, true: Sites, rng: Rng) -> SpellData:
        median = true["location"] + trait @ true["slope"] + true["between_sd"] * rng.standard_normal(N_GROUP)
        spread = np.full(N_GROUP, durations.EXPONENTIAL)
        if with_shape:
            spread = true["log_spread"] + true["spread_sd"] * rng.standard_normal(N_GROUP)
        return of([seconds(law, one, rng) for one in np.stack([median, spread], axis=1)])

    rng = np.random.default_rng(0)
    skeleton = of([seconds(law, np.array([SPELL_CENTRE, 0.2]), rng) for _ in range(N_GROUP)])
    return Case(Spells() if with_shape else Memoryless(), skeleton, simulate, 60)


def repairs() -> Case:
    rng = np.random.default_rng(0)
    n_node, n_event = np.full(N_GROUP, 32.0), np.full(N_GROUP, 30.0)

    def grids(times: list[list[durations.Times]], sizes: list[np.ndarray]) -> dict[str, np.ndarray]:
        found = [
            durations.stacked(
                [
                    durations.on_grids(own, law, (centre, SPREAD_CENTRE), (WIDTH, SPREAD_WIDTH))
                    for own, centre in zip(times, CENTRE, strict=True)
                ]
            )
            for law in durations.LAWS
        ]
        lines = durations.stacked([exponents_on_line(one, 32.0) for one in sizes])
        return {
            "theta": np.stack([points for points, _ in found]),
            "log_weight": np.stack([weight for _, weight in found]),
            "n_multi": np.array([float(len(one)) for one in sizes]),
            "exponent": lines[0],
            "exponent_log_weight": lines[1],
        }

    def simulate(data: RepairsData, true: Sites, rng: Rng) -> RepairsData:
        times = []
        for index in range(len(QUANTITIES)):
            own = []
            for _ in range(N_GROUP):
                mean = np.array([true["location"][index], true["log_spread"][index]])
                sd = np.array([true["between_sd"][index], true["spread_sd"][index]])
                law = durations.LAWS[int(rng.random() > true["weibull"][index])]
                own.append(seconds(law, mean + sd * rng.standard_normal(2), rng))
            times.append(own)
        share = rng.beta(true["share"] * true["concentration"], (1.0 - true["share"]) * true["concentration"], N_GROUP)
        size, sizes = np.arange(2.0, 33.0), []
        for one in share:
            law = size ** -(true["exponent"] + true["exponent_sd"] * rng.standard_normal())
            sizes.append(rng.choice(size, rng.binomial(30, one), p=law / law.sum()))
        return replace(data, **grids(times, sizes))

    times = [[seconds("weibull", np.array([c, 0.5]), rng) for _ in range(N_GROUP)] for c in CENTRE]
    made = grids(times, [np.array([2.0, 3.0])] * N_GROUP)
    exponential = [durations.on_grids(own, "exponential", (c,), (WIDTH,)) for own, c in zip(times, CENTRE, strict=True)]
    median, weight = durations.stacked(exponential)
    plain = dict.fromkeys(("n_down", "watched_s", "grouped", "named", "log_which"), np.ones(N_GROUP))
    line = durations.stacked([exponents_on_line(np.array([2.0, 3.0]), 32.0)] * N_GROUP)
    data = RepairsData(
        systems=tuple(f"s{i}" for i in range(N_GROUP)),
        n_node=n_node,
        n_event=n_event,
        median=median[..., 0],
        median_log_weight=weight,
        log_width=np.zeros((len(QUANTITIES), N_GROUP)),
        alike=line[0],
        alike_log_weight=line[1],
        **made,
        **plain,
    )
    return Case(Repairs(), data, simulate, 40, 0.5)


CASES: dict[str, Callable[[], Case]] = {
    "tails": tails,
    "startup": startup,
    "links": links,
    "saves": saves,
    "ladder": ladder,
    "failures": failures,
    "losses": losses,
    "weibull spells": lambda: spells("weibull"),
    "exponential spells": lambda: spells("exponential"),
    "repairs": repairs,
}


def run(name: str, n_fit: int | None = None) -> Calibration:
    case = CASES[name]()
    simulate: Simulate = lambda true, rng: case.simulate(case.skeleton, true, rng)  # noqa: E731
    return calibrate(case.model, case.skeleton, simulate, n_fit=n_fit or case.n_fit, seed=37, method="map")


@pytest.mark.slow
def test_intervals_of_links_cover_as_often_as_they_say() -> None:
    found = run("links")
    inside = {name: np.mean((rank > 0.05) & (rank < 0.95)) for name, rank in found.ranks.items()}
    assert 0.85 <= np.mean(list(inside.values())) <= 0.95, inside
    assert min(inside.values()) >= 0.8, inside


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ranks_of_true_values_are_uniform(name: str) -> None:
    case = CASES[name]()
    run(name).assert_uniform(case.model.reported, case.max_failed)

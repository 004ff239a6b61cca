"""Are GPUs told apart however a table spells them, are shares right, and is what is slow named by `fit fleet`, and nothing else?

    python -m experiments.fit_fleet.named [--fleets 40] [--clean 20] [--method nuts] [--names-only] [--check]

Fleets of 256 or 512 GPUs on nodes of 4 or 8, in six spellings of host and GPU. Three chips and two nodes of a planted fleet lie
6.5 to 16 standard deviations off, as they are measured (of a node: of means of its chips); clean fleets hold nothing. Shares are
those of the fleet's own chips, nodes and runs, its sample, planted ones included. A table that names ranks only has no nodes:
there the share of GPUs and nodes together counts. `--names-only` skips the fits, which take all of the time.

A share is right within 3 points. A fit that knows some share of a fleet worse than that (half of its 90% interval, which it
states before anything is compared) says a range for it: such fleets count apart, by whether their ranges hold the truth. A failed
fit says nothing. How much a table tells at all is what an estimator finds that is given the true spreads and what was planted
(`ideal`), which no fit can know.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
from scipy.stats import binom

import inference
from experiments.common import start
from inference.data.clean import Measurements
from inference.data.read import tidy
from inference.engine.model import interval
from inference.fleet.data import COLUMNS, fleet_data
from inference.fleet.measured import outliers
from prism_jax.core.arrays import Floats
from prism_jax.fits.report import KNOWN_TO

SPELLINGS = ("host,gpu", "node,local_rank", "hostname,gpu_id", "gpu013:4", "host,uuid", "rank")
LEVEL, FALSE_ALARM = 0.90, 1e-3  # of ranges; of `--check` on them
OFF = (6.5, 16.0)  # standard deviations
GPUS = (256, 512)


@dataclass(frozen=True)
class Fleet:
    """One simulated fleet.

    Attributes:
        table: as a person would bring it.
        chips, nodes: names of planted ones, as the spelling gives them.
        chip, node: effects on log time [node, GPU], [node].
        spreads: standard deviations of ordinary chips, ordinary nodes and runs.
        places: which chips and which nodes are planted [node, GPU], [node].
    """

    table: pd.DataFrame
    spelling: str
    chips: frozenset[str]
    nodes: frozenset[str]
    chip: Floats
    node: Floats
    spreads: tuple[float, float, float]
    places: tuple[np.ndarray, np.ndarray]

    @property
    def has_nodes(self) -> bool:
        """Whether its table names them."""
        return self.spelling != "rank"

    @property
    def shares(self) -> dict[str, float]:
        """Of the sample's own variance, as far as the table can tell them apart."""
        parts = _shares(np.array([self.chip.var(), self.node.var(), self.spreads[2] ** 2]), self.has_nodes)
        return {name: float(share) for name, share in parts.items()}


def simulated(seed: int, planted: bool) -> Fleet:
    """A fleet with known shares; chips of 1%, nodes .2 to .5 of that, runs a tenth to a half."""
    rng = np.random.default_rng(seed)
    spelling = SPELLINGS[seed % len(SPELLINGS)]
    per_node = (4, 8)[seed % 2]
    n_node, n_run = GPUS[seed // 2 % 2] // per_node, int(rng.integers(4, 13))
    chip_sd, run_sd = float(rng.uniform(0.005, 0.02)), float(rng.uniform(0.001, 0.005))
    node_sd = chip_sd * float(rng.uniform(0.2, 0.5))
    chip = chip_sd * rng.standard_normal((n_node, per_node))
    node = node_sd * rng.standard_normal(n_node)
    named_nodes = rng.choice(n_node, 2, replace=False) if planted else np.zeros(0, int)
    others = np.setdiff1d(np.arange(n_node), named_nodes)
    seen_sd = float(np.hypot(node_sd, chip_sd / np.sqrt(per_node)))
    node[named_nodes] = seen_sd * rng.uniform(*OFF, len(named_nodes))
    named_chips = [
        (int(n), int(rng.integers(per_node))) for n in (rng.choice(others, 3, replace=False) if planted else ())
    ]
    is_planted = np.zeros(chip.shape, bool)
    for place in named_chips:
        chip[place] = chip_sd * rng.uniform(*OFF)
        is_planted[place] = True
    noise = run_sd * rng.standard_normal((n_node, per_node, n_run))
    log_s = np.log(0.0123) + node[:, None, None] + chip[:, :, None] + noise
    n, g, r = (part.ravel() for part in np.meshgrid(*map(np.arange, log_s.shape), indexing="ij"))
    frame = pd.DataFrame({**_places(spelling, n, g, per_node, rng), "run": r, "duration_s": np.exp(log_s).ravel()})
    frame = frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    return Fleet(
        frame,
        spelling,
        frozenset(_chip(spelling, n, g, per_node) for n, g in named_chips),
        frozenset(_node(spelling, int(n)) for n in named_nodes) if spelling != "rank" else frozenset(),
        chip,
        node,
        (chip_sd, node_sd, run_sd),
        (is_planted, np.isin(np.arange(n_node), named_nodes)),
    )


def _places(
    spelling: str, n: np.ndarray, g: np.ndarray, per_node: int, rng: np.random.Generator
) -> dict[str, list[str]]:
    hosts = [_node(spelling, int(i)) for i in n]
    if spelling == "rank":
        return {"rank": [str(i) for i in n * per_node + g]}
    if spelling == "gpu013:4":
        return {"gpu": [f"{host}:{i}" for host, i in zip(hosts, g, strict=True)]}
    host, gpu = spelling.split(",")
    return {host: hosts, gpu: [_uuid(int(i), int(j)) if gpu == "uuid" else str(j) for i, j in zip(n, g, strict=True)]}


def _uuid(node: int, gpu: int) -> str:
    digits = f"{(node * 1009 + gpu * 77_003 + 17) * 2_654_435_761 % 16**8:08x}"
    return f"GPU-{digits}-{node:04x}-{gpu:04x}-0000-{digits}{node:04x}"


def _node(spelling: str, node: int) -> str:
    return str(node) if spelling.startswith("node,") else f"gpu{node:03d}"


def _chip(spelling: str, node: int, gpu: int, per_node: int) -> str:
    if spelling == "rank":
        return str(node * per_node + gpu)
    return _uuid(node, gpu) if spelling == "host,uuid" else f"{_node(spelling, node)}:{gpu}"


def _shares(variances: Floats, has_nodes: bool) -> dict[str, Floats]:
    """Shares by level of variances of chips, nodes and runs [level, ...]."""
    gpu, node, run = variances / variances.sum(axis=0)
    return {"gpu": gpu, "node": node, "run": run} if has_nodes else {"gpu and node": gpu + node, "run": run}


def misses(fleet: Fleet, measured: Measurements) -> tuple[set[str], set[str]]:
    """What was planted and is not named, and what is named and was not planted."""
    found = outliers(fleet_data(measured.frame))
    named = {one.gpu for one in found.chips} | {one.node for one in found.nodes}
    planted = set(fleet.chips | fleet.nodes)
    if fleet.spelling == "rank":  # a slow node is so many slow chips there
        return planted - named, set()
    return planted - named, named - planted


@dataclass(frozen=True)
class Comparison:
    """Shares that were said of one fleet.

    Attributes:
        off: how far the middle that is farthest off is off.
        half: of the widest 90% interval.
        holds: whether all intervals wider than `KNOWN_TO` hold the truth.
    """

    off: float
    half: float
    holds: bool

    @property
    def is_range(self) -> bool:
        """Whether some share is said as a range."""
        return self.half > KNOWN_TO


def compared(truth: dict[str, float], intervals: Mapping[str, Mapping[str, float]]) -> Comparison:
    """What intervals say, beside the truth."""
    half = {name: 0.5 * (part["p95"] - part["p5"]) for name, part in intervals.items()}
    wide = [name for name in truth if half[name] > KNOWN_TO]
    return Comparison(
        off=max(abs(intervals[name]["median"] - share) for name, share in truth.items()),
        half=max(half.values()),
        holds=all(intervals[name]["p5"] <= truth[name] <= intervals[name]["p95"] for name in wide),
    )


def fitted(fleet: Fleet, measured: Measurements, method: str, key: jax.Array) -> Comparison | None:
    """What a fit says of the shares; None where it failed."""
    fit = inference.fit(measured, model="fleet", method=method, key=key)
    return compared(fleet.shares, fit.describe()["variance_share_intervals"]) if fit.verdict.ok else None


def ideal(fleet: Fleet, rng: np.random.Generator, n_draw: int = 4000) -> Comparison:
    """What can be said at best: spreads, planted places and the sums of node and chip are given; what is planted may be anything.

    Normal and in closed form: a node is the mean of its ordinary chips' sums, less the typical time, shrunk.
    """
    chip_sd, node_sd, run_sd = fleet.spreads
    is_chip, is_node = fleet.places
    total = fleet.node[:, None] + fleet.chip
    n_kept = (~is_chip).sum(axis=1)
    mean, noise = (total * ~is_chip).sum(axis=1) / n_kept, chip_sd**2 / n_kept
    prior = np.where(is_node, 1e6, 1.0) * node_sd**2
    weight = 1.0 / (prior + noise)
    typical = (weight @ mean + np.sqrt(weight.sum()) * rng.standard_normal(n_draw)) / weight.sum()
    kept = prior * weight
    node = kept * (mean - typical[:, None]) + np.sqrt(kept * noise) * rng.standard_normal((n_draw, len(mean)))
    chip = total - typical[:, None, None] - node[:, :, None]
    shares = _shares(np.array([chip.var(axis=(1, 2)), node.var(axis=1), np.full(n_draw, run_sd**2)]), fleet.has_nodes)
    return compared(fleet.shares, {name: interval(draws) for name, draws in shares.items()})


def summary(who: str, found: Sequence[Comparison | None]) -> str:
    """How many fleets got numbers, ranges, and nothing, and how many of these are right."""
    said = [one for one in found if one is not None]
    numbers, ranges = [one for one in said if not one.is_range], [one for one in said if one.is_range]
    text = (
        f"{who}: of {len(found)} fleets, shares known to {KNOWN_TO:.0%} in {len(numbers)}, of which "
        f"{sum(one.off <= KNOWN_TO for one in numbers)} are right"
    )
    if ranges:
        text += (
            f"; said as ranges in {len(ranges)} (+-{np.median([one.half for one in ranges]):.1%}, at most "
            f"{max(one.half for one in ranges):.1%}), of which {sum(one.holds for one in ranges)} hold the truth; "
            f"refused as failed in {len(found) - len(said)}; middles within {KNOWN_TO:.0%} in "
            f"{sum(one.off <= KNOWN_TO for one in said)}, worst {max(one.off for one in said):.1%}"
        )
    return text


def below_bars(found: Sequence[Comparison | None]) -> bool:
    """Whether a number is off, or ranges miss by more than chance."""
    said = [one for one in found if one is not None]
    ranges = [one.holds for one in said if one.is_range]
    # gpu and node are 1 less the other, so that one fleet is one interval
    return any(one.off > KNOWN_TO for one in said if not one.is_range) or (
        float(binom.cdf(sum(ranges), len(ranges), LEVEL)) < FALSE_ALARM
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fleets", type=int, default=40)
    parser.add_argument("--clean", type=int, default=20)
    parser.add_argument("--method", default="nuts", choices=("nuts", "svi", "map"))
    parser.add_argument("--names-only", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    start()
    n_missed = n_false = n_planted = n_clean = 0
    found: list[Comparison | None] = []
    best: list[Comparison] = []
    for index in range(args.fleets + args.clean):
        planted = index < args.fleets
        fleet = simulated(index, planted)
        measured = tidy(fleet.table, COLUMNS)
        missed, false = misses(fleet, measured)
        n_missed, n_planted = n_missed + len(missed), n_planted + len(fleet.chips | fleet.nodes)
        n_false, n_clean = n_false + len(false) * planted, n_clean + len(false) * (not planted)
        line = f"{index:3d} {fleet.spelling:16s} missed {sorted(missed)}, false {sorted(false)}"
        if planted:
            best.append(ideal(fleet, np.random.default_rng(index)))
        if planted and not args.names_only:
            one = fitted(fleet, measured, args.method, jax.random.key(index))
            found.append(one)
            line += ", fit failed" if one is None else f", shares off by {one.off:.1%}, known to +-{one.half:.1%}"
        print(line, flush=True)
    print(
        f"planted {n_planted}, missed {n_missed}; falsely named beside them {n_false}, in {args.clean} clean fleets {n_clean}"
    )
    if best:
        print(summary("spreads and planted places known", best))
    if found:
        print(summary("fitted", found))
    return int(args.check and (n_missed + n_clean > 0 or below_bars(found)))


if __name__ == "__main__":
    sys.exit(main())

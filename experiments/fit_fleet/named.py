"""Are GPUs told apart however a table spells them, are shares right, and is what is slow named by `fit fleet`, and nothing else?

    python -m experiments.fit_fleet.named [--fleets 40] [--clean 20] [--method nuts] [--names-only] [--check]

Fleets of 256 or 512 GPUs on nodes of 4 or 8, in six spellings of host and GPU. Three chips and two nodes of a planted fleet lie
6.5 to 16 standard deviations off, as they are measured (of a node: of means of its chips); clean fleets hold nothing. Shares are
those of the fleet's own chips, nodes and runs, its sample, planted ones included. A table that names ranks only has no nodes:
there the share of GPUs and nodes together counts. `--names-only` skips the fits, which take all of the time.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd

import inference
from experiments.common import start
from inference.data.clean import Measurements
from inference.data.read import tidy
from inference.fleet.data import COLUMNS, fleet_data
from inference.fleet.outliers import outliers
from prism_jax.core.arrays import Floats

SPELLINGS = ("host,gpu", "node,local_rank", "hostname,gpu_id", "gpu013:4", "host,uuid", "rank")
POINTS = 0.03
OFF = (6.5, 16.0)  # standard deviations
GPUS = (256, 512)


@dataclass(frozen=True)
class Fleet:
    """One simulated fleet.

    Attributes:
        table: as a person would bring it.
        chips, nodes: names of planted ones, as the spelling gives them.
        shares: of the sample's own variance: GPU, node, run.
    """

    table: pd.DataFrame
    spelling: str
    chips: frozenset[str]
    nodes: frozenset[str]
    shares: tuple[float, float, float]


def simulated(seed: int, planted: bool) -> Fleet:
    """A fleet with known shares; chips of 1 %, nodes .2 to .5 of that, runs a tenth to a half."""
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
    for place in named_chips:
        chip[place] = chip_sd * rng.uniform(*OFF)
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
        _shares(chip, node, run_sd),
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


def _shares(chip: Floats, node: Floats, run_sd: float) -> tuple[float, float, float]:
    parts = np.array([chip.var(), node.var(), run_sd**2])
    return tuple((parts / parts.sum()).tolist())


def misses(fleet: Fleet, measured: Measurements) -> tuple[set[str], set[str]]:
    """What was planted and is not named, and what is named and was not planted."""
    found = outliers(fleet_data(measured.frame))
    named = {one.gpu for one in found.chips} | {one.node for one in found.nodes}
    planted = set(fleet.chips | fleet.nodes)
    if fleet.spelling == "rank":  # a slow node is so many slow chips there
        return planted - named, set()
    return planted - named, named - planted


def off(fleet: Fleet, measured: Measurements, method: str, key: jax.Array) -> float:
    """How far the share that is farthest off is off."""
    said = inference.fit(measured, model="fleet", method=method, key=key).describe()["variance_shares"]
    gpu, node, run = fleet.shares
    truth = {"gpu": gpu, "node": node, "run": run} if "gpu" in said else {"gpu and node": gpu + node, "run": run}
    return max(abs(said[name] - value) for name, value in truth.items())


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
    far: list[float] = []
    for index in range(args.fleets + args.clean):
        planted = index < args.fleets
        fleet = simulated(index, planted)
        measured = tidy(fleet.table, COLUMNS)
        missed, false = misses(fleet, measured)
        n_missed, n_planted = n_missed + len(missed), n_planted + len(fleet.chips | fleet.nodes)
        n_false, n_clean = n_false + len(false) * planted, n_clean + len(false) * (not planted)
        told = ""
        if planted and not args.names_only:
            far.append(off(fleet, measured, args.method, jax.random.key(index)))
            told = f", shares off by {far[-1]:.1%}"
        print(f"{index:3d} {fleet.spelling:16s} missed {sorted(missed)}, false {sorted(false)}{told}", flush=True)
    print(
        f"planted {n_planted}, missed {n_missed}; falsely named beside them {n_false}, in {args.clean} clean fleets {n_clean}"
    )
    if far:
        print(f"shares within {POINTS:.0%}: {sum(one <= POINTS for one in far)} of {len(far)}, worst {max(far):.1%}")
    return int(args.check and (n_missed + n_clean > 0 or any(one > POINTS for one in far)))


if __name__ == "__main__":
    sys.exit(main())

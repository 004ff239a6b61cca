"""Fitting a fleet of 2,000 GPUs with 20 runs each: seconds, r-hat, effective draws, and SVI's intervals beside those of NUTS.

    python benchmarks/fleet_fit.py [--nodes 250] [--chains 4]

Data are simulated with known spreads, so nothing is read. Times are of this machine; the ratio of the two is what travels.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np

from experiments.common import start
from inference import Settings, fit
from inference.fleet.model import REPORTED
from tests.inference.fleet.fleets import TRUTH, fleet_table


def main() -> None:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--chains", type=int, default=4)
    asked = parser.parse_args()
    frame = fleet_table(np.random.default_rng(0), n_node=asked.nodes, gpus_per_node=8, n_run=20)
    print(f"{asked.nodes * 8:,} GPUs on {asked.nodes} nodes, {len(frame):,} rows")
    settings = Settings(n_chain=asked.chains)
    found = {}
    for method in ("nuts", "svi"):
        started = time.perf_counter()
        found[method] = fit(frame, model="fleet", method=method, key=jax.random.key(1), settings=settings)
        verdict = found[method].verdict
        print(f"{method}: {time.perf_counter() - started:.1f} s, {verdict.sentence}")
    print(f"{'':14}{'truth':>10}{'nuts 5%':>12}{'50%':>10}{'95%':>10}{'svi 5%':>12}{'50%':>10}{'95%':>10}{'width':>8}")
    for name in REPORTED:
        if name not in found["nuts"].draws:
            continue
        cells = [np.quantile(found[method].draws[name].reshape(-1), [0.05, 0.5, 0.95]) for method in ("nuts", "svi")]
        width = np.ptp(cells[1]) / np.ptp(cells[0]) - 1.0
        numbers = "".join(f"{value:>{pad}.5f}" for cell in cells for value, pad in zip(cell, (12, 10, 10), strict=True))
        print(f"{name:<14}{TRUTH.get(name, np.log(1e-3)):>10.5f}{numbers}{width:>+8.1%}")


if __name__ == "__main__":
    main()

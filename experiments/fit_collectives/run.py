"""Does `fit collectives` work by default, and do its intervals hold what they should? On logs of nccl-tests.

    python experiments/fit_collectives/run.py [--logs 30] [--first 0] [--data ../shared/data] [--check]

Simulated logs have a known law, a third of them plain, a third with the knees of protocols, a third with a jump; measured ones
are the all-reduces of A100 in `--data`, one log per number of GPUs, where that folder is. Every log is written as text, read and
fitted with the defaults of `prism-jax fit collectives`. Prints a line per log and the figures of all; `--check` exits with 1
where verdicts or coverage are below their bar by more than chance.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.stats import binom

import inference
from experiments.common import start
from experiments.fit_collectives.logs import Truth, logs_of_table, simulated, truth_of
from inference.collectives.report import SHORT_BYTES, band

FEWEST_GOOD, LEVEL = 0.935, 0.90  # bars: share of good verdicts, 29 of 31; coverage of the intervals
FALSE_ALARM = 1e-3  # of `--check`
TABLE = Path("collectives") / "allreduce_a100_ib.csv"


@dataclass(frozen=True)
class Found:
    """What a fit said of one log.

    Attributes:
        latency_s, bus_bytes_per_s: 5%, median and 95%.
        inside: whether the true latency, bandwidth and times at the measured sizes are in their 90% intervals; empty of
            measured logs.
        least: the same of latency and bandwidth by least squares.
    """

    name: str
    good: bool
    sentence: str
    elapsed_s: float
    latency_s: list[float]
    bus_bytes_per_s: list[float]
    inside: tuple[bool, bool, float] | None = None
    least: tuple[bool, bool] | None = None


def fitted(name: str, text: str, folder: Path, truth: Truth | None = None) -> Found:
    """One log, fitted by default."""
    path = folder / "nccl.log"
    path.write_text(text, encoding="utf-8")
    began = time.perf_counter()
    fit = inference.fit(path, model="collectives", key=jax.random.key(0))
    elapsed_s = time.perf_counter() - began
    said = fit.describe()
    ((of_scale,),) = (tuple(fabric.values()) for fabric in said["fabrics"].values())
    least = next(iter(next(iter(said["least_squares"].values())).values()))
    found = Found(
        name, fit.verdict.ok, fit.verdict.sentence, elapsed_s, of_scale["latency_s"], of_scale["bus_bytes_per_s"]
    )
    return found if truth is None else _judged(found, truth, fit, least)


def _judged(found: Found, truth: Truth, fit: Any, least: dict[str, list[float]]) -> Found:
    short_s = float(truth.seconds(np.array([SHORT_BYTES]))[0])
    low, _, high = band(fit.model.size_law, fit.data, fit.draws, 0, truth.sizes)
    true = truth.seconds(truth.sizes)
    inside = (
        _within(short_s, found.latency_s),
        _within(truth.bus_bytes_per_s, found.bus_bytes_per_s),
        float(np.mean((low <= true) & (true <= high))),
    )
    of_least = (_within(short_s, least["latency_s"]), _within(truth.bus_bytes_per_s, least["bus_bytes_per_s"]))
    return Found(**{**vars(found), "inside": inside, "least": of_least})


def _within(value: float, interval: list[float]) -> bool:
    return interval[0] <= value <= interval[2]


def line(found: Found, truth: Truth | None) -> str:
    """One log in words."""
    latency, bus = (1e6 * np.array(found.latency_s), 1e-9 * np.array(found.bus_bytes_per_s))
    text = f"{found.name:<44} {latency[1]:5.1f} us ({latency[0]:5.1f} to {latency[2]:5.1f})"
    text += f"  {bus[1]:5.1f} GB/s ({bus[0]:5.1f} to {bus[2]:5.1f})"
    if truth is not None and found.inside is not None:
        marks = ("inside" if one else "OUTSIDE" for one in found.inside[:2])
        text += f"  true {1e6 * truth.latency_s:4.1f} us, {1e-9 * truth.bus_bytes_per_s:5.1f} GB/s: {', '.join(marks)},"
        text += f" {found.inside[2]:4.0%} of sizes"
    return f"{text}  {found.elapsed_s:3.0f} s  {found.sentence}"


def summary(found: list[Found]) -> list[str]:
    """Verdicts, coverage and time."""
    good = sum(one.good for one in found)
    text = [f"{good} of {len(found)} verdicts good"]
    known = [(one.inside, one.least) for one in found if one.inside is not None and one.least is not None]
    if known:
        error = np.sqrt(LEVEL * (1.0 - LEVEL) / len(known))
        shares = [np.mean([inside[i] for inside, _ in known]) for i in range(3)]
        of_least = [np.mean([least[i] for _, least in known]) for i in range(2)]
        text += [
            f"inside their 90% intervals: latency {shares[0]:.1%}, bandwidth {shares[1]:.1%}, both {np.mean(shares[:2]):.1%}, "
            f"times at the measured sizes {shares[2]:.1%} (binomial standard error of {len(known)} at 90%: {error:.1%})",
            f"inside those of least squares: latency {of_least[0]:.1%}, bandwidth {of_least[1]:.1%}",
        ]
    seconds = [one.elapsed_s for one in found]
    return [*text, f"time per fit: median {np.median(seconds):.0f} s, longest {max(seconds):.0f} s"]


def below_bars(found: list[Found]) -> list[str]:
    """Bars that are missed by more than chance explains."""
    sides = [one for log in found if log.inside is not None for one in log.inside[:2]]
    missed = []
    for name, bar, n, n_all in (
        ("good verdicts", FEWEST_GOOD, sum(one.good for one in found), len(found)),
        ("coverage", LEVEL, sum(sides), len(sides)),
    ):
        if n_all and binom.cdf(n, n_all, bar) < FALSE_ALARM:
            missed.append(f"{name}: {n} of {n_all}, and the bar is {bar:.1%}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=30, help="how many simulated ones")
    parser.add_argument("--first", type=int, default=0, help="number of the first, which decides its seed")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of measured tables")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a bar is missed")
    given = parser.parse_args()
    start()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for index in range(given.first, given.first + given.logs):
            rng = np.random.default_rng([31, index])
            truth = truth_of(index, rng)
            name = f"{index:2d} {truth.kind}, {truth.op}, {truth.n_gpus} GPUs, {truth.noise:.1%}"
            found.append(fitted(name, simulated(truth, rng), Path(folder), truth))
            print(line(found[-1], truth), flush=True)
        if (given.data / TABLE).exists():
            for n_gpus, text in logs_of_table(pd.read_csv(given.data / TABLE)).items():
                found.append(fitted(f"measured all_reduce, {n_gpus} A100", text, Path(folder)))
                print(line(found[-1], None), flush=True)
    print("\n".join(summary(found)))
    missed = below_bars(found) if given.check else []
    print("\n".join(missed), end="")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())

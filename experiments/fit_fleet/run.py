"""Does `fit fleet` work by default, and do its intervals hold what they should? On simulated fleets, whose truth is known.

    python experiments/fit_fleet/run.py [--fleets 20] [--first 0] [--check]

Even fleets have no slow chips, odd ones some. Every fleet is fitted with the defaults of `prism-jax fit fleet`. Prints one line
per fleet and the figures of all; `--check` exits with 1 where verdicts or coverage are below their bar by more than chance.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.stats import binom

import inference
from experiments.common import start

N_GPUS, N_RUNS, GPUS_PER_NODE = (64, 128, 256), (10, 20), 8
FEWEST_GOOD, LEVEL = 0.95, 0.90  # bars: share of good verdicts; coverage of the interval
FALSE_ALARM = 1e-3  # of `--check`


@dataclass(frozen=True)
class Truth:
    """A fleet's population, on the log scale.

    Attributes:
        gpu_spread: standard deviation of ordinary chips; `slow_shift` is in multiples of it.
        node_spread, run_spread, rest_spread: of nodes, of runs that the GPUs of a node share, of repeats.
        slow_prob, slow_shift: share of slow chips and how far they lie; a slow chip scatters like the others.
    """

    n_gpu: int
    n_run: int
    gpu_spread: float
    node_spread: float
    run_spread: float
    rest_spread: float
    slow_prob: float
    slow_shift: float

    @property
    def spread_of_all_gpus(self) -> float:
        """Standard deviation of the log time of all chips, slow ones too."""
        return self.gpu_spread * np.sqrt(1.0 + self.slow_prob * (1.0 - self.slow_prob) * self.slow_shift**2)


@dataclass(frozen=True)
class Found:
    """What a fit said of one fleet."""

    truth: Truth
    good: bool
    sentence: str
    low: float
    high: float
    bayes_factor: float
    elapsed_s: float

    @property
    def is_inside(self) -> bool:
        """Whether the spread of all chips is inside its 90% interval."""
        return self.low <= self.truth.spread_of_all_gpus <= self.high


def truth_of(index: int, rng: np.random.Generator) -> Truth:
    """Chips of one model differ by 0.5 to 2.5%, nodes by a fifth to all of that; 3 to 10% slow chips at 3 to 8 spreads."""
    gpu_spread = float(np.exp(rng.uniform(np.log(0.005), np.log(0.025))))
    slow = index % 2 == 1
    return Truth(
        n_gpu=N_GPUS[index // 2 % len(N_GPUS)],
        n_run=N_RUNS[index // (2 * len(N_GPUS)) % len(N_RUNS)],
        gpu_spread=gpu_spread,
        node_spread=gpu_spread * rng.uniform(0.2, 1.0),
        run_spread=rng.uniform(0.001, 0.005),
        rest_spread=rng.uniform(0.001, 0.005),
        slow_prob=rng.uniform(0.03, 0.10) if slow else 0.0,
        slow_shift=rng.uniform(3.0, 8.0) if slow else 0.0,
    )


def simulated(truth: Truth, rng: np.random.Generator) -> pd.DataFrame:
    """Rows of every GPU in every run."""
    n_node = truth.n_gpu // GPUS_PER_NODE
    chip = rng.standard_normal(truth.n_gpu) + truth.slow_shift * (rng.random(truth.n_gpu) < truth.slow_prob)
    gpu, run = (part.ravel() for part in np.mgrid[: truth.n_gpu, : truth.n_run])
    node = gpu // GPUS_PER_NODE
    log_s = (
        np.log(1e-3)
        + truth.node_spread * rng.standard_normal(n_node)[node]
        + truth.gpu_spread * chip[gpu]
        + truth.run_spread * rng.standard_normal((n_node, truth.n_run))[node, run]
        + truth.rest_spread * rng.standard_normal(gpu.size)
    )
    names: dict[str, Any] = {"gpu": gpu, "node": node, "run": run}
    labels = {name: [f"{name}{value:04d}" for value in values] for name, values in names.items()}
    return pd.DataFrame({**labels, "kernel": "gemm", "duration_s": np.exp(log_s)})


def fitted(index: int) -> Found:
    """One fleet, simulated and fitted by default."""
    rng = np.random.default_rng([28, index])
    truth = truth_of(index, rng)
    table = simulated(truth, rng)
    began = time.perf_counter()
    fit = inference.fit(table, model="fleet", key=jax.random.key(0))
    elapsed_s = time.perf_counter() - began
    said = fit.describe()
    spread = said["kernels"]["gemm"]["gpu_cv"]
    factor = said["slow_chips"]["bayes_factor"]
    return Found(truth, fit.verdict.ok, fit.verdict.sentence, spread["p5"], spread["p95"], factor, elapsed_s)


def line(index: int, found: Found) -> str:
    """One fleet in words."""
    truth = found.truth
    kind = f"{truth.slow_prob:4.0%} slow by {truth.slow_shift:.1f} sd" if truth.slow_prob else "no slow chips     "
    inside = "inside " if found.is_inside else "OUTSIDE"
    return (
        f"{index:3d}  {truth.n_gpu:3d} GPUs x {truth.n_run:2d}  {kind}  spread {truth.spread_of_all_gpus:6.2%} {inside} "
        f"{found.low:6.2%} to {found.high:6.2%}  Bayes factor of slow chips {found.bayes_factor:7.2g}  {found.elapsed_s:3.0f} s  "
        f"{found.sentence}"
    )


def summary(found: list[Found]) -> list[str]:
    """Verdicts, coverage with its binomial standard error, and time."""
    groups = {
        "all": found,
        "without slow chips": [one for one in found if not one.truth.slow_prob],
        "with slow chips": [one for one in found if one.truth.slow_prob],
    }
    text = []
    for name, part in groups.items():
        if part:
            good, inside = (sum(values) for values in zip(*((one.good, one.is_inside) for one in part), strict=True))
            share = inside / len(part)
            error = np.sqrt(LEVEL * (1.0 - LEVEL) / len(part))
            text.append(
                f"{name}: {good} of {len(part)} verdicts good; spread inside its 90% interval in {inside} of {len(part)} = "
                f"{share:.1%} (binomial standard error at 90%: {error:.1%})"
            )
    seconds = [one.elapsed_s for one in found]
    return [*text, f"time per fit: median {np.median(seconds):.0f} s, longest {max(seconds):.0f} s"]


def below_bars(found: list[Found]) -> list[str]:
    """Bars that are missed by more than chance explains."""
    missed = []
    for name, bar, n in (
        ("good verdicts", FEWEST_GOOD, sum(one.good for one in found)),
        ("coverage", LEVEL, sum(one.is_inside for one in found)),
    ):
        if binom.cdf(n, len(found), bar) < FALSE_ALARM:
            missed.append(f"{name}: {n} of {len(found)}, and the bar is {bar:.0%}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleets", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first, which decides its seed")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a bar is missed")
    given = parser.parse_args()
    start()
    found = []
    for index in range(given.first, given.first + given.fleets):
        found.append(fitted(index))
        print(line(index, found[-1]), flush=True)
    print("\n".join(summary(found)))
    missed = below_bars(found) if given.check else []
    print("\n".join(missed), end="")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())

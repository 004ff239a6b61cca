"""What should the next generation of hardware have: more bandwidth, more compute, or less variance?

python experiments/next_generation/run.py [--only JOB ...] [--check] [--plot FILE]

d ln p95 / d ln x by pathwise derivatives of `step_quantile` over a grid of hardware, beside differences on the same draws.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import check_or_keep, start
from experiments.next_generation.plot import draw
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.simulate.sensitivity import Spread, numbers_of
from prism_jax.simulate.step_time import step_quantile

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
AXES = ("compute", "bandwidth", "clock_spread", "network_cv")  # whose derivatives are taken; also the order of vectors
BAR = 0.01  # of derivatives against differences
LEAST = 1e-3  # elasticities below are compared with this one, since nothing depends on them
SEED_TOLERANCE = {"p95": 0.01, "difference": BAR}


@dataclass(frozen=True)
class Point:
    """A setting of the grid.

    Attributes:
        domain: GPUs of an NVLink domain.
        factors: [axis] of `AXES`.
        p95_s: seconds.
        slope: [axis] d ln p95 / d ln factor.
        beside: [axis] the same a little beside the setting, where there is a derivative; None where it is not compared.
        difference: [axis] there by central differences.
        wide: [axis] of a wider step, in which columns change places.
    """

    domain: int
    factors: tuple[float, ...]
    p95_s: float
    slope: np.ndarray
    beside: np.ndarray | None = None
    difference: np.ndarray | None = None
    wide: np.ndarray | None = None

    @property
    def name(self) -> str:
        parts = (f"{axis} x{factor:g}" for axis, factor in zip(AXES, self.factors, strict=True))
        return f"NVLink {self.domain}, {', '.join(parts)}"

    @property
    def error(self) -> float:
        """Largest difference of both derivatives, relative to the larger of the derivative and `LEAST`."""
        if self.beside is None or self.difference is None:
            return 0.0
        return float(np.max(np.abs(self.beside - self.difference) / np.maximum(np.abs(self.beside), LEAST)))

    @property
    def wide_error(self) -> float:
        """Largest difference of a wide step from the derivative, relative to the largest derivative."""
        if self.beside is None or self.wide is None:
            return 0.0
        return float(np.abs(self.beside - self.wide).max() / np.abs(self.beside).max())

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """What one per cent more compute or bandwidth, or one per cent less spread, takes off p95, in per cent; largest first."""
        saved = {axis: -slope if axis in AXES[:2] else slope for axis, slope in zip(AXES, self.slope, strict=True)}
        return sorted(saved.items(), key=lambda item: -item[1])


def with_domain(job: Job, size: int) -> Job:
    """The job on a cluster whose innermost links join `size` GPUs."""
    inner, *rest = job.cluster.tiers
    return replace(job, cluster=replace(job.cluster, tiers=(replace(inner, n_devices=size), *rest)))


def p95_of(job: Job, config: Mapping[str, Any]) -> Callable[[jax.Array], jax.Array]:
    """ln p95 as a function of the logs of the factors [axis]."""
    quantile = step_quantile(job, config["p"], key=config["seed"], n_samples=config["n_samples"])

    def log_p95(log_factor: jax.Array) -> jax.Array:
        compute, bandwidth, clock, network = jnp.exp(log_factor)
        numbers = dict(numbers_of(job.cluster))
        numbers["peak_flops_per_s"] = {name: own * compute for name, own in numbers["peak_flops_per_s"].items()}
        numbers["hbm_bytes_per_s"] = numbers["hbm_bytes_per_s"] * compute
        numbers["tiers"] = [{**tier, "bytes_per_s": tier["bytes_per_s"] * bandwidth} for tier in numbers["tiers"]]
        return jnp.log(quantile(hardware=numbers, spread=Spread(clock, network)))

    return log_p95


def points(job: Job, config: Mapping[str, Any], least: bool = False) -> Iterator[Point]:
    """All settings of one job; `least`: corners of the grid alone, at which differences are taken too."""
    grid = config["grid"]
    for domain in grid["nvlink_domain"]:
        log_p95 = p95_of(with_domain(job, domain), config)
        both, alone = jax.jit(jax.value_and_grad(log_p95)), jax.jit(log_p95)
        corners = {*itertools.product(*((grid[axis][0], grid[axis][-1]) for axis in AXES)), (1.0,) * len(AXES)}
        every = itertools.product(*(grid[axis] for axis in AXES))
        for factors in sorted(corners) if least else every:
            at, is_corner = jnp.log(jnp.array(factors, float)), factors in corners
            value, slope = both(at)
            own = Point(domain, factors, float(jnp.exp(value)), np.asarray(slope))
            if is_corner:
                off = at + config["beside"]
                ends = (central(alone, off, config[step]) for step in ("step", "wide_step"))
                own = replace(
                    own, **dict(zip(("beside", "difference", "wide"), (np.asarray(both(off)[1]), *ends), strict=True))
                )
            yield own


def central(function: Callable[[jax.Array], jax.Array], at: jax.Array, step: float) -> np.ndarray:
    """Central differences [axis]."""
    ends = np.array([[function(at.at[k].add(way * step)) for way in (1, -1)] for k in range(len(at))])
    return (ends[:, 0] - ends[:, 1]) / (2.0 * step)


def figures_of(name: str, found: list[Point]) -> dict[str, dict[str, float]]:
    """Rows of `expected.json`: settings at which differences were taken, relative to today's hardware."""
    today = base_of(found, 8)
    rows = {}
    for own in found:
        if own.difference is not None:
            slopes = dict(zip(AXES, own.slope.tolist(), strict=True))
            rows[f"{name}: {own.name}"] = {"p95": own.p95_s / today.p95_s, "difference": own.error} | slopes
    return rows


def base_of(found: list[Point], domain: int, **other: float) -> Point:
    """The setting with all factors one but the `other`."""
    factors = tuple(float(other.get(axis, 1.0)) for axis in AXES)
    return next(own for own in found if own.domain == domain and tuple(map(float, own.factors)) == factors)


def tell(name: str, found: list[Point]) -> None:
    """Prints what to buy, domain by domain and as the network varies more."""
    print(f"-- {name}: one per cent more compute or bandwidth, one per cent less spread takes off p95 (per cent)")
    domains, cvs = (sorted({own.domain for own in found}), sorted({own.factors[-1] for own in found}))
    for domain, cv in itertools.product(domains, cvs):
        own = base_of(found, domain, network_cv=cv)
        ranks = ", ".join(f"{axis} {saved:.4f}" for axis, saved in own.ranked)
        print(f"  NVLink {domain:>3}, network CV x{cv:g}: p95 {own.p95_s:7.4f} s: {ranks}")
    print("  twice as good, all else as today (NVLink 72): p95 falls by")
    now = base_of(found, 72)
    better = {
        "compute x2": base_of(found, 72, compute=2),
        "bandwidth x2": base_of(found, 72, bandwidth=2),
        "clock spread x0.5": base_of(found, 72, clock_spread=0.5),
        "NVLink 576": base_of(found, 576),
    }
    for what, own in better.items():
        print(f"    {what:<20} {1.0 - own.p95_s / now.p95_s:7.2%}")
    worse, fast = (base_of(found, 72, network_cv=2, bandwidth=bandwidth) for bandwidth in (1, 2))
    cv, there = 1.0 - now.p95_s / worse.p95_s, 1.0 - fast.p95_s / worse.p95_s
    print(f"    {'network CV x2 to x1':<20} {cv:7.2%}   (bandwidth x2 there {there:.2%})")
    n, error = sum(own.difference is not None for own in found), max(own.error for own in found)
    print(f"  largest difference from central differences, {n} settings: {error:.2%} (bar {BAR:.0%})")
    print(f"  over steps of 1 %, relative to the largest derivative: {max(own.wide_error for own in found):.2%}")


def main() -> int:
    start()
    jax.config.update("jax_enable_x64", True)  # differences of a step of 1e-7
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, help="jobs")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 where a figure is not as expected or a derivative is wrong"
    )
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    config, every, rows, started = yaml.safe_load((HERE / "config.yaml").read_text()), {}, {}, time.process_time()
    for name, own in config["jobs"].items():
        if arguments.only is None or name in arguments.only:
            every[name] = list(points(load_job(own["from"], own["set"]), config))
            tell(name, every[name])
            rows |= figures_of(name, every[name])
    print(f"{time.process_time() - started:.0f} s of processors")
    if arguments.plot:
        Path(arguments.plot).write_bytes(draw(every))
    wrong = [own.name for found in every.values() for own in found if own.error > BAR]
    print("\n".join(f"{name}: derivative and difference differ by more than {BAR:.0%}" for name in wrong), end="")
    return check_or_keep(rows, EXPECTED, arguments.check, SEED_TOLERANCE) or int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

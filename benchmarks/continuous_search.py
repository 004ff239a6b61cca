"""Continuous search against dense grids and against SciPy from many starts, and its promise against many fresh draws.

    python benchmarks/continuous_search.py [--jobs gpt3_175b_1024 ...] [--fields power ...] [--starts 20] [--sets 8] [--mixed .25]
    python benchmarks/continuous_search.py promise [--jobs ...] [--fields power] [--seeds 40]
    python benchmarks/continuous_search.py intervals [--jobs ...] [--fields power] [--seeds 40]

Fields with one or two numbers are held against a dense grid, others, and all fields of a job together, against L-BFGS-B with the
same gradients from random starts; what these find is rounded as the search rounds. Both ends are scored on the same draws, which
neither has seen. `promise` counts how often the stated 90% interval holds the gain over many further draws. `--mixed` says that
the last replicas, as many as this share of all, have GPUs that are 15% slower. `intervals` counts for settings that no gradient
found, which takes a second where a promise takes a search.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.common import start
from prism_jax import TuneLimits, load_job, tune
from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.plan.plan import device_layout
from prism_jax.search.racing import N_SEEDS, half_width
from prism_jax.search.tune import Tuning, axes_of
from prism_jax.search.tuned_fields import FIELDS

JOBS = (
    "gpt3_175b_1024",
    "t5_11b_256",
    "llama2_7b_fsdp_64",
    "bert_large_1024",
    "deepseek_v3_2048",
    "llama3_405b_16384",
)
LIMITS = TuneLimits(mtbf_h=3.0)
SLOWER = 1.15  # of the slow part of a mixed fleet
SPREAD = 0.2  # of the logarithms of starts
N_GRID = 41  # values per number
FAR = 1000  # number of the first set of draws that nothing else has seen


def limits_of(job: Job, mixed: float) -> TuneLimits:
    """What tuning may spend, on a fleet that is mixed or not."""
    n = job.plan.n_replica
    slow = device_layout(job.plan)[..., n - round(mixed * n) :].ravel()
    return replace(LIMITS, slowdowns={"all": dict.fromkeys(slow.tolist(), SLOWER)})


def fields_of(job: Job, limits: TuneLimits) -> list[str]:
    """Fields that the job has something of."""
    found = []
    for name in FIELDS:
        try:
            axes_of(job, [name], limits)
        except DataError:
            continue
        found.append(name)
    return found


def by_grid(tuning: Tuning) -> Floats:
    """The best of a dense grid on the draws of the search, around the job's own values and then, finer, around the best."""
    (axis,) = tuning.axes

    def at(change: Floats) -> Floats:
        values = np.asarray(axis.values(change), np.float64)
        return axis.rounded(values) if axis.is_split else values

    best, reach = np.zeros(len(axis.start)), 2.5
    for _ in range(3):
        ends = [np.linspace(at - reach, at + reach, N_GRID) for at in (best[:1] if axis.weight is not None else best)]
        changes = [
            np.append(own, [0.0] * (len(best) - len(own)))
            for own in np.stack(np.meshgrid(*ends), -1).reshape(-1, len(ends))
        ]
        best = min(changes, key=lambda own: tuning.on_search(at(own)))
        reach *= 2.0 / N_GRID
    return at(best)


def by_scipy(tuning: Tuning, n_start: int) -> Floats:
    """The best of L-BFGS-B from random starts, on the draws of the search, rounded as the search rounds."""
    rng, ends = np.random.default_rng(0), []
    _ = tuning.slope  # what must not be made while a function is traced
    slope = jax.jit(jax.value_and_grad(lambda change: jnp.log(tuning.smooth(tuning.values_of(change)))))

    def value(change: Floats) -> tuple[float, Floats]:
        found, gradient = slope(jnp.asarray(change, float))
        return float(found), np.asarray(gradient, np.float64)

    for number in range(n_start):
        first = rng.normal(0.0, SPREAD if number else 0.0, len(tuning.start))
        end = minimize(value, first, jac=True, method="L-BFGS-B", options={"maxiter": 80})
        ends.append((float(end.fun), end.x))
    best = min(ends, key=lambda own: own[0])[1]
    return tuning.rounded(np.asarray(tuning.values_of(jnp.asarray(best, float)), np.float64))


def compare(name: str, fields: list[str], limits: TuneLimits, n_start: int, n_set: int) -> None:
    """One line: how far behind the reference a search ends."""
    job = load_job(name)
    began = time.process_time()
    tuning = Tuning.of(job, fields, 0.95, 0, limits)
    found = tuning.best()
    spent_s = time.process_time() - began
    few = len(fields) == 1 and len(tuning.start) <= 2
    other = by_grid(tuning) if few else by_scipy(tuning, n_start)
    scored = [[tuning.fresh(own, FAR + k) for own in (tuning.start, found, other)] for k in range(n_set)]
    base, own, reference = np.mean(scored, axis=0)
    print(
        f"{name:<20} {'+'.join(fields):<36} {len(tuning.start):>4} {'grid' if few else 'scipy':>6} {spent_s:>8.1f} s "
        f"{1.0 - own / base:>8.3%} {own / reference - 1.0:>+9.3%}",
        flush=True,
    )


def promise(names: list[str], fields: list[str], mixed: float, n_seed: int, n_set: int) -> None:
    """How many stated intervals hold the gain over further draws, the same for all seeds and far more than an interval has."""
    held, known = 0, {}
    for seed in range(n_seed):
        job = load_job(names[seed % len(names)])
        limits = limits_of(job, mixed)
        own = [field for field in fields_of(job, limits) if field in fields]
        report = tune(job, own, limits=limits, seed=seed)
        tuning = Tuning.of(job, own, 0.95, n_seed, limits)  # a seed that no search has

        def truth(values: Floats, tuning: Tuning = tuning) -> Floats:
            place = tuning.job.name, values.tobytes()
            if place not in known:
                known[place] = np.array([tuning.fresh(values, k) for k in range(n_set)])
            return known[place]

        scale = np.concatenate([np.full(len(axis.start), axis.scale) for axis in tuning.axes])
        after = np.array([number.after for number in report.numbers]) * scale
        gain = float((1.0 - truth(after) / truth(tuning.start)).mean())
        low, high = report.gain_interval
        held += low - 1e-9 <= gain <= high + 1e-9  # where nothing is gained, interval and gain are both nothing
        print(
            f"{job.name:<20} seed {seed:>3} gain {report.gain:.4%} ({low:.4%} to {high:.4%}) "
            f"over {n_set} sets {gain:.4%}: held {held} of {seed + 1}",
            flush=True,
        )


def intervals(names: list[str], fields: list[str], mixed: float, n: int) -> None:
    """How many of `n` intervals from draws of their own hold the gain over all draws; of the best of a few random settings."""
    for name in names:
        job = load_job(name)
        limits = limits_of(job, mixed)
        for field in fields_of(job, limits):
            if field not in fields:
                continue
            tuning, rng = Tuning.of(job, [field], 0.95, 0, limits), np.random.default_rng(1)
            (axis,) = tuning.axes
            some = [axis.rounded(axis.values(rng.normal(0.0, 0.1, len(axis.start)))) for _ in range(12)]
            best = min(some, key=tuning.on_search)
            pairs = [[tuning.fresh(own, k) for own in (tuning.start, best)] for k in range(N_SEEDS * n)]
            gains = 1.0 - np.divide(*np.transpose(pairs)[::-1])
            apart = gains.reshape(n, N_SEEDS)
            drawn = [rng.choice(gains, N_SEEDS, replace=False) for _ in range(20_000)]
            held, again = (
                [abs(own.mean() - gains.mean()) <= half_width(own) for own in sets] for sets in (apart, drawn)
            )
            print(
                f"{name:<20} {field:<12} gain {gains.mean():.4%}: {sum(held)} of {n}, {np.mean(again):.1%} resampled",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["behind", "promise", "intervals"], default="behind")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS))
    parser.add_argument("--fields", nargs="+", default=list(FIELDS))
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--sets", type=int, default=0, help="8 where searches are held against others, 64 for promises")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--mixed", type=float, default=0.0)
    asked = parser.parse_args()
    start()
    if asked.what == "promise":
        promise(asked.jobs, asked.fields, asked.mixed, asked.seeds, asked.sets or 64)
        return
    if asked.what == "intervals":
        intervals(asked.jobs, asked.fields, asked.mixed, asked.seeds)
        return
    print(
        "job                  fields                             numbers  against  search   gain     behind (bar: 0.2%)"
    )
    for name in asked.jobs:
        limits = limits_of(load_job(name), asked.mixed)
        own = [field for field in fields_of(load_job(name), limits) if field in asked.fields]
        for fields in [*([field] for field in own), *([own] if len(own) > 1 else [])]:
            compare(name, fields, limits, asked.starts, asked.sets or 8)


if __name__ == "__main__":
    main()

"""Steps model on runs, systems and scales left out, and on total times of training runs.

    python experiments/variability_study/score_steps.py [--data ../shared/data] [--only systems repeats scale total] [--folds 10]

Protocol, chosen because it reproduces the known trivial baselines (.46/.80% and .36/.78%; here .458/.802 and .361/.793): no
re-submitted runs, the first 3 points of a run dropped, at least 20 points; medians over the runs of a system and benchmark,
then over those. "systems": population parameters come from a fit without the fold's systems; each system is then predicted
from all others. "repeats": every run is left out once, its configuration's others stay. "scale": fit to <= 512 GPUs; the
baseline is the median of all of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from inference.data.read import read_measurements
from inference.engine.diagnostics import one_blas_thread
from inference.engine.laplace import mode
from inference.engine.model import GroupScore
from inference.engine.program import constrained, program
from inference.steps.data import StepsData, data_of_runs, key_of
from inference.steps.model import COLUMNS, StepsModel
from inference.steps.report import score_runs
from inference.steps.runs import Run, RunTable, read_runs

ROOT = Path(__file__).resolve().parents[2]
SMALL = 512  # GPUs
Draws = dict[str, np.ndarray]


@one_blas_thread
def population(data: StepsData) -> Draws:
    """Parameters at the mode, as one draw: intervals then leave out what is uncertain about them."""
    with jax.enable_x64(True):
        made = program(StepsModel(), data, jax.random.key(0))
        _, unravel = made.ravel()
        return constrained(made, jax.vmap(unravel)(jnp.asarray(mode(made).at)[None]))


def read(folder: Path, name: str) -> RunTable:
    """All runs of `<name>_runs` and the series beside it."""
    long = "series" if name == "mlperf" else "steps"
    paths = [folder / "variability" / f"{name}_{part}.csv.gz" for part in (long, "runs")]
    frame: Any = read_measurements(paths, COLUMNS).frame
    if name == "training":
        frame = frame[frame["benchmark"].astype(str).str.contains("nanogpt")]
    return read_runs(frame)


def without(table: RunTable, left: Callable[[Run], bool]) -> tuple[StepsData, list[Run]]:
    """Data of the runs that are not left out, and those that are."""
    kept = tuple(run for run in table.runs if not left(run))
    return data_of_runs(RunTable(kept, table.schedules)), [run for run in table.runs if left(run)]


def systems(table: RunTable, folds: int) -> Iterable[GroupScore]:
    names = np.array(sorted({run.labels["system"] for run in table.runs}))
    np.random.default_rng(0).shuffle(names)
    for i, part in enumerate(np.array_split(names, folds)):
        draws = population(without(table, lambda run, part=part: run.labels["system"] in part)[0])
        for name in part:
            data, out = without(table, lambda run, name=name: run.labels["system"] == name)
            yield from score_runs(data, draws, out, [name] * len(out), jax.random.key(i))


def repeats(table: RunTable, folds: int) -> Iterable[GroupScore]:
    """Folds cut through configurations, so that every left-out run has repeats that stay."""
    count: dict[str, int] = {}
    fold = {}
    for run in table.runs:
        count[key_of(run)] = count.get(key_of(run), 0) + 1
        fold[id(run)] = count[key_of(run)] - 1
    draws = population(without(table, lambda run: fold[id(run)] == 0 and count[key_of(run)] > 1)[0])
    for i in range(10):  # all repeats of the usual 3, 5 or 10 are left out once; one parameter fit serves
        data, out = without(table, lambda run, i=i: fold[id(run)] == i and count[key_of(run)] > 1)
        yield from score_runs(data, draws, out, [run.labels["system"] for run in out], jax.random.key(i))


def scale(table: RunTable, folds: int) -> Iterable[GroupScore]:
    data, out = without(table, lambda run: run.n_gpus > SMALL)
    return score_runs(data, population(data), out, [run.labels["system"] for run in out], jax.random.key(0))


def scale_baseline(table: RunTable, metric: str) -> list[float]:
    """Median absolute error of p95/p50 and p99/p50 beyond `SMALL` GPUs, the median over all smaller systems carried over."""
    runs = [run for run in table.runs if run.labels["metric"] == metric]
    rows = [(run.labels["system"], run.labels["benchmark"], run.n_gpus, *run.ratios) for run in runs]
    frame: Any = pd.DataFrame(rows, columns=pd.Index(["system", "benchmark", "n", "p95", "p99"]))
    small, large = frame[frame.n <= SMALL], frame[frame.n > SMALL]
    keys = ["system", "benchmark"]
    guess = small.groupby(keys)[["p95", "p99"]].median().median()
    error = (guess / large[["p95", "p99"]] - 1.0).abs()
    return error.groupby([large[k] for k in keys]).median().median().tolist()


def figures(scores: Iterable[GroupScore]) -> Any:
    """One row per group, benchmark and metric."""
    names = ("ks", "ks_empirical", "coverage_90", "p95_p50_ape", "p99_p50_ape")
    rows = [
        dict(zip(("group", "metric", "benchmark"), s.group.rsplit(" | ", 2), strict=True))
        | {n: getattr(s, n) for n in names}
        | dict(s.extra)
        for s in scores
    ]
    return pd.DataFrame(rows)


def show(what: str, found: Any) -> None:
    for metric, t in found.groupby("metric"):
        weight = t["n_runs"] / t["n_runs"].sum()
        error = [100.0 * float(t[f"{p}_p50_ape{end}"].median()) for end in ("", "_baseline") for p in ("p95", "p99")]
        print(f"{what}, {metric}: {len(t)} groups, {t['n_runs'].sum():.0f} runs")
        columns = ["ks", "p95_p50_ape", "p99_p50_ape"]
        ks, p95, p99 = t.groupby(["group", "benchmark"])[columns].median().median()
        print(
            f"  median over systems of their medians: KS {ks:.4f}, p95/p50 {100.0 * p95:.3f} %, p99/p50 {100.0 * p99:.3f} %"
        )
        print(f"  KS {t['ks'].median():.4f} (benchmark's other runs pooled {t['ks_empirical'].median():.4f})")
        print("  p95/p50 {:.3f} %, p99/p50 {:.3f} % (baseline {:.3f} %, {:.3f} %)".format(*error))
        ratio = t["pinball"] / t["pinball_baseline"]
        print(f"  pinball {t['pinball'].median():.6f} (baseline {t['pinball_baseline'].median():.6f}),", end=" ")
        print(f"median ratio {ratio.median():.3f},", end=" ")
        print(f"means {t['pinball'].mean():.5f} ({t['pinball_baseline'].mean():.5f})")
        print(
            f"  90% intervals cover {t['coverage_90'].mean():.3f} of groups, {(t['coverage_90'] * weight).sum():.3f} of runs",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--only", nargs="*", default=["systems", "repeats", "scale", "total"])
    parser.add_argument("--folds", type=int, default=10)
    args = parser.parse_args()
    table = read(args.data, "mlperf") if set(args.only) - {"total"} else RunTable((), {})
    for name, rule in (("systems", systems), ("repeats", repeats), ("scale", scale)):
        if name in args.only:
            show(name, figures(rule(table, args.folds)))
    if "scale" in args.only:
        for metric in ("step_s", "log_dt_ms"):
            p95, p99 = scale_baseline(table, metric)
            print(f"scale, {metric}: all small systems' median carried over {100.0 * p95:.3f} %, {100.0 * p99:.3f} %")
    if "total" in args.only:
        found = figures(repeats(read(args.data, "training"), args.folds))
        weight = found["n_runs"] / found["n_runs"].sum()
        width = 100.0 * found["total_width"]
        print(
            f"total time of training runs: {found['n_runs'].sum():.0f} runs, {len(found)} groups, 90% intervals cover",
            end=" ",
        )
        print(f"{(found['total_coverage_90'] * weight).sum():.3f}; width {width.median():.3f} % (10-90%:", end=" ")
        print(f"{width.quantile(0.1):.2f}-{width.quantile(0.9):.2f} %)")


if __name__ == "__main__":
    main()

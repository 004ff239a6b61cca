# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
# (of pandas without stubs, every expression may be of any type)
"""How well the small models predict what was left out: networks, GPUs, sizes of clusters, checkpoints, regions, batch sizes.

    python experiments/cloud/cmdare/run.py [--data FOLDER] [--only networks|gpus|clusters|saves|starts|ladders]

FOLDER holds `../shared/data/cloud/` and `../shared/data/nonllm/`. Whole groups are left out: repeats of one thing never lie on
both sides of a split. Takes four minutes on two cores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
import inference
from experiments.cloud.cmdare import baselines, tables
from experiments.common import run_parts
from experiments.servers_fit.law import saturating
from experiments.totals_fit.model import Totals
from inference.data.checks import texts_of
from prism_jax.system import catalog

DATA = Path("../shared/data")
KEY = jax.random.key(0)
FEW_WORKERS = 3  # clusters up to here are fitted
FEW_BATCHES = 3  # rungs that are fitted
BARS = {"networks": 0.075, "gpus": 0.15, "clusters": 0.08, "saves": 0.07}


def main() -> None:
    """Prints the figures of the parts that were asked for."""
    run_parts(__doc__, PARTS, DATA)


def networks(folder: Path) -> None:
    """Step time on K80, a network left out."""
    table = tables.step_times(folder)
    print("\nstep time on K80, a network left out (20): mean over networks, median, largest")
    sizes = table[["flops", "n_params", "n_tensors"]].to_numpy(dtype=float)
    for title, features, fit in (
        ("linear in FLOPs", sizes[:, :1], baselines.linear),
        ("log-log FLOPs", sizes[:, :1], baselines.log_log),
        ("log-log FLOPs, parameters, tensors", sizes, baselines.log_log),
        ("own cost model's kernels, scaled", baselines.own_cost(table, "k80", int(tables.BATCH)), baselines.positive),
    ):
        _errors(title, baselines.left_out_errors(table, features, "step_s", fit))
    _left_out(table, "totals", "networks")


def gpus(folder: Path) -> None:
    """K80 to V100: nothing of the other GPU is known but its datasheet."""
    known, other = tables.step_times(folder), tables.other_gpus(folder)
    for name in sorted(set(other["gpu"]) - {"k80"}):
        rows = other[other["gpu"] == name]
        print(f"\nK80 to {name}, {rows['model'].nunique()} networks: error of the median step of each network")
        for title, fitted in (("network known on K80", known), ("network left out, too", None)):
            found = [
                _on_other_gpu(known if fitted is not None else _without(known, one), one) for one in _networks(rows)
            ]
            print(f"  {title:<28}" + "".join(f"{error:+8.1%}" for error, _ in found) + _verdict("gpus", found))
        on_k80 = other[other["gpu"] == "k80"].groupby("model")["step_s"].median()
        for title, factor in (("K80 time by peak", 0), ("K80 time by bandwidth", 1)):
            ratio = _speeds(name)[factor] / _speeds("k80")[factor]
            errors = [
                on_k80[str(one["model"].iloc[0])] / ratio / one["step_s"].median() - 1.0 for one in _networks(rows)
            ]
            print(f"  {title:<28}" + "".join(f"{e:+8.1%}" for e in errors) + f"   mean {np.mean(np.abs(errors)):.1%}")
    _mixed(folder, known)


def _mixed(folder: Path, known: pd.DataFrame) -> None:
    """P100 has no row of its own: whole runs on clusters that hold one, with the server as fitted to V100 clusters."""
    fit = inference.fit(tables.runs(folder), model="servers", key=KEY)
    law = fit.model.law(fit.data, fit.draws, "ResNet-32 v100")
    row = tables.other_gpus(folder).query("model == 'ResNet-32'").iloc[:1]
    speed = {"v": law.worker_per_s}
    for letter, name in (("k", "k80"), ("p", "p100")):
        speed[letter] = np.median(np.exp(-_predicted(known, row.assign(gpu=name))[:, 0]))
    print(f"\nclusters with a P100 (predicted {speed['p']:.2f} steps/s), ResNet-32: predicted over measured steps/s")
    for config, measured in tables.mixed_runs(folder).items():
        counts = {config[at + 1]: int(config[at]) for at in range(0, len(config), 2)}
        offered = np.asarray(sum(n * speed[letter] for letter, n in counts.items()))
        found = float(np.median(saturating(offered, law.server_per_s, law.sharpness)))
        print(f"  {config}: {found:.2f} over {measured:.2f} = {found / measured - 1.0:+.1%}")


def clusters(folder: Path) -> None:
    """Speeds of 4 to 8 workers from those of 1 to 3."""
    for title, table in (
        ("K80, four networks", tables.clusters(folder)),
        ("V100, ResNet-32, whole runs", tables.runs(folder)),
    ):
        few = table["workers"] <= FEW_WORKERS
        fit = inference.fit(table[few], model="servers", key=KEY)
        rest = inference.measured(table[~few], "servers").frame
        print(f"\nclusters of 4 to 8 workers from 1 to {FEW_WORKERS}, {title}; {fit.verdict.sentence}")
        for column in ("model", "workers"):
            for score in fit.model.score(fit.data, fit.draws, rest, column, KEY):
                print(
                    f"  {score.group:<20} {score.extra['mape']:6.1%}  in proportion {score.extra['mape_trivial']:6.1%}"
                )
        for column in ("model",):
            scores = fit.model.score(fit.data, fit.draws, rest, column, KEY)
            _whole("clusters", scores, "in proportion")
        medians = table.groupby(["model", "gpu", "workers", "ps", "n_params"])["steps_per_s"].median().reset_index()
        rest = inference.measured(medians[medians["workers"] > FEW_WORKERS], "servers").frame
        _whole("clusters", fit.model.score(fit.data, fit.draws, rest, "model", KEY), "in proportion", "of medians")


def saves(folder: Path) -> None:
    """Checkpoint time, a network left out."""
    table = tables.saves(folder)
    print("\ncheckpoint time, a network left out (20): mean over networks, median, largest")
    sizes = table[["weights_bytes", "index_bytes", "meta_bytes"]].to_numpy(dtype=float)
    for title, features, fit in (
        ("linear in the size of all", sizes[:, :1] + sizes[:, 2:], baselines.linear),
        ("Gaussian process, weights", sizes[:, :1], baselines.gaussian_process),
        ("Gaussian process, all three", sizes, baselines.gaussian_process),
    ):
        _errors(title, baselines.left_out_errors(table, features, "save_s", fit))
    _left_out(table, "saves", "saves")


def starts(folder: Path) -> None:
    """Start-up, a region left out."""
    measured = inference.measured(str(folder / "cloud" / "gcp_vm_startup_times.csv"), "startup")
    found = inference.holdout(measured, model="startup", column="region", key=KEY)
    print("\nstart-up, a region left out: inside 90% intervals, ranked score (s); all other starts pooled beside")
    for score in found.scores:
        own = score.extra
        print(
            f"  {score.group:<6} {score.coverage_90:.0%} of {own['n_starts']:.0f} (pooled {own['coverage_90_pooled']:.0%}),"
            f" {own['crps_s']:.2f} s (pooled {own['crps_pooled_s']:.2f}), median off by {own['median_ape']:.1%}"
            f" (pooled {own['median_ape_pooled']:.1%})"
        )
    inside = sum(score.coverage_90 * score.extra["n_starts"] for score in found.scores)
    print(f"  inside: {inside / sum(score.extra['n_starts'] for score in found.scores):.1%}")


def ladders(folder: Path) -> None:
    """Larger batches from the three smallest."""
    table = tables.ladders(folder)
    few = table.groupby("setup")["batch"].rank() <= FEW_BATCHES
    fit = inference.fit(table[few], model="ladder", key=KEY)
    rest = inference.measured(table[~few], "ladder").frame
    scores = fit.model.score(fit.data, fit.draws, rest, "setup", KEY)
    print(f"\nlarger batches from the three smallest, {len(scores)} ladders; {fit.verdict.sentence}")
    for score in scores:
        print(f"  {score.group:<20} {score.extra['mape']:6.1%}  in proportion {score.extra['mape_trivial']:6.1%}")
    _whole("", scores, "in proportion")


PARTS = {"networks": networks, "gpus": gpus, "clusters": clusters, "saves": saves, "starts": starts, "ladders": ladders}


def _left_out(table: pd.DataFrame, model: str, part: str) -> None:
    measured = inference.measured(table, model)
    n_group = measured.frame["model"].nunique()
    scores = inference.holdout(measured, model=model, column="model", key=KEY, n_split=n_group).scores
    _errors(f"`fit {model}`", np.array([score.extra["mape"] for score in scores]), part)
    print(f"    inside 90% intervals: {np.mean([score.coverage_90 for score in scores]):.1%} of rows")


def _errors(title: str, errors: np.ndarray, part: str = "") -> None:
    bar = "" if not part else f"   bar {BARS[part]:.1%}: {'reached' if errors.mean() <= BARS[part] else 'not reached'}"
    print(f"  {title:<36} {errors.mean():7.2%} {np.median(errors):7.2%} {errors.max():7.2%}{bar}")


def _whole(part: str, scores: Any, beside: str, what: str = "of rows") -> None:
    mean, trivial = (float(np.mean([score.extra[name] for score in scores])) for name in ("mape", "mape_trivial"))
    bar = "" if not part else f" (bar {BARS[part]:.0%}: {'reached' if mean <= BARS[part] else 'not reached'})"
    inside = np.mean([score.coverage_90 for score in scores])
    print(f"  mean {what} {mean:.2%}{bar}, {beside} {trivial:.2%}; inside 90% intervals {inside:.0%}")


def _networks(rows: pd.DataFrame) -> list[pd.DataFrame]:
    return [one for _, one in rows.groupby("model")]


def _without(known: pd.DataFrame, one: pd.DataFrame) -> pd.DataFrame:
    """Without the network, which the tables call by different names: the one of the same totals."""
    return known[known["n_params"] != one["n_params"].iloc[0]]


def _predicted(known: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """Log seconds of single steps, [draw, row]."""
    fit = inference.fit(known, model="totals", key=KEY, method="map")
    frame = inference.measured(rows, "totals").frame
    assert isinstance(fit.model, Totals)
    assert texts_of(frame, "gpu")
    return fit.model.predict(fit.data, fit.draws, frame, np.random.default_rng(0))


def _on_other_gpu(known: pd.DataFrame, one: pd.DataFrame) -> tuple[float, bool]:
    """Error of the median, and whether the median step lies in its 90% interval."""
    measured = float(one["step_s"].median())
    low, middle, high = np.exp(np.quantile(_predicted(known, one.iloc[:1])[:, 0], [0.05, 0.5, 0.95]))
    return middle / measured - 1.0, bool(low <= measured <= high)


def _verdict(part: str, found: list[tuple[float, bool]]) -> str:
    mean = float(np.mean([abs(error) for error, _ in found]))
    inside = sum(hit for _, hit in found)
    reached = "reached" if mean <= BARS[part] else "not reached"
    return f"   mean {mean:.1%} (bar {BARS[part]:.0%}: {reached}), inside {inside} of {len(found)}"


def _speeds(name: str) -> tuple[float, float]:
    device = catalog.device(name)
    return device.peak("fp32"), device.hbm_bytes_per_s


if __name__ == "__main__":
    main()

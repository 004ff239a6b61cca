# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)
"""How well fits of reliability predict what was left out: each cluster, each system, each source in turn.

    python experiments/reliability_fits/run.py --data FOLDER [--only failures|repairs|checkpoints]

FOLDER holds `failures.csv`, `node_failures_lanl.parquet`, `node_downtime_grid5000.parquet` and `checkpoint_times.csv`. Counts of
whole clusters are made of `failures.csv` and the two jobs of `CLUSTERS`. Takes about six minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
import inference
from experiments.checkpoints_fit.data import observations
from experiments.common import run_parts

BEST_SHARE, BEST_ERROR = 0.90, 0.30  # bars
HOURS_OF_11_MONTHS = 334 * 24.0
# Jobs whose logs state their length and interruptions: BigScience chronicles (GPU failures, one a week), OPT-175B chronicles.
CLUSTERS = (
    {"cluster": "BLOOM", "gpus": 384, "hours": 2602.0, "count": 15},
    {"cluster": "OPT", "gpus": 992, "hours": 1356.8, "count": 90},
)


def main() -> None:
    """Prints the figures of the parts that were asked for."""
    run_parts(__doc__, PARTS)


def failures(folder: Path) -> None:
    """Counts of clusters: coverage, width, and log density beside one rate for all."""
    table = _clusters(pd.read_csv(folder / "failures.csv"))
    left_out = _left_out(inference.measured(table, "failures"), "failures", "cluster")
    print(
        "\nfailures: cluster left out, inside its 90% interval, highest / lowest of the interval, nats: model, one rate"
    )
    for score in left_out.scores:
        figures = score.extra
        print(
            f"  {score.group:<22} {'yes' if score.coverage_90 else 'no':>4} {figures['interval_factor']:8.0f}"
            f" {figures['log_density']:9.1f} {figures['log_density_one_rate']:9.1f}"
        )
    inside = sum(score.coverage_90 for score in left_out.scores)
    print(f"  inside: {inside:.0f} of {len(left_out.scores)}")


def repairs(folder: Path) -> None:
    """Logs of node failures: nats per event over the exponential law, and over independent nodes."""
    files = [str(folder / name) for name in ("node_failures_lanl.parquet", "node_downtime_grid5000.parquet")]
    measured = inference.measured(files, "repairs")
    left_out = _left_out(measured, "repairs", "system")
    print(
        "\nrepairs: system left out, nats over exponential: between failures, repair; over independent nodes (group losses)"
    )
    for score in sorted(left_out.scores, key=lambda one: one.group):
        figures = [score.extra.get(name, np.nan) for name in ("between_gain", "repair_gain", "groups_gain")]
        print(f"  {score.group:<10}" + "".join(f"{value:10.3f}" for value in figures))
    for name in ("between", "repair", "groups"):
        better = [score.extra[f"{name}_better"] for score in left_out.scores if f"{name}_better" in score.extra]
        share = float(np.mean(better))
        verdict = "reached" if share >= BEST_SHARE else "not reached"
        print(f"  {name} better on {sum(better):.0f} of {len(better)} = {share:.0%} (bar {BEST_SHARE:.0%}: {verdict})")


def checkpoints(folder: Path) -> None:
    """Seconds of checkpoints: median error by source, beside bytes by one bandwidth."""
    columns = {"source": "group"}
    measured = inference.measured(str(folder / "checkpoint_times.csv"), "checkpoints", mapping=columns)
    left_out = _left_out(measured, "checkpoints", "source")
    print(
        "\ncheckpoints: source left out, observations, median error: model, one bandwidth, in hindsight its own; "
        "share inside 90% intervals"
    )
    hindsight = {score.group: _own_bandwidth(measured.frame, score.group) for score in left_out.scores}
    for score in left_out.scores:
        figures = score.extra
        print(
            f"  {score.group:<20} {figures['n_observations']:4.0f} {figures['mape']:8.0%} {figures['mape_one_bandwidth']:8.0%}"
            f" {hindsight[score.group]:8.0%} {score.coverage_90:8.0%}"
        )
    whole = left_out.as_dict()
    verdict = "reached" if whole["mape"] <= BEST_ERROR else "not reached"
    print(
        f"  median over sources {whole['mape']:.0%} (bar {BEST_ERROR:.0%}: {verdict}), one bandwidth "
        f"{whole['mape_one_bandwidth']:.0%}, its own in hindsight {np.median([*hindsight.values()]):.0%}; "
        f"inside {whole['coverage_90']:.0%}"
    )


def _own_bandwidth(frame: pd.DataFrame, source: str) -> float:
    """Least median error that one bandwidth for all rows of a source leaves, by whoever knows them."""
    rows, seconds = observations(frame[frame["source"] == source])
    ratio = np.exp([row.log_bytes for row in rows]) / seconds
    bandwidth = np.geomspace(ratio.min(), ratio.max(), 2_000)[:, None]
    return float(np.median(np.abs(ratio / bandwidth - 1.0), axis=1).min())


PARTS = {"failures": failures, "repairs": repairs, "checkpoints": checkpoints}


def _left_out(measured: inference.Measurements, model: str, column: str) -> inference.Holdout:
    n_group = measured.frame[column].nunique()
    return inference.holdout(measured, model=model, column=column, key=jax.random.key(0), n_split=n_group)


def _clusters(table: pd.DataFrame) -> pd.DataFrame:
    """Counts of whole clusters, as far as `failures.csv` states how many GPUs ran for how long."""
    rows: list[Mapping[str, object]] = [*CLUSTERS]
    total = table[table["failure_type"] == "unexpected interruptions"].set_index("cluster")
    rows.append(_row("Meta Llama-3 405B", 16384, 54 * 24.0, total.loc["Meta Llama-3 405B", "count"]))
    downtimes = table[table["category"].str.startswith("failure (21")]
    rows.append(_row("DGX-B200 cluster", 504, 55 * 24.0, downtimes["count"].astype(float).sum()))
    for name, gpus in (("Meta RSC-1", 16000), ("Meta RSC-2", 8000)):
        rate = table[(table["cluster"] == name) & (table["metric"] == "failure_rate")]["value"].astype(float).iloc[0]
        rows.append(_row(name, gpus, HOURS_OF_11_MONTHS, round(rate / 24e3 * gpus / 8 * HOURS_OF_11_MONTHS)))
    titan = table[table["cluster"] == "OLCF Titan"]
    hours = float(titan["note"].iloc[0].split("in file")[1].split(";")[0]) / 18688
    rows.append(_row("OLCF Titan", 18688, hours, titan["count"].astype(float).sum(), node_size=1))
    return pd.DataFrame(rows).fillna({"node_size": 8.0})


def _row(cluster: str, gpus: int, hours: float, count: object, **more: float) -> dict[str, object]:
    return {"cluster": cluster, "gpus": gpus, "hours": hours, "count": float(str(count)), **more}


if __name__ == "__main__":
    main()

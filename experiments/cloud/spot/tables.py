# pyright: reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# (of pandas without stubs, every expression may be of any type)
"""The recorded traces as `fit revocation` reads them, and as worlds to replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.cloud.spot.recorded_spells import RecordedSpells

COLUMNS = ["trace_id", "kind", "zone", "gpu", "requested_nodes", "gap_s", "days"]
LONG_DAYS = 40.0  # the 45-day traces of single V100 nodes
DAY_S = 86_400.0


def traces(folder: Path) -> pd.DataFrame:
    """Runs of constant availability with the zone, GPU and nodes of their trace."""
    meta = pd.read_csv(folder / "spot_traces_meta.csv")
    meta["gpu"] = meta["gpu"] + " x" + meta["gpus_per_instance"].astype(str)
    runs = pd.read_csv(folder / "spot_runs.csv.gz").astype({"start_s": float, "duration_s": float})
    return runs.merge(meta[COLUMNS], on="trace_id")


def long_traces(folder: Path) -> pd.DataFrame:
    """The 45-day traces."""
    table = traces(folder)
    return table[table["days"] > LONG_DAYS].drop(columns="days").reset_index(drop=True)


def recorded(rows: pd.DataFrame) -> RecordedSpells:
    """A trace to replay."""
    until_s = (rows["start_s"] + rows["duration_s"]).to_numpy(dtype=float)
    name, nodes = str(rows["zone"].iloc[0]), int(rows["requested_nodes"].iloc[0])
    return RecordedSpells(name, "recorded", until_s, rows["available"].to_numpy(dtype=np.int64), nodes)


def before(rows: pd.DataFrame, at_s: float, back_s: float) -> tuple[pd.DataFrame, bool, float]:
    """What was seen of a trace in `back_s` seconds up to a moment; whether nodes are there then, and for how long.

    Only what a planner knows: the piece of that moment is cut there.
    """
    seen = rows[(rows["start_s"] < at_s) & (rows["start_s"] + rows["duration_s"] > at_s - back_s)].copy()
    seen.loc[seen.index[-1], "duration_s"] = at_s - float(seen["start_s"].iloc[-1])
    seen["censored_right"] = 0
    seen.loc[seen.index[-1], "censored_right"] = 1
    last = seen.iloc[-1]
    return seen, bool(last["available"] >= last["requested_nodes"]), float(last["duration_s"])


def lifetimes(folder: Path) -> pd.DataFrame:
    """Lives of preemptible instances of the campaign of 2019, of which ends are known to the minute."""
    table = pd.read_csv(folder / "gcp_preemptible_lifetimes.csv")
    table = table[table["campaign"] == "2019-02"].copy()
    table["duration_s"] = (table["lifetime_h"] * 3600.0).clip(lower=30.0)  # a minute is the resolution
    table["start_s"] = pd.to_datetime(table["start"]).astype("int64") / 10**9
    table["start_s"] = (table["start_s"] - table["start_s"].min()).clip(lower=0.0)
    table["kind"] = "preemption"
    counts = table.groupby(["zone", "gpu", "start_s"])["vm"].transform("size")
    return table.assign(nodes=counts)[
        ["zone", "gpu", "kind", "nodes", "start_s", "duration_s", "ended_at_24h_limit"]
    ].assign(gap_s=60.0)

"""Several logs of one test of the network, of pairs of nodes as a rule: the bandwidth of each, and which lies apart.

A fit of all of them is one of the fabric, and a bad pair is noise in it. So each log is compared with the others at the sizes
that they share, large messages only (from a 64th of the largest on), where bandwidth decides: the median over sizes of its time
over the median of the logs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from prism_jax.core.robust import robust_sd

from .raw_table import RawTable

# pyright: reportArgumentType=false, reportGeneralTypeIssues=false
# (of pandas without stubs, every expression may be of any type)

NEEDED = frozenset(("op", "message_bytes", "time_us", "n_gpus", "n_nodes"))
FEWEST = 3  # logs, of which two say what is usual
LARGE = 64.0
APART, ROBUST_SD = 0.05, 5.0  # of the time; robust standard deviations of the logs
MOST_NAMED = 16
BUS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0, "all_to_all": 1.0}


def notes_on_logs(tables: Sequence[RawTable]) -> list[str]:
    """The bus bandwidth of every log of a test that several logs hold, and the logs that lie apart."""
    parts = [
        pd.DataFrame({name: table.frame[name] for name in NEEDED}).assign(log=table.name)
        for table in tables
        if set(table.frame.columns) >= NEEDED
    ]
    if len(parts) < FEWEST:
        return []
    rows = pd.concat(parts, ignore_index=True)
    for name in ("message_bytes", "time_us", "n_gpus", "n_nodes"):
        rows[name] = pd.to_numeric(rows[name], errors="coerce")
    rows = rows[(rows["time_us"] > 0.0) & (rows["message_bytes"] > 0.0)]
    found: list[str] = []
    for (op, n_gpus, n_nodes), test in rows.groupby(["op", "n_gpus", "n_nodes"]):
        found += _of_test(str(op), float(n_gpus), float(n_nodes), test)
    return found


def _of_test(op: str, n_gpus: float, n_nodes: float, test: pd.DataFrame) -> list[str]:
    time = test.pivot_table(index="message_bytes", columns="log", values="time_us", aggfunc="median")
    time = time.loc[time.index >= float(time.index.max()) / LARGE].dropna(axis="columns", how="all").dropna()
    if time.shape[1] < FEWEST or time.empty:
        return []
    excess = np.log(time.div(time.median(axis="columns"), axis="index")).median()
    largest = float(time.index.max())
    bus = BUS.get(op, 1.0) * ((n_gpus - 1.0) / n_gpus if op in BUS else 1.0)
    gb_per_s = bus * largest / time.loc[largest] / 1e3
    sd = robust_sd(excess.to_numpy())
    apart = excess[np.abs(excess) > max(np.log1p(APART), ROBUST_SD * sd)].sort_values(ascending=False)
    each = ", ".join(f"{log} {value:.3g}" for log, value in list(gb_per_s.items())[:MOST_NAMED])
    more = ", ..." if len(gb_per_s) > MOST_NAMED else ""
    what = f"{op} of {n_gpus:g} GPUs on {n_nodes:g} nodes"
    told = [f"{what}, bus GB/s of each log at {largest:,.0f} bytes: {each}{more}"]
    told += [
        f"{log} lies apart from the other {len(excess) - 1} logs of {what}: {np.exp(-value):.0%} of their bandwidth. "
        "One fit of all logs takes it for noise: leave it out, or look at its nodes"
        for log, value in list(apart.items())[:MOST_NAMED]
    ]
    return told

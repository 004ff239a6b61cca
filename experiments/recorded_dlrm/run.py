"""One recorded DLRM step on 8 V100: what its ops, run again with the waits between ranks, say of its end, and what one rank says.

python experiments/recorded_dlrm/run.py [--data PARQUET] [--check]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from prism_jax.host.kineto_calls import ProfileEvent, RankCalls, rank_calls
from prism_jax.host.program import (
    AFTER,
    STARTS,
    Action,
    Call,
    HostProgram,
    Operator,
    Overhead,
    OverheadTable,
    host_program,
    overheads,
    recorded_calls,
)
from prism_jax.host.traverse import traverse

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "nonllm" / "kineto_dlrm_v100_8ranks.parquet"
LINEAR = "kineto_linear_2080ti.parquet"
BARS = {"recorded": 0.02, "one rank": 0.06}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    ranks = read(given.data)
    found = {"recorded": recorded_error(ranks), "one rank": one_rank_errors(ranks)}
    other_traces(ranks, sorted(given.data.parent.glob("kineto_hta_[av]*")) + [given.data.parent / LINEAR])
    if given.check:
        raise SystemExit(int(any(found[name] > bar for name, bar in BARS.items())))


def read(path: Path) -> list[RankCalls]:
    """The ranks of a table of events: name, cat, ts, dur, tid, corr, stream and, if there are several, rank."""
    table = pd.read_parquet(path)
    columns = ["name", "cat", "ts", "dur", "tid", "corr", "stream"]
    groups = table.groupby("rank") if "rank" in table else [(0, table)]
    return [
        rank_calls([ProfileEvent(*row) for row in own[columns].itertuples(index=False)], f"{path.name}, rank {rank}")
        for rank, own in groups
    ]


def recorded_error(ranks: list[RankCalls]) -> float:
    """Largest relative error of a rank's step; hosts and work as recorded, waits by traversal."""
    program = met(
        host_program(
            [recorded_calls(rank.operators, rank.start_s, rank.end_s) for rank in ranks],
            [rank.start_s for rank in ranks],
        )
    )
    found = traverse(program)
    own_s, step_s = np.asarray(found.end_s) - program.start_s, measured(ranks)
    error = own_s / step_s - 1.0
    print("hosts and work as recorded, waits between ranks by traversal (ms)")
    rows = zip(step_s, own_s, error, np.asarray(found.waited_s), program.work_s, program.naive_sum_s, strict=True)
    print("  rank  step  traversed  error  in waiting  device work  naive sum")
    for rank, row in enumerate(rows):
        step, own, off, *others = row
        print(
            f"  {rank}  {1e3 * step:6.2f}  {1e3 * own:6.2f}  {off:+7.2%}  "
            + "  ".join(f"{1e3 * one:6.2f}" for one in others)
        )
    return float(np.abs(error).max())


def met(program: HostProgram) -> HostProgram:
    return replace(program, busy_s=program.met_busy_s)


def measured(ranks: list[RankCalls]) -> np.ndarray:
    """[rank] seconds of the step."""
    return np.array([rank.done_s - rank.start_s for rank in ranks])


def one_rank_errors(ranks: list[RankCalls]) -> float:
    """Median error over all pairs of the step of one rank, told by operators, kernels and T1 to T5 of another.

    All ranks do what that one does, with its overheads; they begin where they were recorded to begin.
    """
    alone_s, starts = collectives(ranks).min(axis=0), [rank.start_s for rank in ranks]
    print("\none rank tells the steps of all: error over ranks, median (largest)")
    print("  rank  its gaps          its T1 to T5      kernels alone")
    errors = []
    for rank, own in enumerate(ranks):
        found = [
            np.abs(told(own, starts, alone_s, way) / measured(ranks) - 1.0) for way in ("gaps", "table", "kernels")
        ]
        errors.append(found)
        print(f"  {rank}     " + "  ".join(f"{np.median(one):6.1%} ({one.max():6.1%})" for one in found))
    by_way = np.median(errors, axis=(0, 2))
    print("  all   " + "  ".join(f"{one:6.1%}          " for one in by_way))
    return float(by_way[1])


def collectives(ranks: list[RankCalls]) -> np.ndarray:
    """[rank, collective] recorded seconds, waiting included."""
    return np.array(
        [
            [
                call.busy_s
                for call in recorded_calls(rank.operators, rank.start_s, rank.end_s)
                if call.action == Action.COLLECTIVE
            ]
            for rank in ranks
        ]
    )


def told(rank: RankCalls, starts: list[float], alone_s: np.ndarray, way: str) -> np.ndarray:
    """[rank] seconds of the steps of ranks that do what this one does, whose collectives take `alone_s`."""
    if way == "table":
        return run(with_table(rank, overheads([rank.operators])), starts, alone_s)
    calls = recorded_calls(rank.operators, rank.start_s, rank.end_s)
    if way == "kernels":
        return program_of(calls, starts, alone_s).busy_s.sum(axis=1)
    return run(calls, starts, alone_s)


def other_traces(ranks: list[RankCalls], files: list[Path]) -> None:
    """Prints errors of the steps with overheads by operator from traces of other jobs on other hosts.

    A host's speed is one number of the rank that tells: the mean of T4 over that of the trace.
    """
    alone_s, starts = collectives(ranks).min(axis=0), [rank.start_s for rank in ranks]
    print("\noverheads of other traces: error over ranks, median (largest)")
    print("  trace                                 operators seen  as they are       at the speed of this host")
    tables = {file.stem: overheads([own.operators for own in read(file)]) for file in files if file.exists()}
    tables["all, mean of the traces"] = mean_of(list(tables.values()))
    for name, table in tables.items():
        seen = np.mean([(Overhead.T2, own.name) in table.seconds for own in ranks[0].operators])
        errors = {"as": [], "scaled": []}
        for rank in ranks:
            speed = overheads([rank.operators]).of(Overhead.T4, "") / table.of(Overhead.T4, "")
            for way, used in (("as", table), ("scaled", scaled(table, speed))):
                errors[way].append(np.abs(run(with_table(rank, used), starts, alone_s) / measured(ranks) - 1.0))
        cells = "  ".join(f"{np.median(one):6.1%} ({np.max(one):6.1%})" for one in errors.values())
        print(f"  {name:<36}  {seen:>14.0%}  {cells}")


def mean_of(tables: list[OverheadTable]) -> OverheadTable:
    """Every overhead as the mean over the traces that have it."""
    keys = set().union(*(table.seconds for table in tables))
    found = {key: [table.seconds[key] for table in tables if key in table.seconds] for key in keys}
    return OverheadTable(
        {key: float(np.mean(own)) for key, own in found.items()}, {key: len(own) for key, own in found.items()}
    )


def scaled(table: OverheadTable, factor: float) -> OverheadTable:
    return replace(table, seconds={key: factor * own for key, own in table.seconds.items()})


def calls_with(operators: Sequence[Operator], table: OverheadTable) -> list[Call]:
    """The calls of a rank with the overheads of a table in place of the recorded ones."""
    calls: list[Call] = []
    since_s, before = 0.0, None
    for own in operators:
        since_s += table.of(Overhead.T1, f"{own.name}{AFTER}{before}") if before is not None else 0.0
        since_s += table.of(Overhead.T2, own.name)
        before = own.name
        for index, timed in enumerate(own.calls):
            gap_s = table.of(Overhead.T5, own.name) if index else since_s
            call_s = table.of(Overhead.T4, own.name) if timed.call.action in STARTS else timed.call.call_s
            calls.append(timed.call._replace(gap_s=gap_s, call_s=call_s))
        if own.calls:
            since_s = table.of(Overhead.T3, own.name)
    return [*calls, Call(Action.NOTHING, gap_s=since_s)]


def with_table(rank: RankCalls, table: OverheadTable) -> list[Call]:
    """The calls of a rank with overheads of a table; before its first operator and after its last what was recorded."""
    before_s, after_s = rank.operators[0].start_s - rank.start_s, rank.end_s - rank.operators[-1].end_s
    calls = calls_with(rank.operators, table)
    return [Call(Action.NOTHING, gap_s=before_s), *calls, Call(Action.NOTHING, gap_s=max(after_s, 0.0))]


def run(calls: list[Call], starts: list[float], alone_s: np.ndarray) -> np.ndarray:
    """[rank] seconds of the steps of ranks that all make these calls."""
    return np.asarray(traverse(program_of(calls, starts, alone_s)).end_s) - np.asarray(starts)


def program_of(calls: list[Call], starts: list[float], alone_s: np.ndarray) -> HostProgram:
    """Ranks that all make these calls; collectives take `alone_s`."""
    program = host_program([calls] * len(starts), starts)
    busy_s = program.busy_s.copy()
    busy_s[:, program.action[0] == Action.COLLECTIVE] = alone_s
    return replace(program, busy_s=busy_s)


if __name__ == "__main__":
    main()

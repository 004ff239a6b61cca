"""Recorded steps as calls of the host and work on two streams; what `prism-jax trace host` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...host.overheads import ABOUT, Overhead, OverheadTable, overheads, recorded_calls
from ...host.program import HostProgram, host_program
from ...io.traces.kineto.calls import RankCalls, read_rank_calls
from ...io.traces.open_trace import files_of
from ...io.write import run_record
from ...report.codec import from_plain
from ...report.types.host import HostOverhead, HostReport, RankSteps
from ...report.types.record import RunRecord

BUSY = 0.5  # share of the step below which the host decides


def host_of_trace(source: str | Path) -> HostReport:
    """What the hosts of profiled ranks do in their first step, run again with waits between ranks.

    Args:
        source: a PyTorch profile with CPU and CUDA activities, a folder of them (one for each rank), or a pattern.

    Raises:
        DataError: cannot be read, no calls of the CUDA driver, or ranks with different collectives.

    Example:
        >>> host_of_trace("profiles").host_bound  # doctest: +SKIP
    """
    files = files_of(source)
    ranks = [read_rank_calls(file) for file in files]
    table = overheads([rank.operators for rank in ranks])
    program = _program(ranks)
    from ...host.traverse import traverse  # needs JAX, which mistakes above do not wait for

    found = traverse(program)
    facts = _facts(files, ranks, program, np.asarray(found.end_s), np.asarray(found.waited_s))
    busy = np.median([one.gpu_active_s / one.step_s for one in facts])
    return HostReport(
        ranks=facts,
        host_bound=bool(busy < BUSY),
        overheads=_overheads(ranks, table),
        notes=_notes(ranks),
        record=from_plain(RunRecord, run_record({"file": str(source)}, None)),
    )


def _program(ranks: Sequence[RankCalls]) -> HostProgram:
    """All ranks on one clock from the first start; a collective takes what it takes on the rank that comes last."""
    zero_ns = ranks[0].clock_ns
    start_s = np.array([rank.start_s + 1e-9 * (rank.clock_ns - zero_ns) for rank in ranks])
    calls = [recorded_calls(rank.operators, rank.start_s, rank.end_s) for rank in ranks]
    program = host_program(calls, start_s - start_s.min())
    return replace(program, busy_s=program.met_busy_s)


def _facts(
    files: Sequence[Path], ranks: Sequence[RankCalls], program: HostProgram, end_s: np.ndarray, waited_s: np.ndarray
) -> tuple[RankSteps, ...]:
    step_s = np.array([rank.end_s - rank.start_s for rank in ranks])
    own_s = end_s - program.start_s
    columns = (step_s, own_s, own_s / step_s - 1.0, waited_s, program.gpu_active_s, program.naive_sum_s)
    return tuple(
        RankSteps(file.name, *map(float, row)) for file, row in zip(files, np.stack(columns, axis=1), strict=True)
    )


def _overheads(ranks: Sequence[RankCalls], table: OverheadTable) -> dict[str, HostOverhead]:
    """T1 to T5 over all operators."""
    total = {kind: table.of(kind, "") * table.n.get((kind, ""), 0) for kind in Overhead}
    host_s = sum(total.values())
    return {
        kind.value: HostOverhead(ABOUT[kind], table.of(kind, ""), table.n.get((kind, ""), 0), total[kind] / host_s)
        for kind in Overhead
    }


def _notes(ranks: Sequence[RankCalls]) -> tuple[str, ...]:
    if len(ranks) > 1:
        return ()
    return ("One rank: its collectives keep the time that it waited in them. Give the profiles of all ranks.",)

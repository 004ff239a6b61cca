"""Recorded steps as calls of the host and work on two streams; what `prism-jax trace host` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np

from ..core.errors import DataError
from ..core.use_case import UNRECORDED, Argument, use_case
from ..recorded.formats.open_trace import files_of
from .kineto_calls import RankCalls, read_rank_calls
from .program import ABOUT, Action, HostProgram, Overhead, OverheadTable, host_program, overheads, recorded_calls
from .report import HostOverhead, HostReport, RankSteps


@use_case()
def host_of_trace(
    source: Annotated[str | Path, Argument(metavar="PROFILE", key="file", recorded_as=str)],
) -> HostReport:
    """Tell how much of a step the host takes: calls, streams and waits of the profiled ranks, run again.

    Args:
        source: a PyTorch profile with CPU and CUDA activities, a folder of them (one for each rank), or a pattern.

    Raises:
        DataError: cannot be read, no calls of the CUDA driver, or ranks with different steps or collectives.

    Example:
        >>> host_of_trace("profiles").host_bound  # doctest: +SKIP
    """
    files = files_of(source)
    ranks = [read_rank_calls(file) for file in files]
    table = overheads([rank.operators for rank in ranks])
    program = _program(ranks)
    import jax  # which mistakes above do not wait for

    from .traverse import traverse

    with jax.enable_x64(True):  # sums over 100,000 calls
        found = traverse(program)
        end_s, waited_s = np.asarray(found.end_s), np.asarray(found.waited_s)
        alone = [float(traverse(own).step_s) for own in (program.without_host, program.without_work)]
    facts = _facts(files, ranks, program, end_s, waited_s)
    device_s, host_s = (seconds / ranks[0].n_step for seconds in alone)
    return HostReport(
        n_step=ranks[0].n_step,
        ranks=facts,
        device_alone_s=device_s,
        host_alone_s=host_s,
        host_bound=host_s > device_s,
        overheads=_overheads(table),
        notes=_notes(ranks, program),
        record=UNRECORDED,
    )


def _program(ranks: Sequence[RankCalls]) -> HostProgram:
    """All ranks on one clock from the first start; a collective takes what it takes on the rank that comes last."""
    if len({rank.n_step for rank in ranks}) > 1:
        steps = ", ".join(str(rank.n_step) for rank in ranks)
        raise DataError(f"the ranks recorded {steps} steps. Give the same steps of every rank.")
    zero_ns = ranks[0].clock_ns
    start_s = np.array([rank.start_s + 1e-9 * (rank.clock_ns - zero_ns) for rank in ranks])
    calls = [recorded_calls(rank.operators, rank.start_s, rank.end_s) for rank in ranks]
    program = host_program(calls, start_s - start_s.min())
    return replace(program, busy_s=program.met_busy_s)


def _facts(
    files: Sequence[Path], ranks: Sequence[RankCalls], program: HostProgram, end_s: np.ndarray, waited_s: np.ndarray
) -> tuple[RankSteps, ...]:
    """Means over the recorded steps."""
    step_s = np.array([rank.done_s - rank.start_s for rank in ranks])
    if not step_s.min() > 0.0:
        raise DataError(f"{files[int(step_s.argmin())]}: its steps take no time. Profile steps that start work.")
    own_s = end_s - program.start_s
    columns = (step_s, own_s, waited_s, program.work_s, program.naive_sum_s)
    step, own, waited, work, naive = (column / ranks[0].n_step for column in columns)
    rows = np.stack((step, own, own / step - 1.0, waited, work, naive), axis=1).tolist()
    return tuple(RankSteps(file.name, *row) for file, row in zip(files, rows, strict=True))


def _overheads(table: OverheadTable) -> dict[str, HostOverhead]:
    """T1 to T5 over all operators."""
    total = {kind: table.of(kind, "") * table.n.get((kind, ""), 0) for kind in Overhead}
    host_s = sum(total.values()) or 1.0
    return {
        kind.value: HostOverhead(ABOUT[kind], table.of(kind, ""), table.n.get((kind, ""), 0), total[kind] / host_s)
        for kind in Overhead
    }


def _notes(ranks: Sequence[RankCalls], program: HostProgram) -> tuple[str, ...]:
    if len(ranks) > 1 or not (program.action == Action.COLLECTIVE).any():
        return ()
    return ("One rank: its collectives keep the time that it waited in them. Give the profiles of all ranks.",)

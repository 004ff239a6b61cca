"""Describes execution traces; `prism-jax trace info et.json`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from ...workload.captured.program import CapturedComm, CapturedOp
from .program import TracedRank, read_traces
from .report import CollectiveFacts, ExecutionTraceReport, OpKindFacts


def describe_execution_traces(path: str | Path, profiles: Sequence[str | Path] = ()) -> ExecutionTraceReport:
    """Describes the work of a step by a job's execution traces, and how much of it is timed by profiles of the same run.

    Args:
        path: a file, an archive or a folder with execution traces; profiles among them are used.
        profiles: further files, archives or folders with profiles.

    Raises:
        DataError: they cannot be read.
        SpecError: they contradict each other.
    """
    job = read_traces(path, profiles)
    program, first = job.program, job.ranks[0]
    return ExecutionTraceReport(
        job.name,
        tuple(sorted({one.trace.schema or "none" for one in job.ranks})),
        len(job.ranks),
        job.world,
        len(first.trace.nodes),
        first.trace.n_dependencies,
        first.rows.n_step,
        len(program.classes),
        first.rows.n_parameters,
        first.rows.samples,
        _ops(first),
        _collectives(first),
        tuple(one.measured.kernels for one in job.ranks if one.measured is not None),
        program.assumptions,
    )


def _ops(rank: TracedRank) -> tuple[OpKindFacts, ...]:
    found: defaultdict[tuple[str, str], list[CapturedOp]] = defaultdict(list)
    for row in rank.rows.rows:
        if isinstance(row, CapturedOp):
            found[row.kind, row.phase].append(row)
    return tuple(
        OpKindFacts(
            kind,
            phase,
            len(rows),
            fsum(row.flops for row in rows),
            fsum(row.n_bytes for row in rows),
            None if any(row.seconds is None for row in rows) else fsum(row.seconds or 0.0 for row in rows),
        )
        for (kind, phase), rows in found.items()
    )


def _collectives(rank: TracedRank) -> tuple[CollectiveFacts, ...]:
    found: defaultdict[tuple[str, str, str], list[CapturedComm]] = defaultdict(list)
    for row in rank.rows.rows:
        if isinstance(row, CapturedComm):
            found[row.collective, row.axis, row.phase].append(row)
    return tuple(
        CollectiveFacts(*key, rows[0].ranks, len(rows), fsum(row.n_bytes for row in rows))
        for key, rows in found.items()
    )

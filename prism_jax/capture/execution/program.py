"""Reads execution traces of a job, one file per rank, and profiles of the same run, as one captured program; a front end.

`describe_execution_traces` tells what is in them (`trace info`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path

from ...core.errors import DataError
from ...workload.captured.check import check_program
from ...workload.captured.program import USUAL_ROLES, CapturedComm, CapturedOp, CapturedRow, RankClass, RankProgram
from ..report import CollectiveFacts, ExecutionTraceReport, OpKindFacts
from .measured import MeasuredNodes, measure
from .profiled_ops import Profile, read_profile_ops
from .rank import RankRows, rank_rows
from .trace import REMEDY, ExecutionTrace, documents, read_execution_trace

MAX_TRACES = 1024
MATCHED = 0.9  # share of the kernel seconds below which a profile is of another program
_NOT_TIMED = "no durations are taken from execution traces, which have no clock"


@dataclass(frozen=True)
class TracedRank:
    """One rank: its trace, its rows, and measurements of its profile."""

    trace: ExecutionTrace
    rows: RankRows
    measured: MeasuredNodes | None


@dataclass(frozen=True)
class TracedJob:
    """A job as its execution traces have it.

    Attributes:
        ranks: recorded ones, by process.
        world: ranks of the job.
        unused: profiles that belong to no trace, and why.
    """

    name: str
    ranks: tuple[TracedRank, ...]
    world: int
    unused: tuple[str, ...]

    @property
    def program(self) -> RankProgram:
        """The captured program.

        Raises:
            SpecError: it contradicts itself.
        """
        return check_program(_program(self))


def read_traces(path: str | Path, profiles: Sequence[str | Path] = ()) -> TracedJob:
    """The execution traces that `path` names: a file, an archive or a folder; and the profiles among them and next to them.

    Args:
        profiles: further files, archives or folders with Kineto profiles of the same run.

    Raises:
        DataError: cannot be read, no execution trace among them, one of them is damaged; names the place and the remedy.
    """
    traces: list[ExecutionTrace] = []
    kineto: list[Profile] = []
    for source in (path, *profiles):
        for document in documents(Path(source)):
            if document.is_trace:
                traces.append(read_execution_trace(document))
            elif document.is_profile:
                kineto.append(read_profile_ops(document.name, document.pieces))
            if len(traces) > MAX_TRACES:
                raise DataError(f"{path}: more than {MAX_TRACES:,} execution traces. Name one rank of each kind.")
    if not traces:
        raise DataError(f"{path}: no execution trace. {REMEDY}")
    pairs, unused = _paired(traces, kineto)
    world = max([len(traces), *(one.world for one in kineto)])
    ranks = tuple(TracedRank(one, rank_rows(one, pairs.get(at), world), pairs.get(at)) for at, one in enumerate(traces))
    largest = max(
        (1 + (group.ranks - 1) * group.stride for one in ranks for group in one.rows.groups.values()), default=1
    )
    name = Path(path).name
    for ending in (".gz", ".tar", ".tgz", ".json"):
        name = name.removesuffix(ending)
    return TracedJob(name or "traces", ranks, max(world, largest), unused)


def _paired(
    traces: Sequence[ExecutionTrace], profiles: Sequence[Profile]
) -> tuple[dict[int, MeasuredNodes], tuple[str, ...]]:
    """Index of a trace -> measurements of its profile: the one of the same process, else the only one, if its operators agree."""
    found: dict[int, MeasuredNodes] = {}
    unused: list[str] = []
    for profile in profiles:
        same = [at for at, one in enumerate(traces) if one.pid is not None and one.pid == profile.pid]
        alone = [0] if len(traces) == len(profiles) == 1 else []
        at = next((at for at in (*same, *alone) if at not in found), None)
        if at is None:
            unused.append(f"{profile.name}: no execution trace of the same process")
            continue
        made = measure(traces[at], profile)
        if made.kernels.matched < MATCHED:
            unused.append(
                f"{profile.name}: of another program: {made.kernels.matched:.0%} of its kernel seconds match {traces[at].name}"
            )
        else:
            found[at] = made
    return found, tuple(unused)


def _program(job: TracedJob) -> RankProgram:
    axes, roles, notes = _mesh(job)
    like: defaultdict[tuple[CapturedRow, ...], list[RankRows]] = defaultdict(list)
    for one in job.ranks:
        like[tuple(_unmeasured(row) for row in one.rows.rows)].append(one.rows)
    classes, left, n_left = [], job.world, len(job.ranks)
    for number, members in enumerate(like.values()):
        n_ranks = max(left * len(members) // n_left, 1)
        left, n_left = left - n_ranks, n_left - len(members)
        first = members[0]
        classes.append(RankClass(f"kind {number}", n_ranks, 0, _averaged(members), n_parameters=first.n_parameters))
    first = job.ranks[0].rows
    notes += [_NOT_TIMED, *(note for one in job.ranks for note in one.rows.notes), *job.unused]
    if not first.samples:
        notes.append("one sample per rank and step: no operator says how many there are")
    schemas = {one.trace.schema or "none" for one in job.ranks}
    program = RankProgram(
        job.name,
        job.world,
        axes,
        tuple(classes),
        micro_batches=1,
        samples_per_step=1,
        tokens_per_sample=first.tokens,
        source="et",
        versions={"schema": ", ".join(sorted(schemas))},
        assumptions=tuple(dict.fromkeys(notes)),
        roles=roles,
    )
    split = program.degree("tp") * program.degree("cp") * program.degree("pp")
    return replace(program, samples_per_step=max(first.samples, 1) * max(job.world // split, 1))


def _mesh(job: TracedJob) -> tuple[dict[str, int], dict[str, str], list[str]]:
    """Axes, the axis of a plan that each is, and assumptions about them."""
    axes: dict[str, int] = {}
    roles: dict[str, str] = {}
    notes: list[str] = []
    for one in job.ranks:
        for axis, group in one.rows.groups.items():
            axes[axis] = max(axes.get(axis, 1), group.ranks)
            if axis not in USUAL_ROLES and axis not in roles:
                roles[axis] = "dp"
                notes.append(f"the group {axis} of {group.ranks} ranks is taken as data parallel")
    return axes, roles, notes


def _unmeasured(row: CapturedRow) -> CapturedRow:
    return replace(row, seconds=None) if row.seconds is not None else row


def _averaged(members: Sequence[RankRows]) -> tuple[CapturedRow, ...]:
    """The rows of ranks that run the same, with the mean of their measured seconds."""
    found: list[CapturedRow] = []
    for rows in zip(*(one.rows for one in members), strict=True):
        known = [row.seconds for row in rows if row.seconds is not None]
        is_op = isinstance(rows[0], CapturedOp) and known
        found.append(replace(rows[0], seconds=sum(known) / len(known)) if is_op else rows[0])
    return tuple(found)


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

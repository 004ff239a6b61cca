"""Placing measured nodes so that the tail of the step time is smallest; what `prism-jax place` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..._core.files import check_file
from ...errors import DataError
from ...io.launch_files import hostfile, rankfile
from ...io.tables.slowdowns import SlowdownTable, read_slowdowns
from ...io.write import write_text
from ...progress import Progress, silent
from ...report.codec import from_plain, to_plain
from ...report.option import Group, Option
from ...report.parameters import ObjectiveChoice, Overrides, Seed
from ...report.types.placing.placement import PlacementReport
from ...report.use_case import UNRECORDED, UNTIMED_S, Told, use_case
from ...start_jax import keep_programs
from ..jobs import JobFile, loaded

MOST_NODES = 1_000_000


@dataclass(frozen=True)
class LaunchFiles(Group):
    """Files for launchers; the table of slowdowns must have host names for them.

    Attributes:
        hostfile: write the hosts in the order of ranks, `host slots=N`, for mpirun or DeepSpeed; spares are comments.
        rankfile: write the host of every rank, `rank R=host slot=S`, for Open MPI; spares are comments.
    """

    hostfile: Annotated[str | Path | None, Option("--hostfile", "FILE", key=None, check=check_file)] = None
    rankfile: Annotated[str | Path | None, Option("--rankfile", "FILE", key=None, check=check_file)] = None

    def check(self, hosts: Sequence[str]) -> None:
        """Raises:
        DataError: both are one file, or nodes have no names.
        """
        wanted = [path for path in (self.hostfile, self.rankfile) if path is not None]
        if len(wanted) > 1 and wanted[0] == wanted[1]:
            raise DataError(f"--hostfile and --rankfile: both are {self.hostfile}. Name two files.")
        if wanted and not hosts:
            raise DataError(
                "the table of slowdowns numbers its nodes, but a hostfile or rankfile needs host names. "
                "Give it a column host with names."
            )

    def write(self, report: PlacementReport) -> None:
        """Writes those that are wanted."""
        for path, text in ((self.hostfile, hostfile), (self.rankfile, rankfile)):
            if path is not None:
                write_text(path, text(report.hosts, report.job.node_size, report.spare_hosts))


def files_told(
    _: PlacementReport, hostfile: str | Path | None = None, rankfile: str | Path | None = None
) -> tuple[Told, ...]:
    """Which files were written."""
    return tuple(Told(f"wrote {path}") for path in (hostfile, rankfile) if path is not None)


@use_case(then=(files_told,))
def place_nodes(
    job: JobFile,
    slowdowns: Annotated[str | Path | Mapping[str, Mapping[int, float]], Option("--slowdowns", "CSV")],
    *,
    overrides: Overrides = (),
    objective: ObjectiveChoice = "p95",
    spares: Annotated[int, Option("--spares", "N", least=0)] = 0,
    splits: bool = False,
    seed: Seed = 0,
    files: LaunchFiles = LaunchFiles(),
    progress: Progress = silent,
) -> PlacementReport:
    """Place measured nodes so that the tail of the step time is smallest.

    Args:
        job, overrides, seed, progress: as in `explain_step`.
        slowdowns: measured slowdowns of every node: CSV with host (a name or a number), with gpu or without, and slowdown (1.05 =
            5 % slower) or gemm, attention, memory; or kernel class (or "all") -> device -> factor.
        objective: what is to be small: a name that `prism-jax show objectives` lists, or an `Objective`.
        spares: number of nodes to leave out; the table must list that many more than the job needs.
        splits: also choose layers per stage and micro-batches per replica, uneven where that is faster.
        files: what to write for launchers.

    Raises:
        ConfigError, DataError: a file or an option is wrong.

    Example:
        >>> place_nodes("job.yaml", "nodes.csv", spares=2).assignment  # doctest: +SKIP
    """
    own = loaded(job, overrides)
    node_size = own.cluster.node_size
    measured = _measured(slowdowns, node_size)
    files.check(measured.hosts)
    progress(0.0, "loading JAX")
    keep_programs()
    import jax  # here, so that mistakes above do not wait for it

    from ...placement import place
    from ...placement.fleet import fleet_of

    result = place(
        own,
        fleet_of(measured.factors, node_size, own.model.kernel_classes, measured.hosts),
        key=jax.random.key(seed),
        objective=objective,
        spares=spares,
        splits=splits,
        progress=progress,
    )
    found = {
        "job": {"name": own.name, "n_devices": own.plan.n_devices, "node_size": node_size},
        **result.to_dict(),
        "elapsed_s": UNTIMED_S,
        **to_plain(UNRECORDED),
    }
    report = from_plain(PlacementReport, found).made_of(result)
    files.write(report)
    return report


def _measured(slowdowns: str | Path | Mapping[str, Mapping[int, float]], node_size: int) -> SlowdownTable:
    """Slowdowns as numbers, and the hosts that a file names."""
    if isinstance(slowdowns, Mapping):
        return SlowdownTable(slowdowns)
    return read_slowdowns(slowdowns, MOST_NODES * node_size, node_size)

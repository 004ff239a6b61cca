"""Places measured nodes so that the tail of the step is smallest, and writes files for launchers; what `prism-jax place` does.

A node holds `node_size` consecutive ranks, so the order of the lines of a hostfile is the order of ranks.

Source: Open MPI, `mpirun` manual (hostfiles, rankfiles); DeepSpeed, "Resource configuration (multi-node)".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core.errors import DataError
from ..core.processes import Progress, keep_programs, silent
from ..core.use_case import OUTPUT, THE_JOB, UNRECORDED, UNTIMED_S, Message, Option, OptionGroup, use_case
from ..core.write_file import check_file, write_text
from ..job.load_job import JobFile, loaded
from ..job.write_job import ChosenFrom
from ..result.parameters import SLOWDOWNS, Overrides, SaveDir, Seed
from ..slowdowns.slowdowns_file import SlowdownTable, read_slowdowns
from .report import AS_GIVEN, PlacedJob, PlacementGoal, PlacementReport, SlotFacts

if TYPE_CHECKING:
    from .place import PlacementResult


def hostfile(hosts: Sequence[str], node_size: int, spares: Sequence[str] = ()) -> str:
    r"""One line `host slots=N` per node in the order of ranks.

    Args:
        hosts: [slot] names.
        node_size: ranks per host.
        spares: hosts that get no ranks; listed as comments.

    Example:
        >>> hostfile(["b", "a"], 8)
        'b slots=8\na slots=8\n'
    """
    return "".join(f"{host} slots={node_size}\n" for host in hosts) + _comments(spares)


def rankfile(hosts: Sequence[str], node_size: int, spares: Sequence[str] = ()) -> str:
    r"""One line `rank R=host slot=S` per rank; S counts the ranks of a host from 0. Arguments as those of `hostfile`.

    Example:
        >>> rankfile(["b", "a"], 1)
        'rank 0=b slot=0\nrank 1=a slot=0\n'
    """
    lines = [
        f"rank {slot * node_size + local}={host} slot={local}\n"
        for slot, host in enumerate(hosts)
        for local in range(node_size)
    ]
    return "".join(lines) + _comments(spares)


def _comments(spares: Sequence[str]) -> str:
    return "".join(f"# spare: {host}\n" for host in spares)


MOST_NODES = 1_000_000


@dataclass(frozen=True)
class LaunchFiles(OptionGroup):
    """Files for launchers; the table of slowdowns must have host names for them.

    Attributes:
        hostfile: write the hosts in the order of ranks, `host slots=N`, for mpirun or DeepSpeed; spares are comments.
        rankfile: write the host of every rank, `rank R=host slot=S`, for Open MPI; spares are comments.
    """

    heading = OUTPUT
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


def files_messages(
    _: PlacementReport, hostfile: str | Path | None = None, rankfile: str | Path | None = None
) -> tuple[Message, ...]:
    """Message that names the files that were written."""
    return tuple(Message(f"wrote {path}") for path in (hostfile, rankfile) if path is not None)


def save_placed_job(
    report: PlacementReport, job: JobFile = "", overrides: Overrides = (), save_dir: SaveDir = None
) -> tuple[Message, ...]:
    """Writes the placed job, the report, a hostfile and a rankfile, and the arguments of its framework into a folder.

    Args:
        report: of `place_nodes`.
        job, overrides: that were placed.
        save_dir: write the job, the report, a hostfile, a rankfile and the arguments of the job's framework to DIR.

    Raises:
        DataError: a file cannot be written.
    """
    if save_dir is None:
        return ()
    from ..launch.export_job import save_job

    layers = None if report.splits is None else report.splits.layers
    comment = f"Placed by {report.objective}: slot s of the hostfile holds ranks from s * {report.job.node_size} on."
    placed = ChosenFrom(report, job, tuple(overrides))
    write = partial(
        placed.write, chosen={} if layers is None else {"layer_split": list(layers)}, dropped=(), comment=comment
    )
    hosts, spares, size = report.hosts, report.spare_hosts, report.job.node_size
    is_named = not all(host.isdecimal() for host in hosts)
    files = {"hostfile": hostfile(hosts, size, spares), "rankfile": rankfile(hosts, size, spares)} if is_named else {}
    told = save_job(save_dir, write, report, files)
    text = "no hostfile and no rankfile: the table of slowdowns numbers its nodes; give it a column host with names"
    return told if is_named else (*told, Message(text, always=True))


@use_case(then=(files_messages, save_placed_job))
def place_nodes(
    job: JobFile,
    slowdowns: Annotated[
        str | Path | Mapping[str, Mapping[int, float]],
        Option("--slowdowns", "FILE", heading=THE_JOB, columns=SLOWDOWNS),
    ],
    *,
    overrides: Overrides = (),
    goal: PlacementGoal = PlacementGoal(),
    seed: Seed = 0,
    files: LaunchFiles = LaunchFiles(),
    progress: Progress = silent,
) -> PlacementReport:
    """Place measured nodes so that the tail of the step time is smallest.

    Args:
        job, overrides, seed, progress: as in `explain_step`.
        slowdowns: measured slowdowns of every node: a CSV file, or in Python kernel class (or "all", "link", "nic") -> device ->
            factor.
        goal: objective, spare nodes, and whether splits may change.
        files: files to write for launchers.

    Raises:
        ConfigError, DataError: a file or an option is wrong.

    Example:
        >>> place_nodes("job.yaml", "nodes.csv", spares=2).assignment  # doctest: +SKIP
    """
    own = loaded(job, overrides)
    node_size = own.cluster.node_size
    measured = _measured(slowdowns, own.plan.n_devices + max(goal.spares, 0) * node_size, node_size)
    files.check(measured.hosts)
    progress(0.0, "loading JAX")
    keep_programs()
    import jax  # here, so that mistakes above do not wait for it

    from .fleet import fleet_of
    from .place import place

    result = place(
        own,
        fleet_of(measured.factors, node_size, own.model.kernel_classes, measured.hosts),
        key=jax.random.key(seed),
        goal=goal,
        progress=progress,
    )
    report = _report(PlacedJob(own.name, own.plan.n_devices, node_size), result, measured.notes).made_of(result)
    files.write(report)
    return report


def _report(job: PlacedJob, result: PlacementResult, notes: tuple[str, ...]) -> PlacementReport:
    from .place import REPORTED  # needs JAX, which mistakes do not wait for

    gain, best_baseline = result.gain, result.best_baseline
    over_baseline = result.gain_over(best_baseline)
    value, value_error = _reached(result, result.objective.name)
    quantiles = {name: _reached(result, name) for name in REPORTED}
    return PlacementReport(
        job=job,
        objective=result.objective.name,
        objective_unit=result.objective.unit,
        value=value,
        value_error=value_error,
        **{f"{name}_s": values for name, (values, _) in quantiles.items()},
        **{f"{name}_error_s": errors for name, (_, errors) in quantiles.items()},
        gain=gain.value_s,
        gain_interval=(gain.low_s, gain.high_s),
        gain_error=gain.error_s,
        best_baseline=best_baseline,
        gain_over_best_baseline=over_baseline.value_s,
        gain_over_best_baseline_interval=(over_baseline.low_s, over_baseline.high_s),
        chosen_from=result.method,
        assignment=result.assignment,
        left_out=result.left_out,
        hosts=tuple(map(result.host, result.assignment)),
        spare_hosts=tuple(map(result.host, result.left_out)),
        as_given=result.assignments[AS_GIVEN][: len(result.assignment)],
        slots=SlotFacts(*(tuple(column) for seats in (result.seat, result.last_seat) for column in seats.T.tolist())),
        node_slowdown=tuple(result.slowness.tolist()),
        splits=result.splits,
        notes=(*notes, *result.notes),
        elapsed_s=UNTIMED_S,
        record=UNRECORDED,
    )


def _reached(result: PlacementResult, objective: str) -> tuple[dict[str, float], dict[str, float]]:
    """Method -> objective, and its Monte Carlo error."""
    found = {method: result.value(method, objective) for method in result.batches_s}
    found["random_median"] = result.random_s[objective]
    return {name: value for name, (value, _) in found.items()}, {name: error for name, (_, error) in found.items()}


def _measured(
    slowdowns: str | Path | Mapping[str, Mapping[int, float]], n_devices: int, node_size: int
) -> SlowdownTable:
    """Slowdowns as numbers, and the hosts that a file names; of extremes those of `n_devices` and of all nodes listed."""
    if isinstance(slowdowns, Mapping):
        return SlowdownTable(slowdowns)
    found = read_slowdowns(slowdowns, MOST_NODES * node_size, node_size)
    n_listed = 1 + max(device for known in found.factors.values() for device in known)
    n_node = -(-max(n_listed, n_devices) // node_size)
    is_named = all(found.hosts) and (len(found.hosts) >= n_node or not found.is_partial)
    found = found.with_usual(n_node * node_size)
    return found if is_named else replace(found, hosts=())

"""Placing measured nodes so that the tail of the step time is smallest; what `prism-jax place` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from ...io.launch_files import hostfile, rankfile
from ...io.tables.slowdowns import SlowdownTable, read_slowdowns
from ...io.write import run_record, write_text
from ...objective import Objective
from ...progress import Progress, silent
from ...report.types.placing.placement import PlacedJob, PlacementReport, SlotFacts
from ...report.types.record import RunRecord
from ...start_jax import keep_programs
from ..jobs import JobSource, loaded, source_of

if TYPE_CHECKING:
    from ...placement.result import PlacementResult
    from ...plot.figure import Figure

MOST_NODES = 1_000_000


@dataclass(frozen=True)
class PlacementRun:
    """A placement with the result that its report is made of."""

    report: PlacementReport
    result: PlacementResult

    def write_hostfile(self, path: str | Path) -> None:
        """Writes `host slots=N` per node in the order of ranks, as mpirun and DeepSpeed read it; spares are comments.

        Raises:
            DataError: the nodes have no names, or the file cannot be written.
        """
        self._write(path, hostfile)

    def write_rankfile(self, path: str | Path) -> None:
        """Writes `rank R=host slot=S` per rank, as Open MPI reads it; spares are comments.

        Raises:
            DataError: the nodes have no names, or the file cannot be written.
        """
        self._write(path, rankfile)

    def _write(self, path: str | Path, text: Callable[[Sequence[str], int, Sequence[str]], str]) -> None:
        report = self.report
        _check_named(self.result.hosts)
        write_text(path, text(report.hosts, report.job.node_size, report.spare_hosts))

    def figure(self) -> Figure:
        """What every method reaches, and where the slow nodes went."""
        from ...plot import plot_placement  # here, so that placements without a picture do not pay for it

        return plot_placement(self.result, f"{self.report.job.name}: {len(self.result.assignment)} nodes")


def place_nodes(
    job: JobSource, slowdowns: str | Path | Mapping[str, Mapping[int, float]], **options: Any
) -> PlacementReport:
    """Which measured node sits where, and what that is worth; arguments as those of `run_placement`.

    Example:
        >>> place_nodes("job.yaml", "nodes.csv", spares=2).assignment  # doctest: +SKIP
    """
    return run_placement(job, slowdowns, **options).report


def run_placement(
    job: JobSource,
    slowdowns: str | Path | Mapping[str, Mapping[int, float]],
    *,
    overrides: Sequence[str] = (),
    objective: str | Objective = "p95",
    spares: int = 0,
    splits: bool = False,
    named: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> PlacementRun:
    """Places measured nodes.

    Args:
        job, overrides, seed, progress: as in `run_prediction`.
        slowdowns: of every GPU of every node: a CSV file, or kernel class (or "all") -> device -> factor.
        objective: what is to be small: a name that `prism-jax show objectives` lists, or an `Objective`.
        spares: nodes to leave out; that many more are listed.
        splits: also choose layers per stage and micro-batches per replica.
        named: refuse slowdowns without host names before the search begins, for `write_hostfile` and `write_rankfile`.

    Raises:
        ConfigError, DataError: a file or an option is wrong.
    """
    own = loaded(job, overrides)
    node_size = own.cluster.node_size
    measured = _measured(slowdowns, node_size)
    if named:
        _check_named(measured.hosts)
    started = time.perf_counter()
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
    inputs = {
        "job": source_of(job),
        "set": list(overrides),
        "slowdowns": slowdowns,
        "objective": objective if isinstance(objective, str) else objective.name,
        "spares": spares,
        "splits": splits,
    }
    facts = PlacedJob(own.name, own.plan.n_devices, node_size)
    elapsed_s = time.perf_counter() - started
    return PlacementRun(_report(facts, result, elapsed_s, RunRecord(**run_record(inputs, seed))), result)


def _report(job: PlacedJob, result: PlacementResult, elapsed_s: float, record: RunRecord) -> PlacementReport:
    from ...placement.result import AS_GIVEN, REPORTED  # needs JAX, which mistakes do not wait for

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
        notes=result.notes,
        elapsed_s=elapsed_s,
        record=record,
    )


def _reached(result: PlacementResult, objective: str) -> tuple[dict[str, float], dict[str, float]]:
    """Method -> objective, and its Monte Carlo error."""
    found = {method: result.value(method, objective) for method in result.batches_s}
    found["random_median"] = result.random_s[objective]
    return {name: value for name, (value, _) in found.items()}, {name: error for name, (_, error) in found.items()}


def _measured(slowdowns: str | Path | Mapping[str, Mapping[int, float]], node_size: int) -> SlowdownTable:
    """Slowdowns as numbers, and the hosts that a file names."""
    if isinstance(slowdowns, Mapping):
        return SlowdownTable(slowdowns)
    return read_slowdowns(slowdowns, MOST_NODES * node_size, node_size)


def _check_named(hosts: Sequence[str]) -> None:
    if not hosts:
        raise DataError(
            "the table of slowdowns numbers its nodes, but a hostfile or rankfile needs host names. "
            "Give it a column host with names."
        )

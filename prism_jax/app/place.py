"""Placing measured nodes so that the tail of the step time is smallest; what `prism-jax place` does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io.tables.slowdowns import read_slowdowns
from ..io.write import run_record
from ..objective import Objective
from ..progress import Progress, silent
from ..report.codec import from_plain
from ..report.types.placement import PlacementReport
from ..start_jax import keep_programs
from .jobs import JobSource, loaded, source_of

if TYPE_CHECKING:
    from ..placement.result import PlacementResult
    from ..plot.figure import Figure

MOST_NODES = 1_000_000


@dataclass(frozen=True)
class PlacementRun:
    """A placement with the result that its report is made of."""

    report: PlacementReport
    result: PlacementResult

    def figure(self) -> Figure:
        """What every method reaches, and where the slow nodes went."""
        from ..plot import plot_placement  # here, so that placements without a picture do not pay for it

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

    Raises:
        ConfigError, DataError: a file or an option is wrong.
    """
    own = loaded(job, overrides)
    node_size = own.cluster.node_size
    measured = (
        slowdowns if isinstance(slowdowns, Mapping) else read_slowdowns(slowdowns, MOST_NODES * node_size, node_size)
    )
    started = time.perf_counter()
    progress(0.0, "loading JAX")
    keep_programs()
    import jax  # here, so that mistakes above do not wait for it

    from ..placement import place

    result = place(
        own,
        measured,
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
    found = {
        "job": {"name": own.name, "n_devices": own.plan.n_devices, "node_size": node_size},
        **result.to_dict(),
        "elapsed_s": time.perf_counter() - started,
        **run_record(inputs, seed),
    }
    return PlacementRun(from_plain(PlacementReport, found), result)

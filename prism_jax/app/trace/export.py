"""Recorded steps for a timeline viewer; what `prism-jax trace export` does."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

from ..._core.files import check_target
from ...errors import DataError
from ...report.option import Option
from ...report.use_case import Told, use_case
from .source import Meta, TraceFile, named, recorded_ops


def steps_told(steps: tuple[int, ...], perfetto: str | Path) -> Told:
    """Which steps were written."""
    return Told(f"wrote {perfetto}: step {', '.join(map(str, steps))}")


@use_case(then=(steps_told,), text=lambda _: ())
def export_trace(
    source: TraceFile,
    perfetto: Annotated[str | Path, Option("--perfetto", "OUT")],
    *,
    meta: Meta = None,
    steps: Annotated[Sequence[int], Option("--step", "N")] = (),
) -> tuple[int, ...]:
    """Write recorded steps as a timeline, one process per worker, one thread per stream; the answer is which steps.

    Args:
        source: a Trace, or a file, folder or pattern that `open_trace` reads.
        perfetto: write a timeline for ui.perfetto.dev (.json, .json.gz).
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        steps: recorded step to write; may be repeated; by default the median and the slowest.

    Raises:
        DataError, ConfigError: the recording cannot be read, or the timeline cannot be written there.

    Example:
        >>> export_trace("local_cluster", "steps.json.gz")  # doctest: +SKIP
    """
    target = str(perfetto)
    if not target.endswith((".json", ".json.gz")):
        raise DataError(f"--perfetto: {target}: the name must end in .json or .json.gz")
    check_target(target)
    trace = recorded_ops(source, meta)
    if isinstance(source, (str, Path)):
        _check_not_among_inputs(named(source), target)
    from ...io.perfetto_trace import typical_steps, write_recorded  # imports JAX, which mistakes above do not wait for

    chosen = list(dict.fromkeys(steps or typical_steps(trace)))
    write_recorded(target, trace, chosen)
    return tuple(chosen)


def _check_not_among_inputs(file: str, perfetto: str) -> None:
    """A timeline must not replace a recorded profile, nor lie among those of a folder or pattern."""
    source, target = Path(file), Path(perfetto)
    if target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"--perfetto: {perfetto}: that is the recorded trace itself. Name another file.")
    folder, pattern = (source, "*") if source.is_dir() else (source.parent, source.name)
    if target.parent.resolve() == folder.resolve() and fnmatch(target.name, pattern):
        raise DataError(
            f"--perfetto: {perfetto}: there it would be taken for a part of the trace. Name a file in another folder."
        )

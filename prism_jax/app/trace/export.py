"""Recorded steps for a timeline viewer; what `prism-jax trace export` does."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from ..._core.files import check_target
from ...errors import DataError
from .source import TraceSource, named, recorded_ops


def export_trace(
    source: TraceSource, perfetto: str | Path, *, meta: str | Path | None = None, steps: Sequence[int] = ()
) -> tuple[int, ...]:
    """Writes recorded steps as a timeline, one process per worker, one thread per stream; returns which steps.

    Args:
        source: a Trace, or a file, folder or pattern that `open_trace` reads.
        perfetto: file for ui.perfetto.dev (.json, .json.gz).
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        steps: recorded steps; the median and the slowest if there are none.

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

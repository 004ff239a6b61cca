"""`prism-jax trace export FILE --perfetto OUT`: recorded steps for a timeline viewer."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer

from ...verbosity import say
from .file import Meta, TraceFile, recorded_ops

Perfetto = Annotated[
    str, typer.Option("--perfetto", metavar="OUT", help="Write a timeline for ui.perfetto.dev (.json, .json.gz).")
]
Step = Annotated[
    list[int] | None,
    typer.Option("--step", help="Recorded step to write; may be repeated. [default: the median and the slowest]"),
]


def export(file: TraceFile, perfetto: Perfetto, meta: Meta = None, step: Step = None) -> None:
    """Write recorded steps as a timeline, one process per worker, one thread per stream."""
    from ....errors import DataError
    from ....io.write import check_target

    if not perfetto.endswith((".json", ".json.gz")):
        raise DataError(f"--perfetto: {perfetto}: the name must end in .json or .json.gz")
    check_target(perfetto)
    trace = recorded_ops(file, meta)
    _check_not_among_inputs(file, perfetto)
    from ....io.perfetto_trace import typical_steps, write_recorded

    chosen = list(dict.fromkeys(step or typical_steps(trace)))
    write_recorded(perfetto, trace, chosen)
    say(f"wrote {perfetto}: step {', '.join(str(s) for s in chosen)}")


def _check_not_among_inputs(file: str, perfetto: str) -> None:
    """A timeline must not replace a recorded profile, nor lie among those of a folder or pattern."""
    from ....errors import DataError

    source, target = Path(file), Path(perfetto)
    if target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"--perfetto: {perfetto}: that is the recorded trace itself. Name another file.")
    folder, pattern = (source, "*") if source.is_dir() else (source.parent, source.name)
    if target.parent.resolve() == folder.resolve() and fnmatch(target.name, pattern):
        raise DataError(
            f"--perfetto: {perfetto}: there it would be taken for a part of the trace. Name a file in another folder."
        )

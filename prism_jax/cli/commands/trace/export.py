"""`prism-jax trace export FILE --perfetto OUT`: recorded steps for a timeline viewer."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ...verbosity import say
from .options import Meta, TraceFile

Perfetto = Annotated[
    str, typer.Option("--perfetto", metavar="OUT", help="Write a timeline for ui.perfetto.dev (.json, .json.gz).")
]
Step = Annotated[
    list[int] | None,
    typer.Option("--step", help="Recorded step to write; may be repeated. [default: the median and the slowest]"),
]


def export(file: TraceFile, perfetto: Perfetto, meta: Meta = None, step: Step = None) -> None:
    """Write recorded steps as a timeline, one process per worker, one thread per stream."""
    written = app.export_trace(file, perfetto, meta=meta, steps=step or ())
    say(f"wrote {perfetto}: step {', '.join(str(s) for s in written)}")

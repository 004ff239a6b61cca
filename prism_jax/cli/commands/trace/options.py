"""Options that the commands on recorded jobs share."""

from __future__ import annotations

from typing import Annotated

import typer

TraceFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A trace or log (formats: `prism-jax show traces`), a folder of PyTorch profiles, or the shipped local_cluster.",
    ),
]
Meta = Annotated[
    str | None,
    typer.Option(
        "--meta", metavar="FILE", help="Degrees of the job (YAML); by default the meta-*.yaml beside the trace."
    ),
]

"""Options that the commands on recorded jobs share."""

from __future__ import annotations

from typing import Annotated

import typer

TraceFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A trace or log (formats: `prism-jax show traces`), a folder of PyTorch profiles, execution traces of "
        "PyTorch (a file, a folder, a tar archive), or the shipped local_cluster. "
        "At most 8 million ops are read, which take 2 GB of memory; larger recordings are refused.",
    ),
]
Skip = Annotated[
    int | None,
    typer.Option(
        "--skip",
        min=0,
        metavar="N",
        help="Leave out the first N recorded steps; 0 keeps all. [default: those that are warm-up, see the note]",
    ),
]
Unit = Annotated[
    str | None,
    typer.Option("--unit", metavar="UNIT", help="Unit of step times whose column does not say it: s, ms, us or ns."),
]
Meta = Annotated[
    str | None,
    typer.Option(
        "--meta", metavar="FILE", help="Degrees of the job (YAML); by default the meta-*.yaml beside the trace."
    ),
]
Kernels = Annotated[
    list[str] | None,
    typer.Option(
        "--kernels",
        metavar="FILE",
        help="Kineto profile of the same run, for the kernel times of execution traces; repeatable.",
    ),
]

"""Options and arguments that several commands share."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

JobFile = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="YAML or TOML file, a capture, or the name of a shipped job (`prism-jax show examples`)."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Replace one field of the job, e.g. plan.tp=4; may be repeated."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", metavar="NAME", help="Cluster preset, short for --set cluster=NAME; a capture needs one."
    ),
]
VariabilityName = Annotated[
    str | None,
    typer.Option("--variability", metavar="NAME", help="Variability preset, short for --set variability=NAME."),
]
Kernels = Annotated[
    str | None,
    typer.Option(
        "--kernels",
        metavar="FILE",
        help="Profile of one GPU (Kineto, recorded with shapes): its kernels time those of a "
        "capture. Short for --set model.kernels=FILE.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value instead of text.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31 - 1, help="Random seed; the same seed gives the same result.")
]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Write a picture (.png, .pdf, .svg).")]
Fits = Annotated[
    list[str] | None,
    typer.Option(
        "--fit",
        metavar="NC",
        help="Apply a saved fit or calibration (.npz); may be repeated.",
    ),
]
IgnoreMemory = Annotated[
    bool, typer.Option("--ignore-memory", help="Exit with 0 even if the job does not fit into memory.")
]
Force = Annotated[bool, typer.Option("--force", help="Use a fit even if its verdict says that it failed.")]


def with_presets(
    overrides: list[str] | None, cluster: str | None, variability: str | None, kernels: str | None = None
) -> list[str]:
    """`--set` options, those that other options stand for in front."""
    file = None if kernels is None else dumps(str(Path(kernels).absolute()))
    named = {"cluster": cluster, "variability": variability, "model.kernels": file}
    return [*(f"{field}={name}" for field, name in named.items() if name is not None), *(overrides or ())]

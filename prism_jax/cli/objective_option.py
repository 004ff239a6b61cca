"""The option of commands that minimise something; apart from the others, for it loads the objectives."""

from __future__ import annotations

from typing import Annotated

import typer

from ..objective import OBJECTIVES

ObjectiveName = Annotated[
    str,
    typer.Option(
        "--objective",
        metavar="NAME",
        help=f"Objective to minimise: {', '.join(OBJECTIVES.names)} (`prism-jax show objectives` explains them).",
        autocompletion=lambda: list(OBJECTIVES.names),
    ),
]

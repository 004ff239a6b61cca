"""`prism-jax trace host PROFILE`."""

from __future__ import annotations

from typing import Annotated

import typer

from .... import app
from ...options import Json
from ...progress import working
from ...result import emit

Profile = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE",
        help="A PyTorch profile with CPU and CUDA activities, the folder of those of all ranks, or a pattern.",
    ),
]


def host(profile: Profile, json: Json = False) -> None:
    """Tell how much of a step the host takes: calls, streams and waits of the profiled ranks, run again."""
    with working():
        report = app.host_of_trace(profile)
    emit(report, json)

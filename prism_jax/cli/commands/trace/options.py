"""Options that the commands on recorded jobs share."""

from __future__ import annotations

from typing import Annotated

import typer

TraceFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Parquet, CSV, PyTorch profile (folder or pattern of all ranks), training or MLPerf log; or local_cluster, shipped.",
    ),
]
Meta = Annotated[
    str | None,
    typer.Option(
        "--meta", metavar="FILE", help="Degrees of the job (YAML); by default the meta-*.yaml beside the trace."
    ),
]

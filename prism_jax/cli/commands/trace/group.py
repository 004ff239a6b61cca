"""`prism-jax trace ...`: recorded jobs."""

from __future__ import annotations

import typer

from ...verbosity import with_verbosity
from . import (
    export as trace_export,
    host as trace_host,
    predict as trace_predict,
    show as trace_show,
    what_if as trace_what_if,
)

trace_app = typer.Typer(
    name="trace",
    help="Analyse recorded jobs: summary, replay, prediction, what-if and host time.",
    no_args_is_help=True,
)
trace_app.command("info")(with_verbosity(trace_show.info))
trace_app.command("replay")(with_verbosity(trace_show.replay))
trace_app.command("predict")(with_verbosity(trace_predict.predict))
trace_app.command("what-if")(with_verbosity(trace_what_if.what_if))
trace_app.command("host")(with_verbosity(trace_host.host))
trace_app.command("export")(with_verbosity(trace_export.export))

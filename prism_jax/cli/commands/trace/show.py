"""`prism-jax trace info FILE` and `prism-jax trace replay FILE`."""

from __future__ import annotations

from .... import app
from ...options import Json
from ...progress import working
from ...result import emit
from .options import Kernels, Meta, Skip, TraceFile, Unit


def info(
    file: TraceFile,
    meta: Meta = None,
    skip: Skip = None,
    unit: Unit = None,
    kernels: Kernels = None,
    json: Json = False,
) -> None:
    """Summarise a trace or log, or the execution traces of a job."""
    emit(app.describe_trace(file, meta=meta, skip=skip, unit=unit, kernels=kernels or ()), json)


def replay(file: TraceFile, meta: Meta = None, json: Json = False) -> None:
    """Replay the recorded durations and compare the steps with the recorded ones."""
    with working():
        report = app.replay_trace(file, meta=meta)
    emit(report, json)

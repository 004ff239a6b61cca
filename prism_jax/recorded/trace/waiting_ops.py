"""The dependencies of any trace: rules where its op types are known, recorded order elsewhere."""

from __future__ import annotations

from .dependencies import Dependencies
from .pipeline import is_pipeline, pipeline_dependencies
from .recorded_order import recorded_order
from .trace import Trace


def dependencies(trace: Trace) -> Dependencies:
    """Who waits for whom by rule, without what only the recorded times show (`waits.observed_waits`)."""
    return pipeline_dependencies(trace) if is_pipeline(trace) else recorded_order(trace)

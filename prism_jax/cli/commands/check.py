"""`prism-jax check JOB`: reads a job, says what follows from it, and whether it fits into memory."""

from __future__ import annotations

from ... import app
from ...report.text.check import facts, warning
from ..options import JobFile, Json, Overrides
from ..output import print_facts
from ..result import emit
from ..verbosity import say


def check(job: JobFile, overrides: Overrides = None, json: Json = False) -> None:
    """Validate a job and print what follows from it, without simulating anything."""
    report = app.check_job(job, overrides=overrides or ())
    emit(report, json, text=lambda: print_facts(facts(report)))
    if warning(report):
        say(warning(report))

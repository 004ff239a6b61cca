"""`prism-jax check JOB`: reads a job, says what follows from it, and whether it fits into memory (exit code 1 if it does not)."""

from __future__ import annotations

from ... import app
from ...report.text.check import facts
from ..memory_verdict import exit_unless_it_fits
from ..options import (
    Cluster,
    Fits,
    Force,
    IgnoreMemory,
    JobFile,
    Json,
    Kernels,
    Overrides,
    VariabilityName,
    with_presets,
)
from ..output import print_facts
from ..result import emit
from ..verbosity import say


def check(
    job: JobFile,
    overrides: Overrides = None,
    cluster: Cluster = None,
    variability: VariabilityName = None,
    kernels: Kernels = None,
    fit: Fits = None,
    force: Force = False,
    ignore_memory: IgnoreMemory = False,
    json: Json = False,
) -> None:
    """Validate a job and print what follows from it, without simulating anything."""
    report = app.check_job(
        job, overrides=with_presets(overrides, cluster, variability, kernels), fits=fit or (), force=force
    )
    emit(report, json, text=lambda: print_facts(facts(report)))
    for note in report.notes:
        say(f"note: {note}")
    exit_unless_it_fits(report.fits, report.memory_bytes_per_gpu.headroom, report.memory_stage, ignore_memory)

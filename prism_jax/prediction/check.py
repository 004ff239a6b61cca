"""Checks a job and its memory, without simulating anything; what `prism-jax check` does. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from ..core.units import format_bytes
from ..core.use_case import Message, Option, noted, use_case
from ..cost.memory import MemoryBreakdown, memory_notes
from ..fits.load_fits import load_fits
from ..job.framework_notes import framework_notes
from ..job.load_job import JobFile, JobSource, loaded
from ..job.rules import workload_notes
from ..job.write_job import stated_text
from ..result.parameters import Fits, Force, JobChanges
from ..system.likeness import device_notes
from .check_report import CheckReport
from .job_facts import (
    HostFacts,
    MemoryFacts,
    evidence_of_job,
    expert_notes,
    host_facts,
    host_notes,
    job_names,
    memory_facts,
    open_facts,
    recipe_notes,
    states_words,
)

IGNORE_MEMORY = "Exit with 0 even if the job does not fit into memory."


class ReportWithMemory(Protocol):
    """A report that says what a job needs of the memory of devices, and of a node; None: nothing."""

    @property
    def memory_bytes_per_gpu(self) -> MemoryFacts: ...

    @property
    def host_memory_bytes_per_node(self) -> HostFacts | None: ...

    @property
    def fullest_stage(self) -> int | None: ...


def warn_of_memory(
    report: ReportWithMemory, ignore_memory: Annotated[bool, Option(help=IGNORE_MEMORY)] = False
) -> Message | None:
    """Warns of a job that does not fit; the command fails then, unless that is to be ignored."""
    needed, host = report.memory_bytes_per_gpu, report.host_memory_bytes_per_node
    where = "" if report.fullest_stage is None else f" on stage {report.fullest_stage}"
    short = [f"needs {format_bytes(-needed.headroom)} more per device{where}"] if needed.headroom < 0.0 else []
    if host is not None and host.capacity is not None and not host.fits:
        short.append(f"the host needs {format_bytes(host.total - host.capacity)} more per node")
    if not short:
        return None
    remedy = "" if ignore_memory else "; --ignore-memory accepts that"
    return Message(f"warning: does not fit: {', and '.join(short)}{remedy}", failed=not ignore_memory)


@use_case(then=(warn_of_memory,))
def check_job(
    job: JobFile, *, changes: JobChanges = JobChanges(), fits: Fits = (), force: Force = False
) -> CheckReport:
    """Validate a job and print what follows from it, without simulating anything.

    That includes whether it fits into memory, and which measured tables its predictions would use.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        changes: fields of the file to replace.
        fits: files of `prism-jax fit` or `calibrate` that predictions of the job are to apply.
        force: use a fit even where its verdict is failed.

    Raises:
        ConfigError: everything that is wrong with a file.
        DataError, FitError: a fit cannot be used for this job.
        PlanError: the plan is impossible.

    Example:
        >>> check_job("llama3_405b_16384").fits
        True
    """
    fitted = load_fits(loaded(job, changes.texts_for(job)), fits, force=force)
    own = fitted.job
    needed, plan, host = own.memory, own.plan, host_facts(own)
    return CheckReport(
        **job_names(own),
        n_params=own.model.n_params(),
        n_params_active=own.model.n_params_active(),
        n_chunk=plan.n_chunk,
        n_member=plan.n_member,
        n_replica=plan.n_replica,
        memory_bytes_per_gpu=memory_facts(own, needed),
        fits=own.fits,
        has_experts=own.model.has_experts,
        memory_stage=needed.stage,
        micro_batch=plan.micro_batch,
        global_batch=plan.global_batch,
        seq_len=plan.seq_len,
        notes=(
            *device_notes(own.cluster.device),
            *host_notes(own),
            *expert_notes(own),
            *recipe_notes(own),
            *framework_notes(own),
            *workload_notes(own.model, plan),
            *memory_notes(own.model, own.cluster, plan, own.software.memory),
            *fitted.tables,
            *fitted.unused,
        ),
        open_fields=open_facts(own),
        evidence=evidence_of_job(own),
        host_memory_bytes_per_node=host,
        states=states_words(own),
        record=noted(job_file=stated_text(job, changes.texts_for(job))),
    )


def peak_memory(job: JobSource, *, overrides: Sequence[str] = ()) -> MemoryBreakdown:
    """Peak memory of one device on every pipeline stage, bytes.

    Args:
        job: as in `check_job`.
        overrides: "section.field=value" texts that replace fields of a file.

    Raises:
        ConfigError, PlanError: as in `check_job`.

    Example:
        >>> round(peak_memory("llama3_405b_16384").total_bytes / 2**30)  # doctest: +SKIP
        61
    """
    return loaded(job, overrides).memory

"""`prism-jax check JOB`: reads a job, says what follows from it, and whether it fits into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ... import units
from ..options import JobFile, Json, Overrides
from ..output import print_facts, print_json
from ..verbosity import say, talks

if TYPE_CHECKING:
    from ...job import Job
    from ...memory.breakdown import MemoryBreakdown


def register(app: typer.Typer) -> None:
    """Adds the command to `app`."""
    app.command("check")(talks(check))


def check(job: JobFile, overrides: Overrides = None, json: Json = False) -> None:
    """Validate a job and print what follows from it, without simulating anything."""
    from ...io.job.load_job import load_job  # here, so that --help does not pay for numpy and pydantic

    loaded = load_job(job, overrides or [])
    needed = loaded.memory
    summary = summarise(loaded, needed)
    if json:
        print_json(summary)
    else:
        print_facts(loaded.name, _readable(loaded, needed))
    if not needed.fits:
        say(
            f"warning: does not fit: needs {units.format_bytes(-needed.headroom_bytes)} more per device on stage {needed.stage}"
        )


def summarise(job: Job, needed: MemoryBreakdown) -> dict[str, Any]:
    """What follows from a job, as one JSON object; counts, and bytes per device."""
    plan = job.plan
    return {
        "name": job.name,
        "model": job.model.name,
        "cluster": job.cluster.name,
        "device": job.cluster.device.name,
        "variability": job.variability.name,
        "framework": job.software.name,
        "n_params": job.model.n_params(),
        "n_params_active": job.model.n_params_active(),
        "n_devices": plan.n_devices,
        "tp": plan.tp,
        "cp": plan.cp,
        "pp": plan.pp,
        "dp": plan.dp,
        "ep": plan.ep,
        "schedule": plan.schedule_name,
        "n_micro_batch": plan.n_micro_batch,
        "n_chunk": plan.n_chunk,
        "n_member": plan.n_member,
        "n_replica": plan.n_replica,
        "tokens_per_step": plan.global_batch * plan.seq_len,
        "memory_bytes_per_gpu": needed.as_dict(),
        "fits": needed.fits,
    }


def _readable(job: Job, needed: MemoryBreakdown) -> dict[str, str]:
    plan, model, device = job.plan, job.model, job.cluster.device
    active = f", {units.format_count(model.n_params_active())} active" if model.has_experts else ""
    parts = [(name, size) for name, size in needed.as_dict().items() if name not in ("total", "capacity", "headroom")]
    verdict = "fits" if needed.fits else "DOES NOT FIT"
    total, capacity = units.format_bytes(needed.total_bytes), units.format_bytes(device.hbm_bytes)
    return {
        "model": f"{model.name}, {units.format_count(model.n_params())} parameters{active}",
        "cluster": f"{job.cluster.name}, {plan.n_devices:,} x {device.name}",
        "plan": " x ".join(f"{axis} {getattr(plan, axis)}" for axis in ("tp", "cp", "pp", "dp")) + f", ep {plan.ep}",
        "schedule": f"{plan.schedule}, {plan.n_micro_batch} micro-batches of {plan.micro_batch}, chunks: {plan.n_chunk}",
        "batch": f"{plan.global_batch:,} sequences of {plan.seq_len:,} tokens",
        "groups": f"{plan.n_replica:,} replicas of {plan.pp} stages of {plan.n_member} devices in step",
        "framework": job.software.name or "not stated",
        "variability": job.variability.name,
        "memory": f"{total} of {capacity} per device on stage {needed.stage}, the fullest: {verdict}",
        **{f"  {name}": units.format_bytes(size) for name, size in parts},
    }

"""The same job on another number of GPUs: strong scaling keeps the batch, weak scaling the batch per replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..errors import PlanError
from ..job import Job

Mode = Literal["weak", "strong"]
MODES: tuple[Mode, ...] = ("weak", "strong")


def job_of_size(job: Job, n_devices: int, mode: Mode) -> Job:
    """`job` with as many replicas as `n_devices` hold; tensor, context and pipeline degrees stay.

    Raises:
        PlanError: the degrees do not divide the devices, or the batch does not divide among the replicas.
        SpecError: the network cannot have that size.
    """
    plan = job.plan
    per_replica = plan.tp * plan.cp * plan.pp
    dp, rest = divmod(n_devices, per_replica)
    if rest or not dp:
        raise PlanError(f"{n_devices:,} GPUs are no multiple of tp*cp*pp = {per_replica}")
    batch = plan.global_batch * dp // plan.dp if mode == "weak" else plan.global_batch
    if mode == "weak" and plan.global_batch * dp % plan.dp:
        raise PlanError(f"{plan.global_batch} samples on {plan.dp} replicas are no whole number on {dp}")
    shard = dp if plan.dp_shard == plan.dp else plan.dp_shard  # groups that span all replicas go on doing so
    resized = replace(plan, dp=dp, global_batch=batch, dp_shard=shard)
    return replace(job, cluster=job.cluster.of_size(n_devices), plan=resized)

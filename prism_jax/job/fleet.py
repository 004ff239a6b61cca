"""Fleets: "512xh200" as a cluster, and a job moved there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.errors import DataError, SpecError
from ..system import catalog
from ..system.hardware import Cluster
from ..variability.config import default_for, preset
from .job import Job

MOST_FLEETS = 26
_FORM = re.compile(r"(?P<count>[0-9]{1,9}) ?[xX*] ?(?P<name>\S.{0,99})")


@dataclass(frozen=True)
class Fleet:
    """So many devices of a kind.

    Attributes:
        text: as it was written.
        name: of a device or of a preset cluster.
    """

    text: str
    n_devices: int
    name: str


def fleets_of(texts: Sequence[str]) -> tuple[Fleet, ...]:
    """Fleets from "COUNTxDEVICE" or "COUNTxCLUSTER".

    Raises:
        DataError: another form, none at all, or one that stands twice.
    """
    if not 1 <= len(texts) <= MOST_FLEETS:
        raise DataError(f"--fleet: {len(texts)} fleets, but 1 to {MOST_FLEETS} are needed. Write --fleet 512xh200.")
    found = tuple(map(_fleet, texts))
    for number, fleet in enumerate(found):
        if any((fleet.n_devices, fleet.name) == (other.n_devices, other.name) for other in found[:number]):
            raise DataError(f"--fleet {fleet.text}: stands twice. Name every fleet once.")
    return found


def cluster_of(fleet: Fleet, job: Job) -> Cluster:
    """The cluster of a fleet: the job's own network where the device is the job's, else a preset, or the device's usual one.

    Raises:
        SpecError: no device or cluster of that name; or the network cannot have that size.
    """
    if catalog.is_called(fleet.name, job.cluster.device):
        return job.cluster.of_size(fleet.n_devices)
    if catalog.known_cluster(fleet.name):
        return catalog.cluster(fleet.name, fleet.n_devices)
    try:
        return catalog.default_cluster(fleet.name, fleet.n_devices)
    except SpecError as error:
        raise SpecError(
            f"--fleet {fleet.text}: {error} Devices: `prism-jax show devices`; clusters: `prism-jax show clusters`."
        ) from None


def job_on(job: Job, cluster: Cluster) -> Job:
    """The job on another cluster, with the usual variability of its device if it has that of its own device now.

    Notes: its plan may be impossible there and is to be searched. Its batch is one that the devices can share (`shared_batch`).
    """
    usual = job.variability == preset(default_for(job.cluster.device))
    variability = preset(default_for(cluster.device)) if usual else job.variability
    plan = replace(job.plan, global_batch=shared_batch(job.plan.global_batch, cluster.n_devices))
    return replace(job, cluster=cluster, plan=plan, variability=variability)


def shared_batch(batch: int, n_devices: int) -> int:
    """The batch itself if its samples have every odd factor of the devices, else the nearest multiple of a number that has.

    Example:
        >>> shared_batch(1024, 512), shared_batch(1024, 384), shared_batch(64, 384)
        (1024, 1152, 48)
    """
    odd = n_devices // (n_devices & -n_devices)
    if batch % odd == 0:
        return batch
    unit = n_devices
    while unit > max(batch, odd):
        unit //= 2
    return max(round(batch / unit), 1) * unit


def _fleet(text: str) -> Fleet:
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found["count"]) < 1:
        raise DataError(
            f"--fleet: {text[:80]!r} is no fleet. Write a count from 1 to 999,999,999 and a device or cluster: "
            "512xh200."
        )
    return Fleet(text.strip(), int(found["count"]), found["name"].strip().lower())

"""Fleets: "512xh200" as a cluster, and a job moved there, in memory or as sections of its file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.errors import ConfigError, DataError, SpecError
from ..system import catalog
from ..system.hardware import Cluster
from ..tables.document import Document
from ..variability.config import default_for, preset
from .cluster_section import read_cluster
from .job import Job
from .load_job import JobSource, loaded, read_job_file
from .reading import DocumentReader
from .write_job import cluster_fields

MOST_FLEETS = 26
_FORM = re.compile(r"(?P<count>[0-9]{1,9}) ?[xX*] ?(?P<name>\S.{0,99})")


@dataclass(frozen=True)
class Fleet:
    """Number of devices of one kind.

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


def written_fleet(fleet: Fleet, source: JobSource, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Sections of a job file that move the job to the fleet as `cluster_of` and `job_on` do; all but its batch.

    The section `cluster` is the shortest that is read back as that cluster. Figures that were published for the job on its own
    cluster are left out (None).

    Raises:
        ConfigError, SpecError: the job cannot be read, or its network has a form that is not written.
    """
    job = loaded(source, overrides)
    cluster = cluster_of(fleet, job)
    found: dict[str, Any] = {"cluster": _cluster_section(fleet, cluster, job, source, overrides), "published": None}
    if job_on(job, cluster).variability != job.variability:
        found["variability"] = default_for(cluster.device)
    return found


def _cluster_section(
    fleet: Fleet, cluster: Cluster, job: Job, source: JobSource, overrides: Sequence[str]
) -> dict[str, Any]:
    size: dict[str, Any] = {"n_devices": fleet.n_devices}
    short: dict[str, Any] = {"device": fleet.name}
    if catalog.is_called(fleet.name, job.cluster.device):
        stated = {} if isinstance(source, Job) else read_job_file(source, overrides).data["cluster"]
        short = {"preset": stated} if isinstance(stated, str) else dict(stated)
    elif catalog.known_cluster(fleet.name):
        short = {"preset": cluster.name}
    read = _read_back({**short, **size})
    if read is not None and _as_wide_as_the_job(read) == _as_wide_as_the_job(cluster):
        return {**short, **size}
    return {**cluster_fields(cluster), **size}


def _as_wide_as_the_job(cluster: Cluster) -> Cluster:
    """The cluster whose outermost tier ends where the job does: links beyond it do not concern the job."""
    if cluster.network is not None:
        return cluster
    *inner, outer = cluster.tiers
    return replace(cluster, tiers=(*inner, replace(outer, n_devices=cluster.n_devices)))


def _read_back(section: dict[str, Any]) -> Cluster | None:
    """The cluster of a section; None where it is wrong."""
    reading = DocumentReader(Document("fleet", {"cluster": section}))
    try:
        cluster = read_cluster(reading, None)
    except (ConfigError, SpecError):
        return None
    return None if reading.found else cluster


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

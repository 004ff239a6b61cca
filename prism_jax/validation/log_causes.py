"""Causes that could explain a step outside of its interval: open fields of the head at their other values, and fabrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..framework.software import Software
from ..job.job import Job
from ..system.network import Tier

GBIT = 1e9 / 8.0
# Gbit/s that a node gets out of Ethernet, in words, and the nodes up to which such networks are built: 100, 25 and 10 Gbit/s, and
# the 40% of the last that sockets may leave.
SLOW_FABRICS = (
    (100.0, "100 Gbit/s", 10**6),
    (25.0, "25 Gbit/s", 8),
    (10.0, "10 Gbit/s", 4),
    (4.0, "10 Gbit/s, 40% of it used by sockets", 4),
)
AT_ANY_SITE = (
    100.0  # Gbit/s of a node; less is looked at where a log shows that a few hosts were started over ssh, or of cards
)
CARDS = ("ga10x", "ada", "blackwell-rtx")  # generations of boards for workstations


class Possibility(NamedTuple):
    """Job other than the assumed one that the head leaves possible.

    Attributes:
        text: how it differs.
        job: the job.
        of_network: whether it differs in the network.
    """

    text: str
    job: Job
    of_network: bool = False


def possibilities(job: Job, over_ssh: bool = False) -> list[Possibility]:
    """Jobs other than the assumed one that the head leaves possible.

    Args:
        over_ssh: whether the log has the names of several hosts in front of its lines, as launchers without a scheduler print.
    """
    return [*_software(job), *_fabrics(job, over_ssh), *_slots(job)]


def _software(job: Job) -> Iterator[Possibility]:
    values = {
        "attention": ("eager", "fused_softmax", "flash2"),
        "compile": (True,),
        "norm": ("eager",),
        "cross_entropy": ("eager",),
        "expert_products": ("apart",),
    }
    for name in job.open_software:
        for value in values.get(name, ()):
            if value != getattr(job.plan.software, name):
                what = "attention unfused" if (name, value) == ("attention", "eager") else f"software.{name} = {value}"
                yield Possibility(what, with_software(job, name, value))
    if "recompute" in dict(job.open_plan):
        yield Possibility("recomputation of everything", replace(job, plan=replace(job.plan, recompute="full")))


def with_software(job: Job, name: str, value: object) -> Job:
    """The job with one choice of its software stated."""
    software: Software = replace(job.plan.software, **{name: value})
    return replace(job, plan=replace(job.plan, software=software))


def _fabrics(job: Job, over_ssh: bool) -> Iterator[Possibility]:
    """Slower networks between nodes, where the job has several."""
    tiers = job.cluster.tiers
    if len(tiers) < 2 or job.plan.n_devices <= job.cluster.node_size or job.cluster.network is not None:
        return
    outer, size = tiers[-1], job.cluster.node_size
    for factor, words in ((2.0, "twice"), (0.5, "half")):
        yield Possibility(
            f"network between nodes at {words} its bandwidth", with_outer(job, outer.bytes_per_s * factor)
        )
    is_small = over_ssh or job.cluster.device.generation in CARDS
    n_nodes = -(-job.plan.n_devices // size)
    for rate, words, most_nodes in SLOW_FABRICS:
        own = rate * GBIT / size
        if n_nodes <= most_nodes and (is_small or rate >= AT_ANY_SITE) and own < 0.5 * outer.bytes_per_s:
            yield Possibility(f"Ethernet between nodes ({words} per node)", with_outer(job, own), True)


def _slots(job: Job) -> Iterator[Possibility]:
    """Cards that have a quarter of the lanes of their slot, or share them: boards for a few cards."""
    tiers = job.cluster.tiers
    if job.cluster.network is None and tiers and tiers[0].name == "pcie" and job.plan.n_devices > 1:
        inner = replace(tiers[0], bytes_per_s=tiers[0].bytes_per_s / 4.0)
        yield Possibility(
            "PCIe at a quarter of its lanes", replace(job, cluster=replace(job.cluster, tiers=(inner, *tiers[1:])))
        )


def with_outer(job: Job, bytes_per_s: float) -> Job:
    """The job with another bandwidth of a GPU between nodes."""
    tiers: Sequence[Tier] = job.cluster.tiers
    outer = replace(tiers[-1], bytes_per_s=bytes_per_s)
    return replace(job, cluster=replace(job.cluster, tiers=(*tiers[:-1], outer)))

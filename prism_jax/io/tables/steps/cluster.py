"""From a row of a steps table to a Cluster: the preset of its machine or GPU, with the network bandwidth the row states."""

from __future__ import annotations

import re
from dataclasses import replace

from ....errors import SpecError
from ....system import catalog
from ....system.hardware import Cluster, Tier
from ....system.variant import device_of_text
from .kind import UnsupportedRowError
from .record import StepRecord

# a word of the row's network or source -> cluster preset
_MACHINES = (
    (r"jean zay v100", "jean-zay-v100"),
    (r"jean zay a100", "jean-zay-a100"),
    (r"aws p4d", "aws-p4d"),
    (r"aws p5", "aws-p5"),
    # Hugging Face's: its launch scripts (nanotron) set `FI_PROVIDER=efa` on nodes of 8 H100
    (r"^hf cluster", "aws-p5"),
    (r"azure ndm? ?a100", "azure-nd-a100-v4"),
    (r"alps", "gh200-alps"),
    (r"grand teton", "llama3-h100"),
)
_LLAMA3 = re.compile(r"2407\.21783|llama 3 herd", re.IGNORECASE)
_PCIE = re.compile(r"TP/CP on PCIe", re.IGNORECASE)
_RATE = re.compile(
    r"(?<!\d)(?:(\d{1,6})\s{0,3}x\s{0,3}(?:[A-Za-z]\w{0,30}\s{1,3}){0,6})?(?<!\d)(\d{1,9})\s{0,3}(?:Gbps|Gb/s)",
    re.IGNORECASE,
)


def cluster_of_record(record: StepRecord) -> Cluster:
    """The machine of a row.

    Raises:
        UnsupportedRowError: the GPU is not stated, is none of the presets, or no count is given.
    """
    if not record.gpu:
        raise UnsupportedRowError("device not stated")
    if record.n_gpus is None:
        raise UnsupportedRowError("number of devices not stated")
    try:
        return _with_network(_with_node_size(_template(record, record.n_gpus), record), record)
    except SpecError:
        raise UnsupportedRowError(f"no preset of device {record.gpu}") from None


def _template(record: StepRecord, n_gpus: int) -> Cluster:
    device = device_of_text(record.gpu)
    if _LLAMA3.search(record.source):
        return catalog.cluster("llama3-h100", n_gpus)
    if _PCIE.search(record.network):
        return replace(catalog.cluster("pcie-a100", n_gpus), device=device)
    for pattern, name in _MACHINES:
        if re.search(pattern, record.network, re.IGNORECASE):
            return replace(catalog.cluster(name, n_gpus), device=device)
    return replace(catalog.default_cluster(device.like or device.name, n_gpus), device=device)


def _with_node_size(cluster: Cluster, record: StepRecord) -> Cluster:
    """Node and innermost tier of the size the row states; rack-scale NVLink domains keep theirs."""
    size = record.gpus_per_node
    inner = cluster.tiers[0]
    if size is None or size == cluster.node_size or inner.n_devices != cluster.node_size or len(cluster.tiers) < 2:
        return cluster
    return replace(cluster, node_size=size, tiers=(replace(inner, n_devices=size), *cluster.tiers[1:]))


def _with_network(cluster: Cluster, record: StepRecord) -> Cluster:
    rate = network_bytes_per_s(record.network, cluster.node_size)
    is_preset = any(re.search(pattern, record.network, re.IGNORECASE) for pattern, _ in _MACHINES)
    if rate is None or is_preset or _LLAMA3.search(record.source) or len(cluster.tiers) < 2:
        return cluster
    outer: tuple[Tier, ...] = tuple(replace(tier, bytes_per_s=rate) for tier in cluster.tiers[1:])
    return replace(cluster, tiers=(cluster.tiers[0], *outer))


def network_bytes_per_s(network: str, node_size: int) -> float | None:
    """Bandwidth per device and direction that a row's `network` states; None if it says nothing usable.

    Notes:
        "8x 200 Gb/s ... per node" and "1600 Gbps node-node" are shared by the node's devices, "400 Gb/s per GPU" is not;
        a bare "InfiniBand 400 Gb/s" and "400 Gb/s NICs" are read as one port per device. Inventories that list storage and
        management networks ("|", "Storage", "Management") say nothing usable.
    """
    found = _RATE.search(network)
    if not found or re.search(r"\||storage|management|ethernet", network, re.IGNORECASE):
        return None
    gbit_per_s = float(found[2]) * float(found[1] or 1)
    is_per_port = found[1] is None and re.search(r"infiniband|\bNICs\b", network, re.IGNORECASE)
    is_per_device = is_per_port or re.search(r"per gpu", network, re.IGNORECASE)
    return gbit_per_s * 1e9 / 8 / (1 if is_per_device else node_size)

"""From a row of a table of published steps to a Cluster, and what is known to be wrong with the row.

The preset of its machine or GPU with the network bandwidth the row states; remarks of collectors, known bugs, a broken fabric.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import quantiles

from experiments.device_names import device_of_text
from experiments.step_tables.records import StepRecord, UnsupportedRowError
from prism_jax.core.errors import SpecError
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster
from prism_jax.system.network import Tier

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


def is_of_known_machine(record: StepRecord) -> bool:
    """Whether its source, or the words for its network, name a machine whose fabric is known."""
    named = any(re.search(pattern, record.network, re.IGNORECASE) for pattern, _ in _MACHINES)
    return named or bool(_LLAMA3.search(record.source))


def _with_node_size(cluster: Cluster, record: StepRecord) -> Cluster:
    """Node and innermost tier of the size the row states; rack-scale NVLink domains keep theirs."""
    size = record.gpus_per_node
    inner = cluster.tiers[0]
    if size is None or size == cluster.node_size or inner.n_devices != cluster.node_size or len(cluster.tiers) < 2:
        return cluster
    return replace(cluster, node_size=size, tiers=(replace(inner, n_devices=size), *cluster.tiers[1:]))


def _with_network(cluster: Cluster, record: StepRecord) -> Cluster:
    rate = network_bytes_per_s(record.network, cluster.node_size)
    if rate is None or is_of_known_machine(record) or len(cluster.tiers) < 2:
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


# What is known to be wrong with a row of a steps table: remarks of its collectors, known bugs, a broken fabric.

_REMARK = re.compile(r"\b(?:SUSPECT|INCONSISTENT):\s*([^;|]+)")
_CHECK = re.compile(r"\bCHECK:\s*([^|]+)")
_SEE_NOTES = re.compile(r";?\s{0,9}S source-level flag \(see notes\)")
_BEFORE_FIX = "after_pp_fix=False"
_ALL_REDUCE = re.compile(r"NCCL BW measured in the same job GB/s: all-reduce (\d{1,12}(?:\.\d{1,12})?)")

# A ring all-reduce over whole nodes moves its bus bandwidth through the ports of one node, so a healthy fabric shows most of
# the node's port rate (H100: 8 x 50 = 400 GB/s; measured 160-230 at 32-512 GPUs, above 400 within two nodes). Under a quarter
# of it (100 GB/s) no tuning of the collective explains the loss: ports are down or traffic goes another way.
MIN_SHARE_OF_PORTS = 0.25


def defect_of_record(record: StepRecord, cluster: Cluster | None = None, beside_peers: str = "") -> str:
    """What is wrong with the row, in words; empty if nothing is known.

    Args:
        record: the row; `CHECK`, `SUSPECT` and `INCONSISTENT` in its notes are remarks of who collected it.
        cluster: the row's machine, if known, whose port rate its measured all-reduce bandwidth is held against.
        beside_peers: what jobs like it say of its fabric; told where its own bandwidth says nothing.
    """
    fabric = _fabric(record, cluster) or ([beside_peers] if beside_peers else [])
    return "; ".join(dict.fromkeys([*_excluded(record), *_remarks(record.notes), *_pipeline_bug(record), *fabric]))


OPEN = ("precision not stated",)  # is a field with odds here, and no reason to leave a row out


def _excluded(record: StepRecord) -> list[str]:
    return [record.excluded] if record.excluded and record.excluded not in OPEN else []


def _remarks(notes: str) -> list[str]:
    said = [found.strip() for found in _REMARK.findall(notes)]
    checks = [_SEE_NOTES.sub("", found).strip() for found in _CHECK.findall(notes)]
    failed = [f"failed check: {check}" for check in checks if check]
    return said + failed or (["flagged by its source"] if checks else [])


def _pipeline_bug(record: StepRecord) -> list[str]:
    is_before = _BEFORE_FIX in record.notes and (record.pp or 1) > 1
    return ["measured before a bug of the framework's pipeline was fixed"] if is_before else []


def _fabric(record: StepRecord, cluster: Cluster | None) -> list[str]:
    found = _ALL_REDUCE.search(record.notes)
    if not found or cluster is None:
        return []
    reached, expected = float(found[1]) * 1e9, _port_bytes_per_s(cluster)
    if reached >= MIN_SHARE_OF_PORTS * expected:
        return []
    share = f"{reached / 1e9:.0f} of {expected / 1e9:.0f} GB/s"
    return [f"fabric degraded: the job's own all-reduce reached {share} that the ports of a node carry"]


def _port_bytes_per_s(cluster: Cluster) -> float:
    """Rate of one node's ports, or of one device's port inside a single node."""
    inner = cluster.tiers[0]
    if cluster.n_devices <= inner.n_devices or len(cluster.tiers) < 2:
        return inner.bytes_per_s
    return cluster.tiers[1].bytes_per_s * cluster.node_size


# Jobs whose fabric was degraded, told by their peers: the same cluster and number of devices, another bandwidth.

_ALL_GATHER = re.compile(r"NCCL BW measured in the same job GB/s:.{0,200}?all-gather (\d{1,12}(?:\.\d{1,12})?)")
FEWEST = 8  # jobs on equally many devices, from which on a tenth of them says what the fabric can do
# Healthy jobs of one cluster and size lie within 15% of each other; a ring all-gather at under 0.6 of the best tenth waits for
# something. Where most jobs are degraded (512 GPUs: 44 against 6 GB/s) the best tenth still tells.
MIN_SHARE_OF_PEERS = 0.6


def slower_than_peers(records: Sequence[StepRecord]) -> dict[str, str]:
    """Row id -> what is wrong, for rows whose own all-gather was far below that of jobs like them."""
    groups: defaultdict[tuple[str, str, int | None], dict[str, float]] = defaultdict(dict)
    for record in records:
        found = _ALL_GATHER.search(record.notes)
        if found:
            groups[record.source, record.gpu, record.n_gpus][record.id] = float(found[1])
    slow: dict[str, str] = {}
    for reached in groups.values():
        if len(reached) >= FEWEST:
            best = quantiles(reached.values(), n=10)[-1]
            said = f"fabric degraded: the job's own all-gather reached {{:.0f}} GB/s where its peers reach {best:.0f}"
            slow |= {row: said.format(rate) for row, rate in reached.items() if rate < MIN_SHARE_OF_PEERS * best}
    return slow

"""What is known to be wrong with a row of a steps table: remarks of its collectors, known bugs, a broken fabric."""

from __future__ import annotations

import re

from ....system.hardware import Cluster
from .record import StepRecord

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
    return "; ".join(dict.fromkeys([*_remarks(record.notes), *_pipeline_bug(record), *fabric]))


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

"""What texts say of storage and method: a class of storage, a bandwidth where one is stated, whether one process writes alone."""

from __future__ import annotations

import re

CLASSES = ("memory", "peer", "local disk", "parallel file system", "network file system", "object store", "not stated")
# Bytes per second of one writer that people buy: host memory over PCIe, a replica over the network, NVMe, GPFS and Lustre, NFS,
# one stream to a store. Centres of priors a factor of three wide.
BYTES_PER_S: dict[str, float] = dict(zip(CLASSES, (10e9, 3e9, 1.5e9, 2e9, 0.2e9, 0.15e9, 0.5e9), strict=True))
_WORDS = {
    "memory": ("memory", "ram", "shm", "tmpfs"),
    "peer": ("peer", "replica"),
    "local disk": ("nvme", "ssd", "local", "disk"),
    "parallel file system": ("gpfs", "lustre", "weka", "beegfs", "vast", "parallel file"),
    "network file system": ("nas", "nfs", "shared file", "efs", "network file"),
    "object store": ("s3", "gcs", "blob", "object", "bucket"),
}
_ORDER = (
    "parallel file system",
    "network file system",
    "object store",
    "memory",
    "peer",
    "local disk",
)  # "GPFS on NVMe" is a file system
_BANDWIDTH = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?B)/s")
_FACTOR = {"K": 1, "M": 2, "G": 3, "T": 4}
_ALONE = ("one writer", "single", "save_pretrained", "torch.save", "rank 0")
_SHARDED = ("per rank", "per-rank", "dcp", "fsdp", "shard", "distributed", "dist checkpoint")
_ASYNC = ("async", "flash")


def first_and_last(text: str, is_async: bool) -> tuple[str, str]:
    """Where a save goes first, which training waits for, and where it ends: "host memory, then NAS" is both.

    Where training goes on while the rest is written and the text names one place only, the first is a copy in memory.
    """
    first, _, last = text.partition(", then ")
    return ("host memory" if is_async and not last else first), last or first


def storage_class(text: str) -> str:
    """The class of storage that a text names."""
    words = text.lower()
    return next((name for name in _ORDER if any(_is_in(word, words) for word in _WORDS[name])), "not stated")


def stated_bytes_per_s(text: str) -> float | None:
    """The bandwidth that a text states, such as "NAS about 100 MB/s"."""
    found = _BANDWIDTH.search(text)
    if found is None or not float(found[1]) > 0.0:
        return None
    return float(found[1]) * (1024.0 if "i" in found[2] else 1000.0) ** _FACTOR[found[2][0]]


def writes_alone(text: str) -> bool:
    """Whether a method has one process write everything."""
    return any(word in text.lower() for word in _ALONE)


def is_sharded(text: str) -> bool:
    """Whether a method has every process write its part."""
    return any(word in text.lower() for word in _SHARDED)


def is_async(text: str) -> bool:
    """Whether training goes on while a method writes."""
    return any(word in text.lower() for word in _ASYNC)


def _is_in(word: str, text: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}", text) is not None

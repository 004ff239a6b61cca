"""Finds the GPU of a log: the one it names, or those it leaves possible."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..system import catalog
from ..system.hardware import Device
from .head import Head

_SUFFIXES = re.compile(
    r"(?i)\b(?:nvidia|tesla|geforce|instinct|amd|graphics|gpu|hbm\d?e?|server edition|workstation edition)\b"
)
TWO_SIZES = {"a100": ("a100-40gb", "a100-80gb"), "v100": ("v100-16gb", "v100-32gb")}
GIB = 2.0**30


def device_in(head: Head) -> str | None:
    """Name of the preset that the log names; None where it names none that is known.

    Notes: a name with two sizes of memory is the larger one, unless the log says how much there is.
    """
    said = head.facts.get("gpu")
    if said is None:
        return None
    name = known(said.text)
    if name is None:
        return None
    for sizes in TWO_SIZES.values():
        if name in sizes and not re.search(r"\d ?G", said.text):
            return _by_memory(head, sizes)
    return name


def known(text: str) -> str | None:
    """Name of the preset that a driver's name of a GPU means; None where none does."""
    tries = [text, _SUFFIXES.sub(" ", text), re.sub(r"(?i)\s+\d+ ?gi?b.*$", "", _SUFFIXES.sub(" ", text))]
    tries += [re.sub(r"[- ](?:SXM\d?|PCIE|OAM)[\w-]*\.*.*$", "", one, flags=re.IGNORECASE) for one in tries[:2]]
    for one in tries:
        found = catalog.known_device(" ".join(one.replace("...", " ").split()))
        if found is not None:
            return found
    return None


def _by_memory(head: Head, sizes: Sequence[str]) -> str:
    total = head.facts.get("gpu_memory")
    if total is None:
        return sizes[-1]
    return next((one for one in sizes if catalog.device(one).hbm_bytes >= 0.9 * float(total.text)), sizes[-1])


def possible_devices(head: Head, dtype: str) -> list[str]:
    """Presets that nothing in the log rules out: enough memory, a peak above the rate that it prints."""
    used = max(head.most.get("most_allocated_bytes", 0.0), head.most.get("most_reserved_bytes", 0.0))
    rate = head.most.get("most_tflops", 0.0) * 1e12
    return [name for name in catalog.device_names() if _is_possible(catalog.device(name), used, rate, dtype)]


def _is_possible(device: Device, used: float, rate: float, dtype: str) -> bool:
    peaks = device.peak_flops_per_s
    peak = peaks.get(dtype) or peaks.get("bf16") or peaks.get("fp16") or max(peaks.values())
    return device.hbm_bytes >= used and peak >= rate


def stated_device(text: str) -> str:
    """Name of the preset that a person means.

    Raises:
        SpecError: there is none; names the nearest.
    """
    return known(text) or catalog.device(text).name

"""Which preset device a catalogue means by the name of a GPU: "A100 (40 GB)", "L4-24GB", "K80"."""

from __future__ import annotations

import re
from functools import cache

from ..system import catalog

_IN_BRACKETS = re.compile(r"^(?P<name>.*?)\s*\((?P<gb>[0-9]+)\s*GB\)$", re.IGNORECASE)
_WITH_SIZE = re.compile(r"^(?P<name>.*\S)[-\s]+[0-9]+\s*GB$", re.IGNORECASE)
_FILLERS = re.compile(r"\s+(?:HGX|SXM[0-9]?)\b", re.IGNORECASE)


@cache
def device_of(gpu: str) -> str:
    """Name of the preset device; empty where none is meant for sure.

    Notes: the size of the memory is part of the name where there are devices of several sizes; it is left out where the device
    with it is not known but the one without is, and has that size.
    """
    text = _FILLERS.sub("", gpu.strip())
    brackets = _IN_BRACKETS.match(text)
    tries = [f"{brackets['name']}-{brackets['gb']}gb", brackets["name"]] if brackets else [text]
    sized = _WITH_SIZE.match(tries[0])
    if sized:
        tries.append(sized["name"])
    size = re.search(r"([0-9]+)\s*gb\)?$", text, re.IGNORECASE)
    for one in tries:
        found = catalog.known_device(one)
        if found and (size is None or _has_size(found, float(size[1]))):
            return found
    return ""


def _has_size(device: str, gb: float) -> bool:
    """Vendors round 79.6 GiB to 80 and 139.8 to 141."""
    return abs(catalog.device(device).hbm_bytes / (gb * 1e9) - 1.0) < 0.12

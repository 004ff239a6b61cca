"""A device from a text of a published table that holds a known name and words of a variant: "H100 96GB 500W", "MI350X-air"."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from prism_jax.core.errors import SpecError
from prism_jax.system import catalog
from prism_jax.system.hardware import Device
from prism_jax.system.likeness import device_like

_WORDS = re.compile(r"[^\s_/,;()\[\]-]+")
_MEMORY = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)\s{0,9}gi?b\b", re.IGNORECASE)
_POWER = re.compile(r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)\s{0,9}w(?:atts?)?\b", re.IGNORECASE)
_REMARK = re.compile(r"\([^()]*\)")
MOST_WORDS = 32  # of a text that names a device: runs of words grow with the square of their number
ROUNDED = 0.1  # relative: gigabytes and gibibytes, rounded figures
# Words that say nothing of the part itself.
_SAME_PART = frozenset(("dgx", "hgx", "gpu", "gpus", "node", "server", "nvidia", "amd", "intel", "huawei", "aws"))


def device_of_text(text: str) -> Device:
    """The preset that a text names, or one like it with the memory and power limit that the text states.

    Raises:
        SpecError: no known device, or two, stand in the text; the message names the nearest.
    """
    exact = catalog.known_device(text)
    if exact is not None:
        return _variant(text, exact, "".join(_REMARK.findall(text)), {})
    words = _WORDS.findall(text)
    found = _longest_known(words) if len(words) <= MOST_WORDS else None
    if found is None:
        return catalog.device(text)  # raises, with the nearest names
    name, rest = found
    return _variant(text, name, " ".join(rest), {word for word in rest if word.lower() not in _SAME_PART})


def _variant(text: str, name: str, remarks: str, words: Collection[str]) -> Device:
    """The preset itself where neither `words` nor figures of `remarks` tell it apart."""
    known = catalog.device(name)
    figures = {field: value for field, value in _figures(remarks).items() if _differs(value, getattr(known, field))}
    return device_like(name, name=text.strip(), **figures) if figures or words else known


def _differs(stated: float, known: float) -> bool:
    """By more than units and rounding."""
    return abs(stated / known - 1.0) > ROUNDED


def _longest_known(words: list[str]) -> tuple[str, list[str]] | None:
    """Device of the longest run of words that names one, and the other words; None if there is none or another one beside it."""
    spans = [(last - first, first, last) for first in range(len(words)) for last in range(first + 1, len(words) + 1)]
    for _, first, last in sorted(spans, reverse=True):
        name = catalog.known_device("-".join(words[first:last]))
        if name is None:
            continue
        rest = words[:first] + words[last:]
        others = {catalog.known_device(word) for word in rest} - {None, name}
        if others:
            raise SpecError(f"{name} and {' and '.join(sorted(map(str, others)))} both stand in {' '.join(words)!r}")
        return name, rest
    return None


def _figures(text: str) -> dict[str, Any]:
    """Memory in bytes and power limit in watts, where the text states them."""
    memory, power = _MEMORY.search(text), _POWER.search(text)
    found = {"hbm_bytes": memory and float(memory[1]) * 1e9, "power_watts": power and float(power[1])}
    return {field: value for field, value in found.items() if value}

"""Section `variability` of a job document: a preset, a tree written out, or nothing for the default of the device."""

from __future__ import annotations

import re

from ...errors import SpecError
from ...system.hardware import Cluster
from ...variability.catalog import default_for, preset
from ...variability.section import variability_from_dict
from ...variability.tree import Variability
from .document import Document, Path, short

AT: Path = ("variability",)
_FIELD = re.compile(r"variability((?:\.\w+|\[\d+\])*):\s*")


def read_variability(document: Document, cluster: Cluster | None, found: list[str]) -> Variability | None:
    """The tree of the job; without a section the preset for the cluster's device."""
    if "variability" not in document.data:
        return preset(default_for(cluster.device)) if cluster is not None else None
    section = document.data["variability"]
    if not isinstance(section, (str, dict)) or not section:
        remedy = "Name a preset (`prism-jax show variability`), or leave the section out for the default of the device."
        found.append(document.mistake(AT, f"{'is empty' if not section else short(section)}. {remedy}"))
        return None
    try:
        return variability_from_dict(section)
    except SpecError as error:
        path, message = _located(str(error))
        found.append(document.mistake(path, message))
        return None


def _located(message: str) -> tuple[Path, str]:
    """The field a message starts with ("variability.stalls[0].step_prob: ...") as a path, and the rest."""
    match = _FIELD.match(message)
    if match is None:
        return AT, message
    parts = re.findall(r"\w+", match[1])
    return (*AT, *(int(part) if part.isdigit() else part for part in parts)), message[match.end() :]

"""Section `variability` of a job document: a preset, a tree written out, or nothing for the default of the device."""

from __future__ import annotations

from ...errors import Mistake, SpecError
from ...system.hardware import Cluster
from ...variability.catalog import default_for, preset
from ...variability.section import variability_from_dict
from ...variability.tree import Variability
from .document import Document, Path, short

AT: Path = ("variability",)


def read_variability(document: Document, cluster: Cluster | None, found: list[Mistake]) -> Variability | None:
    """The tree of the job; without a section the preset for the cluster's device."""
    if "variability" not in document.data:
        return preset(default_for(cluster.device)) if cluster is not None else None
    section = document.data["variability"]
    if not isinstance(section, (str, dict)) or not section:
        remedy = "Name a preset (`prism-jax show variability`), or leave the section out for the default of the device."
        found.append(document.mistake(AT, f"{'is empty' if not section else short(section)}. {remedy}"))
        return None
    try:
        return variability_from_dict(section, AT)
    except SpecError as error:
        found.append(document.mistake(error.path or AT, error.text))
        return None

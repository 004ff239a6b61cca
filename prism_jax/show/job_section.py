"""Shipped things as sections of a job file, to be copied and changed; what `prism-jax show KIND NAME --yaml` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import SpecError
from ..core.registry import did_you_mean
from .catalogues import CATALOGUES, show_entry


def _model(name: str) -> dict[str, Any]:
    from ..job.write_job import model_fields  # here and below, so that a catalogue costs what it shows
    from ..workload.catalog import workload

    return {"model": model_fields(workload(name))}


def _cluster(name: str) -> dict[str, Any]:
    from ..job.write_job import cluster_fields
    from ..system.catalog import cluster

    return {"cluster": cluster_fields(cluster(name, 1))}


def _device(name: str) -> dict[str, Any]:
    from ..job.write_job import device_fields
    from ..system.catalog import device

    return {"cluster": {"device": device_fields(device(name))}}


def _variability(name: str) -> dict[str, Any]:
    from ..job.write_job import variability_fields
    from ..variability.config import preset

    return {"variability": variability_fields(preset(name))}


SECTIONS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "models": _model,
    "devices": _device,
    "clusters": _cluster,
    "variability": _variability,
}
FILES = "examples"  # which are job files already


def job_section(catalogue: str, name: str) -> str:
    """YAML that `load_job` reads as part of a job file, and that describes exactly the thing of that name.

    Args:
        catalogue: models, devices, clusters, variability, or examples, which are whole files.
        name: of the entry.

    Raises:
        SpecError: there is no such entry, or its kind is no section of a job file.

    Example:
        >>> print(job_section("clusters", "dgx-h100"))  # doctest: +SKIP
    """
    if catalogue == FILES:
        return str(show_entry(catalogue, name).entry["text"])
    if catalogue not in SECTIONS:
        known = (*SECTIONS, FILES)
        if catalogue in CATALOGUES:
            raise SpecError(f"--yaml: {catalogue} are no section of a job file; {', '.join(known)} are")
        raise SpecError(f"unknown kind {catalogue!r}{did_you_mean(catalogue, known)}")
    from ..job.write_job import section_text

    return section_text(SECTIONS[catalogue](name), f"{name}, as `prism-jax show {catalogue} {name} --yaml` prints it")

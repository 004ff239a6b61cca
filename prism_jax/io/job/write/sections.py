"""Objects as sections of a job file: the fields, names and units that `load_job` reads back into equal objects.

Fields that hold their default are left out.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Protocol, runtime_checkable

import yaml
from pydantic import BaseModel

from .... import units
from ....errors import SpecError
from ....system.hardware import Cluster, Device, Tier
from ....variability.config import variability_to_dict
from ....variability.tree import Variability
from ....workload.base import Workload
from ....workload.kinds import KINDS, TRANSFORMER
from ..reference.values import quantity_of
from ..schema import DEVICE_NAMES, TIER_NAMES, device_section, tier_section

WIDTH = 130


@runtime_checkable
class Written(Protocol):
    """A value that job files write in a form of its own."""

    @property
    def written(self) -> Any:
        """Plain data that the file's reader reads back."""
        ...


AS_WIDE_AS_THE_JOB = ("n_devices",)  # of the outermost tier


def model_fields(model: Workload) -> dict[str, Any]:
    """Section `model`, without a preset.

    Raises:
        SpecError: the class of the model belongs to no kind that is registered.
    """
    kind = next((kind for kind in KINDS if kind.spec is type(model)), None)
    if kind is None:
        raise SpecError(f"{type(model).__name__} belongs to no kind of model, so a job file cannot name it")
    return ({} if kind is TRANSFORMER else {"kind": kind.name}) | _changed(model)


def device_fields(device: Device) -> dict[str, Any]:
    """Section `cluster.device`, without a preset."""
    own = _changed(device)
    alike = {"like": own.pop("like"), "likeness_sd": device.likeness_sd} if device.like else {}
    return alike | _with_units(own, device_section(False), DEVICE_NAMES)


def cluster_fields(cluster: Cluster) -> dict[str, Any]:
    """Section `cluster`, without a preset and without a number of devices: the outermost tier spans whatever the job needs.

    Raises:
        SpecError: the cluster has a network of another kind than tiers.
    """
    if cluster.network is not None:
        raise SpecError(f"cluster {cluster.name} has a network of its own kind, which is not written")
    tiers = [_tier_fields(tier) for tier in cluster.tiers]
    outer = {name: value for name, value in tiers[-1].items() if name not in AS_WIDE_AS_THE_JOB}
    return {
        "name": cluster.name,
        "device": device_fields(cluster.device),
        "tiers": [*tiers[:-1], outer],
        "node_size": cluster.node_size,
        **({"source": cluster.source} if cluster.source else {}),
    }


def variability_fields(variability: Variability) -> dict[str, Any]:
    """Section `variability`, without a preset."""
    return {name: value for name, value in variability_to_dict(variability).items() if value not in ("", [], {})}


def whole_fields(value: Any) -> dict[str, Any]:
    """All fields of a dataclass as plain data, those that hold their default too; inside, None is left out."""
    return {item.name: _whole(getattr(value, item.name)) for item in fields(value)}


def _whole(value: Any) -> Any:
    if isinstance(value, Written):
        return value.written
    if is_dataclass(value):
        return {name: inner for name, inner in whole_fields(value).items() if inner is not None}
    return [_whole(item) for item in value] if isinstance(value, (list, tuple)) else value


def section_text(section: dict[str, Any], comment: str = "") -> str:
    """YAML of a section, which `load_job` reads."""
    text = yaml.safe_dump(section, sort_keys=False, allow_unicode=True, width=WIDTH)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text


def _tier_fields(tier: Tier) -> dict[str, Any]:
    return _with_units(_changed(tier), tier_section(False), TIER_NAMES)


def _changed(value: Any) -> dict[str, Any]:
    """Fields of a dataclass that do not hold their default, as plain data."""
    found: dict[str, Any] = {}
    for item in fields(value):
        own = getattr(value, item.name)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if default is MISSING or own != default:
            found[item.name] = _plain(own)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Written):
        return value.written
    if is_dataclass(value):
        return _changed(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _with_units(plain: dict[str, Any], section: type[BaseModel], names: dict[str, str]) -> dict[str, Any]:
    """Names as files have them, and SI numbers as texts with a unit that mean exactly these numbers."""
    found: dict[str, Any] = {}
    for name, value in plain.items():
        written = names.get(name, name)
        kind = quantity_of(section.model_fields[written])
        if kind is None:
            found[written] = value
        elif isinstance(value, dict):
            found[written] = {key: units.exact(item, kind) for key, item in value.items()}
        else:
            found[written] = units.exact(value, kind)
    return found

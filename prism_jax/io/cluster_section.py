"""Section `cluster` of a job document: a preset, the reference design of a device, or tiers written out.

The device and single tiers of a preset can be changed: `tiers: {rail: {oversubscription: 2}}` changes one tier by name,
a list of tiers replaces them all, innermost first; the outermost spans the whole cluster where it gives no `n_devices`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..plan import ParallelPlan
from ..system import catalog
from ..system.hardware import Cluster, Device, Tier
from .document import Document, Path, short
from .hint import did_you_mean
from .mistakes import validated
from .schema import DEVICE_NAMES, TIER_NAMES, cluster_section, device_section, fields_of, tier_section
from .sections import attempt, choose_source, mapping_at

AT: Path = ("cluster",)


def read_cluster(document: Document, plan: ParallelPlan | None, found: list[str]) -> Cluster | None:
    """Section `cluster`; without `n_devices` it has as many devices as the plan needs."""
    words = "the name of a preset (`prism-jax show clusters`) or a mapping of fields"
    data = mapping_at(document, AT, found, words)
    if data is None or choose_source(data, ("preset",), document, AT, found) is None:
        return None
    checked = validated(cluster_section(), data, document, AT, found)
    device = _read_device(document, found) if data.get("device") is not None else None
    if checked is None or (device is None and "device" in data):
        return None
    n_devices = getattr(checked, "n_devices", None) or (plan.n_devices if plan else 1)
    base = _base(data, device, n_devices, document, found)
    if base is None:
        return None
    tiers = _read_tiers(data, base, n_devices, document, found) if "tiers" in data else base.tiers
    if tiers is None:
        return None
    changes = {name: value for name, value in fields_of(checked, {}).items() if name in ("name", "node_size", "source")}
    if device is not None:
        changes["device"] = device
    return attempt(lambda: replace(base, tiers=tiers, **changes), document, AT, found)


def _base(
    data: dict[str, Any], device: Device | None, n_devices: int, document: Document, found: list[str]
) -> Cluster | None:
    """The preset, the reference design of the device, or a bare cluster whose tiers are about to be replaced."""
    if "preset" in data:
        return attempt(lambda: catalog.cluster(data["preset"], n_devices), document, (*AT, "preset"), found)
    if device is None:
        found.append(
            document.mistake(AT, "needs a preset (`prism-jax show clusters`) or a device (`prism-jax show devices`)")
        )
        return None
    if isinstance(data.get("tiers"), list):
        whole = Tier(name="all", n_devices=n_devices, bytes_per_s=1.0, latency_s=0.0)
        return Cluster(name="inline", device=device, tiers=(whole,), n_devices=n_devices)
    return attempt(lambda: catalog.default_cluster(device.name, n_devices), document, (*AT, "device"), found)


def _read_device(document: Document, found: list[str]) -> Device | None:
    """A device by name, a changed preset, or all fields."""
    path: Path = (*AT, "device")
    data = mapping_at(document, path, found, "the name of a device (`prism-jax show devices`) or a mapping of fields")
    source = None if data is None else choose_source(data, ("preset",), document, path, found)
    if data is None or source is None:
        return None
    changes = {key: item for key, item in data.items() if key != "preset"}
    if not source:
        changes = {"name": "inline", "source": "job file"} | changes
    checked = validated(device_section(bool(source)), changes, document, path, found)
    if source:
        base = attempt(lambda: catalog.device(data["preset"]), document, path, found)
        return None if base is None or checked is None else replace(base, **fields_of(checked, DEVICE_NAMES))
    return None if checked is None else Device(**fields_of(checked, DEVICE_NAMES))


def _read_tiers(
    data: dict[str, Any], base: Cluster, n_devices: int, document: Document, found: list[str]
) -> tuple[Tier, ...] | None:
    """All tiers from a list, or the tiers of `base` changed by name."""
    value, path = data["tiers"], (*AT, "tiers")
    if isinstance(value, dict):
        return _changed_tiers(value, base, document, found)
    if not isinstance(value, list) or not value:
        message = f"{short(value)}, but it must be a list of tiers, innermost first, or changes by tier name"
        found.append(document.mistake(path, message))
        return None
    tiers = [
        _new_tier(item, index == len(value) - 1, n_devices, document, index, found) for index, item in enumerate(value)
    ]
    complete = tuple(tier for tier in tiers if tier is not None)
    return complete if len(complete) == len(value) else None


def _new_tier(
    item: Any, outermost: bool, n_devices: int, document: Document, index: int, found: list[str]
) -> Tier | None:
    if outermost and isinstance(item, dict):
        item = {"n_devices": n_devices} | item
    checked = validated(tier_section(False), item, document, (*AT, "tiers", index), found)
    return None if checked is None else Tier(**fields_of(checked, TIER_NAMES))


def _changed_tiers(
    changes: dict[str, Any], base: Cluster, document: Document, found: list[str]
) -> tuple[Tier, ...] | None:
    known = [tier.name for tier in base.tiers]
    made: dict[str, Tier] = {tier.name: tier for tier in base.tiers}
    n_before = len(found)
    for name, change in changes.items():
        path = (*AT, "tiers", name)
        if name not in made:
            hint = did_you_mean(name, known) or f"; {base.name} has {', '.join(known)}"
            found.append(document.mistake(path, f"unknown tier{hint}"))
            continue
        checked = validated(tier_section(True), change, document, path, found)
        if checked is not None:
            made[name] = replace(made[name], **fields_of(checked, TIER_NAMES))
    return tuple(made.values()) if len(found) == n_before else None

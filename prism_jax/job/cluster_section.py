"""Section `cluster` of a job document: a preset, the reference design of a device, tiers written out, or another network.

The device and single tiers of a preset can be changed: `tiers: {rail: {oversubscription: 2}}` changes one tier by name,
a list of tiers replaces them all, innermost first; the outermost spans the whole cluster where it gives no `n_devices`.

A `network` takes the place of the tiers, or takes them over if it is made of tiers: a kind, and the fields of its dataclass.
Fields that end in `bytes_per_s`, `_bytes` or `_s` are written as quantities with a unit and without that ending:
`link_bytes_per_s` is `link_bandwidth: 50 GB/s`, `hop_latency_s` is `hop_latency: 1 us`. A library of collectives is written
by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_type_hints

from pydantic import BaseModel

from ..core.errors import FieldPath, SpecError
from ..core.registry import did_you_mean
from ..plan.plan import ParallelPlan
from ..system import catalog
from ..system.collectives import CollectiveLibrary
from ..system.hardware import Cluster, Device
from ..system.likeness import device_like
from ..system.network import Network, Tier
from ..system.network_kinds import FROM_CLUSTER, LIBRARIES, NETWORKS, NetworkKind
from ..tables.document import short
from .reading import DocumentReader
from .schema import (
    BANDWIDTH,
    BYTES,
    DEVICE_NAMES,
    TIER_NAMES,
    TIME,
    cluster_section,
    fields_of,
    one_of,
    section,
    section_of,
)

AT_NETWORK: FieldPath = ("cluster", "network")
QUANTITIES = (("bytes_per_s", "bandwidth", BANDWIDTH), ("_bytes", "", BYTES), ("_s", "", TIME))


def network_kind(value: Any, reading: DocumentReader) -> NetworkKind | None:
    """The kind that the section names; a text alone is a kind."""
    if not isinstance(value, (str, dict)) or not value:
        state = "is empty" if value in (None, "", {}) else short(value)
        remedy = "it must be a kind of network (`prism-jax show networks`) or a mapping of fields"
        reading.refuse(AT_NETWORK, f"{state}; {remedy}")
        return None
    path, name = (AT_NETWORK, value) if isinstance(value, str) else ((*AT_NETWORK, "kind"), value.get("kind"))
    if not isinstance(name, str) or not name:
        state = "is missing" if name is None else f"{short(name)}, but it must be a text"
        reading.refuse(path, f"{state}; kinds are {', '.join(NETWORKS.names)}")
        return None
    return reading.attempt(lambda: NETWORKS.named(name), path)


def read_network(kind: NetworkKind, value: Any, cluster: Mapping[str, Any], reading: DocumentReader) -> Network | None:
    """The network that the section describes.

    Args:
        cluster: tiers, generation, node_size and n_devices, for a kind that has them as fields.
    """
    written = {} if isinstance(value, str) else {name: item for name, item in value.items() if name != "kind"}
    checked = reading.validated(network_section(kind), written, AT_NETWORK)
    if checked is None:
        return None
    given = _plain(kind, fields_of(checked, written_names(kind)))
    given |= {name: cluster[name] for name in kind.from_cluster}
    return reading.attempt(lambda: _made(kind, given), AT_NETWORK)


def written_names(kind: NetworkKind) -> dict[str, str]:
    """Field of a kind's dataclass -> its name in files."""
    hints = get_type_hints(kind.spec)
    names = [item.name for item in fields(kind.spec) if item.name not in kind.from_cluster]
    return {name: _written(name, hints[name])[0] for name in names}


def network_section(kind: NetworkKind) -> type[BaseModel]:
    """Fields of a kind of network."""
    hints = get_type_hints(kind.spec)
    names = written_names(kind)
    special = {name: _written(name, hints[name])[1] for name in names}
    special |= {name: one_of(LIBRARIES.names) for name in names if hints[name] is CollectiveLibrary}
    return section(kind.spec, False, special, names, kind.from_cluster)


def _written(name: str, hint: Any) -> tuple[str, Any]:
    """Name in files, and the type of its values where they have a unit."""
    for ending, instead, values in QUANTITIES:
        if hint is float and name.endswith(ending) and not (ending == "_s" and name.endswith("_per_s")):
            return name.removesuffix(ending) + instead, values
    return name, None


def _plain(kind: NetworkKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the dataclass has them."""
    hints = get_type_hints(kind.spec)
    return {
        name: LIBRARIES.named(value) if hints[name] is CollectiveLibrary else value for name, value in given.items()
    }


def _made(kind: NetworkKind, given: Mapping[str, Any]) -> Network:
    """The network; its errors speak of fields by their names in files."""
    try:
        return kind.spec(**given)
    except SpecError as error:
        names = written_names(kind)
        raise SpecError(str(error), tuple(names.get(str(part), part) for part in error.path), error.text) from None


AT: FieldPath = ("cluster",)
DEVICE_SOURCES = ("preset", "like")
DEVICE_FILLED_IN = {"name": "own GPU", "source": "job file"}  # where a device is written out


def read_cluster(reading: DocumentReader, plan: ParallelPlan | None) -> Cluster | None:
    """Section `cluster`; without `n_devices` it has as many devices as the plan needs."""
    words = "the name of a preset (`prism-jax show clusters`) or a mapping of fields"
    data = reading.mapping_at(AT, words)
    if data is None or reading.source_among(data, ("preset",), AT) is None:
        return None
    n_before = len(reading.found)
    checked = reading.validated(cluster_section(), data, AT)
    n_devices = getattr(checked, "n_devices", None) or (plan.n_devices if plan else 1)
    kind = network_kind(data["network"], reading) if "network" in data else None
    base = _preset(data, n_devices, reading)
    device = _read_device(reading, base) if "device" in data else None
    base = base or _reference(data, device, kind, n_devices, reading)
    tiers = _read_tiers(data, base, kind, n_devices, reading) if "tiers" in data else None
    if checked is None or len(reading.found) > n_before:
        return None
    start: dict[str, Any] = {} if base is None else {item.name: getattr(base, item.name) for item in fields(base)}
    replaced = {"preset": None, "n_devices": n_devices, "device": device, "tiers": tiers, "network": None}
    read = fields_of(checked, {"host_bytes": "host_memory"}) | replaced
    written: dict[str, Any] = {name: value for name, value in read.items() if value is not None}
    complete: dict[str, Any] = {"name": "own cluster", **start, **written}
    if kind is not None:
        complete["network"] = read_network(kind, data["network"], _taken_over(complete), reading)
        complete["tiers"] = ()
    cluster = reading.attempt(lambda: Cluster(**complete), AT) if len(reading.found) == n_before else None
    return cluster if cluster is None or _has_its_nodes(cluster, data, reading) else None


def _has_its_nodes(cluster: Cluster, data: dict[str, Any], reading: DocumentReader) -> bool:
    """Whether a node that is written out has no more devices than the cluster, or than a domain of its inner tiers."""
    inner = cluster.tiers[:-1] or cluster.tiers
    most = max(cluster.n_devices, *[tier.n_devices for tier in inner], 1)
    if "node_size" not in data or cluster.node_size <= most:
        return True
    text = f"{cluster.node_size} devices in a node, but the cluster has {cluster.n_devices}. Use at most {most}."
    reading.refuse((*AT, "node_size"), text)
    return False


def _taken_over(cluster: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that a network may take over from the cluster."""
    known = {"node_size": Cluster.node_size, "tiers": ()} | cluster | {"generation": cluster["device"].generation}
    return {name: known[name] for name in FROM_CLUSTER}


def _preset(data: dict[str, Any], n_devices: int, reading: DocumentReader) -> Cluster | None:
    if "preset" not in data:
        return None
    return reading.attempt(lambda: catalog.cluster(data["preset"], n_devices), (*AT, "preset"))


def _reference(
    data: dict[str, Any],
    device: Device | None,
    kind: NetworkKind | None,
    n_devices: int,
    reading: DocumentReader,
) -> Cluster | None:
    """The reference design of the device, if its network is not written out; without a device that is a mistake."""
    written_out = isinstance(data.get("tiers"), list) or not _has_tiers(kind)
    if "preset" in data or (written_out and device is not None):
        return None
    if device is not None:
        known = device.like or device.name
        return reading.attempt(lambda: catalog.default_cluster(known, n_devices), (*AT, "device"))
    if "device" not in data:
        remedy = "needs a preset (`prism-jax show clusters`) or a device (`prism-jax show devices`)"
        reading.refuse(AT, remedy)
    return None


def _read_device(reading: DocumentReader, base: Cluster | None) -> Device | None:
    """A device by name, a changed preset, one like a preset, changes to the device of the preset cluster, or all fields."""
    path: FieldPath = (*AT, "device")
    if isinstance(reading.data["cluster"]["device"], list):
        text = (
            "a list, but a job has one kind of device. Of mixed GPUs give the slowest, which the others wait for, or one kind "
            "and how slow the others are by `prism-jax predict --slowdowns`"
        )
        reading.refuse(path, text)
        return None
    data = reading.mapping_at(path, "the name of a device (`prism-jax show devices`) or a mapping of fields")
    source = None if data is None else reading.source_among(data, DEVICE_SOURCES, path)
    if data is None or source is None:
        return None
    changes = {key: item for key, item in data.items() if key not in DEVICE_SOURCES}
    start = reading.attempt(lambda: catalog.device(data[source]), path) if source else base and base.device
    whole = start is None and not source
    if whole:
        changes = DEVICE_FILLED_IN | changes
    checked = reading.validated(section_of(Device, not whole), changes, path)
    if checked is None or (start is None and source):
        return None
    given = fields_of(checked, DEVICE_NAMES)
    if start is None:
        return Device(**given)
    if source == "like":
        return reading.attempt(lambda: device_like(start, **given), path)
    limited = given.get("power_watts", start.power_watts) < start.power_watts and "peak_flops_per_s" not in given
    if limited:  # its clock follows
        given.setdefault("name", start.name)
        return reading.attempt(lambda: device_like(start, **given), path)
    return replace(start, **given)


def _has_tiers(kind: NetworkKind | None) -> bool:
    return kind is None or "tiers" in kind.from_cluster


def _read_tiers(
    data: dict[str, Any],
    base: Cluster | None,
    kind: NetworkKind | None,
    n_devices: int,
    reading: DocumentReader,
) -> tuple[Tier, ...] | None:
    """All tiers from a list, or the tiers of `base` changed by name."""
    value, path = data["tiers"], (*AT, "tiers")
    if kind is not None and not _has_tiers(kind):
        reading.refuse(path, f"cannot be combined with network {kind.name}, which has no tiers. Keep one.")
        return None
    if isinstance(value, dict) and value:
        return None if base is None else _changed_tiers(value, base, reading)
    if not isinstance(value, list) or not value:
        state = "is empty;" if value is None else f"{short(value)}, but"
        message = f"{state} it must be a list of tiers, innermost first, or changes by tier name"
        reading.refuse(path, message)
        return None
    spans = [item.get("n_devices") for item in value[:-1] if isinstance(item, dict)]
    widest = max([n_devices, *(span for span in spans if type(span) is int)])
    tiers = [_new_tier(item, index == len(value) - 1, widest, reading, index) for index, item in enumerate(value)]
    complete = tuple(tier for tier in tiers if tier is not None)
    return complete if len(complete) == len(value) else None


def _new_tier(item: Any, outermost: bool, n_devices: int, reading: DocumentReader, index: int) -> Tier | None:
    if outermost and isinstance(item, dict):
        item = {"n_devices": n_devices} | item
    checked = reading.validated(section_of(Tier), item, (*AT, "tiers", index))
    return None if checked is None else Tier(**fields_of(checked, TIER_NAMES))


def _changed_tiers(changes: dict[str, Any], base: Cluster, reading: DocumentReader) -> tuple[Tier, ...] | None:
    known = [tier.name for tier in base.tiers]
    made: dict[str, Tier] = {tier.name: tier for tier in base.tiers}
    n_before = len(reading.found)
    for name, change in changes.items():
        path = (*AT, "tiers", name)
        if name not in made:
            hint = did_you_mean(name, known, f"; {base.name} has {', '.join(known)}")
            reading.refuse(path, f"unknown tier{hint}")
            continue
        checked = reading.validated(section_of(Tier, True), change, path)
        if checked is not None:
            made[name] = replace(made[name], **fields_of(checked, TIER_NAMES))
    return tuple(made.values()) if len(reading.found) == n_before else None

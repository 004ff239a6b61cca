"""Section `cluster.network` of a job document: a kind of network, and the fields of its dataclass.

Fields that end in `bytes_per_s`, `_bytes` or `_s` are written as quantities with a unit and without that ending:
`link_bytes_per_s` is `link_bandwidth: 50 GB/s`, `hop_latency_s` is `hop_latency: 1 us`. A library of collectives is written by
its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import BaseModel

from ...errors import Mistake, SpecError
from ...system.network import LIBRARIES, NETWORKS, CollectiveLibrary, Network, NetworkKind
from .document import Document, Path, short
from .mistakes import validated
from .schema import BANDWIDTH, BYTES, TIME, fields_of, one_of, section
from .sections import attempt

AT: Path = ("cluster", "network")
QUANTITIES = (("bytes_per_s", "bandwidth", BANDWIDTH), ("_bytes", "", BYTES), ("_s", "", TIME))


def network_kind(value: Any, document: Document, found: list[Mistake]) -> NetworkKind | None:
    """The kind that the section names; a text alone is a kind."""
    if not isinstance(value, (str, dict)) or not value:
        state = "is empty" if value in (None, "", {}) else short(value)
        remedy = "it must be a kind of network (`prism-jax show networks`) or a mapping of fields"
        found.append(document.mistake(AT, f"{state}; {remedy}"))
        return None
    path, name = (AT, value) if isinstance(value, str) else ((*AT, "kind"), value.get("kind"))
    if not isinstance(name, str) or not name:
        state = "is missing" if name is None else f"{short(name)}, but it must be a text"
        found.append(document.mistake(path, f"{state}; kinds are {', '.join(NETWORKS.names)}"))
        return None
    return attempt(lambda: NETWORKS.named(name), document, path, found)


def read_network(
    kind: NetworkKind, value: Any, cluster: Mapping[str, Any], document: Document, found: list[Mistake]
) -> Network | None:
    """The network that the section describes.

    Args:
        cluster: tiers, generation, node_size and n_devices, for a kind that has them as fields.
    """
    written = {} if isinstance(value, str) else {name: item for name, item in value.items() if name != "kind"}
    checked = validated(network_section(kind), written, document, AT, found)
    if checked is None:
        return None
    given = _plain(kind, fields_of(checked, written_names(kind)))
    given |= {name: cluster[name] for name in kind.from_cluster}
    return attempt(lambda: _made(kind, given), document, AT, found)


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

"""Devices and clusters by name, read once from `devices.toml` and `clusters.toml` (TFLOP/s, MiB, GB/s, us), in SI units.

Look-up is tolerant: case, `-`, `_`, spaces, owner, vendor words and form-factor digits do not matter; an unknown name is answered
with the nearest known ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from ..core.errors import SpecError
from .hardware import Cluster, Device
from .network import Tier

_IGNORED = re.compile(r"\([^()]*\)|^[\w-]+/|\b(nvidia|amd|instinct|tesla|meta|hf)\b")
_FORM_FACTOR = re.compile(r"sxm\d")
_SEPARATORS = re.compile(r"[\s_/-]+")


def normalised(name: str) -> str:
    """`name` as it is compared: "NVIDIA A100-SXM4-80GB" is "a100_sxm_80gb", "org/Llama-2-7b-hf" is "llama-2-7b"."""
    text = _IGNORED.sub(" ", name.lower().replace("_", "-"))
    return _SEPARATORS.sub("", _FORM_FACTOR.sub("sxm", text))


class NameTable:
    """Canonical names and their aliases.

    Args:
        kind: kind of the named things, for error messages: "device", "cluster", "model".
        aliases: canonical name -> further names.
        remedy: other remedy for an unknown name; `{near}` in it stands for the nearest known one.
    """

    def __init__(self, kind: str, aliases: Mapping[str, Iterable[str]], remedy: str = "") -> None:
        self.kind = kind
        self.remedy = remedy
        self.names = tuple(aliases)
        self._by_key: dict[str, str] = {}
        for name, others in aliases.items():
            for text in (name, *others):
                key = normalised(text)
                if self._by_key.setdefault(key, name) != name:
                    raise ValueError(f"{kind} name {text!r} stands for both {self._by_key[key]} and {name}")

    def find(self, text: str) -> str:
        """Returns the canonical name of `text`.

        Raises:
            SpecError: no such name; the message lists the nearest known ones.
        """
        key = normalised(text) if isinstance(text, str) else ""
        if key in self._by_key:
            return self._by_key[key]
        near = [self._by_key[match] for match in get_close_matches(key, self._by_key, n=6, cutoff=0.6)]
        near = list(dict.fromkeys(near))[:3]
        remedy = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(self.names)}."
        other = self.remedy.replace("{near}", near[0] if near else self.names[0])
        raise SpecError(f"unknown {self.kind} {text!r}. {remedy}{other}")

    def known(self, text: str) -> str | None:
        """Canonical name of `text`; None if there is none."""
        return self._by_key.get(normalised(text))


def load_toml(package: str, name: str) -> dict[str, Any]:
    """A preset file `presets/<name>` that ships inside `package`."""
    import tomllib  # only needed when a preset is asked for

    return tomllib.loads(_preset_text(package, name))


def load_json(package: str, name: str) -> dict[str, Any]:
    """Reads a JSON file that ships with a package."""
    return json.loads(_preset_text(package, name))


def _preset_text(package: str, name: str) -> str:
    return (files(package) / "presets" / name).read_text(encoding="utf-8")


_MIB = 2.0**20
_LIKE = " A job file describes other devices by their likeness to a known one: `device: {like: {near}, power: 500 W}`."
_PACKAGE = __name__.rpartition(".")[0]


@cache
def _devices() -> dict[str, dict[str, Any]]:
    return load_toml(_PACKAGE, "devices.toml")


@cache
def _clusters() -> dict[str, dict[str, Any]]:
    return load_toml(_PACKAGE, "clusters.toml")


@cache
def _device_table() -> NameTable:
    return NameTable("device", {name: entry.get("aliases", []) for name, entry in _devices().items()}, _LIKE)


@cache
def _cluster_table() -> NameTable:
    return NameTable("cluster", {name: entry.get("aliases", []) for name, entry in _clusters().items()})


def device_names() -> tuple[str, ...]:
    """Canonical names of all preset devices."""
    return _device_table().names


def cluster_names() -> tuple[str, ...]:
    """Canonical names of all preset clusters."""
    return _cluster_table().names


def device(name: str) -> Device:
    """The preset device of that name, in SI units.

    Raises:
        SpecError: no such device; the message names the nearest ones.
    """
    return _build_device(_device_table().find(name))


def known_device(text: str) -> str | None:
    """Canonical name of the preset device that `text` names; None if there is none."""
    return _device_table().known(text)


def known_cluster(text: str) -> str | None:
    """Canonical name of the preset cluster that `text` names; None if there is none."""
    return _cluster_table().known(text)


def is_called(name: str, wanted: Device) -> bool:
    """Whether a table's name of a GPU means that device."""
    try:
        return device(name).name == wanted.name
    except SpecError:
        return name.strip().lower() == wanted.name.lower()


@cache
def _build_device(name: str) -> Device:
    entry = _devices()[name]
    return Device(
        name=name,
        peak_flops_per_s={dtype: peak * 1e12 for dtype, peak in entry["peak_tflops"].items()},
        hbm_bytes=entry["hbm_mib"] * _MIB,
        hbm_bytes_per_s=entry["hbm_gb_per_s"] * 1e9,
        power_watts=float(entry["power_watts"]),
        n_sm=entry["n_sm"],
        source=entry["source"],
        generation=entry["generation"],
        likeness_sd=entry.get("likeness_sd", 0.0),
    )


def cluster(name: str, n_devices: int) -> Cluster:
    """The preset cluster of that name with `n_devices` devices.

    Args:
        name: of the template; its outermost tier grows to span all devices.
        n_devices: devices of the job, at least 1.

    Raises:
        SpecError: no such cluster, or `n_devices` is not a whole number of at least 1.
    """
    key = _cluster_table().find(name)
    entry = _clusters()[key]
    return Cluster(
        name=key,
        device=device(entry["device"]),
        tiers=_tiers(entry["tiers"], _checked_count(key, n_devices)),
        n_devices=n_devices,
        node_size=entry["node_size"],
        source=entry["source"],
        host_bytes=entry["host_gib"] * 2.0**30 if "host_gib" in entry else None,
    )


def default_cluster(device_name: str, n_devices: int) -> Cluster:
    """The cluster that is usually built of a device: the reference design of its vendor.

    Raises:
        SpecError: no such device, or no preset cluster is built of it.
    """
    found = device(device_name)
    for key, entry in _clusters().items():
        if found.name in entry.get("default_for", []):
            return replace(cluster(key, n_devices), device=found)
    raise SpecError(
        f"no preset cluster is built of {found.name}. Describe its tiers, or use {', '.join(cluster_names())}."
    )


def _checked_count(name: str, n_devices: int) -> int:
    if isinstance(n_devices, bool) or not isinstance(n_devices, int) or n_devices < 1:
        raise SpecError(f"cluster {name}: n_devices = {n_devices!r}, but it must be a whole number of at least 1")
    return n_devices


def _tiers(entries: list[dict[str, Any]], n_devices: int) -> tuple[Tier, ...]:
    """Tiers in SI units; the outermost spans all devices, at least as many as the tier inside it."""
    inner = max((entry["n_devices"] for entry in entries[:-1]), default=1)
    return tuple(
        Tier(
            name=entry["name"],
            n_devices=entry.get("n_devices", max(n_devices, inner)),
            bytes_per_s=entry["gb_per_s"] * 1e9,
            latency_s=entry["latency_us"] * 1e-6,
            oversubscription=entry.get("oversubscription", 1.0),
            in_switch=entry.get("in_switch", False),
            source=entry["source"],
        )
        for entry in entries
    )

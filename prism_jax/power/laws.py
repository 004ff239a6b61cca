"""The law of a GPU's power: that of its name, of its generation, or of all GPUs measured; none of devices that are no GPUs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from .law import PowerLaw


class GpuKind(Protocol):
    """What decides which law holds; `system.Device` is one.

    Attributes:
        name: of the preset, or one's own.
        like: preset that it resembles; empty if there is none.
        generation: key of its generation.
        power_watts: its power limit.
    """

    @property
    def name(self) -> str: ...
    @property
    def like(self) -> str: ...
    @property
    def generation(self) -> str: ...
    @property
    def power_watts(self) -> float: ...


def power_law(device: GpuKind) -> PowerLaw | None:
    """The law of a device; None of those that no law of this form is known to hold for (TPU and others that are no GPUs)."""
    kept = _presets()
    by_device, by_generation = kept["device"], kept["generation"]
    if device.generation in kept["without"]:
        return None
    for found, key in (
        (by_device, device.name),
        (by_device, device.like),
        (by_generation, device.generation),
    ):
        if key in found:
            return _law(key, found is by_device)
    return _law("", False)


@cache
def _law(key: str, is_device: bool) -> PowerLaw:
    kept = _presets()
    own = kept["device" if is_device else "generation"][key] if key else {}
    every = kept["population"]
    merged: dict[str, Any] = every | own
    merged |= {name: every[name] | own.get(name, {}) for name in ("busy", "bound")}
    return PowerLaw(**merged)


@cache
def _presets() -> dict[str, Any]:
    import tomllib  # only needed when a preset is asked for

    return tomllib.loads((files(__package__) / "presets" / "power.toml").read_text(encoding="utf-8"))

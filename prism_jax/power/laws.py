"""The law of a GPU's power: that of its generation, or of all GPUs measured; none of devices that are no GPUs."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from .law import PowerLaw

_PACKAGE = __name__.rpartition(".")[0]


class GpuKind(Protocol):
    """What decides which law holds; `system.Device` is one.

    Attributes:
        generation: key of its generation.
        power_watts: its power limit.
    """

    @property
    def generation(self) -> str: ...
    @property
    def power_watts(self) -> float: ...


def power_law(device: GpuKind) -> PowerLaw | None:
    """The law of a device; None of those that no law of this form is known to hold for (TPU and others that are no GPUs)."""
    kept = _presets()
    if device.generation in kept["without"]:
        return None
    return _law(device.generation) if device.generation in kept["generation"] else population_law()


def population_law() -> PowerLaw:
    """The law of a GPU that nothing was measured of."""
    return _law("")


@cache
def _law(generation: str) -> PowerLaw:
    kept = _presets()
    own, every = kept["generation"].get(generation, {}), kept["population"]
    merged: dict[str, Any] = every | own
    merged |= {name: every[name] | own.get(name, {}) for name in ("busy", "bound")}
    return PowerLaw(**merged)


@cache
def _presets() -> dict[str, Any]:
    import tomllib  # only needed when a preset is asked for

    return tomllib.loads((files(_PACKAGE) / "presets" / "power.toml").read_text(encoding="utf-8"))

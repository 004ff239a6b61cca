"""Setting: what the corrections of a job depend on, and the members of the levels that it belongs to."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ..framework.catalog import style_of
from ..system.hardware import Device


class Level(StrEnum):
    """What the members of a term share; the value is its name in files."""

    ALL = "all"
    GENERATION = "generation"
    DEVICE = "device"
    STYLE = "style"
    GENERATION_STYLE = "generation style"
    FRAMEWORK = "framework"


LEVELS = tuple(Level)


class Setting(NamedTuple):
    """What the knobs of a job depend on; empty where it is not known.

    Attributes:
        generation: of the device.
        framework: training software, one of `framework.catalog.FRAMEWORKS`.
        device: name of the device.
    """

    generation: str
    framework: str = ""
    device: str = ""

    @classmethod
    def of(cls, device: Device, framework: str = "") -> Setting:
        """The setting of a device and a framework; an empty framework is an unknown one."""
        return cls(device.generation, framework, device.name)

    def members(self) -> dict[str, str]:
        """The member of every level that it belongs to; empty where that is not known."""
        style = style_of(self.framework)
        both = f"{self.generation} {style}" if style else ""
        return dict(zip(LEVELS, ("all", self.generation, self.device, style, both, self.framework), strict=True))

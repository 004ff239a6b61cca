"""Setting: what the corrections of a job depend on, and the members of the levels that it belongs to."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from ..framework import Framework, framework_of, style_of
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
UNLIKE_DEVICES = ("tpu",)  # generations whose name stands for a line of different chips; elsewhere devices share one


class CalibrationKey(NamedTuple):
    """What the knobs of a job depend on; empty where it is not known.

    Attributes:
        generation: of the device.
        framework: training software, a name in `framework.FRAMEWORKS`.
        device: name of the device.
        style: of the framework; None: as the framework of that name has it.
    """

    generation: str
    framework: str = ""
    device: str = ""
    style: str | None = None

    @classmethod
    def of(cls, device: Device, framework: str | Framework = "") -> CalibrationKey:
        """The setting of a device and a framework; an empty framework is an unknown one.

        Raises:
            SpecError: no framework has that name.
        """
        own = framework_of(framework)
        return cls(device.generation, own.name, device.name, own.style)

    def members(self) -> dict[str, str]:
        """The member of every level that it belongs to; empty where that is not known, or where a level has no members.

        Devices of one generation differ by their figures (peaks, bandwidths) and by nothing else: what the sites of one device
        have in common would otherwise make a device slower than another that is better in every figure.
        """
        style = style_of(self.framework) if self.style is None else self.style
        both = f"{self.generation} {style}" if style else ""
        device = self.device if self.generation in UNLIKE_DEVICES else ""
        return dict(zip(LEVELS, ("all", self.generation, device, style, both, self.framework), strict=True))

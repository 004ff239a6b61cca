"""LadderSeconds: a share of a measured step on another device, by its datasheet."""

from __future__ import annotations

from dataclasses import dataclass

from ..._core.arrays import Values
from ...errors import SpecError
from ...system.hardware import Device

PRECISIONS = ("bf16", "fp16", "fp32")  # in which two devices are compared, best first


@dataclass(frozen=True)
class LadderSeconds:
    """Seconds on the device that was measured, and by how much another one is slower.

    A step follows the geometric mean of peak and bandwidth: about half of it is products, half passes over memory.

    Attributes:
        measured_s: on that device.
        peaks: FLOP/s of it by precision, as pairs.
        hbm_bytes_per_s: of it.
        dtype: of the plan.
        in_step: its seconds were measured in a step: no loss against kernels alone is added.
    """

    measured_s: float
    peaks: tuple[tuple[str, float], ...]
    hbm_bytes_per_s: float
    dtype: str
    in_step: bool = True

    def seconds(self, device: Device, cache_bytes: float) -> Values:
        """On a device, whatever its cache."""
        return self.measured_s * slowness(self.peaks, self.hbm_bytes_per_s, device, self.dtype)


def slowness(peaks: tuple[tuple[str, float], ...], hbm_bytes_per_s: float, device: Device, dtype: str) -> Values:
    """Seconds on `device` over seconds on a device of those speeds.

    Raises:
        SpecError: both have no precision in common.
    """
    known = dict(peaks)
    for name in (dtype, *PRECISIONS):
        if name in known and name in device.peak_flops_per_s:
            peak = known[name] / device.peak_flops_per_s[name]
            return (peak * hbm_bytes_per_s / device.hbm_bytes_per_s) ** 0.5
    raise SpecError(f"{device.name} and the device that was measured have no precision in common")


def same_as(device: Device) -> tuple[tuple[str, float], ...]:
    """Peaks of a device as pairs, which compare and hash."""
    return tuple(sorted((name, float(device.peak_flops_per_s[name])) for name in device.peak_flops_per_s))

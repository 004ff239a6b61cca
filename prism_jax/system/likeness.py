"""A device that is like a known one: stated figures replace its own, the rest is taken over; and how far that may err.

A power limit below that of the known device lowers the clock of its matrix products, as its law of power says
(`power.PowerLaw.clock_under`), and their peaks with it; memory keeps its own clock and rate. A preset with a lower limit of its
own (h100-pcie) has peaks of its own, and is scaled from these. Exponents of measured GPUs lie between 2 and 4, which is why
the clock is uncertain.

A generation's shares of its peak (`cost.efficiency`) hold for one board; PCIe cards run products on tensor cores at lower clocks
than boards on sockets. On another board

    speed = min(most, g^-1(w))          w = (watts / peak) of this board, over that of the measured one

where g is what dynamic power makes of the clock, by the law of power of the generation. So A100 PCIe (300 W for the peak of 400)
reaches 0.92 of A100 SXM's share, L4 0.83 and L40 1.22 of L40S's, GB300 (1,400 W for GB200's peak) 1.15 of GB200's. On a measured
board itself the speed is 1. More peak on the same watts is never slower; a limit above that of the known device counts in the
same way. Products on CUDA cores have an energy per FLOP of their own (`Efficiency.flop_joules`). Attention runs at that speed;
what it does apart from products takes as long on a board whose tensor cores are cut (`tensor_core_cut`), as those of H20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import exp, hypot, log
from typing import Any

from ..core.arrays import Values, namespace
from ..core.errors import Problem, SpecError
from . import catalog
from .catalog import load_toml
from .hardware import Device
from .power import population_law, power_law

# Logarithmic standard deviations of the step time.
# SAME_KIND: what matrix products of devices of one generation were expected to differ by before any run (`gemm` at level `device`
#     in inference/cost_model/step_times.py).
# POWER_SD, per unit of log power: exponents from 1/3 to 2/3, half of that apart.
# SHARE_SD, per unit of log rate: shares of the peak fall as peaks grow (gemm_max in cost/presets/efficiency.toml: 0.87 of A100's,
#     0.81 of H100's, 0.69 of B200's peak, which are 3.2 and 7.2 times A100's: 0.06 and 0.12, and 0.19 from H100 to B200).
SAME_KIND = 0.05
POWER_SD = 1 / 6
SHARE_SD = 0.15
_SIDE = 1.645  # standard deviations to either side of a 90% interval


def device_like(
    like: str | Device, *, name: str = "", peak_flops_per_s: Mapping[str, float] | None = None, **figures: Any
) -> Device:
    """A device made from a known one.

    Args:
        like: a preset's name, or a Device.
        name: its own; by default that of `like` with "-like" behind.
        peak_flops_per_s: dtype -> dense peak. Other dtypes of `like` change in proportion; a power limit changes none then.
        figures: other fields of `Device` in SI units, such as `power_watts`, `hbm_bytes`, `hbm_bytes_per_s`, `likeness_sd`.

    Raises:
        SpecError: no such device, or an impossible figure.

    Example:
        >>> round(device_like("h100-sxm", power_watts=500).peak("bf16") / 1e12)
        882
    """
    base = catalog.device(like) if isinstance(like, str) else like
    power = figures.get("power_watts", base.power_watts)
    peaks = _peaks(base, peak_flops_per_s, power)
    sd = _likeness_sd(base, peaks, figures.get("hbm_bytes_per_s", base.hbm_bytes_per_s), power, bool(peak_flops_per_s))
    known = base.like or base.name
    about = {"like": known, "likeness_sd": sd, "source": f"like {known}", "name": name or f"{known}-like"}
    return replace(base, **(about | {"peak_flops_per_s": peaks} | figures))


def device_notes(device: Device) -> tuple[str, ...]:
    """Returns notes, in words, on the accuracy of predictions for a device that is only known by its likeness to another."""
    if not device.likeness_sd:
        return ()
    known = f"device like {device.like}" if device.like else f"no device of the kind of {device.name} was calibrated"
    wide = (
        f"{exp(_SIDE * device.likeness_sd) - 1.0:.0%} to either side (log standard deviation {device.likeness_sd:.3f})"
    )
    return (f"{known}: interval widened by {wide}",)


def _peaks(base: Device, stated: Mapping[str, float] | None, power: float) -> dict[str, float]:
    """Dense peaks: as stated, the others in proportion; without any, lower by the clock at a lower power limit."""
    if stated:
        own = base.peak_flops_per_s
        ratios = [log(peak / own[dtype]) for dtype, peak in stated.items() if dtype in own and peak > 0]
        scale = exp(sum(ratios) / len(ratios)) if ratios else 1.0
    else:
        scale = _clock(base, power)
    return {dtype: peak * scale for dtype, peak in base.peak_flops_per_s.items()} | dict(stated or {})


def _clock(base: Device, power: float) -> float:
    """Returns the clock of matrix products at a power limit, over that at the limit of `base`."""
    if not 0 < power < base.power_watts:
        return 1.0
    law = power_law(base) or population_law()
    least = float(law.share(law.lowest_clock, law.busy["gemm"])) * base.power_watts
    if power < least:
        told = f"{power:g} W, but {base.name} draws {least:.0f} W at its lowest clock. State {least:.0f} W or more"
        raise SpecError.of(Problem("power_watts", f"{told}, or the peaks of the device."))
    return float(law.clock_under(power / base.power_watts, law.busy["gemm"]))


def _likeness_sd(base: Device, peaks: Mapping[str, float], bytes_per_s: float, power: float, has_peaks: bool) -> float:
    """Logarithmic standard deviation by which the likeness is uncertain; that of `base` counts too."""
    shared = next(iter(base.peak_flops_per_s))
    changed = [
        0.0 if has_peaks else POWER_SD * _log_ratio(power, base.power_watts),
        SHARE_SD * _log_ratio(peaks[shared], base.peak_flops_per_s[shared]) if has_peaks else 0.0,
        SHARE_SD * _log_ratio(bytes_per_s, base.hbm_bytes_per_s),
    ]
    return hypot(SAME_KIND, base.likeness_sd, *changed)


def _log_ratio(figure: float, other: float) -> float:
    return log(figure / other) if figure > 0 else 0.0


_RATED = "fp16"  # the format whose peak is compared; those of most others are multiples of it
_APART = ("fp4",)  # and these are compared in their own: B300 has B200's peaks but in fp4, which is 1.5 times as high


def board_speed(device: Device, dtype: str = _RATED) -> Values:
    """Speed of products in a format on tensor cores over that by the generation's shares; 1 where no law is known.

    Notes:
        A device that is like a preset has that one's speed at its own limit or above: a lower limit has lowered its peaks
        already (`system.likeness`). Peaks and watts of a device of its own may be traced by JAX.
    """
    known = catalog.known_device(device.like or device.name)
    of = dtype if dtype in _APART else _RATED
    if not known:
        return _speed(device, _reference(device.generation), of)
    return _speed_of_preset(known, max(device.power_watts, catalog.device(known).power_watts), of)


def tensor_core_cut(device: Device) -> Values:
    """Peak of a multiprocessor over that on the board where the shares of the generation were measured, 1 at most."""
    board = _reference(device.generation, catalog.known_device(device.like or device.name) or "")
    if not board or _RATED not in device.peak_flops_per_s:
        return 1.0
    measured = catalog.device(board)
    own = (device.peak(_RATED) / device.n_sm) / (measured.peak(_RATED) / measured.n_sm)
    return namespace(own).minimum(own, 1.0)


@cache
def _speed_of_preset(name: str, power_watts: float, of: str) -> float:
    own = catalog.device(name)
    return float(_speed(replace(own, power_watts=power_watts), _reference(own.generation, name), of))


def _reference(generation: str, name: str = "") -> str:
    """The board that devices of a generation, or the preset of that name, are compared with; empty: there is none."""
    own = _table().get(generation, {})
    return own.get("package", {}).get(name) or own.get("board", "")


def _speed(device: Device, reference: str, of: str) -> Values:
    if not reference or of not in device.peak_flops_per_s:
        return 1.0
    board = catalog.device(reference)
    room = (device.power_watts / device.peak(of)) / (board.power_watts / board.peak(of))
    law = power_law(device) or population_law()
    return namespace(room).minimum(_table()[device.generation]["most"], law.clock_at(room))


@cache
def _table() -> dict[str, dict[str, Any]]:
    return load_toml(__name__.rpartition(".")[0], "boards.toml")

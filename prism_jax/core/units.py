"""Quantities as people write them ("400 Gbit/s", "80 GiB", "12 us") to SI floats, and SI floats to text.

Bits are not bytes and GB is not GiB: every unit has one meaning, its case matters, and a text whose unit has two
("Gb") is refused. Texts are parsed once, where a file is read; beyond that there are plain floats.
"""

from __future__ import annotations

import math
import re
from difflib import get_close_matches

from .errors import UnitError

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
_BITS = {f"{prefix}bit": factor / 8 for prefix, factor in (_DECIMAL | _BINARY).items()}
_INFORMATION = _BYTES | _BITS
_BIT_RATES = {f"{prefix}bps": factor / 8 for prefix, factor in _DECIMAL.items()}

UNITS: dict[str, dict[str, float]] = {
    "memory": _INFORMATION,
    "bandwidth": {f"{unit}/s": factor for unit, factor in _INFORMATION.items()} | _BIT_RATES,
    "compute rate": {f"{p}{u}": f for p, f in _DECIMAL.items() for u in ("FLOP/s", "FLOPS")},
    "time": {
        "s": 1.0,
        "ms": 1e-3,
        "us": 1e-6,
        "µs": 1e-6,
        "μs": 1e-6,
        "ns": 1e-9,
        "min": 60.0,
        "h": 3600.0,
        "d": 86400.0,
    },
    "power": {f"{prefix}W": factor for prefix, factor in _DECIMAL.items()},
}
EXAMPLE = {
    "memory": "80 GiB",
    "bandwidth": "400 Gbit/s",
    "compute rate": "989 TFLOP/s",
    "time": "12 us",
    "power": "700 W",
}
_WRITTEN = {
    "memory": ("GiB", "MiB", "GB", "B"),
    "bandwidth": ("GB/s", "TB/s", "MB/s"),
    "compute rate": ("TFLOP/s", "GFLOP/s"),
    "time": ("us", "ms", "s", "ns"),
    "power": ("W", "kW"),
}  # units that read well
_AMBIGUOUS = re.compile(r"([kKMGTP]i?)b(/s)?")
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>\S.*)?", re.DOTALL
)  # what follows a number is a unit, whatever it is: nothing is tried twice


def parse(text: object, kind: str) -> float:
    """SI value of `text`, a non-negative number with a unit of `kind` (a key of `UNITS`).

    Raises:
        UnitError: no number, no unit, an unknown, ambiguous or foreign unit, or a negative or infinite value.
    """
    remedy = f'Write {kind} with its unit, for example "{EXAMPLE[kind]}".'
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        raise UnitError(f"{text} has no unit. {remedy}")
    match = _QUANTITY.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise UnitError(f"{text!r} is not a quantity. {remedy}")
    unit = match["unit"]
    if unit is None:
        raise UnitError(f"{text!r} has no unit. {remedy}")
    value = float(match["number"]) * _factor(unit, kind, remedy)
    if value < 0 or not math.isfinite(value):
        raise UnitError(f"{text!r} is out of range: it must be finite and not negative")
    return value


def seconds_of(option: str, text: str) -> float:
    """Seconds of an option such as "3h" or "10min".

    Raises:
        UnitError: it is no time; names the option.
    """
    try:
        return parse(text, "time")
    except UnitError as error:
        raise UnitError(f"{option}: {error}") from None


def _factor(unit: str, kind: str, remedy: str) -> float:
    unit = unit.replace(" ", "")
    if unit in UNITS[kind]:
        return UNITS[kind][unit]
    ambiguous = _AMBIGUOUS.fullmatch(unit)
    if ambiguous:
        prefix, per_s = ambiguous[1], ambiguous[2] or ""
        raise UnitError(f"unit {unit!r} may mean bits or bytes: write {prefix}bit{per_s} or {prefix}B{per_s}")
    for other, units in UNITS.items():
        if unit in units:
            raise UnitError(f"unit {unit!r} is a unit of {other}, not of {kind}. {remedy}")
    same_letters = [known for known in UNITS[kind] if known.lower() == unit.lower()]
    near = same_letters or get_close_matches(unit, UNITS[kind], n=1)
    if near:
        raise UnitError(f"unknown unit {unit!r}, did you mean {near[0]}?")
    raise UnitError(f"unknown unit {unit!r}. {remedy}")


def exact(value: float, kind: str) -> str:
    """The shortest text that `parse` turns back into exactly `value`, an SI number of `kind` (a key of `UNITS`)."""
    texts = (f"{number} {unit}" for unit in _WRITTEN[kind] if (number := _exact_number(value, UNITS[kind][unit])))
    base = next(unit for unit, factor in UNITS[kind].items() if factor == 1.0)
    return min(texts, key=len, default=f"{float(value)!r} {base}")


def _exact_number(value: float, factor: float) -> str:
    """Digits, without an exponent, that times `factor` are exactly `value`; empty where there are none."""
    for digits in range(1, 18):
        text = f"{value / factor:.{digits}g}"
        if "e" not in text and float(text) * factor == value:
            return text
    return ""


def format_s(seconds: float, digits: int = 4) -> str:
    """Seconds with the unit that reads best: "10.32 s", "12.5 ms", "3 us"."""
    return _scaled(seconds, {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}, digits)


def format_bytes(n_bytes: float, digits: int = 4) -> str:
    """Bytes in binary units: "74.51 GiB"."""
    return _scaled(n_bytes, {"TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10, "B": 1.0}, digits)


def format_bytes_per_s(bytes_per_s: float, digits: int = 4) -> str:
    """Bandwidth in decimal bytes: "450 GB/s"."""
    return _scaled(bytes_per_s, {"TB/s": 1e12, "GB/s": 1e9, "MB/s": 1e6, "kB/s": 1e3, "B/s": 1.0}, digits)


def format_flops_per_s(flops_per_s: float, digits: int = 4) -> str:
    """Compute rate: "989.4 TFLOP/s"."""
    units = {"EFLOP/s": 1e18, "PFLOP/s": 1e15, "TFLOP/s": 1e12, "GFLOP/s": 1e9, "MFLOP/s": 1e6, "FLOP/s": 1.0}
    return _scaled(flops_per_s, units, digits)


def format_watts(watts: float, digits: int = 4) -> str:
    """Power: "700 W", "1.2 kW"."""
    return _scaled(watts, {"MW": 1e6, "kW": 1e3, "W": 1.0}, digits)


def format_count(count: float, digits: int = 4) -> str:
    """A large count with K, M, B (1e9) or T (1e12): "405.9 B"."""
    return _scaled(count, {"T": 1e12, "B": 1e9, "M": 1e6, "K": 1e3, "": 1.0}, digits)


IN_NAMES = {  # end of a name, or of what it is in -> how such a number is written
    "flops_per_s": format_flops_per_s,
    "bytes_per_s": format_bytes_per_s,
    "_per_s": "{:,.4g}".format,
    "_bytes": format_bytes,
    "_watts": format_watts,
    "_s": format_s,
}


def format_named(name: str, value: float) -> str:
    """A number with the unit that its name, or that of what it is in, ends in; a number without one as it is.

    Example:
        >>> format_named("step_s", 0.0025), format_named("n_layers", 126)
        ('2.5 ms', '126')
    """
    written = next((text for end, text in IN_NAMES.items() if name.endswith(end) or f"{end}." in name), None)
    if written is not None:
        return written(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _scaled(value: float, units: dict[str, float], digits: int) -> str:
    """`value` in the largest unit that is not larger than it, rounded to `digits` significant digits."""
    if not math.isfinite(value):
        return f"{value} {next(iter(units))}".strip()
    rounded = float(f"{value:.{digits}g}")
    name, factor = next(((n, f) for n, f in units.items() if abs(rounded) >= f), list(units.items())[-1])
    if value == 0:
        name, factor = next((n, f) for n, f in units.items() if f == 1.0)
    scaled = float(f"{value / factor:.{digits}g}")
    text = f"{scaled:.{max(0, digits - 1 - _exponent(scaled))}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {name}".strip()


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0

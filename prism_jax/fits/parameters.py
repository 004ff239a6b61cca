"""Parameters of a fit as names and texts, with their 90% intervals, each by the unit in its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.units import format_s

INTERVALS = "variance_share_intervals"  # level -> median, p5, p95
SKIPPED = ("variance_of", "variance_shares", INTERVALS, "notes", "unlike")  # no parameters
RATE = "_bytes_per_s"


def groups(title: str, values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Titles and figures, those on top first; an interval is one figure."""
    own: dict[str, str] = {}
    below: list[tuple[str, Mapping[str, Any]]] = []
    for name, part in values.items():
        named, text, ends = label(str(name)), _text_of(str(name)), _interval(part)
        if ends is not None:
            own[named] = _with_interval(ends, text)
        elif name == "variance_shares":
            continue  # with their intervals
        elif isinstance(part, Mapping):
            below.append((f"{title}, {named}" if title else named, part))
        elif isinstance(part, (list, tuple)) and (not part or isinstance(part[0], Mapping)):
            continue  # notes tell of members that are named
        elif isinstance(part, (list, tuple)):
            own[named] = ", ".join(text(item) for item in part)
        elif part is not None:
            own[named] = text(part)
    yield title, own
    for name, part in below:
        yield from groups(name, part)


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter: its 5%, median and 95%, and the text of these."""

    name: str
    low: float
    middle: float
    high: float
    text: str


def parameters_of(values: Mapping[str, Any], title: str = "") -> Iterator[Parameter]:
    """Parameters with an interval in what a model says of itself, those on top first."""
    for name, part in values.items():
        named, ends = f"{title} {label(str(name))}".strip(), _interval(part)
        if ends is not None:
            yield Parameter(named, *ends, _with_interval(ends, _text_of(str(name))))
        elif isinstance(part, Mapping) and name not in SKIPPED:
            yield from parameters_of(part, named)


def _interval(part: Any) -> tuple[float, float, float] | None:
    """5%, median and 95%, where `part` is these."""
    if isinstance(part, Mapping) and set(part) == {"median", "p5", "p95"}:
        return part["p5"], part["median"], part["p95"]
    is_three = isinstance(part, list) and len(part) == 3 and all(isinstance(one, float) for one in part)
    return tuple(part) if is_three else None


def _with_interval(ends: tuple[float, float, float], text: Callable[[Any], str]) -> str:
    low, middle, high = map(text, ends)
    return f"{middle} ({low} to {high})"


def _text_of(name: str) -> Callable[[Any], str]:
    """Writes a value, by the unit in its name."""
    return _seconds if _is_time(name) else _rate if name.endswith(RATE) else _number


def _rate(value: Any) -> str:
    return f"{value / 1e9:.4g} GB/s" if isinstance(value, (int, float)) else _number(value)


def _is_time(name: str) -> bool:
    return name.endswith("_s") and not name.endswith("_per_s") and not name.startswith("log_")


def label(name: str) -> str:
    """Plain words of a name; a time or rate has its unit in its value."""
    words = name.removesuffix("_s") if _is_time(name) else name.replace(RATE, "_bandwidth")
    return words.replace("_", " ")


def _seconds(value: Any) -> str:
    return format_s(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _number(value)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "unknown" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

"""A `Reliability` from plain data: a preset, or a file of the user's own.

A cause is stated by its rates (`per_gpu_h`, `per_node_h`, `per_job_h`, events per hour) or by what was counted (`events` on
`per: gpu | node | job`, over what `observed` says). Counts know how well they know a rate: the logarithm of a rate from n events
has the standard deviation 1/√n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

from ..errors import Path, PrismError, SpecError
from ..hints import did_you_mean
from ..units import parse
from .reliability import Hazard, Reliability, SlowPhase

TOP = ("name", "source", "observed", "hazards", "slow_phases")
OBSERVED = ("n_gpus", "node_size", "hours")
RATES = ("per_gpu_h", "per_node_h", "per_job_h")
TIMES = {"noticed": "noticed_s", "repair": "repair_s", "duration": "duration_s"}  # written with a unit
HAZARD = ("cause", *RATES, "events", "per", "nodes_lost", "noticed", "repair", "repair_log_sd", "shape", "log_sd")
SLOW = ("cause", *RATES, "events", "per", "slowdown", "slowdown_log_sd", "duration", "duration_log_sd")
PER = ("gpu", "node", "job")
MOST_CAUSES = 64


@dataclass(frozen=True)
class Observed:
    """What events were counted on: a job of `n_gpus` GPUs in nodes of `node_size`, for `hours`."""

    n_gpus: float
    node_size: float
    hours: float

    def exposure_h(self, per: str) -> float:
        """GPU-hours, node-hours or job-hours."""
        counts = {"gpu": self.n_gpus, "node": ceil(self.n_gpus / self.node_size), "job": 1.0}
        return counts[per] * self.hours


def reliability_from_dict(data: Mapping[str, Any], path: Path = (), name: str = "reliability") -> Reliability:
    """The `Reliability` that plain data describes.

    Args:
        path: where the data stand in their file, for errors.
        name: where the data give none.

    Raises:
        SpecError: with the path of the field that is wrong, and what to write instead.
    """
    _check_fields(data, TOP, path)
    observed = _observed(data["observed"], (*path, "observed")) if "observed" in data else None
    hazards = [_hazard(one, observed, at) for at, one in _list(data, "hazards", path)]
    slow = [_slow_phase(one, observed, at) for at, one in _list(data, "slow_phases", path)]
    if not hazards and not slow:
        raise _wrong((*path, "hazards"), "is missing. State at least one cause of interruptions.")
    name, source = (_text(data, key, path, default) for key, default in (("name", name), ("source", "")))
    try:
        return Reliability(tuple(hazards), tuple(slow), name, source)
    except PrismError as error:
        raise _wrong((*path, *error.path), error.text) from None


def _hazard(data: Mapping[str, Any], observed: Observed | None, path: Path) -> Hazard:
    values = _cause(data, HAZARD, observed, path)
    return _built(Hazard, values, path)


def _slow_phase(data: Mapping[str, Any], observed: Observed | None, path: Path) -> SlowPhase:
    values = _cause(data, SLOW, observed, path)
    values.pop("log_sd", None)
    return _built(SlowPhase, values, path)


def _built(kind: Any, values: dict[str, Any], path: Path) -> Any:
    try:
        return kind(**values)
    except PrismError as error:
        raise _wrong((*path, *error.path), error.text) from None


def _cause(data: Mapping[str, Any], known: tuple[str, ...], observed: Observed | None, path: Path) -> dict[str, Any]:
    """Keyword arguments of a hazard or slow phase."""
    _check_fields(data, known, path)
    values: dict[str, Any] = {"cause": _text(data, "cause", path)}
    for key, value in data.items():
        if key in TIMES:
            values[TIMES[key]] = _seconds(value, (*path, key))
        elif key not in ("cause", "events", "per"):
            values[key] = _number(value, (*path, key))
    if "events" in data or "per" in data:
        values |= _counted(data, observed, path, "log_sd" in data)
    elif not any(rate in data for rate in RATES):
        raise _wrong(path, f"has no rate. Write one of {', '.join(RATES)}, or events and per.")
    return values


def _counted(data: Mapping[str, Any], observed: Observed | None, path: Path, has_sd: bool) -> dict[str, float]:
    """Rate per hour from a count, and how well it is known."""
    for key in ("events", "per"):
        if key not in data:
            raise _wrong((*path, key), "is missing: a count needs events and per (gpu, node or job)")
    stated = [rate for rate in RATES if rate in data]
    if stated:
        raise _wrong((*path, stated[0]), "cannot be combined with events. Keep one.")
    if observed is None:
        raise _wrong((*path, "events"), "needs the section observed (n_gpus, node_size, hours) that it was counted on")
    events, per = _number(data["events"], (*path, "events")), data["per"]
    if per not in PER:
        raise _wrong((*path, "per"), f"{per!r} must be one of {', '.join(PER)}{did_you_mean(per, PER, '')}")
    if not events > 0.0:
        raise _wrong((*path, "events"), f"{events:g}, but it must be above 0")
    rate = {f"per_{per}_h": events / observed.exposure_h(per)}
    return rate if has_sd else rate | {"log_sd": events**-0.5}


def _observed(data: Any, path: Path) -> Observed:
    _check_fields(data, OBSERVED, path)
    values = {key: _number(data[key], (*path, key)) for key in OBSERVED if key in data}
    for key in OBSERVED:
        if key not in values:
            raise _wrong((*path, key), "is missing")
        if not values[key] > 0.0:
            raise _wrong((*path, key), f"{values[key]:g}, but it must be above 0")
    return Observed(**values)


def _list(data: Mapping[str, Any], key: str, path: Path) -> list[tuple[Path, Any]]:
    found = data.get(key, [])
    if not isinstance(found, (list, tuple)):
        raise _wrong((*path, key), f"{type(found).__name__}, but it must be a list of causes")
    if len(found) > MOST_CAUSES:
        raise _wrong((*path, key), f"{len(found)} causes, but at most {MOST_CAUSES} are simulated. Join some.")
    return [((*path, key, i), one) for i, one in enumerate(found)]


def _check_fields(data: Any, known: tuple[str, ...], path: Path) -> None:
    if not isinstance(data, Mapping):
        raise _wrong(path, f"{type(data).__name__}, but it must be a mapping of fields")
    for key in data:
        if key not in known:
            raise _wrong((*path, key), f"unknown field{did_you_mean(key, known)}")


def _text(data: Mapping[str, Any], key: str, path: Path, default: str | None = None) -> str:
    if key not in data and default is not None:
        return default
    value = data.get(key)
    if not isinstance(value, str) or (not value and default is None):
        raise _wrong((*path, key), "is missing" if value is None else f"{value!r:.60}, but it must be a text")
    return value


def _number(value: Any, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise _wrong(path, f"{value!r:.60}, but it must be a finite number")
    return float(value)


def _seconds(value: Any, path: Path) -> float:
    try:
        return parse(value, "time")
    except PrismError as error:
        raise _wrong(path, str(error)) from None


def _wrong(path: Path, text: str) -> SpecError:
    return SpecError.at(path, text) if path else SpecError(text)

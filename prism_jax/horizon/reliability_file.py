"""Reads a `Reliability` by the name of a preset, or from a YAML or TOML file of the user's own.

A cause is stated by its rates (`per_gpu_h`, `per_node_h`, `per_job_h`, events per hour) or by what was counted (`events` on `per:
gpu | node | job`, over what `observed` says). Counts know how well they know a rate: the logarithm of a rate from n events has
the standard deviation 1/√n. Every mistake is found, not the first alone. `presets/reliability.toml` holds what was counted, and
where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, FieldPath, PrismError, SpecError
from ..core.registry import did_you_mean
from ..core.units import parse
from ..system.catalog import NameTable, load_toml
from ..tables.yaml_toml import read_mapping
from .reliability import Hazard, Reliability, SlowPhase

TOP = ("name", "source", "observed", "hazards", "slow_phases")
OBSERVED = ("n_gpus", "node_size", "hours")
RATES = ("per_gpu_h", "per_node_h", "per_job_h")
TIMES = {"noticed": "noticed_s", "repair": "repair_s", "duration": "duration_s"}  # written with a unit
HAZARD = ("cause", *RATES, "events", "per", "nodes_lost", "noticed", "repair", "repair_log_sd", "shape", "log_sd")
SLOW = ("cause", *RATES, "events", "per", "slowdown", "slowdown_log_sd", "duration", "duration_log_sd")
PER = ("gpu", "node", "job")
MOST_CAUSES = 64
DEVICES = "devices"  # key of presets alone: which devices the rates were counted on


@dataclass(frozen=True)
class Observed:
    """Job on which events were counted: `n_gpus` GPUs in nodes of `node_size`, for `hours`."""

    n_gpus: float
    node_size: float
    hours: float

    def exposure_h(self, per: str) -> float:
        """GPU-hours, node-hours or job-hours."""
        counts = {"gpu": self.n_gpus, "node": ceil(self.n_gpus / self.node_size), "job": 1.0}
        return counts[per] * self.hours


def reliability_from_dict(data: Mapping[str, Any], name: str = "reliability") -> Reliability:
    """The `Reliability` that plain data describes.

    Args:
        name: where the data give none.

    Raises:
        SpecError: the first mistake, with the path of the field that is wrong, and what to write instead.
    """
    found: list[SpecError] = []
    described = described_reliability(data, found, name)
    if described is None:
        raise found[0]
    return described


def described_reliability(data: Any, found: list[SpecError], name: str = "reliability") -> Reliability | None:
    """Reliability that `data` describe, or None after adding every mistake to `found`."""
    n_before = len(found)
    if not _are_fields(data, TOP, (), found):
        return None
    observed = _observed(data["observed"], ("observed",), found) if "observed" in data else None
    hazards = [_hazard(one, observed, at, found) for at, one in _list(data, "hazards", found)]
    slow_phases = [_slow_phase(one, observed, at, found) for at, one in _list(data, "slow_phases", found)]
    if len(found) == n_before and not hazards and not slow_phases:
        found.append(_wrong(("hazards",), "is missing. State at least one cause of interruptions."))
    said = {"name": name, "source": ""}
    for key in said:
        with _noted(found):
            said[key] = _text(data, key, (), said[key])
    made = None
    with _noted(found):
        made = Reliability(tuple(filter(None, hazards)), tuple(filter(None, slow_phases)), **said)
    return made if len(found) == n_before else None


@contextmanager
def _noted(found: list[SpecError]) -> Iterator[None]:
    """A mistake inside is added to `found`, and what is read next goes on."""
    try:
        yield
    except SpecError as error:
        found.append(error)


def _hazard(data: Any, observed: Observed | None, path: FieldPath, found: list[SpecError]) -> Hazard | None:
    values = _cause(data, HAZARD, observed, path, found)
    return None if values is None else _built(Hazard, values, path, found)


def _slow_phase(data: Any, observed: Observed | None, path: FieldPath, found: list[SpecError]) -> SlowPhase | None:
    values = _cause(data, SLOW, observed, path, found)
    if values is None:
        return None
    values.pop("log_sd", None)
    return _built(SlowPhase, values, path, found)


def _built(kind: Any, values: dict[str, Any], path: FieldPath, found: list[SpecError]) -> Any:
    """A cause; None where a value is out of its range: of each such value one mistake."""
    values, is_good = dict(values), bool(values["cause"])
    while True:
        try:
            made = kind(**values)
        except PrismError as error:
            found.append(_wrong((*path, *error.path), error.text))
            is_good = False
            if not error.path or values.pop(str(error.path[0]), None) is None:
                return None
        else:
            return made if is_good else None


def _cause(
    data: Any, known: tuple[str, ...], observed: Observed | None, path: FieldPath, found: list[SpecError]
) -> dict[str, Any] | None:
    """Keyword arguments of a hazard or slow phase; wrong ones are left out, a wrong name is empty. None: it has no fields."""
    if not _are_fields(data, known, path, found):
        return None
    values: dict[str, Any] = {"cause": ""}
    with _noted(found):
        values["cause"] = _text(data, "cause", path)
    for key, value in data.items():
        if key in known and key not in ("cause", "events", "per"):
            with _noted(found):
                if key in TIMES:
                    values[TIMES[key]] = _seconds(value, (*path, key))
                else:
                    values[key] = _number(value, (*path, key))
    with _noted(found):
        if "events" in data or "per" in data:
            values |= _counted(data, observed, path, "log_sd" in data)
        elif not any(rate in data for rate in RATES):
            raise _wrong(path, f"has no rate. Write one of {', '.join(RATES)}, or events and per.")
    return values


def _counted(data: Mapping[str, Any], observed: Observed | None, path: FieldPath, has_sd: bool) -> dict[str, float]:
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
        raise _wrong((*path, "per"), f"{per!r:.60} must be one of {', '.join(PER)}{did_you_mean(per, PER, '')}")
    if not events > 0.0:
        raise _wrong((*path, "events"), f"{events:g}, but it must be above 0")
    rate = {f"per_{per}_h": events / observed.exposure_h(per)}
    return rate if has_sd else rate | {"log_sd": events**-0.5}


def _observed(data: Any, path: FieldPath, found: list[SpecError]) -> Observed:
    """Ones where values are wrong, so that no cause is blamed for them."""
    values = dict.fromkeys(OBSERVED, 1.0)
    if _are_fields(data, OBSERVED, path, found):
        for key in OBSERVED:
            with _noted(found):
                if key not in data:
                    raise _wrong((*path, key), "is missing")
                value = _number(data[key], (*path, key))
                if not value > 0.0:
                    raise _wrong((*path, key), f"{value:g}, but it must be above 0")
                values[key] = value
    return Observed(**values)


def _list(data: Mapping[str, Any], key: str, found: list[SpecError]) -> list[tuple[FieldPath, Any]]:
    listed = data.get(key, [])
    if not isinstance(listed, (list, tuple)):
        found.append(_wrong((key,), f"{type(listed).__name__}, but it must be a list of causes"))
        return []
    if len(listed) > MOST_CAUSES:
        found.append(_wrong((key,), f"{len(listed)} causes, but at most {MOST_CAUSES} are simulated. Join some."))
    return [((key, index), one) for index, one in enumerate(listed[:MOST_CAUSES])]


def _are_fields(data: Any, known: tuple[str, ...], path: FieldPath, found: list[SpecError]) -> bool:
    """Whether `data` is a mapping; fields that are not `known` are added to `found`."""
    if not isinstance(data, Mapping):
        found.append(_wrong(path, f"{type(data).__name__}, but it must be a mapping of fields"))
        return False
    found += [_wrong((*path, key), f"unknown field{did_you_mean(key, known)}") for key in data if key not in known]
    return True


def _text(data: Mapping[str, Any], key: str, path: FieldPath, default: str | None = None) -> str:
    if key not in data and default is not None:
        return default
    value = data.get(key)
    if not isinstance(value, str) or (not value and default is None):
        raise _wrong((*path, key), "is missing" if value is None else f"{value!r:.60}, but it must be a text")
    return value


def _number(value: Any, path: FieldPath) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise _wrong(path, f"{value!r:.60}, but it must be a finite number")
    return float(value)


def _seconds(value: Any, path: FieldPath) -> float:
    try:
        return parse(value, "time")
    except PrismError as error:
        raise _wrong(path, str(error)) from None


def _wrong(path: FieldPath, text: str) -> SpecError:
    return SpecError.at(path, text) if path else SpecError(text)


_PACKAGE = __name__.rpartition(".")[0]


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return load_toml(_PACKAGE, "reliability.toml")


@cache
def _table() -> NameTable:
    return NameTable("reliability preset", dict.fromkeys(_entries(), ()), " Or name a YAML or TOML file.")


def preset_names() -> tuple[str, ...]:
    """Names of all presets."""
    return _table().names


def known_preset(text: str) -> str | None:
    """Name of the preset that `text` means; None if there is none."""
    return _table().known(text)


@cache
def preset(name: str) -> Reliability:
    """The preset of that name.

    Raises:
        SpecError: no such preset; the message names the nearest.
    """
    found = _table().find(name)
    return reliability_from_dict({key: of for key, of in _entries()[found].items() if key != DEVICES}, name=found)


def preset_for(device: str) -> Reliability | None:
    """Published rates of the generation of a device; None where none are known."""
    return next((preset(name) for name, entry in _entries().items() if device in entry.get(DEVICES, ())), None)


FORM = "a reliability is a mapping of fields (hazards, slow_phases)"
REMEDY = "A reliability is a page of YAML or TOML (docs/horizon.md), or a preset (`prism-jax show reliability`)."


def load_reliability(source: str | Path) -> Reliability:
    """The preset of that name, or what a file says.

    Raises:
        ConfigError: a file that cannot be read, or everything that is wrong in it, one line per mistake: line, field, remedy.
        SpecError: neither a preset nor a file.
    """
    text = str(source)
    if known_preset(text) is not None:
        return preset(text)
    if not text or (Path(text).suffix == "" and not Path(text).exists()):
        return preset(text)  # says which presets there are
    document = read_mapping(text, FORM, REMEDY)
    found: list[SpecError] = []
    described = described_reliability(document.data, found, name=Path(text).stem)
    if described is None:
        mistakes = [document.mistake(error.path, error.text) for error in found]
        raise ConfigError(sorted(mistakes, key=lambda mistake: mistake.place))
    return described

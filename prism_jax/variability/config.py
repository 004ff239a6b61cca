"""Variability presets by name, and sections of a job or preset file that change them field by field; from and to a plain dict.

preset: h100-default
scale: 1.5                                  # of the preset's spreads
gemm: {gpu: {kind: mixture, bulk_cv: 0.011, slow_prob: 0.01, slow_factor: 1.05, slow_cv: 0.02}}
all_reduce: {regime: 0.03}                  # a number is the cv of a log-normal
step: {kind: normal, cv: 0.002}
stalls: [{gpu_prob: 1.0e-6, mean_fraction: 0.05}]

The files under `presets/` are written by `experiments/variability_presets/run.py`, and those of work that is no transformer by
`experiments/other_workloads/presets.py`, from measured data; `source` says which.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..core.errors import FieldPath, SpecError
from ..core.kernels import varying_classes
from ..core.registry import did_you_mean
from .families import Constant, Family
from .family_registry import family_from_dict, family_to_dict
from .tree import PARTS, ClassVariability, Stall, Variability

OWN_FIELDS = ("preset", "scale", "name", "source", "step", "step_ar1", "stalls")


def section_fields() -> tuple[str, ...]:
    """Fields of a variability section: its own, and every kernel class."""
    return (*OWN_FIELDS, *varying_classes())


def overlaid(section: Mapping[str, Any], base: Variability, where: FieldPath = ("variability",)) -> Variability:
    """`base` with the fields of a configuration section in place of its own.

    Args:
        section: a mapping as in the module's example. What it names replaces the base's value part by part; `stalls` replaces all
            of the base's stalls. `preset` and `scale` are for `section.variability_from_dict`.
        where: path of the section in its file, for messages.

    Raises:
        SpecError: names the path inside the section ("variability.gemm.gpu.kind"), the value and the remedy.
    """
    check_keys(section, section_fields(), where)
    classes = dict(base.classes)
    for name in varying_classes():
        if name in section:
            classes[name] = _class(section[name], base.of(name), (*where, name))
    step = family_from_dict(section["step"], (*where, "step")) if "step" in section else base.step
    stalls = _stalls(section["stalls"], (*where, "stalls")) if "stalls" in section else base.stalls
    changed = any(key not in ("preset", "name", "source") for key in section)
    name = section.get("name", f"{base.name} (changed)" if changed and "preset" in section else base.name)
    try:
        return replace(
            base,
            name=str(name),
            classes=classes,
            step=step,
            step_ar1=number(section.get("step_ar1", base.step_ar1), (*where, "step_ar1")),
            stalls=stalls,
            source=str(section.get("source", base.source)),
        )
    except SpecError as error:
        raise SpecError.at((*where, *error.path), error.text) from error


def variability_to_dict(variability: Variability) -> dict[str, Any]:
    """The section, without a preset, that `variability_from_dict` turns back into `variability`."""
    section: dict[str, Any] = {"name": variability.name, "source": variability.source}
    section |= {name: _class_to_dict(factors) for name, factors in variability.classes.items()}
    section["step"] = family_to_dict(variability.step)
    section["step_ar1"] = variability.step_ar1
    section["stalls"] = [asdict(stall) for stall in variability.stalls]
    return section


def _class(section: Any, base: ClassVariability, where: FieldPath) -> ClassVariability:
    check_keys(section, PARTS, where)
    given: dict[str, Family] = {part: family_from_dict(value, (*where, part)) for part, value in section.items()}
    return replace(base, **given)


def _class_to_dict(factors: ClassVariability) -> dict[str, Any]:
    varying = {part: getattr(factors, part) for part in PARTS if not isinstance(getattr(factors, part), Constant)}
    return {part: family_to_dict(family) for part, family in varying.items()}


def _stalls(section: Any, where: FieldPath) -> tuple[Stall, ...]:
    if not isinstance(section, (list, tuple)):
        raise SpecError.at(where, f"{section!r} is not a list; write [{{gpu_prob: 1.0e-6, mean_fraction: 0.05}}]")
    return tuple(_stall(entry, (*where, i)) for i, entry in enumerate(section))


def _stall(entry: Any, where: FieldPath) -> Stall:
    check_keys(entry, [f.name for f in fields(Stall)], where)
    values = {name: number(value, (*where, name)) for name, value in entry.items()}
    try:
        return Stall(**values)
    except SpecError as error:
        raise SpecError.at(where, str(error)) from error


def check_keys(section: Any, known: Any, where: FieldPath) -> None:
    """Raises unless `section` is a mapping whose keys are all in `known`.

    Raises:
        SpecError: names the path of the key and the nearest known one.
    """
    if not isinstance(section, Mapping):
        raise SpecError.at(where, f"{section!r} is not a mapping; its fields are {', '.join(known)}")
    for key in section:
        if key not in known:
            raise SpecError.at((*where, key), f"unknown field{did_you_mean(key, known)}")


def number(value: Any, where: FieldPath) -> float:
    """Returns `value` as a float.

    Raises:
        SpecError: it is no number; names the path.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError.at(where, f"{value!r} is not a number")
    return float(value)


# Preset -> generations of devices, or parts of their names. Where a generation has no data its preset says what it borrows.
_SERVED = {
    "v100-longhorn": "volta turing v100",
    "a100-default": "ampere ga10x a100 a800",
    "h100-default": "hopper h100 h200 h800 h20 gh200",
    "b200-default": "blackwell b200 b300 gb200 gb300",
    "mi300x-default": "cdna2 cdna3 cdna4 mi250 mi300 mi325 mi350 mi355",
}
_PRESET_OF = {name: preset for preset, names in _SERVED.items() for name in names.split()}
FALLBACK = "h100-default"
_FOLDER = Path(__file__).parent / "presets"


@cache
def preset_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def preset(name: str) -> Variability:
    """Returns the preset called `name`.

    Raises:
        SpecError: no such preset; the message names the nearest.
    """
    key = str(name).lower().replace("_", "-")
    if key not in preset_names():
        raise SpecError(f"unknown variability preset {name!r}{did_you_mean(key, preset_names())}")
    text = (_FOLDER / f"{key}.toml").read_text(encoding="utf-8")
    return overlaid(tomllib.loads(text), Variability(name="custom"), (f"presets/{key}.toml",))


def default_for(device: object) -> str:
    """Name of the preset for a device.

    Args:
        device: a `Device` (its generation decides, then its name) or a device's name ("h100-sxm", "NVIDIA A100-SXM4-80GB").

    Returns:
        A preset name; `h100-default` for a device nothing is known about.
    """
    generation = str(getattr(device, "generation", "")).lower()
    if generation in _PRESET_OF:
        return _PRESET_OF[generation]
    name = str(getattr(device, "name", device)).lower()
    matches = [key for key in _PRESET_OF if key in name]
    return _PRESET_OF[max(matches, key=len)] if matches else FALLBACK


def variability_from_dict(section: Mapping[str, Any] | str, where: FieldPath = ("variability",)) -> Variability:
    """The tree that a configuration section describes.

    Args:
        section: a preset's name, or a mapping as in the example of `config`, which may name a preset to start from.
        where: path of the section in its file, for messages.

    Raises:
        SpecError: names the path inside the section ("variability.gemm.gpu.kind"), the value and the remedy.
    """
    if isinstance(section, str):
        section = {"preset": section}
    check_keys(section, section_fields(), where)
    return overlaid(section, _base(section, where), where)


def _base(section: Mapping[str, Any], where: FieldPath) -> Variability:
    scale = number(section.get("scale", 1.0), (*where, "scale"))
    if "preset" not in section:
        if "scale" in section:
            raise SpecError.at((*where, "scale"), "scales a preset, but no preset is named. Add preset: h100-default")
        return Variability(name="custom")
    if not isinstance(section["preset"], str):
        raise SpecError.at((*where, "preset"), f"{section['preset']!r}, but it must be the name of a preset")
    try:
        base = preset(section["preset"])
    except SpecError as error:
        raise SpecError.at((*where, "preset"), str(error)) from error
    if scale == 1.0:
        return base
    try:
        return base.scaled(scale)
    except SpecError as error:
        raise SpecError.at((*where, "scale"), str(error)) from error

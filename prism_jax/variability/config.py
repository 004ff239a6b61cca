"""Variability from and to a plain dict: the fields of a section of a YAML job or of a preset file.

preset: h100-default
scale: 1.5                                  # of the preset's spreads
gemm: {gpu: {kind: mixture, bulk_cv: 0.011, slow_prob: 0.01, slow_factor: 1.05, slow_cv: 0.02}}
all_reduce: {regime: 0.03}                  # a number is the cv of a log-normal
step: {kind: normal, cv: 0.002}
stalls: [{gpu_prob: 1.0e-6, mean_fraction: 0.05}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from ..errors import Path, SpecError
from ..hints import did_you_mean
from ..kernels import varying_classes
from .families import Constant, Family, family_from_dict, family_to_dict
from .tree import PARTS, ClassVariability, Stall, Variability

OWN_FIELDS = ("preset", "scale", "name", "source", "step", "step_ar1", "stalls")


def section_fields() -> tuple[str, ...]:
    """Fields of a variability section: its own, and every kernel class."""
    return (*OWN_FIELDS, *varying_classes())


def overlaid(section: Mapping[str, Any], base: Variability, where: Path = ("variability",)) -> Variability:
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


def _class(section: Any, base: ClassVariability, where: Path) -> ClassVariability:
    check_keys(section, PARTS, where)
    given: dict[str, Family] = {part: family_from_dict(value, (*where, part)) for part, value in section.items()}
    return replace(base, **given)


def _class_to_dict(factors: ClassVariability) -> dict[str, Any]:
    varying = {part: getattr(factors, part) for part in PARTS if not isinstance(getattr(factors, part), Constant)}
    return {part: family_to_dict(family) for part, family in varying.items()}


def _stalls(section: Any, where: Path) -> tuple[Stall, ...]:
    if not isinstance(section, (list, tuple)):
        raise SpecError.at(where, f"{section!r} is not a list; write [{{gpu_prob: 1.0e-6, mean_fraction: 0.05}}]")
    return tuple(_stall(entry, (*where, i)) for i, entry in enumerate(section))


def _stall(entry: Any, where: Path) -> Stall:
    check_keys(entry, [f.name for f in fields(Stall)], where)
    values = {name: number(value, (*where, name)) for name, value in entry.items()}
    try:
        return Stall(**values)
    except SpecError as error:
        raise SpecError.at(where, str(error)) from error


def check_keys(section: Any, known: Any, where: Path) -> None:
    """Raises unless `section` is a mapping whose keys are all in `known`.

    Raises:
        SpecError: names the path of the key and the nearest known one.
    """
    if not isinstance(section, Mapping):
        raise SpecError.at(where, f"{section!r} is not a mapping; its fields are {', '.join(known)}")
    for key in section:
        if key not in known:
            raise SpecError.at((*where, key), f"unknown field{did_you_mean(key, known)}")


def number(value: Any, where: Path) -> float:
    """`value` as a float.

    Raises:
        SpecError: it is no number; names the path.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError.at(where, f"{value!r} is not a number")
    return float(value)

"""Families by name: the tagged union `{kind: gamma, cv: 0.02}` of configuration files, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from typing import Any

from ..._core.registry import Registry
from ...errors import Path, SpecError
from ...hints import did_you_mean
from .base import Family
from .constant import CONSTANT, Constant
from .gamma import Gamma
from .log_normal import LogNormal
from .mixture import Mixture
from .normal import Normal
from .pool import Pool
from .student_t import StudentT

SHIPPED: tuple[type[Family], ...] = (Constant, Normal, LogNormal, Gamma, StudentT, Mixture, Pool)
FAMILIES: Registry[type[Family]] = Registry("family", lambda: SHIPPED, name_of=lambda family: family.kind)


def family_from_dict(section: Mapping[str, Any] | float, where: Path = ("family",)) -> Family:
    """The family a configuration section describes.

    Args:
        section: `kind` and the fields of that family; or a bare number, short for `{kind: log_normal, cv: number}`.
        where: path of the section in its file, for messages (("variability", "gemm", "gpu")).

    Raises:
        SpecError: unknown kind, unknown or missing field, or a value out of range; names the path.
    """
    if isinstance(section, (int, float)) and not isinstance(section, bool):
        section = {"kind": "log_normal", "cv": float(section)} if section else {"kind": "constant"}
    if not isinstance(section, Mapping):
        raise SpecError.at(
            where, f"{section!r} is not a family; write {{kind: log_normal, cv: 0.02}} or a number (its cv)"
        )
    if "kind" not in section:
        raise SpecError.at((*where, "kind"), f"missing; kinds are {', '.join(FAMILIES.names)}")
    kind = section["kind"]
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise SpecError.at((*where, "kind"), f"unknown {kind!r}{did_you_mean(kind, FAMILIES.names)}")
    given = {name: value for name, value in section.items() if name != "kind"}
    _check_fields(kind, given, where)
    plain = {name: _plain(value, (*where, name)) for name, value in given.items()}
    try:
        return CONSTANT if kind == "constant" else FAMILIES.named(kind)(**plain)
    except SpecError as error:
        raise SpecError.at(where, str(error)) from error


def family_to_dict(family: Family) -> dict[str, Any]:
    """The section that `family_from_dict` turns back into `family`."""
    kind = type(family).kind
    if kind not in FAMILIES or FAMILIES.named(kind) is not type(family):
        raise SpecError(f"{type(family).__name__} is not a registered family; kinds are {', '.join(FAMILIES.names)}")
    plain = asdict(family)  # pyright: ignore[reportArgumentType]
    return {"kind": kind} | {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}


def family_fields(kind: str) -> tuple[Field[Any], ...]:
    """The fields that a section of `kind` may have.

    Raises:
        SpecError: the kind is unknown.
    """
    return fields(FAMILIES.named(kind))  # pyright: ignore[reportArgumentType]


def _check_fields(kind: str, given: Mapping[str, Any], where: Path) -> None:
    names = [f.name for f in family_fields(kind)]
    for name in given:
        if name not in names:
            raise SpecError.at((*where, name), f"unknown field of {kind}{did_you_mean(name, names)}")
    needed = [f.name for f in family_fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise SpecError.at((*where, missing[0]), f"missing; {kind} needs {', '.join(needed)}")


def _plain(value: Any, where: Path) -> float | tuple[float, ...]:
    entries = value if isinstance(value, (list, tuple)) else (value,)
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            raise SpecError.at(where, f"{entry!r} is not a number")
    return tuple(float(entry) for entry in value) if isinstance(value, (list, tuple)) else float(value)

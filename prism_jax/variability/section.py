"""The variability section of a job: a preset by name, scaled and changed field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Path, SpecError
from .catalog import preset
from .config import check_keys, number, overlaid, section_fields
from .tree import Variability


def variability_from_dict(section: Mapping[str, Any] | str, where: Path = ("variability",)) -> Variability:
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


def _base(section: Mapping[str, Any], where: Path) -> Variability:
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

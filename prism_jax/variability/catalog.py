"""Variability presets by name, and which of them suits a device.

The files under `presets/` are written by `experiments/variability_presets/run.py`, and those of work that is no transformer by
`experiments/other_workloads/presets.py`, from measured data; `source` says which.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from ..errors import SpecError
from ..hints import did_you_mean
from .config import overlaid
from .tree import Variability

# Generation of a device, or part of its name -> preset. Where a generation has no data its preset says what it borrows.
_PRESET_OF = {
    "volta": "v100-longhorn",
    "ampere": "a100-default",
    "hopper": "h100-default",
    "blackwell": "b200-default",
    "turing": "v100-longhorn",
    "ga10x": "a100-default",
    "cdna2": "mi300x-default",
    "cdna3": "mi300x-default",
    "cdna4": "mi300x-default",
    "v100": "v100-longhorn",
    "a100": "a100-default",
    "a800": "a100-default",
    "h100": "h100-default",
    "h200": "h100-default",
    "h800": "h100-default",
    "h20": "h100-default",
    "gh200": "h100-default",
    "b200": "b200-default",
    "b300": "b200-default",
    "gb200": "b200-default",
    "gb300": "b200-default",
    "mi250": "mi300x-default",
    "mi300": "mi300x-default",
    "mi325": "mi300x-default",
    "mi350": "mi300x-default",
    "mi355": "mi300x-default",
}
FALLBACK = "h100-default"
_FOLDER = Path(__file__).parent / "presets"


@cache
def preset_names() -> tuple[str, ...]:
    """Names of all presets, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def preset(name: str) -> Variability:
    """The preset called `name`.

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

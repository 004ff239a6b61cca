"""The models by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ..model import Model

_CLASSES = {
    "fleet": "Fleet",
    "steps": "Steps",
    "collectives": "Collectives",
    "kernels": "Kernels",
    "overlap": "Overlap",
    "failures": "Failures",
    "repairs": "Repairs",
    "revocation": "Revocation",
    "checkpoints": "Checkpoints",
    "power": "Power",
    "totals": "Totals",
    "saves": "Saves",
    "ladder": "Ladder",
    "servers": "Servers",
    "startup": "Startup",
}
MODELS = tuple(_CLASSES)


def model_named(name: str) -> Model[Any]:
    """The model called `name`.

    Raises:
        FitError: there is none.
    """
    if name not in _CLASSES:
        raise FitError(f"model {name!r} is unknown; known are {', '.join(MODELS)}{did_you_mean(name, MODELS, '')}")
    return getattr(import_module(f".{name}.model", __package__), _CLASSES[name])()

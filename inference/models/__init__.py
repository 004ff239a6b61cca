"""The models by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ..model import Model

_PLACES = {
    "fleet": "fleet.model.Fleet",
    "steps": "steps.model.Steps",
    "collectives": "collectives.model.Collectives",
    "kernels": "kernels.model.Kernels",
    "overlap": "overlap.model.Overlap",
    "failures": "failures.Failures",
    "repairs": "repairs.model.Repairs",
    "revocation": "revocation.model.Revocation",
    "checkpoints": "checkpoints.model.Checkpoints",
    "power": "power.model.Power",
    "totals": "totals.Totals",
    "saves": "saves.Saves",
    "ladder": "ladder.Ladder",
    "servers": "servers.Servers",
    "startup": "startup.Startup",
}
MODELS = tuple(_PLACES)


def model_named(name: str) -> Model[Any]:
    """The model called `name`.

    Raises:
        FitError: there is none.
    """
    if name not in _PLACES:
        raise FitError(f"model {name!r} is unknown; known are {', '.join(MODELS)}{did_you_mean(name, MODELS, '')}")
    module, _, kind = _PLACES[name].rpartition(".")
    return getattr(import_module(f".{module}", __package__), kind)()

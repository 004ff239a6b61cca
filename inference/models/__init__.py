"""The models by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ..model import Model

PLACES = {
    "fleet": "inference.models.fleet.model.Fleet",
    "steps": "inference.models.steps.model.Steps",
    "collectives": "inference.models.collectives.model.Collectives",
    "kernels": "inference.models.kernels.model.Kernels",
    "overlap": "inference.models.overlap.model.Overlap",
    "failures": "inference.models.failures.Failures",
    "repairs": "inference.models.repairs.model.Repairs",
    "revocation": "inference.models.revocation.model.Revocation",
    "saves": "inference.models.saves.Saves",
    "ladder": "inference.models.ladder.Ladder",
    "startup": "inference.models.startup.Startup",
}
"""Model -> module and class; whoever has a model of another place adds it."""
MODELS = tuple(PLACES)


def model_named(name: str) -> Model[Any]:
    """The model called `name`.

    Raises:
        FitError: there is none.
    """
    if name not in PLACES:
        raise FitError(f"model {name!r} is unknown; known are {', '.join(PLACES)}{did_you_mean(name, PLACES, '')}")
    module, _, kind = PLACES[name].rpartition(".")
    return getattr(import_module(module), kind)()

"""The models by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prism_jax.core.errors import FitError
from prism_jax.core.registry import did_you_mean

from ..engine.model import Model

PLACES = {
    "fleet": "inference.fleet.model.FleetModel",
    "steps": "inference.steps.model.StepsModel",
    "collectives": "inference.collectives.model.Collectives",
    "kernels": "inference.kernels.model.Kernels",
    "overlap": "inference.overlap.OverlapModel",
    "failures": "inference.durations.failures.Failures",
    "repairs": "inference.durations.repairs.Repairs",
    "revocation": "inference.durations.revocation.Revocation",
    "saves": "inference.saves.SavesModel",
    "ladder": "inference.ladder.Ladder",
    "startup": "inference.startup.Startup",
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

"""The models by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ..model import Model

PLACES = {
    "fleet": ".fleet.model.Fleet",
    "steps": ".steps.model.Steps",
    "collectives": ".collectives.model.Collectives",
    "kernels": ".kernels.model.Kernels",
    "overlap": ".overlap.model.Overlap",
    "failures": ".failures.Failures",
    "repairs": ".repairs.model.Repairs",
    "revocation": ".revocation.model.Revocation",
    "saves": ".saves.Saves",
    "ladder": ".ladder.Ladder",
    "startup": ".startup.Startup",
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
    return getattr(import_module(module, __package__), kind)()

"""The model of a name, from the table `prism_jax.fits.models`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from prism_jax.core.errors import FitError
from prism_jax.core.registry import did_you_mean
from prism_jax.fits.models import MODELS

from ..engine.model import Model


def model_named(name: str) -> Model[Any]:
    """The model called `name`.

    Raises:
        FitError: there is none.
    """
    if name not in MODELS:
        raise FitError(f"model {name!r} is unknown; known are {', '.join(MODELS)}{did_you_mean(name, MODELS, '')}")
    module, _, kind = MODELS[name].place.rpartition(".")
    return getattr(import_module(module), kind)()

"""The front ends that there are; a new one is a module of this package with a `FRONT_END`, and its name here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from .._core.registry import Registry
from ..errors import DataError
from .front_end import CaptureRequest, FrontEnd

SHIPPED = (
    "prism_jax.capture.execution_traces",
    "prism_jax.capture.from_job",
    "prism_jax.capture.jax.front_end",
    "prism_jax.capture.hlo",
    "prism_jax.capture.torch.front_end",
)  # modules with a `FRONT_END`, asked in this order whether a source is theirs


def _shipped() -> Iterator[FrontEnd]:
    for name in SHIPPED:
        yield import_module(name).FRONT_END


FRONT_ENDS: Registry[FrontEnd] = Registry("front end", _shipped, error=DataError)


def front_end_for(request: CaptureRequest, name: str = "") -> FrontEnd:
    """The front end called `name`, or the first one that recognises the source.

    Raises:
        DataError: there is none; says which ones there are.
    """
    if name:
        return FRONT_ENDS.named(name)
    for one in FRONT_ENDS:
        if one.recognises(request):
            return one
    known = "; ".join(f"{one.name}: {one.about}" for one in FRONT_ENDS)
    absent = "" if Path(request.path).exists() else " There is no such file."
    raise DataError(f"{request.source}: no front end knows what this is.{absent} Name one by --front-end: {known}")

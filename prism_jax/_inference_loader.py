"""The one way from `prism_jax` to `inference`: checks that the package found under that common name is ours.

`inference` is shipped in the same wheel, so ours lies next to `prism_jax` and says so in its first lines. Another
distribution of that name may come first on the path, or may have written over ours in site-packages; importing it would
run foreign code under a familiar name. The check reads files and imports nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from .core.errors import PrismError

MARK = "PART_OF_PRISM_JAX = True"


class InferenceLoaderError(PrismError):
    """The `inference` package that Python would import is missing or is not the one of prism-jax."""


def inference() -> ModuleType:
    """The `inference` package of prism-jax.

    Raises:
        InferenceLoaderError: it is absent, or another package stands in its place; the message says which and what to do.
    """
    ours = Path(__file__).resolve().parent.parent / "inference" / "__init__.py"
    _check(_location(), ours)
    return import_module("inference")


_OFFERED = {"fit": ("fit", "has no fit"), "calibrate": ("calibrate_runs", "cannot calibrate")}


def __getattr__(name: str) -> Any:
    """`fit` and `calibrate`: the functions `fit` and `calibrate_runs` of `inference` themselves, with their signatures.

    Raises:
        InferenceLoaderError: `inference` is not ours, or this version of it has no such function.
    """
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, (own, lack) = inference(), _OFFERED[name]
    if not hasattr(module, own):
        raise InferenceLoaderError(f"the inference package in {module.__file__} {lack}. Upgrade prism-jax.")
    return getattr(module, own)


def _location() -> Path | None:
    loaded = sys.modules.get("inference")
    if loaded is not None:
        return Path(loaded.__file__).resolve() if loaded.__file__ else None
    spec = find_spec("inference")
    return Path(spec.origin).resolve() if spec is not None and spec.origin else None


def _check(found: Path | None, ours: Path) -> None:
    if found is None:
        raise InferenceLoaderError(f"no inference package with an __init__.py; expected {ours}. Reinstall prism-jax.")
    if found != ours:
        raise InferenceLoaderError(
            f"`import inference` finds {found}, which is not the inference package of prism-jax ({ours}). "
            "Remove or rename what is in the way, or start Python from another folder."
        )
    if MARK not in found.read_text(encoding="utf-8"):
        raise InferenceLoaderError(
            f"{found} is not the inference package of prism-jax: another distribution has written over it. "
            "Uninstall that distribution, then reinstall prism-jax."
        )

"""The one way from `prism_jax` to `inference`: checks that the package found under that common name is ours.

`inference` is shipped in the same wheel, so ours lies beside `prism_jax` and says so in its first lines. Another
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


def fit(*args: Any, **kwargs: Any) -> Any:
    """Fits a Variability to measurements; see `inference.fitting.fit`.

    Raises:
        InferenceLoaderError: `inference` is not ours, or this version of it has no `fit`.
    """
    module = inference()
    if not hasattr(module, "fit"):
        raise InferenceLoaderError(f"the inference package in {module.__file__} has no fit. Upgrade prism-jax.")
    return module.fit(*args, **kwargs)


def calibrate(*args: Any, **kwargs: Any) -> Any:
    """The shipped calibration updated by measured runs of one cluster; see `inference.calibrate_runs`.

    Raises:
        InferenceLoaderError: `inference` is not ours, or this version of it cannot calibrate.
    """
    module = inference()
    if not hasattr(module, "calibrate_runs"):
        raise InferenceLoaderError(f"the inference package in {module.__file__} cannot calibrate. Upgrade prism-jax.")
    return module.calibrate_runs(*args, **kwargs)


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

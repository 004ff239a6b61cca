"""A function that a user's own file defines: loaded by path, and its mistakes told as such.

The file is run, as `python file.py` would: capture only code that you trust.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import DataError, PrismError

_MODULE = "prism_jax_user_code"


@contextmanager
def user_errors(path: Path, doing: str) -> Iterator[None]:
    """What a user's code raises becomes a `DataError` with the last line of the file that was reached."""
    try:
        yield
    except PrismError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(f"{place_in(path, error)}: {doing}: {type(error).__name__}: {_first_line(error)}") from error


def place_in(path: Path, error: BaseException) -> str:
    """`file:line` of the deepest frame in the user's file; the file alone if none is."""
    own = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    line = error.lineno if isinstance(error, SyntaxError) else own[-1] if own else None
    return f"{path}:{line}" if line else str(path)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0][:400]


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file.

    Raises:
        DataError: no such file or function, or the file raises.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    full = path.resolve()
    spec = importlib.util.spec_from_file_location(_MODULE, full)
    if spec is None or spec.loader is None:
        raise DataError(f"{path}: not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    sys.path.insert(0, str(full.parent))
    try:
        with user_errors(path, "reading the file"):
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(full.parent))
    found = getattr(module, name, None)
    if not callable(found):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == _MODULE
        ]
        known = ", ".join(own[:8]) or "no function"
        raise DataError(f"{path}: does not define a function {name}; it has {known}. Name one: {path}:NAME")
    return found

"""What a command says to people (stderr), and how much of it; the same options on every command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..shell.verbosity import VERBOSITY as VERBOSITY, say as say


_OPTIONS: dict[str, Any] = {
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print the result and errors only.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Print more details.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show tracebacks.")],
}


def with_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --quiet, --verbose and --debug to a command."""

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        for name in _OPTIONS:
            setattr(VERBOSITY, name, values.pop(name))
        command(**values)

    signature = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [item.replace(kind=keyword) for item in signature.parameters.values()]
    added = [inspect.Parameter(name, keyword, default=False, annotation=kind) for name, kind in _OPTIONS.items()]
    wrapped.__signature__ = signature.replace(parameters=[*own, *added])  # pyright: ignore[reportAttributeAccessIssue]
    wrapped.__annotations__ = {item.name: item.annotation for item in (*own, *added)}
    return wrapped

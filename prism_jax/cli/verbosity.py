"""What a command says to people (stderr), and how much of it; the same options on every command."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ..printable import printable, shortened


@dataclass
class Verbosity:
    """How talkative this run is; set by the options, read everywhere in `cli`."""

    quiet: bool = False
    verbose: bool = False
    debug: bool = False

    def reset(self) -> None:
        """Back to the default: progress and errors, no tracebacks."""
        self.quiet = self.verbose = self.debug = False


VERBOSITY = Verbosity()

_OPTIONS: dict[str, Any] = {
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print the result and errors only.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Print more details.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show tracebacks.")],
}


def say(text: str, *, always: bool = False, detail: bool = False) -> None:
    """One line to stderr, spelt out where it would steer the terminal, and no longer than people read.

    Args:
        always: even when quiet.
        detail: only when verbose.
    """
    if always or (not VERBOSITY.quiet and (VERBOSITY.verbose or not detail)):
        print(shortened(printable(text)), file=sys.stderr)


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

"""Commands that are imported when they are called: `--help` lists them from the table alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .._core.registry import Registry
from ..errors import SpecError
from ..printable import printable, shortened
from .verbosity import with_verbosity


@dataclass(frozen=True)
class Command:
    """One command, or group of commands, of `prism-jax`.

    Attributes:
        name: as it is typed.
        target: function with typer annotations, or typer.Typer with several; or "module:name" of one, imported on first use.
        help: one line for `prism-jax --help`.
    """

    name: str
    target: str | Callable[..., None] | typer.Typer
    help: str

    def load(self) -> Any:
        """The command as click runs it; every function gets --quiet, --verbose and --debug."""
        target = self.target
        if isinstance(target, str):
            module, _, name = target.partition(":")
            target = getattr(import_module(module), name)
        if isinstance(target, typer.Typer):
            target.info.name = self.name
            return typer.main.get_group(target)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(self.name)(with_verbosity(target))
        return typer.main.get_command(alone)


def lazy_group(commands: Registry[Command]) -> type[TyperGroup]:
    """Class of a group with these commands, those that are added later included."""

    class LazyGroup(TyperGroup):
        def make_context(self, *args: Any, **extra: Any) -> Any:
            with _spelt_out():
                return super().make_context(*args, **extra)

        def invoke(self, ctx: Any) -> Any:
            with _spelt_out():
                return super().invoke(ctx)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands.names)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """What a list of commands needs to know; `resolve_command` gets the command itself."""
            if cmd_name not in commands:
                return None
            return TyperCommand(cmd_name, help=commands.named(cmd_name).help)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, found, rest = super().resolve_command(ctx, args)
            return name, found if name is None or found is None else commands.named(name).load(), rest

    return LazyGroup


@contextmanager
def _spelt_out() -> Iterator[None]:
    """Errors of the parser name arguments as they were typed, or as the shell found files: spelt out for the terminal."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # of click, or of the copy of click in typer
            vars(error)["message"] = shortened(printable(str(vars(error).get("message", ""))))
        raise


def registry(shipped: Callable[[], tuple[Command, ...]]) -> Registry[Command]:
    """Commands by name; those that ship with the package first."""
    return Registry("command", shipped, error=SpecError)

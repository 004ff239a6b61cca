"""The commands of `prism-jax`: one table, from which `--help` is made; a command is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .._core.registry import Registry
from ..errors import SpecError


@dataclass(frozen=True)
class Command:
    """One command of `prism-jax`.

    Attributes:
        name: as it is typed, with the name of its group in front: "trace info".
        target: a use case, or another function with typed parameters; or "module:name" of one, imported on first use.
        help: one line for `prism-jax --help`.
    """

    name: str
    target: str | Callable[..., Any]
    help: str

    def load(self) -> Callable[..., Any]:
        """The function."""
        if not isinstance(self.target, str):
            return self.target
        module, _, name = self.target.partition(":")
        return getattr(import_module(module), name)


GROUPS = {
    "trace": "Analyse recorded jobs: summary, replay, prediction, what-if and host time.",
    "fit": "Fit variability to measurements; `predict --fit` uses it.",
    "validate": "Compare predictions with measurements.",
}
SHIPPED = (
    ("predict", "predict:explain_step", "Predict the distribution of the step time of a job."),
    (
        "schedule",
        "horizon.schedule:schedule_trace",
        "Simulate the queue of a cluster under several scheduling policies and duration estimates.",
    ),
    ("trace what-if", "trace.what_if:what_if", "Tell who slowed a recorded job down, and what a change would bring."),
)  # name, where its use case is, and its line in `prism-jax --help`
COMMANDS: Registry[Command] = Registry(
    "command",
    lambda: tuple(Command(name, f"prism_jax.app.{target}", text) for name, target, text in SHIPPED),
    error=SpecError,
)


def called(words: list[str]) -> Command | None:
    """The command that `words` start with."""
    for n_word in (1, 2):
        name = " ".join(words[:n_word])
        if name in COMMANDS:
            return COMMANDS.named(name)
    return None

"""A head whose values may be open: what a script or a configuration leaves to its arguments or to the environment.

An open value stands as a mark inside of a text. A reader that looks such a value up is not told it, and the name is remembered,
so that all that a job needs is asked for once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .head import Head, SaidValue
from .shell_values import OpenValue, OpenValues, is_open


@dataclass
class OpenHead(Head):
    """Head of a run that a script or a configuration states.

    Attributes:
        opened: names that a reader looked up and whose value is open.
        open: open values of the file.
        undecided: words of a command line that may hold more arguments.
        missing: files that it builds on and that were not found, with the lines that name them.
    """

    opened: dict[str, SaidValue] = field(default_factory=dict)
    open: OpenValues = field(default_factory=OpenValues)
    undecided: list[OpenValue] = field(default_factory=list)
    missing: list[SaidValue] = field(default_factory=list)

    def lacking(self) -> str:
        """Says which files it builds on were not found."""
        names = ", ".join(f"{one.text} (line {one.line})" for one in self.missing)
        return (
            f"it builds on files that are not in its folder: {names}; --root DIR names a folder above them"
            if names
            else ""
        )

    def said(self, *names: str) -> SaidValue | None:
        """The first of these names that has a value; one that is open is remembered, and is not said."""
        for name in names:
            found = self.arguments.get(name) or self.facts.get(name)
            if found is not None and is_open(found.text):
                self.opened[name] = found
                self.asked.add(name)
                return None
            if found is not None and found.text not in ("None", "null", ""):
                break
        return super().said(*names)

    def shown(self, text: str) -> str:
        """Returns a value with names in the place of what is open."""
        return self.open.shown(text)

    def questions(self) -> list[str]:
        """Lists what the file leaves open and a job needs: names of variables and positions, each once, with its line."""
        own = [
            (one, f"--{name.replace('_', '-')}" if self.source == "script" and "." not in name else name)
            for name, said in ((name.removeprefix("training."), said) for name, said in self.opened.items())
            for one in self.open.inside(said.text)
        ]
        own += [(one, "more arguments") for one in self.undecided]
        found: dict[str, str] = {}
        for one, use in own:
            name = f"${one.name}" if re.fullmatch(r"\w+", one.name) else one.name
            found.setdefault(name, f"{name} (line {one.line}, for {use})")
        return list(found.values())


MOST_ROUNDS = 50  # references inside of references
_REFERENCE = re.compile(r"\$\{([^${}]{1,200})\}|\$([A-Za-z_]\w{0,80})")
_ENVIRONMENT = re.compile(r"(?:oc\.)?env:(\w+)(?:,(.*))?")
_SELECT = re.compile(r"oc\.select:([\w.]+)(?:,(.*))?")
_PRODUCT = re.compile(r"(?:multiply|mul):\s*(\d{1,9})\s*,\s*(\d{1,9})\s*")  # resolvers of NeMo and NeMo-RL
_SHELL = re.compile(
    r"([A-Za-z_]\w*(?=:?-)|[A-Z_][A-Z0-9_]*)(?::?-|:)(.*)"
)  # ${NAME:-default} of bash, ${NAME:default} of Primus


def resolve(
    values: Mapping[str, SaidValue], environment: Mapping[str, str], open_values: OpenValues
) -> dict[str, SaidValue]:
    """Values with their references filled in: `${model.hidden}` of the same file, `${oc.env:X}`, `${X:default}` and `$X` of the
    environment. What is not known becomes an open value. Nothing is computed but products.

    Args:
        values: by dotted name.
        environment: variables that are known.
        open_values: takes what is not.
    """
    return {
        name: one if "$" not in one.text else one._replace(text=_filled(name, one, values, environment, open_values))
        for name, one in values.items()
    }


def _filled(
    name: str,
    one: SaidValue,
    values: Mapping[str, SaidValue],
    environment: Mapping[str, str],
    open_values: OpenValues,
) -> str:
    text = one.text
    for _ in range(MOST_ROUNDS):
        found = _REFERENCE.search(text)
        if found is None or len(text) > 4000:
            break
        known = _known(name, found[1] or found[2], values, environment)
        if known is None:
            shown = found[1] or found[2]
            variable = _ENVIRONMENT.fullmatch(shown)
            known = open_values.mark(variable[1] if variable else shown, one.line)
        text = text[: found.start()] + known.strip("'\"") + text[found.end() :]
    return text


def _known(name: str, reference: str, values: Mapping[str, SaidValue], environment: Mapping[str, str]) -> str | None:
    """Value that a reference stands for; None where that is open."""
    product = _PRODUCT.fullmatch(reference)
    if product is not None:
        return str(int(product[1]) * int(product[2]))
    variable, select = _ENVIRONMENT.fullmatch(reference), _SELECT.fullmatch(reference)
    if variable is not None:
        return environment.get(variable[1], variable[2])
    if select is not None:
        reference = select[1]
    up = len(reference) - len(reference.lstrip("."))
    path = ".".join([*name.split(".")[:-up], reference[up:]]) if up else reference
    if path in values and path != name:
        return values[path].text
    if select is not None and select[2] is not None:
        return select[2]
    shell = _SHELL.fullmatch(reference)
    if shell is not None:
        return environment.get(shell[1], shell[2])
    return environment.get(reference)

"""Report: what a use case answers; a value that can be stored, compared, pickled, and shown as text, JSON or HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from .._core.files import atomic_path
from ..errors import DataError
from .codec import from_plain, to_plain

SCHEMA = "schema"
MOST_CELLS = 40  # lines of the table in a notebook
R = TypeVar("R", bound="Report")


@dataclass(frozen=True)
class Report:
    """Base of all reports.

    Attributes:
        kind: name of the report.
        picture: "module:function" that draws the report; empty where it is not drawn.
        version: raised when a key of its JSON changes its meaning or goes.
    """

    kind: ClassVar[str]
    picture: ClassVar[str] = ""
    version: ClassVar[int] = 1

    def made_of(self: R, parts: object) -> R:
        """The report itself, which keeps what pictures and files are made of; that is not compared, stored or pickled."""
        object.__setattr__(self, "_parts", parts)
        return self

    @property
    def parts(self) -> Any:
        """What pictures and files are made of.

        Raises:
            DataError: the report was read from JSON.
        """
        try:
            return vars(self)["_parts"]
        except KeyError:
            raise DataError(f"{self.kind}: a stored report cannot be drawn. Compute it again.") from None

    def changed(self: R, **changes: Any) -> R:
        """The report with other values of some fields."""
        changed = replace(self, **changes)
        return changed.made_of(vars(self)["_parts"]) if "_parts" in vars(self) else changed

    def figure(self) -> Any:
        """The picture of the report.

        Raises:
            DataError: reports of this kind are not drawn, or the report was read from JSON.
        """
        if not self.picture:
            raise DataError(f"{self.kind}: a report of this kind has no picture")
        module, _, name = self.picture.partition(":")
        return getattr(import_module(module), name)(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_parts"}

    @classmethod
    def schema(cls) -> str:
        """Name and version of the JSON schema: "prism-jax/prediction/1"."""
        return f"prism-jax/{cls.kind}/{cls.version}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: what `--json` prints. Keys carry their unit; NaN and infinity are None."""
        return {SCHEMA: self.schema(), **to_plain(self)}

    @classmethod
    def from_dict(cls: type[R], data: dict[str, Any]) -> R:
        """The report that `to_dict` has made `data` of.

        Raises:
            DataError: `data` is another report, or one of another version.
        """
        if data.get(SCHEMA) != cls.schema():
            raise DataError(f"{SCHEMA} = {data.get(SCHEMA)!r}, but it must be {cls.schema()!r}")
        try:
            return from_plain(cls, data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"not a report of schema {cls.schema()}: {error!r}") from None

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Writes the report as JSON, whole or not at all.

        Raises:
            DataError: the file cannot be written.
        """
        with atomic_path(path) as temporary:
            temporary.write_text(self.to_json() + "\n", encoding="utf-8")

    def lines(self) -> list[str]:
        """The report as text for people, line by line, as the command line prints it; names and values if a kind has no text."""
        return [f"{name}  {text}" for name, text in _leading(self.to_dict(), "")]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """A small table of the leading figures, for notebooks."""
        from html import escape  # its table of entities costs commands that never come here 5 ms

        cells = _leading(self.to_dict(), "")[:MOST_CELLS]
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in cells)
        return f"<table><caption>{escape(self.schema())}</caption>{rows}</table>"


def _leading(data: dict[str, Any], above: str) -> list[tuple[str, str]]:
    """Names and values of the numbers and texts of `data` and of the objects in it; deeper ones are left out."""
    found = []
    for name, value in data.items():
        if isinstance(value, dict) and not above:
            found += _leading(value, f"{name}.")
        elif value is not None and not isinstance(value, (dict, list)):
            found.append((above + name, f"{value:.6g}" if isinstance(value, float) else str(value)))
    return found

"""Report: what a use case answers, a value that is stored, compared, pickled and shown as text, JSON or HTML; its schema.

Frozen dataclasses go to plain JSON types and back by their type hints. A field may say how it stands in JSON:
`Annotated[float, Key("S")]` is called S there, the fields of an `Annotated[RunRecord, INLINE]` (what is needed to repeat a
run) stand next to those of the whole, and `Annotated[int | None, WHERE_KNOWN] = None` is absent where it is None. What a
method or property marked `@shown` returns stands behind the fields and is not read back. NaN and infinity, which JSON lacks,
are written as null; a field whose default is NaN, or an `Annotated[float, OR_NULL]`, may be. Schemas follow draft 2020-12.

This module lies below the domain, whose types say it of their own fields: they are parts of reports as they are.
"""

from __future__ import annotations

import functools
import json
import math
import shlex
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import DataError
from .page import Block, Card, Page, page_of_data
from .page_text import page_lines
from .write_file import plain, write_text

Json: TypeAlias = Any  # what JSON can hold and whose content is not ours: inputs of a run, what a model says of itself
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Key:
    """Name of a field in JSON, where it is not that of the field."""

    name: str


@dataclass(frozen=True)
class Marker:
    """Form of a field in JSON."""

    what: str


INLINE, WHERE_KNOWN, OR_NULL = Marker("inline"), Marker("where known"), Marker("or null")


def shown(function: F) -> F:
    """Marks a method without arguments, or the function below `@property`, whose value stands in JSON behind the fields."""
    function.is_shown = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class FieldSpec:
    """A field as it stands in JSON.

    Attributes:
        name, key: in Python and in JSON.
        hint: type, without what is said of it.
        is_inline: its own fields stand next to those of the whole.
        is_required: whether it is always there; else it is left out where it is None.
        is_unknown: whether it may be null: a number whose default is NaN, or that says so.
        is_read: whether it is a field; what is `shown` follows from the fields.
    """

    name: str
    key: str
    hint: Any
    is_inline: bool
    is_required: bool
    is_unknown: bool
    is_read: bool = True


@functools.cache
def fields_of(kind: type) -> tuple[FieldSpec, ...]:
    """Fields of a dataclass, in order, and then the values of its `@shown` methods."""
    hints = get_type_hints(kind, include_extras=True)
    stated = [_spec(item.name, hints[item.name], item.default != item.default) for item in fields(kind)]
    methods = ((name, getattr(item, "fget", item)) for name, item in vars(kind).items())
    derived = [(name, of) for name, of in methods if getattr(of, "is_shown", False)]
    return (*stated, *(_spec(name, get_type_hints(of)["return"], False, False) for name, of in derived))


def optional_part(hint: Any) -> Any:
    """X of `X | None`; None where `hint` is no such union."""
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and type(None) in get_args(hint) else None


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, texts, finite numbers, booleans and None."""
    return plain(value, _plain_fields)


def _spec(name: str, hint: Any, is_unknown: bool, is_read: bool = True) -> FieldSpec:
    inner, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    key = next((item.name for item in said if isinstance(item, Key)), name)
    return FieldSpec(name, key, inner, INLINE in said, WHERE_KNOWN not in said, is_unknown or OR_NULL in said, is_read)


def _plain_fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spec in fields_of(type(value)):
        own = getattr(value, spec.name)
        own = own if spec.is_read or not callable(own) else own()
        if own is None and not spec.is_required:
            continue
        if spec.is_inline:
            found |= to_plain(own)
        else:
            found[spec.key] = to_plain(own)
    return found


def from_plain(kind: type[T], data: Any) -> T:
    """The value of type `kind` that `to_plain` has made `data` of.

    Raises:
        KeyError: a field is missing.
        TypeError: `data` is not of that shape.
    """
    return _read(kind, data)


def _read(hint: Any, data: Any) -> Any:
    origin, inner = get_origin(hint), optional_part(hint)
    if inner is not None:
        return None if data is None else _read(inner, data)
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_fields(hint, data)
    if origin is tuple:
        return _read_tuple(get_args(hint), data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _read(get_args(hint)[1], value) for name, value in data.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [_read(get_args(hint)[0], value) for value in data]
    if hint is float:
        return math.nan if data is None else float(data)
    return data


def _read_tuple(parts: tuple[Any, ...], data: Sequence[Any]) -> tuple[Any, ...]:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(_read(parts[0], value) for value in data)
    return tuple(_read(part, value) for part, value in zip(parts, data, strict=True))


def _read_fields(kind: type, data: Mapping[str, Any]) -> Any:
    found: dict[str, Any] = {}
    for spec in fields_of(kind):
        if not spec.is_read:
            continue
        if spec.is_inline:
            found[spec.name] = _read_inline(spec, data)
        elif spec.key in data:
            found[spec.name] = _read(spec.hint, data[spec.key])
        elif spec.is_required:
            raise KeyError(spec.key)
    return kind(**found)


def _read_inline(spec: FieldSpec, data: Mapping[str, Any]) -> Any:
    if spec.is_required:
        return _read(spec.hint, data)
    inner = optional_part(spec.hint)
    return _read(inner, data) if _required(inner) <= data.keys() else None


def _required(kind: type) -> set[str]:
    """Names that are always there, those of dataclasses inside included."""
    found: set[str] = set()
    for spec in fields_of(kind):
        if spec.is_required:
            found |= _required(spec.hint) if spec.is_inline else {spec.key}
    return found


@dataclass(frozen=True)
class RunRecord:
    """Versions, inputs and seed of a run.

    Attributes:
        versions: package -> version; None where it is not installed.
        git_revision: of the checkout; None outside one.
        inputs: what was asked for.
        seed: None where nothing is drawn.
        command: the command line that made the report; absent where it was made in Python.
        job_file: the whole job as a job file; absent where the report is of none or of several.
    """

    versions: Mapping[str, str | None]
    git_revision: str | None
    inputs: Mapping[str, Json]
    seed: int | None
    command: Annotated[str | None, WHERE_KNOWN] = None
    job_file: Annotated[str | None, WHERE_KNOWN] = None


def then_or(command: str | None, then: str, keep: str) -> str:
    """Next step after a command: `then` with the name of the file that `-o` had it write, else how such a file is kept.

    Args:
        command: the command line; None: not known.
        then: a text with `{}` for the name.
        keep: names `-o`.
    """
    with suppress(ValueError):  # of a saved report, whose quotes do not match
        words = [part for word in shlex.split(command or "") for part in word.split("=", word.startswith("--output="))]
        written = next((after for word, after in pairwise(words) if word in ("-o", "--output")), "")
        return then.format(shlex.quote(written)) if written else keep
    return keep


SCHEMA = "schema"
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
        """Results from which pictures and files are made.

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
            return _read(cls, data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"a damaged report of schema {cls.schema()}: {_damage(error)}. {_remedy(data)}.") from None

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Writes the report as JSON, whole or not at all.

        Raises:
            DataError: the file cannot be written.
        """
        write_text(path, self.to_json() + "\n")

    def card(self) -> Card | None:
        """The first screen: verdict, central figures, evidence, assumptions, next step; None where a list is all there is."""
        return None

    def blocks(self) -> Sequence[Block]:
        """Blocks that follow the card; names and values of the report if a kind lays out nothing."""
        return page_of_data(self.to_dict()).blocks

    def page(self) -> Page:
        """Page that people see of the report, as text (`lines`) or HTML (`to_html`)."""
        return Page(self.card(), self.blocks())

    def lines(self, width: int | None = None) -> list[str]:
        """The whole page as text, line by line.

        Args:
            width: columns; None: sentences of 100, tables as wide as they are.
        """
        return page_lines(self.page(), width)

    def to_html(self, *others: Report) -> str:
        """The page as one HTML file, with the picture inside and nothing to load; `others` stand next to it."""
        from .page_html import sheets_html  # HTML is not for every run

        return sheets_html([one._sheet() for one in (self, *others)])

    def _sheet(self) -> Any:
        from .page_html import Sheet

        return Sheet(self.kind, self.page(), self._svg(), self.to_dict())

    def _svg(self) -> bytes | None:
        """The picture; None where there is none, or where an older version did not keep what it needs."""
        if not self.picture:
            return None
        from .picture import figure_bytes  # matplotlib is heavy

        try:
            return figure_bytes(self.figure(), "svg")
        except DataError:
            return None

    def to_frame(self) -> Any:
        """A pandas data frame with one row of the numbers and texts of the report; objects inside it are joined by dots."""
        from pandas import json_normalize

        return json_normalize(self.to_dict())

    def plot(self) -> Any:
        """Draws the picture of the report; the same as `figure`."""
        return self.figure()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # else the dataclass writes one with every field
            cls.__repr__ = Report.__repr__

    def __repr__(self) -> str:
        card = self.card()
        return f"<{type(self).__name__} {self.schema() if card is None else f'{card.title}: {card.verdict}'}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """The card and the picture, for notebooks."""
        from .page_html import card_html

        return card_html(self._sheet())


def _damage(error: Exception) -> str:
    """Names the fault in the JSON of a report."""
    if isinstance(error, KeyError):
        return f"the key {str(error.args[0])!r} is missing"
    return f"a value is not of the kind that it must be ({error})"


def _remedy(data: Mapping[str, Any]) -> str:
    """How to get the report whole again."""
    command = data.get("command")
    is_known = isinstance(command, str) and command
    return f"Make it again by `{command}`" if is_known else "Make it again, or restore the file"


DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}


def json_schema(kind: type[Report]) -> dict[str, Any]:
    """Schema of what `kind(...).to_dict()` returns."""
    definitions: dict[str, Any] = {}
    body = _object(kind, definitions)
    body["properties"] = {SCHEMA: {"const": kind.schema()}, **body["properties"]}
    body["required"] = [SCHEMA, *body["required"]]
    return {
        "$schema": DIALECT,
        "title": kind.schema(),
        "description": _first_line(kind),
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Object with the fields of a dataclass; more fields may be there, in later versions."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for spec in fields_of(kind):
        stated = spec.hint if spec.is_required else optional_part(spec.hint) or spec.hint  # left out where it is None
        if spec.is_inline:
            beside = _object(stated, definitions)
            properties |= beside["properties"]
            required += beside["required"] if spec.is_required else []
            continue
        own = _of(stated, definitions)
        properties[spec.key] = {"anyOf": [own, {"type": "null"}]} if spec.is_unknown else own
        required += [spec.key] if spec.is_required else []
    return {"type": "object", "properties": properties, "required": required}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    inner, origin = optional_part(hint), get_origin(hint)
    if inner is not None:
        return {"anyOf": [_of(inner, definitions), {"type": "null"}]}
    if isinstance(hint, type) and is_dataclass(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = {"description": _first_line(hint), **_object(hint, definitions)}
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if hint is Json:
        return {}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return _array(get_args(hint), definitions)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(get_args(hint)[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _of(get_args(hint)[0], definitions)}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    return {"anyOf": [_of(part, definitions) for part in get_args(hint)]}


def _array(parts: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return {"type": "array", "items": _of(parts[0], definitions)}
    items = [_of(part, definitions) for part in parts]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]

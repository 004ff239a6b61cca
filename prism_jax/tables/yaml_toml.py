"""Reads YAML and TOML text into a Document: safe types only, every field with its line, nothing silently dropped or expanded.

The parser of TOML keeps no positions, so lines are found again by a search for headers and keys. `flow` writes a value as YAML.
"""

from __future__ import annotations

import re
import string
import tomllib
from typing import Any

import yaml

from ..core.errors import ConfigError, DataError, FieldPath, Mark, Mistake
from ..core.read_file import read_text
from .document import MAX_DEPTH, MAX_FIELDS, Document, is_too_long, short

_AT = re.compile(r" \(at line (\d+), column (\d+)\)\Z")
# What holds dots that join no keys (texts, comments), what joins keys, and what ends a key; linear, for no part of it can be
# matched in two ways.
_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)|'
    + r"'''(?:[^']|'(?!''))*+(?:'''|\Z)|"
    + r'"(?:[^"\\\n]|\\.)*+"|'
    + r"'[^'\n]*+'|"
    r"#[^\n]*+|(?P<dot>\.)|(?P<end>[=\n{}\[\],])",
    re.DOTALL,
)
_BARE = frozenset(string.ascii_letters + string.digits + "_-.\"' ")


def read_toml(text: str, name: str) -> Document:
    """Document of `text`; `name` is the file in messages.

    Raises:
        ConfigError: not TOML, empty, nested too deeply, or with more fields or longer numbers than a job has.
    """
    _limit_dots(text, name)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
        match = _AT.search(problem)
        mark = Mark(name, int(match[1]), int(match[2])) if match else Mark(name)
        raise ConfigError(
            [Mistake(f"not valid TOML: {problem[: match.start()] if match else problem}", mark)]
        ) from None
    except ValueError:  # Python reads no decimal number of thousands of digits
        raise ConfigError.in_file(name, "a number of thousands of digits. Write it as 1e30.") from None
    except RecursionError:
        raise ConfigError.in_file(name, "not valid TOML: nested too deeply") from None
    if not data:
        raise ConfigError.in_file(name, "the file is empty. Start from a file under examples/.")
    document = Document(name, data, _marks(text, name, data))
    _limit_values(document)
    return document


def _limit_dots(text: str, name: str) -> None:
    """Stops before the parser, whose time and memory grow with the square of the parts of a dotted key."""
    n_dots = 0
    for token in _TOKEN.finditer(text):
        if token["dot"]:
            n_dots += 1
            if n_dots > MAX_DEPTH:
                line = text.count("\n", 0, token.start()) + 1
                raise ConfigError(
                    [Mistake(f"not valid TOML: a key of more than {MAX_DEPTH} parts", Mark(name, line, 1))]
                )
        elif token["end"]:
            n_dots = 0


def _limit_values(document: Document) -> None:
    """Stops at what would exhaust the stack, or is no number that anything here has a use for."""
    n_fields = 0
    rest: list[tuple[FieldPath, Any]] = [((), document.data)]
    while rest:
        path, value = rest.pop()
        n_fields += 1
        if n_fields > MAX_FIELDS:
            raise ConfigError.in_file(document.name, f"more than {MAX_FIELDS} fields, so hardly a job")
        if len(path) > MAX_DEPTH:
            raise ConfigError([document.mistake(path, f"nested more than {MAX_DEPTH} levels deep")])
        if is_too_long(value):
            raise ConfigError([document.mistake(path, "a whole number of more than 64 bits. Write it as 1e30.")])
        if isinstance(value, dict):
            rest += [((*path, key), item) for key, item in value.items()]
        elif isinstance(value, list):
            rest += [((*path, index), item) for index, item in enumerate(value)]


def _marks(text: str, name: str, data: dict[str, Any]) -> dict[FieldPath, Mark]:
    """Best effort: header and key lines, without multi-line strings and inline tables."""
    marks: dict[FieldPath, Mark] = {}
    table: FieldPath = ()
    n_seen: dict[FieldPath, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        mark = Mark(name, number, len(line) - len(line.lstrip()) + 1)
        content = line.strip()
        if header := _header(content):
            table = _split(header)
            if content.startswith("[["):
                index = n_seen.get(table, 0)
                n_seen[table] = index + 1
                table = (*table, index)
            _add(marks, table, mark, data)
        elif key := _key(content):
            _add(marks, (*table, *_split(key)), mark, data)
    return marks


def _header(line: str) -> str:
    """`a.b` of `[a.b]` and `[[a.b]]  # remark`; empty where the line is no header."""
    if not line.startswith("["):
        return ""
    inner, closing, rest = line.removeprefix("[").removeprefix("[").partition("]")
    rest = rest.removeprefix("]").lstrip()
    is_header = closing and "[" not in inner and (not rest or rest.startswith("#"))
    return inner.strip() if is_header else ""


def _key(line: str) -> str:
    """`a.b` of `a.b = 1`; empty where the line sets nothing."""
    key, equals, _ = line.partition("=")
    return key.strip() if equals and _BARE.issuperset(key) else ""


def _split(text: str) -> FieldPath:
    return tuple([part.strip().strip("\"'") for part in text.split(".")])


def _add(marks: dict[FieldPath, Mark], path: FieldPath, mark: Mark, data: Any) -> None:
    """Notes the place of `path` and of its parents, if the parsed data has such a field."""
    for depth, part in enumerate(path, start=1):
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return
        marks.setdefault(path[:depth], mark)


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# YAML 1.1 reads 1e9 as text, 010 as 8 and 1:30 as 90; people mean none of that.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_OCTAL_OR_SEXAGESIMAL = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


_LOOSE = ("null", "bool", "int", "float")  # types that other programs' files may state; anything else is text
JOB_FORM = "a job is a mapping of sections (model, cluster, plan)"


def read_yaml(text: str, name: str, form: str = JOB_FORM) -> Document:
    """Document of the one mapping in `text`.

    Args:
        name: the file in messages.
        form: what such a file is, for messages.

    Raises:
        ConfigError: not YAML, not one mapping, a duplicate key, an unsafe tag, aliases that multiply.
    """
    node = compose_yaml(text, Mark(name))
    reader = _Reader(Mark(name))
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        told = ". Start from a file under examples/." if form == JOB_FORM else f", but {form}"
        raise ConfigError.in_file(name, f"the file is empty{told}")
    if not isinstance(node, yaml.MappingNode):
        message = f"{form}, not {_kind(node)}"
        raise ConfigError([Mistake(message, reader.at(node))])
    data = reader.convert(node, ())
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    return Document(name, data, reader.marks)


def read_loose_yaml(text: str, name: str) -> list[Document]:
    """Documents of a YAML file, or a JSON file, that other programs read: every mapping of it, in order.

    Tags are dropped, merge keys are followed, the last of a key that is written twice counts, and what YAML reads as no decimal
    number stays text.

    Raises:
        ConfigError: not YAML, or aliases that multiply.
    """
    found: list[Document] = []
    for node in _composed(text, Mark(name), is_loose=True):
        if isinstance(node, yaml.MappingNode):
            reader = _Reader(Mark(name), is_loose=True)
            found.append(Document(name, reader.convert(node, ()), reader.marks))
            if reader.mistakes:
                raise ConfigError(reader.mistakes)
    return found


MAX_BYTES = 2**20  # a page that people write


def read_mapping(name: str, form: str, remedy: str) -> Document:
    """Document of the one mapping in a YAML or (by its ending) TOML file.

    Args:
        form: what such a file is, for messages.
        remedy: what to do where it cannot be read.

    Raises:
        ConfigError: no such file, too large, not UTF-8 text, or as `read_yaml` and `read_toml` have it.
    """
    try:
        text = read_text(name, MAX_BYTES, remedy)
    except DataError as error:
        raise ConfigError.in_file(name, error.text) from None
    return read_toml(text, name) if name.endswith(".toml") else read_yaml(text, name, form)


def read_value(text: str, source: Mark) -> Any:
    """Value of a YAML fragment such as `4`, `true`, `400 Gbit/s` or `[tp, dp]`; `source` is the file or option it stands in.

    Raises:
        ConfigError: not a safe YAML value.
    """
    node = compose_yaml(text, source)
    if node is None:
        return None
    reader = _Reader(source)
    value = reader.convert(node, ())
    if reader.mistakes:
        raise ConfigError(reader.mistakes)
    return value


def compose_yaml(text: str, source: Mark) -> yaml.Node | None:
    """Reads the nodes of YAML text, which know where they stand; None where there is nothing.

    Raises:
        ConfigError: not YAML, a tag, or nested too deeply.
    """
    return _composed(text, source)[0]


def _composed(text: str, source: Mark, *, is_loose: bool = False) -> list[yaml.Node | None]:
    """Nodes of every document of a text, or of the only one; `is_loose`: tags are allowed."""
    try:
        _limit(text, has_tags=is_loose)
        return list(yaml.compose_all(text, Loader=_Loader)) if is_loose else [yaml.compose(text, Loader=_Loader)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(source, mark) if mark else source
        raise ConfigError([Mistake(f"not valid YAML: {_explain(error, text)}", place)]) from None
    except yaml.reader.ReaderError as error:
        message = f"not valid YAML: a character that text does not contain at byte {error.position}"
        raise ConfigError([Mistake(message, source)]) from None


def _place(source: Mark, mark: Any) -> Mark:  # the C and the Python reader have Mark types of their own
    """File, line and column; an option of the command line has no lines."""
    return source if source.option is not None else Mark(source.source, mark.line + 1, mark.column + 1)


def _limit(text: str, *, has_tags: bool = False) -> None:
    """Stops before a deeply nested file exhausts the stack of the (recursive) composer, and at types that the text states.

    A stated type (`!!int "-"`) would send any text to the constructor of that type, which expects one that looks like it.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        tag = getattr(event, "tag", None)
        if tag is not None and not has_tags:
            raise yaml.MarkedYAMLError(
                problem=f"the tag {tag} is not supported. Remove it.", problem_mark=event.start_mark
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} levels deep"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _explain(error: yaml.MarkedYAMLError, text: str) -> str:
    problem = error.problem or error.context or "unreadable"
    mark = error.problem_mark
    line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
    if "\t" in line[: mark.column + 1 if mark else 0]:
        return "a tab. Indent with spaces."
    if "single document" in f"{error.context} {problem}":
        return "more than one document. Keep one job per file and remove the `---` between them."
    if "mapping values are not allowed" in problem:
        return "a second `:` in one value, or wrong indentation. Put the text in quotes, or align the line."
    if "unexpected end of stream" in problem:
        return "a quote or bracket that is never closed."
    if "cannot start any token" in problem:
        return "a character with a meaning of its own in YAML. Put the text in quotes."
    return problem


class _Reader:
    """Walks a node graph once; collects values, positions and mistakes."""

    def __init__(self, source: Mark, *, is_loose: bool = False) -> None:
        self.source, self.is_loose = source, is_loose
        self.marks: dict[FieldPath, Mark] = {}
        self.mistakes: list[Mistake] = []
        self._scalars = yaml.SafeLoader("")
        self._open: set[int] = set()
        self._n_fields = 0

    def at(self, node: yaml.Node) -> Mark:
        return _place(self.source, node.start_mark)

    def refuse(self, node: yaml.Node, text: str, path: FieldPath = ()) -> None:
        self.mistakes.append(Mistake(text, self.at(node), path))

    def convert(self, node: yaml.Node, path: FieldPath) -> Any:
        self._n_fields += 1
        if self._n_fields > MAX_FIELDS:
            message = f"more than {MAX_FIELDS} fields after expanding aliases; write them out or use fewer"
            raise ConfigError([Mistake(message, self.at(node))])
        if len(path) > MAX_DEPTH:
            raise ConfigError([Mistake(f"nested more than {MAX_DEPTH} levels deep", self.at(node))])
        if id(node) in self._open:
            raise ConfigError([Mistake("an alias that contains itself", self.at(node))])
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, path)
            return self._scalar(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if self.is_loose and key_node.tag.endswith(":merge"):
                self._merge(value_node, path, result)
                continue
            key = self._key(key_node)
            if key is None:
                continue
            if key in result and not self.is_loose:
                first = self.marks[(*path, key)]
                self.refuse(key_node, f"written twice, first at {first}. Keep one.", (key,))
                continue
            self.marks[(*path, key)] = self.at(key_node)
            result[key] = self.convert(value_node, (*path, key))
        return result

    def _merge(self, node: yaml.Node, path: FieldPath, result: dict[str, Any]) -> None:
        """Takes over mappings that a merge key names; keys of the mapping itself replace theirs."""
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            merged = self.convert(one, path)
            result.update(merged if isinstance(merged, dict) else {})

    def _key(self, node: yaml.Node) -> str | None:
        if self.is_loose and not isinstance(node, yaml.ScalarNode):
            return None
        if not isinstance(node, yaml.ScalarNode):
            self.refuse(node, f"a field name must be a word, not {_kind(node)}")
            return None
        if node.tag.endswith(":merge"):
            self.refuse(node, "merge keys are not supported. Write the fields out.", ("<<",))
            return None
        return str(node.value)

    def _sequence(self, node: yaml.SequenceNode, path: FieldPath) -> list[Any]:
        for index, item in enumerate(node.value):
            self.marks[(*path, index)] = self.at(item)
        return [self.convert(item, (*path, index)) for index, item in enumerate(node.value)]

    def _scalar(self, node: Any, path: FieldPath) -> Any:
        text = str(node.value)
        plain = not node.style
        if plain and _EXPONENT.fullmatch(text):
            return float(text)
        if self.is_loose and (node.tag.rsplit(":", 1)[-1] not in _LOOSE or _OCTAL_OR_SEXAGESIMAL.fullmatch(text)):
            return text
        if plain and _OCTAL_OR_SEXAGESIMAL.fullmatch(text) and node.tag.rsplit(":", 1)[-1] in ("int", "float"):
            self.refuse(node, f"{text} is not a decimal number in YAML. Write it in plain digits.")
            return None
        try:
            value = self._scalars.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, KeyError, IndexError) as error:
            if self.is_loose:
                return text
            problem = getattr(error, "problem", None) or error
            self.refuse(node, f"{short(text)} cannot be read: {problem}")
            return None
        if is_too_long(value) and self.is_loose:
            return text
        if is_too_long(value):
            self.refuse(node, f"{short(text)} is a whole number of more than 64 bits. Write it as 1e30.", path)
            return None
        return value


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return f"the text {short(str(node.value))}"


def flow(value: Any) -> str:
    """A value on one line, as `read_yaml` reads it back."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")

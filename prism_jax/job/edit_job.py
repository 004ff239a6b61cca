"""Sets or removes one field in the text of a job file: all other lines, their order and their comments stay.

The new text is read again and must say what the old one says with that field changed, else nothing is changed. A field that
stands in braces is written anew with them; one that `prism-jax init` left as a comment takes the place of the comment.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import yaml

from ..core.errors import ConfigError, FieldPath, Mark, Mistake, dotted
from ..tables.document import Document
from ..tables.yaml_toml import compose_yaml, flow, read_yaml
from .load_job import FieldChange, with_fields

PLAIN = re.compile(r"[\w.+/-]+( [\w.+/-]+)*")  # values that are written as they were typed
COLUMN = 39  # where the words behind a value begin


def with_field(text: str, name: str, path: FieldPath, value: str | None) -> str:
    """The text of a job file with one field set.

    Args:
        name: of the file in messages.
        path: of the field, from the top of the file.
        value: its YAML; None: the field is left out.

    Raises:
        ConfigError: the text or the value is not YAML, the field lies in a plain value, or it cannot be changed by itself.
    """
    mark = Mark(name)
    root = compose_yaml(text, mark)
    before = Document(name, {}) if root is None else read_yaml(text, name)
    path = _with_indices(before.data, path)
    if value is None:
        path = _emptied(before.data, path)
        wanted = _without(before.data, path)
    else:
        wanted = with_fields(before, [FieldChange(dotted(path), value, mark)]).data
    if wanted == before.data:
        return text
    typed = value if value is not None and PLAIN.fullmatch(value) else None
    changed = _Edit(text, root, wanted, path, typed).text()
    if not _says(changed, name, wanted):
        why = "stands in a form that cannot be changed by itself. Change it in the text."
        raise ConfigError([Mistake(why, before.mark(path), path)])
    return changed


def _says(text: str, name: str, wanted: dict[str, Any]) -> bool:
    try:
        return read_yaml(text, name).data == wanted
    except ConfigError:
        return False


def _with_indices(data: dict[str, Any], path: FieldPath) -> FieldPath:
    """The path with items of lists as numbers, however they are written."""
    found: FieldPath = ()
    for key in path:
        is_item = isinstance(_found(data, found), list) and str(key).isdecimal()
        found = (*found, int(key) if is_item else key)
    return found


def _emptied(data: dict[str, Any], path: FieldPath) -> FieldPath:
    """The outermost field, below the sections, that holds nothing but the field at `path`."""
    while len(path) > 2 and isinstance(above := _found(data, path[:-1]), dict) and list(above) == [path[-1]]:
        path = path[:-1]
    return path


def _found(data: Any, path: FieldPath) -> Any:
    try:
        return _at(data, path)
    except (KeyError, TypeError, IndexError):
        return None


def _without(data: dict[str, Any], path: FieldPath) -> dict[str, Any]:
    """A copy without a field; a section that becomes empty has no value."""
    wanted = copy.deepcopy(data)
    above = _found(wanted, path[:-1])
    if isinstance(above, dict) and path[-1] in above:
        del above[path[-1]]
        if not above and len(path) > 1:
            _at(wanted, path[:-2])[path[-2]] = None
    return wanted


def _at(data: Any, path: FieldPath) -> Any:
    for key in path:
        data = data[key]
    return data


class _Edit:
    """One change of a text.

    Attributes:
        before: the text.
        root: its nodes; None where it holds nothing.
        wanted: what the new text is to say.
        path: the field that changes.
        typed: its value as it was typed, where that may stand as it is.
    """

    def __init__(self, before: str, root: yaml.Node | None, wanted: dict[str, Any], path: FieldPath, typed: str | None):
        self.before, self.root, self.wanted, self.path, self.typed = before, root, wanted, path, typed
        self._starts = [0]
        for line in before.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    def text(self) -> str:
        """The changed text."""
        if self.root is None:
            return self._ended(self.before) + "\n".join(self._lines(self.path[0], self.path[:1], 0)) + "\n"
        node, key, done = self.root, None, ()
        while len(done) < len(self.path) and not _is_braced(node):
            found = _child(node, self.path[len(done)])
            if found is None:
                break
            key, node = found
            done = (*done, self.path[len(done)])
        if done == self.path and key is not None and not self._is_kept():
            return self._removed(key, node)
        if _is_braced(node):
            return self._replaced(node, flow(_at(self.wanted, done)))
        if done == self.path:
            value = self._value(done)
            return (
                self._replaced(node, value) if key is None or not _is_block(node) else self._in_line(key, node, value)
            )
        if isinstance(node, yaml.MappingNode):
            return self._inserted(node, done)
        return self._opened(key, node, done)

    def _is_kept(self) -> bool:
        above = _found(self.wanted, self.path[:-1])
        return isinstance(above, list) or (isinstance(above, dict) and self.path[-1] in above)

    def _value(self, path: FieldPath) -> str:
        return self.typed if self.typed is not None and path == self.path else flow(_at(self.wanted, path))

    def _lines(self, key: str | int, path: FieldPath, indent: int) -> Iterator[str]:
        """Lines of a field that is new, with those inside."""
        value = _at(self.wanted, path)
        if isinstance(value, dict) and value:
            yield f"{' ' * indent}{flow(key)}:"
            for inner in value:
                yield from self._lines(inner, (*path, inner), indent + 2)
        else:
            yield f"{' ' * indent}{flow(key)}: {self._value(path)}"

    def _offset(self, mark: Any) -> int:
        return min(self._starts[min(mark.line, len(self._starts) - 1)] + mark.column, len(self.before))

    def _end(self, node: yaml.Node) -> int:
        """Where a value ends, without the line end behind it."""
        if _is_block(node):
            last = node.value[-1]
            return self._end(last[1] if isinstance(node, yaml.MappingNode) else last)
        end = self._offset(node.end_mark)
        return len(self.before[:end].rstrip("\n")) if getattr(node, "style", None) in ("|", ">") else end

    def _line_end(self, at: int) -> int:
        found = self.before.find("\n", at)
        return len(self.before) if found < 0 else found

    def _replaced(self, node: yaml.Node, value: str) -> str:
        start, end = self._offset(node.start_mark), self._end(node)
        space = " " if start == end and self.before[start - 1 : start] == ":" else ""
        return self.before[:start] + space + value + self.before[end:]

    def _in_line(self, key: yaml.Node, node: yaml.Node, value: str) -> str:
        """A value in the place of lines; the words behind its name stay."""
        colon = self.before.index(":", self._offset(key.end_mark)) + 1
        about = self.before[colon : self._line_end(colon)].strip()
        kept = f" {about}" if about.startswith("#") else ""
        return f"{self.before[:colon]} {value}{kept}{self.before[self._line_end(self._end(node)) :]}"

    def _removed(self, key: yaml.Node, node: yaml.Node) -> str:
        start = self._starts[key.start_mark.line]
        end = self._line_end(max(self._end(node), self._offset(key.end_mark)))
        return self.before[:start] + self.before[end + 1 :]

    def _inserted(self, node: yaml.Node, above: FieldPath) -> str:
        """The field as a new line of its section."""
        first, indent = node.value[0][0].start_mark.line, node.value[0][0].start_mark.column
        return self._new_lines(above, first, self._line_end(self._end(node)), indent)

    def _opened(self, key: yaml.Node | None, node: yaml.Node, above: FieldPath) -> str:
        """A section in the place of its name, or of nothing."""
        if key is None:
            return self.before
        start, end, indent = self._offset(node.start_mark), self._end(node), key.start_mark.column + 2
        value = _at(self.wanted, above)
        if start == end and len(value) == 1:
            return self._new_lines(above, key.start_mark.line + 1, self._line_end(end), indent)
        lines = [line for name in value for line in self._lines(name, (*above, name), indent)]
        line_end = self._line_end(end)
        head = self.before[:start].rstrip(" ") + self.before[end:line_end]
        return "\n".join([head, *lines]) + (self.before[line_end:] or "\n")

    def _new_lines(self, above: FieldPath, first: int, end: int, indent: int) -> str:
        """The field below `above`: in the place of its comment from line `first` on, else behind the character `end`."""
        name = self.path[len(above)]
        new = list(self._lines(name, (*above, name), indent))
        lines = self.before.split("\n")
        for n in range(first, len(lines)):
            if self._starts[n] > end and lines[n].strip() and not lines[n].lstrip().startswith("#"):
                break
            comment = re.match(rf" {{{indent}}}##? {re.escape(str(name))}:(.*)", lines[n])
            if comment and len(new) == 1:
                about = comment[1].rpartition(" # ")[2] if " # " in comment[1] else ""
                lines[n] = f"{new[0].ljust(COLUMN)} # {about}" if about else new[0]
                return "\n".join(lines)
        return "\n".join([self.before[:end], *new]) + (self.before[end:] or "\n")

    @staticmethod
    def _ended(text: str) -> str:
        return text if not text or text.endswith("\n") else text + "\n"


def _is_braced(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and not node.flow_style


def _child(node: yaml.Node, key: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Name and value of a field of a section, or an item of a list; None where there is none."""
    if isinstance(node, yaml.MappingNode):
        return next(((name, value) for name, value in node.value if name.value == str(key)), None)
    if isinstance(node, yaml.SequenceNode) and str(key).isdecimal() and int(key) < len(node.value):
        return node, node.value[int(key)]
    return None

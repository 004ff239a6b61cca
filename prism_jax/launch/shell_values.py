"""Values in a shell script: words, integers and conditions, as far as they are known.

A value that is not known stands in a text as a mark, whose number says which open value it is. Marks are characters of private
use, which scripts are freed of, so that a text with marks can be read as a script again (`eval`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

MARKS = re.compile("[\ue000-\ue0ff]")  # what scripts are freed of
LAST_MARK = "\ue001"  # ends an open value
_OPEN = re.compile("\ue000(\\d+)\ue001")  # an open value inside a text
_BREAK = "\ue003"  # between the words of "$@" and of arrays


class OpenValue(NamedTuple):
    """A value that the script does not say.

    Attributes:
        name: of a variable, a position ("1"), or a command.
        line: where it is used.
        is_undecided: whether it is known but for the way that a condition goes.
    """

    name: str
    line: int
    is_undecided: bool = False


class OpenValues:
    """Open values of a script, by number."""

    def __init__(self) -> None:
        self.known: list[OpenValue] = []

    def mark(self, name: str, line: int, *, is_undecided: bool = False) -> str:
        """Returns a text that stands for an open value."""
        self.known.append(OpenValue(name[:80], line, is_undecided))
        return f"\ue000{len(self.known) - 1}\ue001"

    def inside(self, text: str) -> list[OpenValue]:
        """Lists the open values inside a text."""
        return [self.known[int(number)] for number in _OPEN.findall(text) if int(number) < len(self.known)]

    def shown(self, text: str) -> str:
        """Returns the text with names in place of marks."""
        return _OPEN.sub(lambda found: f"${{{self.known[int(found[1])].name}}}", text)


def is_open(text: str) -> bool:
    """Whether a text holds an open value."""
    return _OPEN.search(text) is not None


class ShellWord(NamedTuple):
    """A word of a command line, with the line that it is from."""

    text: str
    line: int


Value = str | list[str]


@dataclass
class ShellState:
    """Variables, positional arguments and functions at a point of the script; names of variables that scripts it starts see."""

    variables: dict[str, Value]
    positional: list[str]
    functions: dict[str, Any] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    exported: set[str] = field(default_factory=set)

    def copy(self) -> ShellState:
        """Returns the same, to be changed by itself."""
        return ShellState(
            dict(self.variables), list(self.positional), dict(self.functions), set(self.local), set(self.exported)
        )

    def take(self, ways: Sequence[ShellState], mark: Callable[[str], str]) -> None:
        """Takes over what several ways leave, of which it is open which one is gone.

        Args:
            mark: name of a variable that they leave unlike -> its open value.
        """
        for name in dict.fromkeys(name for way in ways for name in way.variables):
            values = [way.variables.get(name) for way in ways]
            same = all(value == values[0] for value in values)
            known = values[0] if same else mark(name)
            if known is not None:
                self.variables[name] = known
        self.positional = ways[0].positional
        for way in ways:
            self.functions |= way.functions
            self.exported |= way.exported


class _Fragment(NamedTuple):
    """A part of a word; an unquoted expansion is split at spaces."""

    text: str
    is_split: bool = False


class ShellValues:
    """Computes words, integers and conditions from nodes of the grammar of bash.

    Attributes:
        open: open values so far.
        used: those that expansions have met, in order.
        first_line: lines in front of the text that is read.
    """

    def __init__(self) -> None:
        self.open, self.used, self.first_line = OpenValues(), list[OpenValue](), 0

    def line(self, node: Any) -> int:
        """Returns the line of a node in its file."""
        return self.first_line + node.start_point[0] + 1

    def words(self, node: Any, state: ShellState) -> list[ShellWord]:
        """Words that a node becomes."""
        found: list[str] = [""]
        is_empty = True
        for fragment in self._fragments(node, state):
            parts = fragment.text.split(_BREAK)
            if fragment.is_split:
                parts = [word for part in parts for word in part.split()]
            elif parts == [""] and _BREAK in fragment.text:
                parts = []
            if not parts:
                continue
            is_empty = False
            found[-1] += parts[0]
            found += parts[1:]
        return [] if is_empty else [ShellWord(text, self.line(node)) for text in found]

    def text(self, node: Any, state: ShellState) -> str:
        """The text of a node, without splitting."""
        return "".join(fragment.text.replace(_BREAK, " ") for fragment in self._fragments(node, state))

    def _fragments(self, node: Any, state: ShellState) -> Iterator[_Fragment]:
        kind = node.type
        if kind == "string":
            yield from self._quoted(node, state)
        elif kind == "raw_string":
            yield _Fragment(text_of(node)[1:-1])
        elif kind == "ansi_c_string":
            yield _Fragment(text_of(node)[2:-1].replace("\\n", "\n").replace("\\t", "\t"))
        elif kind == "concatenation":
            yield from (part for child in node.children for part in self._fragments(child, state))
        elif kind in ("simple_expansion", "expansion"):
            yield _Fragment(self._expanded(node, state), is_split=True)
        elif kind == "arithmetic_expansion":
            number = self._number(node.named_children[0], state) if node.named_children else 0
            yield _Fragment(str(number) if number is not None else self.open.mark(text_of(node), self.line(node)))
        elif kind in ("command_substitution", "process_substitution"):
            known = self._substituted(node, state) if kind == "command_substitution" else None
            found = self.open.mark(text_of(node), self.line(node)) if known is None else known
            yield _Fragment(found, is_split=known is not None)
        elif kind in ("string_content", "heredoc_content"):
            yield _Fragment(_unescaped(text_of(node), '"'))
        else:
            yield _Fragment(_unescaped(text_of(node), ""))

    def body(self, node: Any, state: ShellState) -> str:
        """The text of a here-document."""
        return "".join(part.text.replace(_BREAK, " ") for part in self._quoted(node, state, edge=0))

    def _quoted(self, node: Any, state: ShellState, edge: int = 1) -> Iterator[_Fragment]:
        """Parts of a string in double quotes (`edge` bytes at either end); the gaps between them are text."""
        source, start = node.text, node.start_byte
        at = edge
        yield _Fragment("")
        for child in node.named_children:
            raw = source[child.start_byte - start : child.end_byte - start]
            gap = source[at : child.start_byte - start].decode("utf-8", "replace")
            yield _Fragment(_unescaped(gap, '"'))
            if child.type != "string_content":  # the grammar puts spaces in front of an expansion into it
                yield _Fragment(raw[: len(raw) - len(raw.lstrip())].decode())
            alone = len(node.named_children) == 1  # "${array[@]}" is several words
            for part in self._fragments(child, state):
                yield _Fragment(part.text if alone else part.text.replace(_BREAK, " "))
            at = child.end_byte - start
        yield _Fragment(_unescaped(source[at : len(source) - edge].decode("utf-8", "replace"), '"'))

    def _substituted(self, node: Any, state: ShellState) -> str | None:
        """Output of a command that only puts known words together; None where it is another, or open."""
        children = node.named_children
        if not children:
            return None
        *before, command = children
        if command.type != "command" or any(one.type != "variable_assignment" for one in before):
            return None
        joint = " "
        for one in before:
            if text_of(one.child_by_field_name("name")) != "IFS":
                return None
            joint = self.text(one.child_by_field_name("value"), state)[:1]
        words = [word.text for child in command.named_children for word in self._joined(child, state, joint)]
        printed = _PRINTS.get(words[0]) if words and not any(map(is_open, words)) else None
        return None if printed is None else printed(words[1:])

    def _joined(self, node: Any, state: ShellState, joint: str) -> list[ShellWord]:
        """Words of a node; "${array[*]}" is one, joined by the first character of IFS."""
        if node.type == "command_name":
            return self.words(node.named_children[0], state) if node.named_children else []
        found = _STARRED.fullmatch(text_of(node))
        value = state.variables.get(found[1]) if found is not None else None
        if isinstance(value, list):
            return [ShellWord(joint.join(value), self.line(node))]
        return self.words(node, state)

    def _expanded(self, node: Any, state: ShellState) -> str:
        children = [child for child in node.children if child.type not in ("$", "${", "}")]
        line = self.line(node)
        if not children or text_of(node).lstrip().startswith("${#"):
            return self.open.mark(text_of(node).strip(), line)
        subject, rest = children[0], children[1:]
        if subject.type == "!":
            return self.open.mark(text_of(node).strip(), line)
        index = ""
        if subject.type == "subscript":
            index = text_of(subject.child_by_field_name("index"))
            subject = subject.child_by_field_name("name")
        value = self._value(text_of(subject), index, state)
        operator = rest[0].type if rest else ""
        operand = "".join(self.text(one, state) for one in rest[1:]) if rest else ""
        if operator in (":-", "-", ":=", "=") and (value is None or (value == "" and ":" in operator)):
            value = operand
            if "=" in operator:
                state.variables[text_of(subject)] = operand
        elif operator:
            value = _with_operator(value, operator, operand, text_of(node))
        found = self.open.mark(text_of(subject), line) if value is None else value
        self.used += self.open.inside(found)
        return found

    def _value(self, name: str, index: str, state: ShellState) -> str | None:
        """Value of a variable, an element of an array, or a position; None where it is not set."""
        if name in ("@", "*"):
            return _BREAK.join(state.positional[1:])
        if name == "#":
            return str(len(state.positional) - 1)
        if name.isdecimal():
            return state.positional[int(name)] if int(name) < len(state.positional) else None
        value = state.variables.get(name)
        if isinstance(value, list):
            if index in ("@", "*"):
                return _BREAK.join(value)
            at = int(index) if index.isdecimal() else 0
            return value[at] if at < len(value) else None
        return value

    # --- Numbers and conditions

    def _number(self, node: Any, state: ShellState) -> int | None:
        """An integer expression; None where it is open."""
        kind, children = node.type, node.named_children
        if kind in ("number", "word", "variable_name", "simple_expansion", "expansion", "string", "concatenation"):
            text = self.text(node, state).strip()
            if kind in ("word", "variable_name") and not _INTEGER.fullmatch(text):
                text = str(self._value(text, "", state) or "").strip()
            return int(text) if _INTEGER.fullmatch(text) and len(text) < 19 else None
        if kind == "parenthesized_expression" and children:
            return self._number(children[0], state)
        if kind == "unary_expression" and children:
            inner = self._number(children[0], state)
            return -inner if inner is not None and text_of(node).startswith("-") else inner
        if kind == "binary_expression" and len(children) == 2:
            left, right = (self._number(child, state) for child in children)
            operator = text_of(node.child_by_field_name("operator"))
            apply = _ARITHMETIC.get(operator)
            if left is None or right is None or apply is None or (operator in "/%" and not right):
                return None
            found = apply(left, right)
            return found if abs(found) < 10**18 else None
        if kind == "ternary_expression" and len(children) == 3:
            known = self._number(children[0], state)
            return None if known is None else self._number(children[1 if known else 2], state)
        return None

    def holds(self, node: Any, state: ShellState) -> bool | None:
        """Whether a condition holds; None where that is open."""
        kind, children = node.type, node.named_children
        if kind == "command":
            words = [word.text for child in children for word in self.words(child, state)]
            if words[:1] == ["test"]:
                return self._tested(words[1:])
            return {"true": True, ":": True, "false": False}.get(words[0] if words else "")
        if kind == "negated_command" and children:
            inner = self.holds(children[0], state)
            return None if inner is None else not inner
        if kind == "list" and len(children) == 2:
            operator = next((child.type for child in node.children if child.type in ("&&", "||")), "&&")
            return _both([self.holds(child, state) for child in children], operator)
        if kind == "test_command" and children:
            return self._condition(children[0], state)
        if kind == "compound_statement" and children:
            found = self._number(children[0], state)
            return None if found is None else bool(found)
        return None

    def _condition(self, node: Any, state: ShellState) -> bool | None:
        kind, children = node.type, node.named_children
        if kind == "parenthesized_expression" and children:
            return self._condition(children[0], state)
        if kind == "unary_expression" and children:
            operator = text_of(node.children[0])
            if operator == "!":
                inner = self._condition(children[-1], state)
                return None if inner is None else not inner
            return self._tested([operator, self.text(children[-1], state)])
        if kind == "binary_expression":
            operator = text_of(node.child_by_field_name("operator") or node.children[1])
            if operator in ("&&", "||", "-a", "-o"):
                sides = [self._condition(child, state) for child in (node.children[0], node.children[-1])]
                return _both(sides, "&&" if operator in ("&&", "-a") else "||")
            first = node.children[0]
            negated = (
                first.type == "unary_expression" and text_of(first.children[0]) == "!"
            )  # binds less than the grammar says
            left = self.text(first.children[-1] if negated else first, state)
            return self._tested([*(["!"] if negated else []), left, operator, self.text(node.children[-1], state)])
        return self._tested([self.text(node, state)])

    def _tested(self, words: list[str]) -> bool | None:
        """A test of known words."""
        if words[:1] == ["!"]:
            inner = self._tested(words[1:])
            return None if inner is None else not inner
        if len(words) == 2 and words[0] in ("-z", "-n"):
            if is_open(words[1]):
                return None
            return (words[1] == "") is (words[0] == "-z")
        if any(is_open(word) for word in words):
            return None
        if len(words) == 1:
            return words[0] != ""
        if len(words) == 3 and words[1] in ("=", "==", "!="):
            return fnmatchcase(words[0], words[2]) is (words[1] != "!=")
        if len(words) == 3 and words[1] in _COMPARED and all(_INTEGER.fullmatch(one.strip()) for one in words[::2]):
            return _COMPARED[words[1]](int(words[0]), int(words[2]))
        return None


_INTEGER = re.compile(r"-?\d+")
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: int(a / b) if abs(a) < 1 << 52 else a // b,
    "%": lambda a, b: a - b * int(a / b),
    "**": lambda a, b: a**b if 0 <= b <= 62 and abs(a) <= 1 << 20 else 10**18,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


_STARRED = re.compile(r'"\$\{(\w+)\[\*\]\}"')
MOST_NUMBERS = 1000  # of seq
_FIELD = re.compile(r"%[sd]")


def formatted(words: Sequence[str]) -> str | None:
    """Text that `printf` makes of its words; None where its form is another than %s and %d."""
    if not words or "%" in _FIELD.sub("", words[0]):
        return None
    rest = list(words[1:])
    form = words[0].replace("\\n", "\n")
    rounds = max(-(-len(rest) // max(len(_FIELD.findall(form)), 1)), 1)
    return "".join(_FIELD.sub(lambda _: rest.pop(0) if rest else "", form) for _ in range(min(rounds, MOST_NUMBERS)))


def _numbers(words: Sequence[str]) -> str | None:
    if not 1 <= len(words) <= 3 or not all(_INTEGER.fullmatch(one) and len(one) < 10 for one in words):
        return None
    first, step, last = {1: (1, 1), 2: (int(words[0]), 1), 3: (int(words[0]), int(words[1 % len(words)]))}[
        len(words)
    ] + (int(words[-1]),)
    if not step or abs(last - first) // abs(step) > MOST_NUMBERS:
        return None
    return " ".join(map(str, range(first, last + (1 if step > 0 else -1), step)))


def _computed(words: Sequence[str]) -> str | None:
    if (
        len(words) != 3
        or not (_INTEGER.fullmatch(words[0]) and _INTEGER.fullmatch(words[2]))
        or len("".join(words)) > 30
    ):
        return None
    apply, left, right = _ARITHMETIC.get(words[1]), int(words[0]), int(words[2])
    return None if apply is None or (words[1] in "/%" and not right) else str(apply(left, right))


_PRINTS: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "echo": lambda words: " ".join(words[1:] if words[:1] == ["-n"] else words),
    "printf": formatted,
    "seq": _numbers,
    "expr": _computed,
    "basename": lambda words: (
        words[0].rstrip("/").rpartition("/")[2].removesuffix(words[1] if len(words) > 1 else "\0") if words else None
    ),
    "dirname": lambda words: (words[-1].rstrip("/").rpartition("/")[0] or ".") if words else None,
}


def text_of(node: Any) -> str:
    """Returns the source of a node."""
    return "" if node is None else node.text.decode("utf-8", "replace")


def listed(value: Value) -> list[str]:
    """Returns a value as the elements of an array."""
    return value if isinstance(value, list) else [value] if value else []


def _unescaped(text: str, quote: str) -> str:
    text = text.replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", text) if quote else re.sub(r"\\(.)", r"\1", text)


def _with_operator(value: str | None, operator: str, operand: str, source: str) -> str | None:
    """The value of ${NAME+OTHER}, ${NAME%PATTERN}, ${NAME#PATTERN} or ${NAME/OLD/NEW}; None where it is open."""
    if operator in (":+", "+"):
        return operand if value else ""
    if operator in (":-", "-", ":=", "=", ":?", "?"):
        return value
    if value is None or is_open(value):
        return None
    if operator in ("/", "//"):
        old, _, new = source.strip()[2:-1].partition(operator)[2].partition("/")
        return value.replace(old, new, -1 if operator == "//" else 1)
    return _trimmed(value, operator, operand) if operator in ("%", "%%", "#", "##") else None


def _trimmed(value: str, operator: str, pattern: str) -> str:
    """The value without the part at its start or end that a pattern matches: the shortest, or the longest."""
    cuts = range(len(value) + 1)
    if operator.startswith("%"):
        found = [at for at in cuts if fnmatchcase(value[at:], pattern)]
        return value if not found else value[: max(found) if operator == "%" else min(found)]
    found = [at for at in cuts if fnmatchcase(value[:at], pattern)]
    return value if not found else value[min(found) if operator == "#" else max(found) :]


def _both(sides: Sequence[bool | None], operator: str) -> bool | None:
    decides = operator == "||"
    if decides in sides:
        return decides
    return None if None in sides else not decides

"""Parses HLO text into a `Module`, line by line, in time linear in the line and within bounds.

The text is what `compiled.as_text()` and `--xla_dump_to` write, of XLA of 2020 to 2026, and the files and folders that hold it:
names with and without `%`, operands with and without shapes. It is untrusted: brackets, commas and quotes are counted in one
pass, nothing recurses, sizes and counts are bounded, and whatever is wrong names its line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from ...core.errors import DataError
from ...core.read_file import GZIP, explained, lines_of, open_input, read_text
from .types import DTYPES, ArrayShape, Computation, Instruction, Module, callees_first, refusal

MOST_NESTED = 64  # brackets inside brackets; XLA writes about ten
_MARK = re.compile(r'["(){}\[\],]|/\*')
_QUOTE = re.compile(r'["\\]')


class ScanError(ValueError):
    """A line cannot be taken apart."""


class UnclosedError(ScanError):
    """A line ends inside brackets; more of it may follow."""


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`.

    Raises:
        UnclosedError: there is none.
        ScanError: nested too deeply.
    """
    for position, mark, depth in _marks(text, start):
        if depth == 0 and mark in ")}]":
            return position
    raise UnclosedError(f"a bracket is never closed (column {start + 1})")


def pieces(text: str) -> Iterator[str]:
    """Parts between the commas that no bracket or quote encloses, without blanks around them; empty parts are left out.

    Raises:
        ScanError: brackets that do not match, or nested too deeply.
    """
    begins = depth = 0
    for position, mark, depth in _marks(text, 0):
        if mark == "," and depth == 0:
            if part := text[begins:position].strip():
                yield part
            begins = position + 1
    if depth:
        raise ScanError("a bracket is never closed")
    if part := text[begins:].strip():
        yield part


def _marks(text: str, start: int) -> Iterator[tuple[int, str, int]]:
    """Position of every bracket and comma outside quotes and comments, and how deep it is nested after it."""
    depth, position = 0, start
    while found := _MARK.search(text, position):
        position, mark = found.end(), found.group()
        if mark == '"':
            position = _after_quote(text, position)
            continue
        if mark == "/*":
            end = text.find("*/", position)
            if end < 0:
                raise ScanError("a comment is never closed")
            position = end + 2
            continue
        if mark in "({[":
            depth += 1
            if depth > MOST_NESTED:
                raise ScanError(f"brackets are nested more than {MOST_NESTED} deep (column {position})")
        elif mark in ")}]":
            depth -= 1
            if depth < 0:
                raise ScanError(f"a bracket is closed that was never opened (column {position})")
        yield found.start(), mark, depth


def _after_quote(text: str, position: int) -> int:
    """Position behind the quote that closes a string, whose content starts at `position`."""
    while found := _QUOTE.search(text, position):
        if found.group() == '"':
            return found.end()
        position = found.end() + 1  # what follows a backslash belongs to the string
    raise UnclosedError("a quoted text is never closed")


MOST_INSTRUCTIONS = 500_000
MOST_ELEMENTS = 2**50  # of an array
MOST_JOINED = 1000  # lines of one instruction: constants of old dumps
MOST_RANK = 64
MOST_DEVICES = 2**24
_MOST_DIGITS = 12  # of a count that is bounded anyhow
_KEPT_CHARS = 1 << 16  # of an attribute
_LITERAL_CHARS = 64
_MODULE = re.compile(r"HloModule\s+([^\s,]+)")
_OPENS = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*(\(.*)?\{$")
_ASSIGNS = re.compile(r"(ROOT\s+)?%?([\w.\-]+)\s+=\s+")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\]")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_KEPT = frozenset({
    "backend_config", "batch_group_count", "body", "branch_computations", "called_computations", "calls",
    "channel_id", "condition", "custom_call_target", "dim_labels", "dimensions", "direction",
    "dynamic_slice_sizes", "false_computation", "feature_group_count", "index", "kind", "lhs_batch_dims",
    "lhs_contracting_dims", "replica_groups", "rhs_batch_dims", "rhs_contracting_dims", "slice", "source_target_pairs",
    "to_apply", "true_computation", "use_global_device_ids", "window",
})  # fmt: skip
_WITHOUT_OPERANDS = ("constant", "parameter", "iota", "partition-id", "replica-id")


@dataclass
class _Open:
    """A computation that is being read."""

    name: str
    line: int
    is_entry: bool
    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""


def parse_hlo(text: str, file: str) -> Module:
    """The module that a text describes, checked: operands and computations exist, and no computation calls itself.

    Args:
        text: whole text.
        file: name in messages.

    Raises:
        DataError: not the text of one HLO module, damaged, or beyond the bounds above; names file and line.
    """
    header, done, current, entry, n = "", {}, None, "", 0
    for line, row in _rows(text, file):
        if current is None:
            header, current = _between(header, row, line, file)
        elif row == "}" or row.startswith("}, execution_thread"):
            entry = _close(current, done, file) or entry
            current = None
        else:
            n += 1
            if n > MOST_INSTRUCTIONS:
                raise refusal(file, line, f"more than {MOST_INSTRUCTIONS:,} instructions")
            _add(current, row, line, file)
    if not header:
        raise refusal(file, 1, f"no line starts with HloModule. {REMEDY}")
    if current is not None:
        raise refusal(file, current.line, f"the computation {current.name[:60]} never ends. The file was cut off.")
    if not entry:
        raise refusal(file, 1, "no computation is marked ENTRY. The file was cut off.")
    module = _module(header, file, done, entry)
    callees_first(module)
    return module


def _between(header: str, row: str, line: int, file: str) -> tuple[str, _Open | None]:
    """The header of the module and the computation that begins, if one does, after a row outside of all computations."""
    if row.startswith("HloModule"):
        if header:
            raise refusal(file, line, "a second module. Give each a file of its own.")
        return row, None
    if header and (opened := _OPENS.match(row)):
        return header, _Open(opened[2], line, bool(opened[1]))
    if not header or not (row in _TABLES or row[0].isdigit()):
        raise refusal(file, line, f"{row[:60]!r} is not valid HLO text. {REMEDY}")
    return header, None


REMEDY = (
    "Give the text of `jax.jit(step).lower(...).compile().as_text()`, or a file of --xla_dump_to that ends in "
    "after_optimizations.txt."
)


def _rows(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Lines with something on them; those of one instruction joined."""
    held, begins, parts = "", 0, 0
    for number, raw in enumerate(lines_of(text), 1):
        row = raw.strip()
        if not row or row.startswith("//"):
            continue
        if held:
            row, parts = f"{held} {row}", parts + 1
        else:
            begins, parts = number, 1
        if parts < MOST_JOINED and (assigns := _ASSIGNS.match(row)) and _is_open(row, assigns.end()):
            held = row
            continue
        held = ""
        yield begins, row
    if held:
        raise refusal(file, begins, "a bracket is never closed. The file was cut off.")


def _is_open(row: str, start: int) -> bool:
    if row.endswith((")", "}", '"')):  # the usual last character: what is wrong with it shows later
        return False
    try:
        for _ in pieces(row[start:]):
            pass
    except UnclosedError:
        return True
    except ScanError as error:
        return "never closed" in str(error)
    return False


def _close(current: _Open, done: dict[str, Computation], file: str) -> str:
    """Keeps a computation; its name where it is the entry."""
    if current.name in done:
        raise refusal(file, current.line, f"a second computation is called {current.name[:60]}")
    if not current.instructions:
        raise refusal(file, current.line, f"the computation {current.name[:60]} is empty")
    root = current.root or next(reversed(current.instructions))
    users: dict[str, list[str]] = {}
    for instruction in current.instructions.values():
        for operand in dict.fromkeys(instruction.operands):
            users.setdefault(operand, []).append(instruction.name)
    done[current.name] = Computation(current.name, current.instructions, root, current.line, users)
    return current.name if current.is_entry else ""


def _add(current: _Open, row: str, line: int, file: str) -> None:
    assigns = _ASSIGNS.match(row)
    if assigns is None:
        raise refusal(file, line, f"{row[:60]!r} is no instruction")
    name = assigns[2]
    if name in current.instructions:
        raise refusal(file, line, f"a second instruction is called {name[:60]}")
    try:
        made = _instruction(name, row, assigns.end(), line)
    except ScanError as error:
        raise refusal(file, line, str(error)) from None
    for operand in made.operands:  # of what stands above it: nothing waits for itself
        if operand not in current.instructions:
            text = f"{operand[:60]!r} is no instruction above it in {current.name[:60]}"
            raise refusal(file, line, text)
    current.instructions[name] = made
    if assigns[1]:
        current.root = name


def _instruction(name: str, row: str, start: int, line: int) -> Instruction:
    end = closing(row, start) + 1 if row[start : start + 1] == "(" else row.find(" ", start)
    shapes = _shapes(row[start : max(end, start)])
    found = _OPCODE.match(row, max(end, start))
    if found is None:
        raise ScanError(f"{row[start : start + 60]!r} is no shape and operation")
    opens = found.end() - 1
    shut = closing(row, opens)
    inside, opcode = row[opens + 1 : shut], found[1]
    bare = opcode in _WITHOUT_OPERANDS
    operands = () if bare else tuple(_operand(part) for part in pieces(inside))
    attributes, op_name = _attributes(row[shut + 1 :])
    literal = inside[:_LITERAL_CHARS] if bare else ""
    if opcode == "parameter":
        _whole("number of a parameter", literal)
    if opcode == "get-tuple-element":
        _whole("index of an element", attributes.get("index", ""))
    return Instruction(name, opcode, shapes, operands, attributes, literal, op_name, line)


def _operand(part: str) -> str:
    """The name in `f32[2]{0} %x`, `%x` or `/*index=5*/x`."""
    return part.rsplit("*/", 1)[-1].split(" ")[-1].lstrip("%")


def _shapes(text: str) -> tuple[ArrayShape, ...]:
    found = tuple(_shape(match[1], match[2]) for match in _ARRAY.finditer(text))
    if not found and text not in ("()", "token[]"):
        raise ScanError(f"{text[:60]!r} is no shape")
    return found


def _shape(dtype: str, sizes: str) -> ArrayShape:
    if dtype not in DTYPES:
        raise ScanError(f"{dtype[:60]!r} is no type of elements")
    parts = [part.strip().removeprefix("<=") for part in sizes.split(",")] if sizes.strip() else []
    if len(parts) > MOST_RANK:
        raise ScanError(f"an array of {len(parts)} dimensions, but at most {MOST_RANK} are read")
    dims = tuple(_whole("size of a dimension", part) for part in parts)
    if prod(dims) > MOST_ELEMENTS:
        raise ScanError(f"an array of more than {MOST_ELEMENTS:,} elements: {dtype}[{sizes[:60]}]")
    return ArrayShape(dtype, dims)


def _whole(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ScanError(f"the {what}, {text[:60]!r}, is no whole number from 0")
    return int(text)


def _attributes(text: str) -> tuple[dict[str, str], str]:
    """Returns the attributes that are kept, and the `op_name` of the metadata."""
    kept, op_name = {}, ""
    for part in pieces(text):
        key, _, value = part.partition("=")
        if key in _KEPT and len(value) <= _KEPT_CHARS:
            kept[key] = value
        elif key == "device_ids" and "replica_groups" in kept:  # the rest of a mesh
            kept["replica_groups"] += f", {part[:_KEPT_CHARS]}"
        elif key == "metadata" and (found := _OP_NAME.search(value)):
            op_name = found[1].replace("\\'", "'")
    return kept, op_name


def _module(header: str, file: str, done: dict[str, Computation], entry: str) -> Module:
    name = _MODULE.match(header)
    counts = []
    for key in ("replica_count", "num_partitions"):
        found = re.search(rf"\b{key}=(-?\d+)", header)
        count = int(found[1][:_MOST_DIGITS]) if found else 1
        if not 1 <= count <= MOST_DEVICES:
            raise refusal(file, 1, f"{key} = {count}, but it must be 1 to {MOST_DEVICES:,}")
        counts.append(count)
    if counts[0] * counts[1] > MOST_DEVICES:
        raise refusal(file, 1, f"{counts[0]} x {counts[1]} devices, but at most {MOST_DEVICES:,} are read")
    return Module(name[1] if name else "", file, done, entry, counts[0], counts[1], "is_scheduled=true" in header)


MOST_BYTES = 1 << 28
MOST_FILES = 100_000  # of a folder
_HEAD = 1 << 12
_ENDINGS = (".txt", ".hlo", ".txt.gz", ".hlo.gz")
_OPTIMISED = "after_optimizations.txt"


def is_hlo(path: str | Path) -> bool:
    """Whether a file is HLO text, by its begin, or a folder holds a dump of XLA."""
    path = Path(path)
    if path.is_dir():
        return bool(_dumped(path))
    try:
        with open_input(path) as file:
            start = file.read(_HEAD)
    except DataError:
        return False
    return b"HloModule " in start or (start.startswith(GZIP) and path.name.endswith(_ENDINGS))


def read_hlo(path: str | Path, module: str = "") -> Module:
    """The module in a file, or the largest optimised module in a folder.

    Args:
        module: part of the name of a file in the folder; empty: the largest.

    Raises:
        DataError: cannot be read, or is no HLO text within bounds.
    """
    path = Path(path)
    if path.is_dir():
        path = _chosen(path, module)
    return parse_hlo(read_text(path, MOST_BYTES, REMEDY, unpack=True), str(path))


def _chosen(folder: Path, module: str) -> Path:
    found = [(size, path) for size, path in _dumped(folder) if module in path.name]
    if not found:
        named = f" with {module!r} in its name" if module else ""
        raise DataError(f"{folder}: holds no file{named} that ends in {_OPTIMISED}. {REMEDY}")
    return max(found)[1]


def _dumped(folder: Path) -> list[tuple[int, Path]]:
    """Sizes and paths of optimised modules."""
    found = []
    with explained(folder), os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_FILES:
                raise DataError(f"{folder}: more than {MOST_FILES:,} files. Name the module's own file.")
            if entry.name.endswith(_OPTIMISED) and entry.is_file():
                found.append((entry.stat().st_size, Path(entry.path)))
    return found

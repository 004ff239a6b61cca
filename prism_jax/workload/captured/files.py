"""Files of captured programs: those of `prism-jax capture`, read and written, and those of other programs that are read as such.

Ours are lines of JSON, packed with gzip, every line one object:

    {"capture": 1, "name": ..., "world": ..., "axes": {...}, ...}      first line: the program
    {"class": "stage 0", "n_ranks": 8, "stage": 0, ...}                 a class of ranks, followed by its rows
    {"op": "aten::mm", "kind": "gemm", "phase": "F", ...}
    {"comm": "all_reduce", "axis": "tp", "phase": "F", ...}

Fields are those of the dataclasses; what has its default is left out. Unknown fields, fields of another type and versions of the
layout that this program does not know are refused with line and field. The same program makes the same bytes.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from ...core.errors import DataError, PrismError, SpecError
from ...core.read_file import explained, lines_of, open_input, parse_json, read_text
from ...core.registry import Registry, did_you_mean
from ...core.write_file import write_bytes
from .check import MOST_CLASSES, MOST_ROWS, check_program
from .kernel_times import KernelTimes
from .program import CapturedComm, CapturedOp, CapturedRow, RankClass, RankProgram, Repeat

VERSION = 1
ENDING = ".capture.gz"
HEAD, CLASS, OP, COMM = "capture", "class", "op", "comm"
TITLES = {OP: "name", COMM: "collective", CLASS: "name"}  # field that stands under the key that says what the line is
TYPES: dict[str, type] = {HEAD: RankProgram, CLASS: RankClass, OP: CapturedOp, COMM: CapturedComm}
RETIRED = {CLASS: ("host_ops",)}  # fields of older files that nothing reads
OWN_LINES = ("classes", "rows")  # fields that are lines of their own
MOST_BYTES = 256 << 20  # unpacked
MOST_LINE_BYTES = 1 << 20
REMEDY = "Name a file that `prism-jax capture` wrote."


def written_fields(of: type) -> tuple[Field[Any], ...]:
    """Fields of a dataclass that stand in its own line."""
    return tuple(item for item in fields(of) if item.name not in OWN_LINES)


def is_default(item: Field[Any], value: Any) -> bool:
    """Whether a field may be left out."""
    if item.default is not MISSING:
        return value == item.default
    return item.default_factory is not MISSING and value == item.default_factory()


MOST_SHOWN = 60  # characters of a value in a message
_SNIFFED = 64  # bytes of a file without the usual ending that are looked at


def is_capture(path: str | Path) -> bool:
    """Whether a file is one of a captured program, by its name, or by how it begins."""
    if str(path).endswith((ENDING, ENDING.removesuffix(".gz"))):
        return True
    try:
        with explained(path), open_input(path) as file:
            return file.read(_SNIFFED).lstrip().startswith(b'{"%s":' % HEAD.encode())
    except DataError:
        return False


def read_capture(path: str | Path) -> RankProgram:
    """The program in a file.

    Raises:
        DataError: it cannot be read, is too large, no such file, of another version, or contradicts itself; line and field.
    """
    text = read_text(path, MOST_BYTES, REMEDY, unpack=True)
    reader = _Reader(str(path))
    for number, line in enumerate(lines_of(text), 1):
        if line.strip():
            reader.take(number, line)
    return reader.program()


class _Reader:
    """Collects the lines of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head: RankProgram | None = None
        self.classes: list[RankClass] = []
        self.class_lines: list[int] = []
        self.rows: list[CapturedRow] = []
        self.row_lines: list[list[int]] = []
        self.n_rows = 0

    def take(self, number: int, line: str) -> None:
        """Takes one line of the file."""
        place = f"{self.name}:{number}"
        if len(line) > MOST_LINE_BYTES:
            raise DataError(f"{place}: a line of {len(line):,} characters, but at most {MOST_LINE_BYTES:,} are read")
        data = parse_json(line, place)
        if not isinstance(data, dict) or not data:
            raise DataError(f"{place}: {short(data)}, but every line is an object. {REMEDY}")
        key = next(iter(data))
        if key not in TYPES:
            raise DataError(f"{place}: {key[:60]!r}, but a line begins with one of {', '.join(TYPES)}. {REMEDY}")
        if (key == HEAD) != (self.head is None):
            what = "the program is described twice" if key == HEAD else f"the first line must begin with {HEAD!r}"
            raise DataError(f"{place}: {what}. {REMEDY}")
        made = _made(key, data, place)
        if key == HEAD:
            self.head = made
        elif key == CLASS:
            self._begin(made, number, place)
        else:
            self._add(made, number, place)

    def _begin(self, made: RankClass, number: int, place: str) -> None:
        self._finish()
        if len(self.classes) >= MOST_CLASSES:
            raise DataError(f"{place}: more than {MOST_CLASSES:,} classes of ranks. Join those that run the same rows.")
        self.classes.append(made)
        self.class_lines.append(number)
        self.row_lines.append([])

    def _add(self, row: CapturedRow, number: int, place: str) -> None:
        self.n_rows += 1
        if not self.classes:
            raise DataError(f"{place}: a row in front of the first class. Begin with a line {{{CLASS!r}: ...}}.")
        if self.n_rows > MOST_ROWS:
            raise DataError(f"{place}: more than {MOST_ROWS:,} rows. Capture one micro-batch, and repeat equal layers.")
        self.rows.append(row)
        self.row_lines[-1].append(number)

    def _finish(self) -> None:
        if self.classes:
            self.classes[-1] = replace(self.classes[-1], rows=tuple(self.rows))
        self.rows = []

    def program(self) -> RankProgram:
        """Returns the program of all lines."""
        self._finish()
        if self.head is None:
            raise DataError(f"{self.name}: empty. {REMEDY}")
        program = replace(self.head, classes=tuple(self.classes))
        try:
            return check_program(program)
        except SpecError as error:
            raise DataError(f"{self._place(str(error.path[0]) if error.path else '')}: {error}") from None

    def _place(self, field: str) -> str:
        """File and line of a field such as `classes[0].rows[12].wait`."""
        index = [int(part.split("]")[0]) for part in field.split("[")[1:]]
        line = 1
        if field.startswith("classes[") and index:
            line = self.class_lines[index[0]]
            if ".rows[" in field:
                line = self.row_lines[index[0]][index[1]]
        return f"{self.name}:{line}"


def _made(key: str, data: dict[str, Any], place: str) -> Any:
    """The dataclass of a line."""
    of, data = TYPES[key], {name: value for name, value in data.items() if name not in RETIRED.get(key, ())}
    given = dict(data)
    title = given.pop(key)
    if key == HEAD:
        if title != VERSION:
            raise DataError(
                f"{place}: version {short(title)} of captures, but this prism-jax reads {VERSION}. Update it."
            )
        given["classes"] = ()
    else:
        given[TITLES[key]] = title
    if key == CLASS:
        given["rows"] = ()
    known = {item.name: item for item in written_fields(of)}
    for name in sorted(data.keys() - {key} - known.keys()):
        raise DataError(f"{place}: {name[:60]!r} is no field of a line {key!r}{did_you_mean(name, known)}")
    for name, item in known.items():
        if name in given:
            given[name] = _value(str(item.type), given[name], f"{place}: {name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise DataError(f"{place}: {name} is missing")
    try:
        return of(**given)
    except PrismError as error:
        raise DataError(f"{place}: {error}") from None


def _value(hint: str, value: Any, where: str) -> Any:
    """Converts a value of JSON to the type of a field."""
    if value is None and hint.endswith("| None"):
        return None
    read, words = _READERS[hint.removesuffix(" | None")]
    try:
        return read(value)
    except (TypeError, ValueError):
        raise DataError(f"{where} = {short(value)}, but it must be {words}") from None


def short(value: Any) -> str:
    """A value for a message, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _plain_value(types: tuple[type, ...], most: float = inf) -> Callable[[Any], Any]:
    """Reads a value of exactly one of some types as the last of them; `most` bounds its size, or its characters."""

    def of_value(value: Any) -> Any:
        if type(value) not in types or not (len(value) if isinstance(value, str) else abs(value)) <= most:
            raise TypeError
        return types[-1](value)

    return of_value


_text, _whole = _plain_value((str,), 4096), _plain_value((int,), 2**63)
_number, _flag = _plain_value((int, float), 1e300), _plain_value((bool,))


def _each(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of_list(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError
        return tuple(read(item) for item in value)

    return of_list


def _by_name(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def of_object(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError
        return {_text(name): read(item) for name, item in value.items()}

    return of_object


def _repeat(value: Any) -> Repeat:
    start, stop, times = _each(_whole)(value)
    return Repeat(start, stop, times)


_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "str": (_text, "a text of at most 4,096 characters"),
    "int": (_whole, "a whole number"),
    "float": (_number, "a number"),
    "bool": (_flag, "true or false"),
    "tuple[int, ...]": (_each(_whole), "a list of whole numbers"),
    "tuple[str, ...]": (_each(_text), "a list of texts"),
    "tuple[Repeat, ...]": (_each(_repeat), "a list of [first row, one past the last, times]"),
    "Mapping[str, int]": (_by_name(_whole), "whole numbers by name"),
    "Mapping[str, str]": (_by_name(_text), "texts by name"),
}


def write_capture(path: str | Path, program: RankProgram) -> None:
    """Writes a program to a file of captures.

    Raises:
        SpecError: the program contradicts itself.
        DataError: the file cannot be written.
    """
    check_program(program)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=6, mtime=0) as stream:
        for line in lines(program):
            stream.write(line.encode() + b"\n")
    write_bytes(path, packed.getvalue())


def lines(program: RankProgram) -> Iterator[str]:
    """The lines of its file, without line ends."""
    yield _line({HEAD: VERSION}, program)
    for one in program.classes:
        yield _line({CLASS: one.name}, one, TITLES[CLASS])
        for row in one.rows:
            key = OP if isinstance(row, CapturedOp) else COMM
            yield _line({key: getattr(row, TITLES[key])}, row, TITLES[key])


def _line(start: Mapping[str, Any], of: Any, title: str = "") -> str:
    rest = {
        item.name: _plain(getattr(of, item.name))
        for item in written_fields(type(of))
        if item.name != title and not is_default(item, getattr(of, item.name))
    }
    return json.dumps({**start, **rest}, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Repeat):
        return [value.start, value.stop, value.times]
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    assert not is_dataclass(value)
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class CapturedFile:
    """One kind of file, or folder.

    Attributes:
        name: of the kind.
        about: description in words.
        recognises: whether a path is one, by its name and how it begins.
        read: the program; raises `DataError` that names the place and the remedy.
    """

    name: str
    about: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], RankProgram]


OWN = CapturedFile("capture", "a file that `prism-jax capture` wrote", is_capture, read_capture)
SHIPPED = (
    "prism_jax.capture.execution.front_end",
)  # modules with a `CAPTURED_FILE`, imported when a file is looked at


def _shipped() -> Iterator[CapturedFile]:
    yield OWN
    for name in SHIPPED:
        yield import_module(name).CAPTURED_FILE


CAPTURED_FILES: Registry[CapturedFile] = Registry("captured file", _shipped, error=DataError)


def kernel_times(path: str | Path) -> KernelTimes:
    """Measured kernels in a profile.

    Raises:
        DataError: as `execution.kernel_times.read_kernel_times`.
    """
    return import_module("prism_jax.capture.execution.kernel_times").read_kernel_times(path)


def captured_file(path: str | Path) -> CapturedFile | None:
    """The kind of captured program that `path` is; None for everything else."""
    return next((one for one in CAPTURED_FILES if one.recognises(Path(path))), None)


def read_captured_program(path: str | Path) -> RankProgram:
    """The program in a file of any kind; a file of no known kind is read as one of ours.

    Raises:
        DataError: as the reader of that kind.
    """
    return (captured_file(path) or OWN).read(Path(path))

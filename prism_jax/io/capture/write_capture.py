"""`write_capture`: a captured program to its file, whole or not at all; the same program makes the same bytes."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from ...workload.captured.check import check_program
from ...workload.captured.program import RankProgram, Repeat
from ...workload.captured.rows import CapturedOp
from ..write import write_bytes
from .layout import CLASS, COMM, HEAD, OP, TITLES, VERSION, is_default, written_fields


def write_capture(path: str | Path, program: RankProgram) -> None:
    """Writes a program.

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

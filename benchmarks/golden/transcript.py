"""Plays the commands of one case in this process, and writes down what a reader sees: text, exit codes and files.

What differs between two runs of the same code is replaced: elapsed seconds, versions, today's date, temporary paths. The words of
the option parser (`--help`, usage errors) are left out; its exit code stays. JSON is parsed and printed again, one line for each
short value, so that differences have a place.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

Main = Callable[[Sequence[str]], int]
VOLATILE = frozenset(
    {"elapsed_s", "versions", "git_revision", "price_age_days", "created", "version", "identity", "tasks/jobs"}
)
PICTURES = frozenset({".png", ".pdf", ".svg"})
TIMES = (  # places where the text of a report says how long it took, or what day it is
    (re.compile(r"(fitted by \S+|compared on \S+|calibrated) in [\d.]+ \w+"), r"\1 in <time>"),
    (re.compile(r"(seed \d+;) ?(?:compile|run|explain|[\d.]+ (?:s|ms|us)\b).*"), r"\1 <time>"),
    (re.compile(r"\b\d+ days old"), "<age> days old"),  # of prices: one more every day
    (re.compile(r"(evidence +\d+ runs?,.*) in [\d.]+ (?:s|ms|us)\b"), r"\1 in <time>"),
)
USAGE = ("Usage: prism-jax", "Usage: `prism-jax")  # what the option parser of a revision says
DIGITS = re.compile(r"[\d.]+(e[+-]?\d+)?")
BRIEF_ITEMS, BRIEF_LINES, WIDTH = 12, 120, 90


def play(
    commands: Sequence[str], inputs: Path, folder: Path, main: Main, checkout: Path, *, brief: bool = False
) -> str:
    """Returns the transcript of commands that run one after the other in a copy of `inputs`.

    Args:
        commands: lines without the name of the program.
        inputs: folder of input files.
        folder: an empty folder to work in.
        main: runs the program with its arguments and returns the exit code.
        checkout: folder of the program, which is not named in the transcript.
        brief: shorten long lists and long files, as stored transcripts do.
    """
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    before = _contents(folder)
    parts = []
    with _inside(folder):
        for line in commands:
            code, out, err = captured(main, shlex.split(line))
            parts.append(f"$ prism-jax {line}\nexit code {code}\n")
            if "--help" in line or any(usage in out + err for usage in USAGE):
                parts.append("<words of the option parser>\n")
                continue
            parts.append(_shown(out, brief=brief))
            parts.append("".join(f"! {said}\n" for said in _shown(err, brief=brief).splitlines()))
    for name, content in _contents(folder).items():
        if before.get(name) != content:
            parts.append(f"== {name}\n{_file_text(name, content, brief=brief)}")
    return _plain("".join(parts), folder, checkout)


def _contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def captured(main: Main, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr of a run in this process; -1 where it raises."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        code = main(arguments)
    except Exception as error:  # a bug is part of the transcript; the other cases go on
        code = -1
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout, sys.stderr = before
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # pyright: ignore[reportAttributeAccessIssue]
    return code, out, err


def _shown(text: str, *, brief: bool) -> str:
    """Text as it is, JSON in lines."""
    try:
        value = json.loads(text)
    except ValueError:
        lines = [line.rstrip() for line in text.splitlines()]
        kept = lines[:BRIEF_LINES] if brief else lines
        left = [f"<{len(lines) - len(kept)} more lines>"] if len(kept) < len(lines) else []
        return "".join(f"{line}\n" for line in kept + left)
    return "".join(f"{line}\n" for line in _json_lines(_without_volatile(value), brief=brief))


def _file_text(name: str, content: bytes, *, brief: bool) -> str:
    suffix = Path(name.removesuffix(".gz")).suffix
    if suffix in PICTURES:
        return f"<picture: {'empty' if not content else 'written'}>\n"
    if suffix == ".npz":
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return "".join(
                f"{key}: {_array_text(arrays[key], brief=brief)}\n"
                for key in sorted(arrays.files)
                if key not in VOLATILE
            )
    return _shown((gzip.decompress(content) if name.endswith(".gz") else content).decode(), brief=brief)


def _array_text(array: np.ndarray | bytes, *, brief: bool) -> str:
    if isinstance(array, bytes):  # a member that is no array
        return _shown(array.decode(errors="backslashreplace"), brief=brief).rstrip("\n")
    if array.dtype.kind in "US" and array.ndim == 0:
        return _shown(str(array), brief=brief).rstrip("\n")
    values = array.ravel()
    most = BRIEF_ITEMS if brief else None
    return f"{array.dtype.kind} {array.shape} {' '.join(str(value) for value in values[:most].tolist())}"


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        value = _with_numbered_types(value) if "$defs" in value else value
        inputs = value.get("inputs")
        value = value | {"inputs": dict(sorted(inputs.items()))} if isinstance(inputs, dict) else value  # in no order
        return {key: _without_volatile(one) for key, one in value.items() if key not in VOLATILE}
    return [_without_volatile(one) for one in value] if isinstance(value, list) else value


def _with_numbered_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema whose `$defs` are named by the order in which they are used, not by Python classes."""
    numbers: dict[str, int] = {}

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(one) for one in value]
        if not isinstance(value, dict):
            return value
        if str(value.get("$ref", "")).startswith("#/$defs/"):
            return {"$ref": numbers.setdefault(value["$ref"].rsplit("/")[-1], len(numbers) + 1)}
        return {key: renamed(one) for key, one in value.items()}

    found = renamed({key: one for key, one in schema.items() if key != "$defs"})
    types: list[Any] = []
    while len(types) < len(numbers):
        words = {"description"}  # of the Python class
        body = schema["$defs"][list(numbers)[len(types)]]
        types.append(renamed({key: one for key, one in body.items() if key not in words}))
    return {**found, "types": types}


def _json_lines(value: Any, *, brief: bool, before: str = "", indent: str = "") -> Iterator[str]:
    """Short values on a line of their own, others opened up; how many digits a number has does not matter."""
    whole = json.dumps(value, ensure_ascii=False)
    if len(DIGITS.sub("0", whole)) <= WIDTH or not isinstance(value, dict | list):
        yield f"{indent}{before}{whole}"
        return
    yield f"{indent}{before}{'{' if isinstance(value, dict) else '['}"
    items = (
        [(f"{key}: ", one) for key, one in value.items()] if isinstance(value, dict) else [("", one) for one in value]
    )
    most = BRIEF_ITEMS if brief and isinstance(value, list) else len(items)
    for key, one in items[:most]:
        yield from _json_lines(one, brief=brief, before=key, indent=indent + " ")
    if most < len(items):
        yield f"{indent} <{len(items) - most} more>"


def _plain(text: str, folder: Path, checkout: Path) -> str:
    """Text without paths, dates and times of this run."""
    for path, name in ((folder.resolve(), "<folder>"), (folder, "<folder>"), (checkout, "<checkout>")):
        text = text.replace(str(path), name)
    text = text.replace(f"{datetime.now(UTC):%Y-%m-%d}", "<today>")
    for pattern, instead in TIMES:
        text = pattern.sub(instead, text)
    return text

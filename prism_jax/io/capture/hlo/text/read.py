"""Files and folders with HLO text: what `compiled.as_text()` gave and somebody saved, and what `--xla_dump_to` left."""

from __future__ import annotations

import os
from pathlib import Path

from ....._core.input_file import GZIP, explained, open_input, read_text
from .....errors import DataError
from .parse import REMEDY, parse_hlo
from .types import Module

MOST_BYTES = 1 << 28
MOST_FILES = 100_000  # of a folder
_HEAD = 1 << 12
_ENDINGS = (".txt", ".hlo", ".txt.gz", ".hlo.gz")
_OPTIMISED = "after_optimizations.txt"


def is_hlo(path: str | Path) -> bool:
    """Whether a file is HLO text, by how it begins, or a folder holds what XLA dumped."""
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

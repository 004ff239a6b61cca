"""Files that are whole or absent, and the record every written result carries."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..errors import DataError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that becomes `path` when the block ends well, and disappears when it does not.

    The temporary name keeps the ending of `path`, which some writers (pictures, gzip) read the format from.

    Raises:
        DataError: the folder does not exist or cannot be written, or `path` is a folder.
    """
    target = Path(path)
    check_target(target)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror}. Name another file.") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _settle(temporary)
        temporary.replace(target)
    finally:  # Ctrl-C included
        temporary.unlink(missing_ok=True)


def check_target(path: str | Path) -> None:
    """Whether a file could be written at `path`, to be asked before long work.

    Raises:
        DataError: its folder does not exist or may not be written, or `path` is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise DataError(f"{target}: a folder stands there. Name a file.")
    if not target.parent.is_dir():
        raise DataError(f"{target}: there is no folder {target.parent}. Make it, or name another.")
    if not os.access(target.parent, os.W_OK):
        raise DataError(f"{target}: the folder {target.parent} cannot be written. Name another.")


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` as UTF-8, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Writes `data`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: str | Path, value: object) -> None:
    """Writes `value` as JSON, whole or not at all."""
    write_text(path, to_json(value) + "\n")


def to_json(value: object) -> str:
    """`value` as JSON: dataclasses, mappings, NumPy numbers and arrays; NaN and infinity, which JSON lacks, as null."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def run_record(inputs: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """What is needed to repeat a run: versions, git revision of the code (None outside a checkout), inputs, seed."""
    return {
        "versions": {
            "prism-jax": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in ("jax", "jaxlib", "numpy")},
        },
        "git_revision": git_revision(),
        "inputs": _plain(inputs),
        "seed": seed,
    }


def git_revision() -> str | None:
    """Commit of the checkout this package runs from, with "+changes" if tracked files differ; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _settle(temporary: Path) -> None:
    """Flushes to disk and gives the file the permissions any new file would have (mkstemp makes it private)."""
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o666 & ~mask)
    with temporary.open("rb+") as stream:
        os.fsync(stream.fileno())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value

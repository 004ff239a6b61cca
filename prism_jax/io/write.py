"""Texts, bytes and JSON in files that are whole or absent, and the record every written result carries."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .._core.files import atomic_path as atomic_path, check_target as check_target
from .._version import __version__


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` as UTF-8, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Writes `data`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


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
        command = [
            "git",
            "--no-optional-locks",
            "-C",
            str(root),
            "describe",
            "--always",
            "--abbrev=40",
            "--exclude=*",
            "--dirty=+changes",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


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

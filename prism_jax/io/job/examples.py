"""The jobs and traces shipped with prism-jax: under examples/ in a checkout, inside the package in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "_examples", _PACKAGE.parent / "examples")


def example_files() -> dict[str, Path]:
    """Name without ending -> job file, sorted by name."""
    return {path.stem: path for path in _shipped() if path.suffix in (".yaml", ".toml")}


def example_traces() -> dict[str, Path]:
    """Name -> folder of a recorded trace, sorted by name."""
    return {path.name: path for path in _shipped() if path.is_dir() and not path.name.startswith("_")}


def _shipped() -> list[Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    return sorted(folder.iterdir()) if folder else []

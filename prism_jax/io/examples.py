"""The jobs shipped with prism-jax: under examples/ in a checkout, inside the package in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "_examples", _PACKAGE.parent / "examples")


def example_files() -> dict[str, Path]:
    """Name without ending -> file, sorted by name."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        return {}
    return {file.stem: file for file in sorted(folder.iterdir()) if file.suffix in (".yaml", ".toml")}
